"""Trials in gradient units: what they record, how they go on, and their controls."""

import json
import os
import textwrap
from pathlib import Path

import pytest
import torch
from _runs import torchrun
from torch import nn

import trainonce
from trainonce.study import Study, task
from trainonce.study.layout import HISTORY
from trainonce.study.trial import Trial
from trainonce.study.weightings import Final, Fixed, Learned, Replay

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

TERMS = ("fit", "large", "late")
UNITS = "one-shot(units=gradient)"
DRIFT = "one-shot(units=gradient,drift=4)"
PLANS = [UNITS, DRIFT, "one-shot(units=gradient,at=last,blend=0)", "one-shot(units=gradient,signal=loss)"]


@task(terms=TERMS, metric="error", direction="minimize")
def heads(trial, *, steps=40, keep=8, stop_at=0, flag="", asked=""):
    """A trunk with two heads; one loss is large, one starts late; the batches are random, and some are held out."""
    saved = trial.restore()
    trunk, fit, other = nn.Linear(3, 6), nn.Linear(6, 1), nn.Linear(6, 1)
    model = nn.ModuleList([trunk, fit, other])
    criterion = trial.criterion()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trial.attach(optimizer)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        criterion.load_state_dict(saved["criterion"])

    def error(x):
        return (fit(trunk(x).tanh()) - x[:, :1]).square().mean()

    def held_out():
        if asked:
            with open(asked, "a") as file:
                file.write(f"{trial.steps}\n")
        return error(torch.linspace(-1, 1, 12).reshape(4, 3))

    for step in range(1 + (saved["step"] if saved else 0), steps + 1):
        if step == stop_at and not os.path.exists(flag):
            Path(flag).touch()
            raise RuntimeError("stopped")
        x = torch.randn(8, 3)
        criterion.held_out(held_out)
        z = trunk(x).tanh()
        late = other(z).var() if step > 5 else None
        optimizer.zero_grad()
        criterion(fit=error(x), large=1000 * (other(z) - x[:, 1:2]).square().mean(), late=late).backward()
        optimizer.step()
        if step % keep == 0:
            parts = {"model": model, "optimizer": optimizer, "criterion": criterion}
            trial.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}})
    x = torch.linspace(-2, 2, 12).reshape(4, 3)
    return {"validation/error": error(x).item(), "test/error": error(x / 2).item()}


def run(out, *plans, seeds=1, **settings):
    study = Study(heads.using(**settings), out, seeds=seeds)
    for plan in plans:
        study.add(plan)
    study.run(workers=0, show=False, device="cpu")
    return study, {(record.weighting.kind, record.seed): record for record in study.store.read().values()}


def columns(study, record):
    return trainonce.History.load(study.store.folder(record.key) / HISTORY).columns()


def test_records_hold_the_weights_of_the_raw_losses_and_their_sum(tmp_path):
    study, found = run(tmp_path, UNITS)
    record = found["learned", 0]
    assert (record.status, record.warnings) == ("done", [])
    assert sum(record.weights) == pytest.approx(1)
    assert record.weights[1] < record.weights[0] / 100  # the large loss has a small weight
    assert record.weights[0] * record.total == pytest.approx(1 / 3)  # the base's is held
    last = {name: values[-1] for name, values in columns(study, record).items()}
    assert [last[f"weight/{t}"] for t in TERMS] == pytest.approx(record.weights, rel=1e-5)
    assert last["total"] == pytest.approx(record.total, rel=1e-5)
    assert last["exponent/large"] == last["exponent/late"] == 0.0
    assert last["weight/fit"] / last["weight/large"] == pytest.approx(last["unit/large"], rel=1e-4)


@pytest.mark.parametrize(("plan", "counts"), [(UNITS, 0), (DRIFT, 26), ("one-shot", 0), ("uniform", 0)])
def test_held_out_data_is_asked_for_where_it_moves_the_weights(tmp_path, plan, counts):
    _, found = run(tmp_path / "out", plan, asked=str(tmp_path / "asked"))
    (record,) = found.values()
    assert record.status == "done"
    asked = [*map(int, (tmp_path / "asked").read_text().split())] if counts else []
    assert len(asked) == counts  # of 40 steps; those before the late term comes cannot be compared
    assert asked == sorted(set(asked))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("stop_at", [12, 30])
