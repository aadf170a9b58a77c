"""Trials under gradient balance: what they record, how they go on, their alignment, and their controls."""

import json
import os
import textwrap
from pathlib import Path

import pytest
import torch
from _runs import torchrun
from _stores import balance, final, fixed, replay, yoto
from torch import nn

import trainonce
from trainonce.study import Study, task
from trainonce.study.layout import HISTORY
from trainonce.study.trial import Trial

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

TERMS = ("fit", "large", "late")
PLANS = ["balance", "balance(travel=0)", "balance(at=last,follow=1)"]


@task(terms=TERMS, metric="error", direction="minimize")
def heads(trial, *, steps=40, keep=8, stop_at=0, flag="", asked="", offered=True, late_from=5):
    """A trunk with two heads; one loss is large, one starts late; the batches are random, and some are held out."""
    trunk, fit, other = nn.Linear(3, 6), nn.Linear(6, 1), nn.Linear(6, 1)
    model = nn.ModuleList([trunk, fit, other])

    def error(x):
        return (fit(trunk(x).tanh()) - x[:, :1]).square().mean()

    def held_out():
        if asked:
            with open(asked, "a") as file:
                file.write(f"{trial.steps}\n")
        return error(torch.linspace(-1, 1, 12).reshape(4, 3))

    criterion = trial.criterion(validation=held_out if offered else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trial.attach(optimizer)
    loop = trial.loop([model])
    for done in loop:
        if done and done % keep == 0:
            loop.snapshot()
        step = done + 1
        if step == stop_at and not os.path.exists(flag):
            Path(flag).touch()
            raise RuntimeError("stopped")
        x = torch.randn(8, 3)
        z = trunk(x).tanh()
        late = other(z).var() if step > late_from else None
        optimizer.zero_grad()
        criterion(fit=error(x), large=1000 * (other(z) - x[:, 1:2]).square().mean(), late=late).backward()
        optimizer.step()
    x = torch.linspace(-2, 2, 12).reshape(4, 3)
    return {"validation/error": error(x).item(), "test/error": error(x / 2).item()}


def run(out, *plans, seeds=1, **settings):
    study = Study(heads.using(**settings), out, seeds=seeds)
    for plan in plans:
        study.add(plan)
    study.run(workers=0, show=False, device="cpu")
    return study, {(record.rule.plan, record.seed): record for record in study.store.read().values()}


def columns(study, record):
    return trainonce.History.load(study.store.folder(record.key) / HISTORY).columns()


def test_records_hold_what_multiplied_each_raw_loss(tmp_path):
    study, found = run(tmp_path, "balance")
    record = found["balance", 0]
    assert (record.status, record.warnings) == ("done", [])
    assert record.coefficients[0] == pytest.approx(1 / 3)  # the base's is held
    assert record.ratios[1] < 1 / 100  # the large loss has a small coefficient
    last = {name: values[-1] for name, values in columns(study, record).items()}
    assert [last[f"coefficient/{t}"] for t in TERMS] == pytest.approx(record.coefficients, rel=1e-5)
    assert last["alignment/large"] != 0
    assert "exponent/large" not in last


@pytest.mark.parametrize(
    ("plan", "counts"),
    [("balance", 26), ("balance(travel=0)", 0), ("yoto", 0), ("uniform", 0), ("final(of=balance)", 26)],
)
def test_the_validation_loss_is_evaluated_where_a_balance_measures_all_terms(tmp_path, plan, counts):
    _, found = run(tmp_path / "out", plan, asked=str(tmp_path / "asked"))
    assert {record.status for record in found.values()} == {"done"}
    asked = [*map(int, (tmp_path / "asked").read_text().split())] if counts else []
    assert len(asked) == counts  # of 40 steps; those before the late term comes cannot be compared
    assert asked == sorted(set(asked))


@pytest.mark.parametrize(
    ("plan", "settings", "told"),
    [
        ("balance", {"offered": False}, "passes no validation loss to trial.criterion(validation=...), so the balance"),
        ("balance", {"late_from": 99}, "was not aligned: no batch had all terms"),
        ("balance", {}, ""),
        ("balance(travel=0)", {"offered": False}, ""),
        ("yoto", {"offered": False}, ""),
    ],
)
def test_a_balance_that_is_not_aligned_says_so(tmp_path, plan, settings, told):
    (record,) = run(tmp_path, plan, **settings)[1].values()
    assert record.status == "done"
    found = [text for text in record.warnings if "aligned" in text]
    assert [told in text for text in found] == [True] * bool(told)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("stop_at", [12, 30])
def test_a_stopped_trial_goes_on_and_ends_as_if_it_had_not_been_stopped(tmp_path, stop_at, plan, capsys):
    flag = str(tmp_path / "flag")
    whole, found = run(tmp_path / "a", plan, flag=flag)
    straight = found["balance", 0]
    _, found = run(tmp_path / "b", plan, flag=flag, stop_at=stop_at)
    assert found["balance", 0].status == "failed"
    again, found = run(tmp_path / "b", plan, flag=flag, stop_at=stop_at)
    second = found["balance", 0]
    assert (second.status, second.metrics, second.coefficients) == ("done", straight.metrics, straight.coefficients)
    one, other = (s.store.folder(r.key) / HISTORY for s, r in ((whole, straight), (again, second)))
    assert one.read_bytes() == other.read_bytes()


def test_controls_have_the_coefficients_of_another_seed(tmp_path):
    study, found = run(tmp_path, "balance", "replay(of=balance)", "final(of=balance)", seeds=2)
    assert {record.status for record in found.values()} == {"done"}
    for seed, donor in ((0, 1), (1, 0)):
        theirs = columns(study, found["balance", donor])
        replayed, held = (columns(study, found[plan, seed]) for plan in ("replay", "final"))
        for term in TERMS:
            name = f"coefficient/{term}"
            assert replayed[name] == pytest.approx(theirs[name], rel=1e-5)
            assert held[name] == pytest.approx([theirs[name][-1]] * 40)
        assert found["final", seed].metrics != found["balance", donor].metrics


def test_a_trial_says_whether_its_criterion_measures(tmp_path):
    for rule in (balance(), yoto(), replay(balance()), final(balance()), fixed((1.0, 1.0, 1.0))):
        assert Trial(heads, rule, 0, dir=tmp_path).measures == (rule == balance())


# Several processes


PAIRED = textwrap.dedent("""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from trainonce.study import torchrun, task

    @task(terms=["fit", "small"], metric="error", direction="minimize")
    def paired(trial, *, steps=12, break_at=-1):
        rank = torch.distributed.get_rank()
        model = torch.nn.Linear(1, 1)
        mine = torch.tensor([[1.0 + rank]])
        criterion = trial.criterion(validation=lambda: (model(mine + 2) - 3).square().mean())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trial.attach(optimizer)
        loop = trial.loop([model])
        forward = DistributedDataParallel(model)
        for step in loop:
            if step and step % 3 == 0:
                loop.snapshot()
            if step == break_at and rank == 0 and loop.start == 0:
                raise ValueError("broken on purpose")
            optimizer.zero_grad()
            found = forward(mine)
            criterion(fit=(found - 3 * mine).square().mean(), small=100 * found.square().mean()).backward()
            optimizer.step()
        values = torch.cat([criterion.coefficients(), model.weight[0]])
        both = [torch.empty_like(values) for _ in range(2)]
        torch.distributed.all_gather(both, values.detach())
        apart = (both[0] - both[1]).abs().max().item()
        return {"validation/error": model.weight.item(), "test/error": model.bias.item(), "apart": apart}
""")


@pytest.mark.dist
def test_two_processes_train_under_the_same_balance(tmp_path):
    (tmp_path / "paired.py").write_text(PAIRED)
    plans = ["--plans", "balance,final(of=balance)", "--seeds", "2", "--no-report", "--out", "out"]
    torchrun(tmp_path, "compare", "paired.py", *plans)
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [(line["status"], line["metrics"]["apart"]) for line in lines] == [("done", 0.0)] * 4
    assert 0 < lines[0]["coefficients"][1] < 0.1
    arguments = ["run", "paired.py", "--plan", "balance", "--out", "broken", "--set", "break_at=8"]
    assert "broken on purpose" in torchrun(tmp_path, *arguments, code=1)
    torchrun(tmp_path, *arguments)
    first, second = [json.loads(line) for line in (tmp_path / "broken" / "trials.jsonl").read_text().splitlines()]
    assert (first["status"], second["status"]) == ("failed", "done")
    assert (second["metrics"], second["coefficients"]) == (lines[0]["metrics"], lines[0]["coefficients"])
