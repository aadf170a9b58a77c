"""The executor: what is stacked and what is not, records, histories, failures, going on after a stop."""

import dataclasses
import functools
import math

import pytest
import torch
from torch import nn

import trainonce
from tests.study.stacked._toy import toy
from trainonce.errors import StoppedError
from trainonce.study import Study, task
from trainonce.study.executors import run_trial
from trainonce.study.executors.base import Job
from trainonce.study.layout import CHECKPOINT, HISTORY
from trainonce.study.rules import fixed
from trainonce.study.rules import make as make_rule
from trainonce.study.stacked import Stackable, memory, reasons, stack
from trainonce.study.stacked.blocks import blocks_of, name_of
from trainonce.study.stacked.memory import bytes_of_a_model, models_that_fit
from trainonce.study.stacked.stackable import _known, make

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

PLANS = ["uniform", "grid:0.1,1", "yoto(init=1)", "balance", "balance(travel=0)"]


def study_of(folder, made, plans, executor=None, seeds=2):
    study = Study(made, folder, seeds=seeds)
    for plan in plans:
        study.add(plan)
    workers = 0 if executor is None else None
    study.run(workers=workers, executor=executor, show=False, device="cpu")
    return study, study.store.read()


def test_records_and_histories_are_those_of_single_trainings(tmp_path):
    made = toy.using(steps=20)
    one, alone = study_of(tmp_path / "one", made, PLANS)
    many, stacked = study_of(tmp_path / "many", made, PLANS, "stacked")
    assert stacked.keys() == alone.keys()
    for key, record in alone.items():
        other = stacked[key]
        assert (other.status, other.seed, other.rule, other.fraction) == ("done", record.seed, record.rule, 1.0)
        assert other.metrics == pytest.approx(record.metrics, rel=1e-3)
        assert other.coefficients == pytest.approx(record.coefficients, rel=1e-3)
        histories = [trainonce.History.load(s.store.folder(key) / HISTORY).tensors() for s in (one, many)]
        assert [list(h) for h in histories] == [list(histories[0])] * 2
        for name, column in histories[0].items():
            torch.testing.assert_close(histories[1][name], column, rtol=1e-2, atol=1e-5, equal_nan=True, msg=name)


def test_what_is_there_is_not_trained_again(tmp_path):
    made = toy.using(steps=4)
    study_of(tmp_path, made, PLANS[:1], "stacked")
    first = (tmp_path / "trials.jsonl").read_bytes()
    _, records = study_of(tmp_path, made, PLANS, "stacked", seeds=3)
    assert (tmp_path / "trials.jsonl").read_bytes().startswith(first)
    assert len((tmp_path / "trials.jsonl").read_bytes().splitlines()) == len(records)


def test_what_cannot_be_stacked_trains_one_by_one(tmp_path, capsys):
    study = Study(toy.using(steps=4), tmp_path, seeds=1)
    for plan in ("uniform", "replay"):
        study.add(plan)
    study.run(executor="stacked", workers=None, device="cpu")
    records = study.store.read().values()
    assert {record.rule.name for record in records} >= {"FixedLoss", "CompositeLoss", "Replay"}
    assert all(record.status == "done" for record in records)
    assert "Trials that are not stacked: the rule 'Replay' trains one by one." in _text(capsys)


def test_only_balances_that_are_aligned_are_left_where_the_parts_lack_the_validation_loss(
    tmp_path, capsys, monkeypatch
):
    whole = _known[toy.function]
    monkeypatch.setitem(
        _known, toy.function, lambda seed, **settings: dataclasses.replace(whole(seed, **settings), validation=None)
    )
    study = Study(toy.using(steps=4), tmp_path, seeds=1)
    for plan in ("uniform", "balance", "balance(travel=0)"):
        study.add(plan)
    study.run(executor="stacked", device="cpu")
    assert "Trials that are not stacked: a balance is aligned by a validation loss" in _text(capsys)
    assert [record.status for record in study.store.read().values()] == ["done"] * 3


