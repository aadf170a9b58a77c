"""Trainings that pause, stop and go on: as if nothing had happened, and refused where they could not."""

import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from _runs import records, study
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

from trainonce import random_states
from trainonce.errors import InputError
from trainonce.recipes import load
from trainonce.study import layout, task
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import forget, train
from trainonce.study.loop import Batches
from trainonce.study.plans import parse
from trainonce.study.trial import Trial

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

PEERS = ["uw", "imtl-l", "geometric", "dwa(epoch=7)", "famo", "random-weights"]
RULES = ["yoto", "yoto(lr=model)", "balance", "balance(travel=0)", "uniform", *PEERS]
TASKS = ["digits", "distillation", "burgers"]
PARTS = sorted(random.Random(29).uniform(0.05, 0.95) for _ in range(3))


def run(made, plan, folder, parts=()):
    """Train to each part and to the end, with other random numbers drawn in between; return the last record."""
    if plan in PEERS:
        pytest.importorskip("torchjd")
    (rule,) = parse(plan, made).rules
    for part in (*parts, 1.0):
        random_states.seed_everything(random.Random(part).randrange(1000))
        record = train(made, Job("k", 3, rule, until=part), folder, None, "cpu")
        assert record.status == ("done" if part == 1 else "paused"), record.error
        forget(record, folder)
        assert (folder / layout.CHECKPOINT).is_file() == (part < 1)
    return record


def what_counts(record, folder):
    return record.metrics, list(record.coefficients), list(record.reports), (folder / layout.HISTORY).read_bytes()


@pytest.mark.parametrize(("name", "plan"), [(name, plan) for name in TASKS for plan in RULES])
def test_a_paused_training_ends_as_if_it_had_not_paused(name, plan, tmp_path):
    made = load(name).using(steps=31)
    whole = run(made, plan, tmp_path / "a")
    parts = run(made, plan, tmp_path / "b", PARTS)
    assert what_counts(parts, tmp_path / "b") == what_counts(whole, tmp_path / "a")
    assert (parts.fraction, whole.fraction) == (1.0, 1.0)


class Stream(IterableDataset):
    """Numbers without an index."""

    def __iter__(self):
        return iter(range(3))


class Points(Dataset):
    """Points with noise that is drawn when they are read, in whatever process that is."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([index / 20.0]) + 0.1 * torch.randn(1)


@task(terms=["fit", "small"], metric="error", direction="minimize")
def everything(trial, *, epochs=3, workers=0, forget="", fail_at=-1, flag="", steps_after=False, nap=0.0):
    """Dropout, a loader, a schedule, generators of torch, numpy and Python, and global random states."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    drawn = torch.Generator().manual_seed(0), np.random.default_rng(0), random.Random(0)
    batches = trial.batches(DataLoader(Points(), batch_size=5, shuffle=True, num_workers=workers))
    parts = {"model": model, "schedule": schedule, "batches": batches, **dict(zip("tnp", drawn, strict=True))}
    parts.pop(forget, None)
    seen = []
    for step in trial.loop(parts, steps=epochs * len(batches)):
        if step == fail_at and not os.path.exists(flag):
            open(flag, "w").close()
            raise RuntimeError("stopped")
        time.sleep(nap)
        noise = torch.rand(1, generator=drawn[0]) + drawn[1].random() + drawn[2].random() + random.random()
        x = next(batches)
        optimizer.zero_grad()
        found = model(x + noise.float() * np.random.rand())
        criterion(fit=(found - 1).square().mean(), small=found.square().mean()).backward()
        optimizer.step()
        schedule.step()
        seen.append(x.sum().item())
        if step == 4:
            trial.report(step, error=found.mean().item())
    if steps_after:
        optimizer.step()
    values = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
    return {"validation/error": values[0], "test/error": values[-1]} | {f"p{i}": v for i, v in enumerate(values)}


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_generators_and_random_states_go_on(workers, tmp_path):
    made = everything.using(workers=workers)
    whole = run(made, "yoto", tmp_path / "a")
    for number, parts in enumerate(itertools.combinations((1 / 9, 0.4, 2 / 3), 2)):
        folder = tmp_path / f"b{number}"
        assert what_counts(run(made, "yoto", folder, parts), folder) == what_counts(whole, tmp_path / "a")