def test_a_stopped_trial_goes_on_and_ends_as_if_it_had_not_been_stopped(tmp_path, stop_at, plan, capsys):
    flag = str(tmp_path / "flag")
    whole, found = run(tmp_path / "a", plan, flag=flag)
    straight = found["learned", 0]
    _, found = run(tmp_path / "b", plan, flag=flag, stop_at=stop_at)
    assert found["learned", 0].status == "failed"
    again, found = run(tmp_path / "b", plan, flag=flag, stop_at=stop_at)
    second = found["learned", 0]
    assert (second.status, second.metrics, second.weights) == ("done", straight.metrics, straight.weights)
    assert second.total == straight.total
    one, other = (s.store.folder(r.key) / HISTORY for s, r in ((whole, straight), (again, second)))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("settings", ["units=gradient", "units=gradient,drift=4", "units=gradient,signal=loss"])
def test_controls_have_the_weights_of_another_seed(tmp_path, settings):
    study, found = run(tmp_path, *(f"{kind}({settings})" for kind in ("one-shot", "replay", "final")), seeds=2)
    assert {record.status for record in found.values()} == {"done"}
    for seed, donor in ((0, 1), (1, 0)):
        learned, replayed, held = (
            found[kind, s] for kind, s in (("learned", donor), ("replay", seed), ("final", seed))
        )
        theirs = columns(study, learned)
        for control in (replayed, held):
            assert control.weights == pytest.approx(learned.weights, rel=0.05)  # after the last step
            assert control.total == pytest.approx(learned.total, rel=0.05)
            assert control.metrics != learned.metrics
        schedule = columns(study, replayed)
        for term in TERMS:
            assert schedule[f"weight/{term}"] == pytest.approx(theirs[f"weight/{term}"], rel=1e-5)
            assert columns(study, held)[f"weight/{term}"] == pytest.approx([theirs[f"weight/{term}"][-1]] * 40)


def test_a_trial_says_whether_its_criterion_measures(tmp_path):
    units = Learned(1.0, units="gradient")
    for weighting in (units, Learned(), Replay(units), Final(units), Fixed.of((1.0, 1.0, 1.0))):
        assert Trial(heads, weighting, 0, dir=tmp_path).measures == (weighting is units)


# Several processes


PAIRED = textwrap.dedent("""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from trainonce.study import torchrun, task

    @task(terms=["fit", "small"], metric="error", direction="minimize")
    def paired(trial, *, steps=12, break_at=-1):
        saved = trial.restore()
        rank = torch.distributed.get_rank()
        model = torch.nn.Linear(1, 1)
        criterion = trial.criterion()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trial.attach(optimizer)
        if saved is not None:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            criterion.load_state_dict(saved["criterion"])
        forward = DistributedDataParallel(model)
        mine = torch.tensor([[1.0 + rank]])
        for step in range(1 + (saved["step"] if saved else 0), steps + 1):
            if step == break_at and rank == 0 and saved is None:
                raise ValueError("broken on purpose")
            criterion.held_out(lambda: (model(mine + 2) - 3).square().mean())
            optimizer.zero_grad()
            found = forward(mine)
            criterion(fit=(found - 3 * mine).square().mean(), small=100 * found.square().mean()).backward()
            optimizer.step()
            if step % 3 == 0:
                parts = {"model": model, "optimizer": optimizer, "criterion": criterion}
                trial.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}})
        values = torch.cat([criterion.weights * criterion.total, criterion.exponents.detach(), model.weight[0]])
        both = [torch.empty_like(values) for _ in range(2)]
        torch.distributed.all_gather(both, values.detach())
        apart = (both[0] - both[1]).abs().max().item()
        return {"validation/error": model.weight.item(), "test/error": model.bias.item(), "apart": apart}
""")


@pytest.mark.dist
def test_two_processes_train_in_the_same_units(tmp_path):
    (tmp_path / "paired.py").write_text(PAIRED)
    plans = ["--plans", f"{DRIFT},final(units=gradient,drift=4)", "--seeds", "2", "--no-report", "--out", "out"]
    torchrun(tmp_path, "compare", "paired.py", *plans)
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [(line["status"], line["metrics"]["apart"]) for line in lines] == [("done", 0.0)] * 4
    assert 0 < lines[0]["weights"][1] < 0.1
    arguments = ["run", "paired.py", "--plan", DRIFT, "--out", "broken", "--set", "break_at=8"]
    assert "broken on purpose" in torchrun(tmp_path, *arguments, code=1)
    torchrun(tmp_path, *arguments)
    first, second = [json.loads(line) for line in (tmp_path / "broken" / "trials.jsonl").read_text().splitlines()]
    assert (first["status"], second["status"]) == ("failed", "done")
    assert (second["metrics"], second["weights"]) == (lines[0]["metrics"], lines[0]["weights"])