@task(terms=("a", "b"), metric="error", direction="minimize")
def broken(trial, *, steps=3, how="nan"):
    model = nn.Linear(2, 1)
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trial.attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(a=(y := model(torch.ones(1, 2))).square().mean(), b=y.abs().mean()).backward()
        optimizer.step()
    return {"validation/error": 1.0, "test/error": model.bias.item()}


def losses(model, data, drawn, how):
    y = model(drawn["x"])
    if how == "item":
        y = y * y.mean().item()
    return {"a": y.square().mean(), "b": 1e20 * y.square().mean()}


@stack(broken)
def broken_parts(seed, *, steps, how):
    model = nn.Linear(2, 1)
    kinds = {"optimizer": torch.optim.Adafactor}
    return Stackable(
        model if how != "dropout" else nn.Sequential(model, nn.AlphaDropout(0.5)),
        lambda: {"x": torch.ones(1, 2)},
        lambda model, data, drawn: losses(model, data, drawn, how),
        lambda model, data: {"validation/error": torch.ones(()), "test/error": model.bias.sum()},
        lambda parameters: kinds.get(how, torch.optim.SGD)(parameters, lr=0.1),
        steps,
    )


def test_a_model_that_diverges_leaves_the_others_alone(tmp_path):
    _, records = study_of(tmp_path, broken, ["grid:1e-30,1"], "stacked", seeds=1)
    found = {record.rule.coefficients[1] > 0.1: record for record in records.values()}
    assert found[True].status == "diverged"
    assert not math.isfinite(found[True].metrics["test/error"])
    assert found[False].status == "done"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("item", "side by side they raise RuntimeError: vmap: It looks like you're calling .item() on a Tensor"),
        ("optimizer", "Adafactor may mix the entries of a parameter; stacked are 'SGD', 'Adam'"),
        ("dropout", "AlphaDropout draws random numbers in a way that cannot be repeated side by side"),
    ],
)
def test_a_task_that_cannot_be_stacked_says_why_and_trains(tmp_path, capsys, how, why):
    study = Study(broken.using(how=how), tmp_path, seeds=1)
    study.add("uniform")
    study.run(executor="stacked", device="cpu")
    assert f"Trials that are not stacked: {why}" in _text(capsys)
    assert [record.status for record in study.store.read().values()] == ["done"]


def test_a_task_without_parts_says_so(tmp_path):
    bare = dataclasses.replace(toy, function=lambda trial: None)
    assert reasons.of_task(bare) == "the task 'toy' has no parts to stack; see trainonce.study.stacked.stack"


def test_what_has_a_checkpoint_goes_on_and_the_others_are_stacked(tmp_path, capsys):
    made = toy.using(steps=4)
    keys = sorted(study_of(tmp_path / "other", made, ["grid:0.1,1"], "stacked", seeds=1)[1])
    capsys.readouterr()
    study = Study(made, tmp_path / "study", seeds=1).add("grid:0.1,1")
    rule = next(item.rule for item in study.items() if item.keys == (keys[0],))
    run_trial.train(made, Job(keys[0], 0, rule, until=0.5), study.store.folder(keys[0]), None, "cpu")
    assert (study.store.folder(keys[0]) / CHECKPOINT).is_file()
    study.run(executor="stacked", workers=0, device="cpu")
    assert "Trials that are not stacked: what was interrupted goes on from its checkpoint." in _text(capsys)
    assert {key: record.status for key, record in study.store.read().items()} == dict.fromkeys(keys, "done")


def test_no_more_trials_are_claimed_than_files_may_be_open(tmp_path, monkeypatch):
    from trainonce.study.executors import stacked

    monkeypatch.setattr(stacked.resource, "getrlimit", lambda _: (6, 6))
    _, records = study_of(tmp_path, toy.using(steps=2), ["grid:0.1,1"], "stacked", seeds=2)
    assert all(record.status == "done" for record in records.values())
    assert len(records) == 8


def test_a_full_disk_stops_the_study_and_trains_nothing_again(tmp_path, monkeypatch):
    from trainonce.study.executors import stacked

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stacked.Stacked, "_record", full)
    with pytest.raises(StoppedError, match=r"could not be written: No space left on device\."):
        study_of(tmp_path, toy.using(steps=2), ["uniform"], "stacked", seeds=1)