def test_an_epoch_sees_every_point_once_and_no_two_have_the_same_order(tmp_path):
    batches = Trial(everything, parse("uniform", everything).rules[0], 0, dir=tmp_path).batches(
        DataLoader(torch.arange(20), batch_size=6, shuffle=True)
    )
    epochs = [torch.cat([next(batches) for _ in range(4)]).tolist() for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    with pytest.raises(InputError, match=r"loader of trial\.batches has no batch"):
        next(Trial(everything, None, 0, dir=tmp_path).batches(DataLoader([], batch_size=6)))


@task(terms=["fit", "small"], metric="error", direction="minimize")
def accumulating(trial, *, steps=10, micro=3):
    """Steps of the optimizer after every third batch; the weight is no module, and one generator draws all."""
    weight, rng = torch.nn.Parameter(torch.ones(3)), torch.Generator().manual_seed(1)
    criterion, optimizer = trial.criterion(), torch.optim.Adam([weight], lr=0.1)
    trial.attach(optimizer)
    batches = trial.batches(DataLoader(Points(), batch_size=4, shuffle=True, generator=rng))
    for step in trial.loop([weight, rng, batches]):
        x = next(batches).mean() + torch.rand(3, generator=rng)
        (criterion(fit=(weight - x).square().sum(), small=weight.square().sum()) / micro).backward()
        if (step + 1) % micro == 0 or step + 1 == steps:
            optimizer.step()
            optimizer.zero_grad()
    values = weight.tolist()
    return {"validation/error": values[0], "test/error": values[1], "last": values[2]}


@pytest.mark.parametrize("nested", [False, True])
def test_a_sampler_with_a_generator_of_its_own_finds_its_place(nested, tmp_path):
    def batches():
        drawn = RandomSampler(range(20), generator=torch.Generator().manual_seed(random.randrange(1000)))
        sampler = BatchSampler(drawn, 5, False) if nested else None
        how = {"batch_sampler": sampler} if nested else {"sampler": drawn, "batch_size": 5}
        return Batches(DataLoader(range(20), **how), seed=3)

    whole = batches()
    expected = [next(whole).tolist() for _ in range(12)]
    first, second = batches(), batches()
    for _ in range(6):
        next(first)
    second.load_state_dict(first.state_dict())
    assert [next(second).tolist() for _ in range(6)] == expected[6:]
    assert expected[:4] != expected[4:8]


def test_a_training_that_accumulates_pauses_between_two_steps_of_its_optimizer(tmp_path):
    whole = run(accumulating, "yoto", tmp_path / "a")
    parts = run(accumulating, "yoto", tmp_path / "b", (0.1, 0.4, 0.7))
    assert what_counts(parts, tmp_path / "b") == what_counts(whole, tmp_path / "a")


def test_a_snapshot_that_does_not_fit_names_the_part_and_the_file(tmp_path):
    job = Job("k", 3, parse("yoto", everything).rules[0])
    train(everything, dataclasses.replace(job, until=0.5), tmp_path, None, "cpu")
    state = torch.load(tmp_path / layout.CHECKPOINT, weights_only=True)
    state["state"]["model"].popitem()
    torch.save(state, tmp_path / layout.CHECKPOINT)
    record = train(everything, job, tmp_path, None, "cpu")
    assert record.status == "failed"
    assert "does not fit the part 'model' that trial.loop was given" in record.error["message"]
    assert layout.CHECKPOINT in record.error["message"]


@pytest.mark.parametrize(
    ("forget", "said"),
    [
        ("schedule", "has a learning-rate schedule that trial.loop was not given"),
        ("model", "trains 4 parameters of a model that trial.loop was not given"),
    ],
)
def test_what_was_forgotten_is_refused_before_the_first_step(forget, said, tmp_path):
    with pytest.raises(InputError, match=said):
        train(everything.using(forget=forget), Job("k", 0, parse("yoto", everything).rules[0]), tmp_path, None, "cpu")


@task(terms=["fit", "small"], metric="error", direction="minimize")
def plain(trial, *, steps=6):
    """Trains without trial.loop, as one may."""
    weight = torch.nn.Parameter(torch.ones(1))
    criterion, optimizer = trial.criterion(), torch.optim.SGD([weight], lr=0.1)
    trial.attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(fit=(weight - 2).square().sum(), small=weight.square().sum()).backward()
        optimizer.step()
    return {"validation/error": weight.item(), "test/error": weight.item()}


def test_a_task_without_a_loop_trains_under_every_plan_that_does_not_pause(tmp_path, capsys):
    study(tmp_path / "a", plain, plans=["yoto", "uniform"], seeds=1).run(workers=0, show=False)
    assert [record.status for record in records(tmp_path / "a")] == ["done", "done"]
    with pytest.raises(Exception, match=r"pauses its trainings, and the task 'plain' trains without trial\.loop"):
        study(tmp_path / "b", plain, plans=["sha(9)"], seeds=2).run(workers=0, show=False)
    assert records(tmp_path / "b") == []


def test_a_step_after_the_pause_is_an_error(tmp_path):
    job = Job("k", 0, parse("yoto", everything).rules[0], until=0.5)
    record = train(everything.using(steps_after=True), job, tmp_path, None, "cpu")
    assert record.status == "failed"
    assert "after trial.loop had paused the training. Return instead." in record.error["message"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda trial: trial.loop([]), "needs the optimizer attached first"),
        (lambda trial: (attach(trial), trial.loop("model")), "takes a list of what the training consists of"),
        (lambda trial: (attach(trial), trial.loop([3])), "keeps what has state_dict and load_state_dict, .* got int"),
        (
            lambda trial: trial.batches(DataLoader([1], num_workers=1, persistent_workers=True)),
            "persistent_workers=False",
        ),
        (lambda trial: trial.batches(DataLoader(Stream())), "use a data set with an index, or num_workers"),
        (lambda trial: (attach(trial), trial.loop([])), "needs the number of steps, at least 1"),
        (lambda trial: (made := attach(trial), trial.loop([made], steps=2), trial.loop([made], steps=2)), "twice"),
    ],
)
def test_mistakes_with_the_loop_are_one_sentence(call, said, tmp_path):
    trial = Trial(everything, parse("uniform", everything).rules[0], 0, dir=tmp_path)
    with pytest.raises((RuntimeError, TypeError, ValueError), match=said):
        call(trial)


