"""Checkpoints: what is saved can be restored, and what a trial has cost counts, whether its checkpoint was of use."""

import collections
import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from _runs import records, study
from _stores import yoto
from _tasks import TERMS

from trainonce.study import Trial, checkpoint, task
from trainonce.study.checkpoint import kinds, read_checkpoint, read_spent
from trainonce.study.layout import CHECKPOINT, CURVES, HISTORY, SPENT


@task(terms=TERMS, metric="error", direction="minimize")
def counting(trial, *, steps=12, every=4, stops="", extra=""):
    """Takes a snapshot every few steps, and stops at the step that the file ``stops`` holds."""
    w, criterion = torch.nn.Parameter(torch.ones(3)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.01)
    trial.attach(optimizer)
    stop = int(Path(stops).read_text()) if stops else 0
    loop = trial.loop([torch.nn.ParameterList([w]), *([Part({"rng": np.random.get_state()})] if extra else [])])
    for done in loop:
        if done and done % every == 0:
            loop.snapshot()
        if done + 1 == stop:
            raise RuntimeError("stopped")
        optimizer.zero_grad()
        criterion(w.square()).backward()
        optimizer.step()
    return {"validation/error": w.sum().item(), "test/error": w.sum().item()}


class Part:
    """Something whose state is as given."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class Saving:
    """A trial whose loop has one more part; :meth:`save` gives that a state and takes a snapshot."""

    def __init__(self, folder, rule=None):
        self.trial, self.part = Trial(counting, rule or yoto(), 0, dir=folder), Part({})
        criterion = self.trial.criterion()
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        self.trial.attach(optimizer)
        self.loop = self.trial.loop({"w": torch.nn.ParameterList([weight]), "state": self.part}, steps=100)
        self.train = lambda: (criterion([weight.sum()] * 3).backward(), optimizer.step())

    def save(self, state):
        self.part.state = state
        next(self.loop)
        self.train()
        next(self.loop)
        self.loop.snapshot()


def attached(folder, rule=None):
    return Saving(folder, rule)


def kept(folder):
    found = read_checkpoint(folder)
    return None if found is None else found.state["state"]


# What can be kept


@pytest.mark.parametrize(
    ("state", "entry"),
    [
        (
            {"rng": {"numpy": np.random.get_state()}},
            r'state\["state"\]\["rng"\]\["numpy"\]\[1\], of type numpy\.ndarray, .*tolist',
        ),
        (
            {"step": 1, "best": np.float64(0.5)},
            r'state\["state"\]\["best"\], of type numpy\.float64, .* return its tolist\(\)',
        ),
        ({"w": torch.ones(1), "best": np.int64(1)}, r'state\["state"\]\["best"\], of type numpy\.int64'),
        (
            {"parts": [1, {"decay": lambda step: step}]},
            r'state\["state"\]\["parts"\]\[1\]\["decay"\], of type function',
        ),
        ({"path": Path("here")}, r'state\["state"\]\["path"\], of type pathlib\.\w+, .* return what it consists of'),
        ({"counts": {np.int64(3): 1}}, r'the key np\.int64\(3\) of state\["state"\]\["counts"\], of type numpy\.int64'),
        ({"when": {7: datetime.date(2026, 1, 1)}}, r'state\["state"\]\["when"\]\[7\], of type datetime\.date'),
        ({"model": torch.nn.Linear(1, 1)}, r'state\["state"\]\["model"\], of type torch\.nn\.modules\.linear\.Linear'),
        ({"file": open}, r'state\["state"\]\["file"\], of type builtin_function_or_method'),
    ],
)
def test_an_entry_that_could_not_be_restored_is_named_in_one_sentence(tmp_path, state, entry):
    trial = attached(tmp_path)
    with pytest.raises(TypeError, match=rf"^trial\.loop cannot keep {entry}") as caught:
        trial.save(state)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {HISTORY}
    trial.save({"step": 1})
    with pytest.raises(TypeError, match=entry):  # also in a later one, and what was saved stays
        trial.save({"step": 2, **state})
    assert kept(tmp_path) == {"step": 1}
    assert trial.trial.kept == pytest.approx(3 / 100)


def test_what_torch_and_numpy_call_a_state_can_be_kept(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    state = {
        "parts": [part.state_dict() for part in (model, optimizer, *schedules)],
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "generators": [torch.Generator().get_state(), np.random.default_rng(0).bit_generator.state],
        "more": (None, True, 2**200, 1j, b"x", torch.float16, torch.Size([2]), torch.device("cpu"), {1, 2}),
        "counts": collections.OrderedDict(a=1),
    }
    attached(tmp_path).save(state)
    again = kept(tmp_path)
    assert again["generators"][1] == state["generators"][1]
    assert again["more"] == state["more"]
    assert torch.equal(again["parts"][0]["0.weight"], model[0].weight)


def test_a_checkpoint_is_loaded_back_once_and_where_a_new_type_is_in_it(tmp_path, monkeypatch):
    loads, load = [], checkpoint._load
    monkeypatch.setattr(checkpoint, "_load", lambda file: loads.append(1) or load(file))
    trial, counts = attached(tmp_path), []
    for state in ({"step": 1}, {"step": 2}, {"x": 1.5j}, {"x": 1.5j, "y": torch.device("cpu")}):
        trial.save(state)
        counts.append(len(loads))
    assert counts == [1, 1, 2, 3]


def test_the_types_in_a_state_are_found_at_any_depth():
    state = {"step": 1, 7: [None, (True, {"x": b""}), []], "y": collections.OrderedDict(z={2.5: "text"})}
    assert kinds(state) == {str, int, float, bool, bytes, type(None)}


def test_a_trial_that_could_not_go_on_fails_at_its_first_checkpoint(tmp_path, capsys):
    study(tmp_path, counting, plans=["uniform"], seeds=1, extra="numpy").run(workers=0, show=False)
    (record,) = records(tmp_path)
    assert record.status == "failed"
    assert record.error["message"].startswith('trial.loop cannot keep state["1"]["rng"][1], of type numpy.ndarray')
    assert record.fraction == pytest.approx(4 / 12, abs=1e-3)


# What it has cost


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"[]", b"{}", b'{"fraction": 0.5}', b'{"fraction": 0.5, "seconds": []}']
)
def test_where_no_cost_is_noted_there_was_none(tmp_path, content):
    if content is not None:
        (tmp_path / SPENT).write_bytes(content)
    assert read_spent(tmp_path) == (0, 0)


def interrupt(tmp_path, *stops, between=lambda folder: None, **settings):
    """Run a trial until it ends, with a stop before each of the given steps; returns the part that each run cost."""
    file = tmp_path / "stops"
    made = study(tmp_path / "out", counting, plans=["uniform"], seeds=1, stops=str(file), **settings)
    for stop in (*stops, 0):
        file.write_text(str(stop))
        made.run(workers=0, show=False)
        for folder in (tmp_path / "out" / "trials").iterdir():
            between(folder)
    found = records(tmp_path / "out")
    assert [r.status for r in found] == ["failed"] * len(stops) + ["done"]
    return [round(12 * r.fraction, 1) for r in found]


def damage(folder):
    if (folder / CHECKPOINT).exists():
        (folder / CHECKPOINT).write_bytes(b"damaged")


def test_a_checkpoint_that_is_used_is_paid_once(tmp_path, capsys):
    assert interrupt(tmp_path, 11, 12) == [2, 3, 12]  # eight steps are kept


@pytest.mark.filterwarnings("ignore:The checkpoint .* cannot be read")
def test_what_a_damaged_checkpoint_held_counts_where_the_trial_starts_anew(tmp_path, capsys):
    assert interrupt(tmp_path, 11, between=damage) == [2, 12 + 8]


@pytest.mark.filterwarnings("ignore:The checkpoint .* cannot be read")
def test_every_step_that_was_trained_counts_once_whatever_becomes_of_the_checkpoints(tmp_path, capsys):
    assert sum(interrupt(tmp_path, 11, 7, 3, between=damage)) == 10 + 6 + 2 + 12


def test_nothing_but_the_history_and_its_curves_is_left_of_a_trial_that_ended(tmp_path, capsys):
    interrupt(tmp_path, 11)
    (folder,) = (tmp_path / "out" / "trials").iterdir()
    assert {path.name for path in folder.iterdir()} == {HISTORY, CURVES}


def test_what_is_in_a_set_counts_too():
    assert kinds({"seen": {1, 2.0}, "more": [frozenset(["a"])]}) == {str, int, float}