def _text(capsys):
    return " ".join(capsys.readouterr().out.split())


# Blocks


def jobs(rules, seeds):
    return [Job(f"{name_of(rule)} {seed}", seed, rule) for rule in rules for seed in seeds]


FIXED = [fixed((1.0, 0.1 * i)) for i in range(1, 6)]
PAPER = make_rule("CompositeLoss", {"init": {"b": 2.0}})
BALANCES = [make_rule("BalancedLoss", {"travel": travel}) for travel in (0.0, 4.0)]


def test_blocks_hold_every_trial_once_and_measure_apart():
    given = [*jobs([*FIXED, PAPER, *BALANCES], [0, 1, 2]), *jobs([fixed((1.0, 7.0))], [1])]
    found = blocks_of(given, most=1000)
    assert sorted((len(block.rules), block.seeds) for block in found) == [
        (1, (0, 1, 2)),
        (1, (0, 1, 2)),
        (1, (1,)),
        (6, (0, 1, 2)),
    ]
    assert sorted(job.key for block in found for job in block.jobs.values()) == sorted(job.key for job in given)


@pytest.mark.parametrize("most", [1, 4, 7])
def test_blocks_are_as_large_as_memory_allows(most):
    found = blocks_of(jobs(FIXED, [0, 1, 2]), most)
    assert all(block.models <= most for block in found)
    assert sum(block.models for block in found) == 15


def test_a_stack_that_is_too_large_is_halved(tmp_path, monkeypatch):
    from trainonce.study.executors import stacked

    sizes = []

    class Training(stacked.StackedTraining):
        def __init__(self, terms, rules, seeds, *more, **named):
            sizes.append(len(rules) * len(seeds))
            if sizes[-1] > 2:
                raise torch.OutOfMemoryError("too large")
            super().__init__(terms, rules, seeds, *more, **named)

    monkeypatch.setattr(stacked, "StackedTraining", Training)
    _, records = study_of(tmp_path, toy.using(steps=2), ["grid:0.1,1"], "stacked", seeds=2)
    assert all(record.status == "done" for record in records.values())
    assert max(sizes) > 2
    assert sum(size for size in sizes if size <= 2) == len(records)


def test_a_container_has_no_more_memory_than_its_limit(tmp_path, monkeypatch):
    assert memory._free_of_group(tmp_path) == math.inf
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._free_of_group(tmp_path) == math.inf
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory._free_of_group(tmp_path) == 700
    assert 0 < memory._free_of_machine() < 2**50
    monkeypatch.setattr(memory, "_free_of_group", lambda: 700)
    assert memory.free_bytes("cpu") == 700


def test_a_stack_on_the_cpu_has_a_limit(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**50)
    found = [models_that_fit(functools.partial(make, toy), toy.terms, device, 0) for device in ("cpu", "cuda")]
    assert found[0] == memory.ON_CPU < found[1]


def test_memory_grows_with_the_model_and_the_batch(monkeypatch):
    def parts(width, batch):
        model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
        return Stackable(
            model,
            lambda: {"x": torch.ones(batch, 4)},
            lambda model, data, drawn: [model(drawn["x"]).mean(), model(drawn["x"]).square().mean()],
            lambda model, data: {},
            torch.optim.Adam,
            1,
        )

    small, wide, many = (bytes_of_a_model(parts(*size), ("a", "b")) for size in ((8, 4), (800, 4), (8, 400)))
    assert small < wide
    assert small < many
    assert many > 2 * 2 * 4 * 8 * 400  # at least the hidden layer of both passes
    room = 100 * small
    monkeypatch.setattr(memory, "free_bytes", lambda device: room)
    assert models_that_fit(lambda seed: parts(8, 4), ("a", "b"), "cpu", 0) == 50  # in half of what is free
    assert models_that_fit(lambda seed: parts(800, 4), ("a", "b"), "cpu", 0) < 50