def attach(trial):
    model = torch.nn.Linear(1, 1)
    trial.criterion()
    trial.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    return model


# Interrupted


@pytest.fixture
def at_every_step(monkeypatch):
    monkeypatch.setattr("trainonce.study.loop.EVERY", 0.0)
    monkeypatch.setattr("trainonce.study.loop.SHARE", float("inf"))


@pytest.mark.parametrize("plan", ["yoto", "uniform"])
@pytest.mark.parametrize("fail_at", [1, 5, 11])
def test_a_training_that_failed_goes_on_from_its_last_snapshot(plan, fail_at, tmp_path, at_every_step, capsys):
    straight = run(everything, plan, tmp_path / "a")
    made = study(
        tmp_path / "b", everything.using(fail_at=fail_at, flag=str(tmp_path / "flag")), plans=[plan], seeds=[3]
    )
    made.run(workers=0, show=False)
    made.run(workers=0, show=False)
    failed, done = records(tmp_path / "b")
    assert (failed.status, done.status, failed.fraction) == ("failed", "done", 0.0)
    assert what_counts(done, made.store.folder(done.key)) == what_counts(straight, tmp_path / "a")
    assert not (made.store.folder(done.key) / layout.CHECKPOINT).exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_keeps_the_step_it_is_at(workers, tmp_path):
    """Also where it reaches the processes of a loader, as a scheduler sends it."""
    (tmp_path / "slow.py").write_text(
        textwrap.dedent("""
        import signal
        import sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from test_pauses import everything, parse
        from trainonce.study.executors.base import Job
        from trainonce.study.executors.run_trial import train
        from trainonce.errors import TerminatedError
        from trainonce.study import loop
        signal.signal(signal.SIGTERM, lambda *_: loop.end_by_signal())
        made = everything.using(nap=0.2, workers=int(sys.argv[3]))
        print("begun", flush=True)
        try:
            train(made, Job("k", 3, parse("yoto", made).rules[0]), Path(sys.argv[2]), None, "cpu")
        except TerminatedError:
            sys.exit(143)
        """)
    )
    folder = tmp_path / "k"
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), os.path.dirname(__file__), str(folder), str(workers)],
        stdout=subprocess.PIPE,
        process_group=0,
    )
    process.stdout.readline()
    while not (folder / layout.HISTORY).exists():
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(20) == 143
    process.stdout.close()
    found = torch.load(folder / layout.CHECKPOINT, weights_only=True)
    assert 0 < found["iteration"] < 12
    made = everything.using(nap=0.0, workers=workers)
    straight = run(made, "yoto", tmp_path / "a")
    assert what_counts(run(made, "yoto", folder), folder) == what_counts(straight, tmp_path / "a")


def test_what_the_evaluation_at_a_pause_takes_is_counted(tmp_path):
    folder, job = tmp_path / "k", Job("k", 3, parse("uniform", everything).rules[0], until=0.5)
    train(everything, job, folder, None, "cpu")
    content = (folder / layout.SPENT).read_text()
    (folder / layout.SPENT).write_text(content.replace('"seconds": ', '"seconds": 100'))
    record = train(everything, Job("k", 3, job.rule), folder, None, "cpu")
    assert record.seconds > 100
    assert record.fraction == 1.0
