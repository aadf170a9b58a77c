"""Checkpoints: what is saved can be restored, and what a trial has cost counts, whether its checkpoint was of use."""

import collections
import datetime
import errno
import os
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
from trainonce.study.rules import Rule


@task(terms=TERMS, metric="error", direction="minimize")
def counting(trial, *, steps=12, every=4, stops="", restores=True, extra=""):
    """Saves every few steps, and stops at the step that the file ``stops`` holds."""
    saved = trial.restore() if restores else None
    w, criterion = torch.nn.Parameter(torch.ones(3)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.01)
    trial.attach(optimizer)
    stop = int(Path(stops).read_text()) if stops else 0
    for step in range(1 + (saved["step"] if saved else 0), steps + 1):
        if step == stop:
            raise RuntimeError("stopped")
        optimizer.zero_grad()
        criterion(w.square()).backward()
        optimizer.step()
        if step % every == 0:
            trial.save({"step": step, **({"rng": np.random.get_state()} if extra == "numpy" else {})})
    return {"validation/error": w.sum().item(), "test/error": w.sum().item()}


def attached(folder, rule=None):
    trial = Trial(counting, rule or yoto(), 0, dir=folder)
    trial.criterion()
    trial.attach(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
    return trial


# What can be kept


@pytest.mark.parametrize(
    ("state", "entry"),
    [
        (
            {"rng": {"numpy": np.random.get_state()}},
            r'state\["rng"\]\["numpy"\]\[1\], of type numpy\.ndarray, .*tolist',
        ),
        ({"step": 1, "best": np.float64(0.5)}, r'state\["best"\], of type numpy\.float64, .* save its tolist\(\)'),
        ({"w": torch.ones(1), "best": np.int64(1)}, r'state\["best"\], of type numpy\.int64'),
        ({"parts": [1, {"decay": lambda step: step}]}, r'state\["parts"\]\[1\]\["decay"\], of type function'),
        ({"path": Path("here")}, r'state\["path"\], of type pathlib\.\w+, .* save what it consists of'),
        ({"counts": {np.int64(3): 1}}, r'the key np\.int64\(3\) of state\["counts"\], of type numpy\.int64'),
        ({"when": {7: datetime.date(2026, 1, 1)}}, r'state\["when"\]\[7\], of type datetime\.date'),
        ({"model": torch.nn.Linear(1, 1)}, r'state\["model"\], of type torch\.nn\.modules\.linear\.Linear'),
        ({"file": open}, r'state\["file"\], of type builtin_function_or_method'),
    ],
)
def test_an_entry_that_could_not_be_restored_is_named_in_one_sentence(tmp_path, state, entry):
    trial = attached(tmp_path)
    with pytest.raises(TypeError, match=rf"^trial\.save cannot keep {entry}") as caught:
        trial.save(state)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {HISTORY}
    trial.save({"step": 1})
    with pytest.raises(TypeError, match=entry):  # also in a later one, and what was saved stays
        trial.save({"step": 2, **state})
    assert read_checkpoint(tmp_path).state == {"step": 1}
    assert trial.kept == 0.0


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
    again = read_checkpoint(tmp_path).state
    assert again["generators"][1] == state["generators"][1]
    assert again["more"] == state["more"]
    assert torch.equal(again["parts"][0]["0.weight"], model[0].weight)


def test_a_checkpoint_is_loaded_back_once_and_where_a_new_type_is_in_it(tmp_path, monkeypatch):
    loads, load = [], checkpoint._load
    monkeypatch.setattr(checkpoint, "_load", lambda file: loads.append(1) or load(file))
    trial, counts = attached(tmp_path), []
    for state in ({"step": 1}, {"step": 2}, {"step": 3, "losses": [0.5]}, {"step": 4, "losses": [0.5, 0.25], "x": {}}):
        trial.save(state, random=False)
        counts.append(len(loads))
    assert counts == [1, 1, 2, 2]


def test_the_types_in_a_state_are_found_at_any_depth():
    state = {"step": 1, 7: [None, (True, {"x": b""}), []], "y": collections.OrderedDict(z={2.5: "text"})}
    assert kinds(state) == {str, int, float, bool, bytes, type(None)}


def test_a_state_without_names_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"needs a dict of what to keep, by name; got list\."):
        attached(tmp_path).save([1])


def test_a_trial_that_could_not_go_on_fails_at_its_first_checkpoint(tmp_path, capsys):
    study(tmp_path, counting, plans=["uniform"], seeds=1, extra="numpy").run(workers=0, show=False)
    (record,) = records(tmp_path)
    assert record.status == "failed"
    assert record.error["message"].startswith('trial.save cannot keep state["rng"][1], of type numpy.ndarray')
    assert record.fraction == pytest.approx(4 / 12, abs=1e-3)


def test_methods_that_start_anew_keep_nothing(tmp_path):
    pytest.importorskip("torchjd")
    attached(tmp_path, Rule("dwa")).save({"numpy": np.zeros(1)})
    assert read_checkpoint(tmp_path) is None


def test_warnings_about_checkpoints_point_at_the_task(tmp_path, monkeypatch):
    trial = attached(tmp_path)
    trial.save({"step": 1})
    damage(tmp_path)
    with pytest.warns(UserWarning, match="cannot be read") as read:
        assert Trial(counting, yoto(), 0, dir=tmp_path).restore() is None
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.warns(UserWarning, match="could not be written") as written:
        trial.save({"step": 2})
    assert [warning.filename for warning in (*read, *written)] == [__file__, __file__]
    assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT, HISTORY, SPENT}


def test_an_error_that_says_nothing_about_the_disk_or_the_state_is_raised(tmp_path, monkeypatch):
    trial = attached(tmp_path)
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(ValueError("odd")))
    with pytest.raises(ValueError, match="odd"):
        trial.save({})


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


def test_what_was_saved_by_a_task_that_never_restores_counts(tmp_path, capsys):
    assert interrupt(tmp_path, 11, 7, restores=False) == [2, 2, 12 + 8 + 4]


def test_a_checkpoint_that_is_not_used_is_gone_when_the_training_begins(tmp_path):
    """What a process that dies has cost is counted from the checkpoint that is there."""
    attached(tmp_path).save({"step": 1})
    attached(tmp_path)
    assert read_checkpoint(tmp_path) is None


def test_the_seconds_before_a_damaged_checkpoint_count(tmp_path, capsys):
    def slow_down(folder):
        if (folder / SPENT).exists():
            (folder / SPENT).write_text('{"fraction": 0.5, "seconds": 1000.0}')

    assert interrupt(tmp_path, 11, between=slow_down, restores=False) == [2, 12 + 6]
    assert 1000 < records(tmp_path / "out")[-1].seconds < 1060


def test_nothing_but_the_history_and_its_curves_is_left_of_a_trial_that_ended(tmp_path, capsys):
    interrupt(tmp_path, 11)
    (folder,) = (tmp_path / "out" / "trials").iterdir()
    assert {path.name for path in folder.iterdir()} == {HISTORY, CURVES}


def test_a_checkpoint_that_could_not_be_written_keeps_nothing(tmp_path, monkeypatch):
    trial = attached(tmp_path)
    trial.steps = 6
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.warns(UserWarning, match="checkpoint could not be written"):
        trial.save({"step": 6})
    assert trial.lost[0] == 0.5


def test_what_is_in_a_set_counts_too():
    assert kinds({"seen": {1, 2.0}, "more": [frozenset(["a"])]}) == {str, int, float}
