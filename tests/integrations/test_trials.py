"""Trials that a Trainer trains: paused, killed and gone on with, they end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest
import torch
from _trials import with_lightning, with_trainer

from trainonce import random_states
from trainonce.errors import InputError
from trainonce.study import layout
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import forget, train
from trainonce.study.plans import parse
from trainonce.study.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

BOTH = pytest.mark.parametrize("made", [with_lightning, with_trainer], ids=["lightning", "transformers"])
TOTAL = 12


def job(made, until=1.0, plan="yoto"):
    (rule,) = parse(plan, made).rules
    return Job("k", 3, rule, until=until)


def run(made, folder, *steps, plan="yoto"):
    """Train to each step and to the end, with other random numbers drawn in between; return the last record."""
    for until in (*(step / TOTAL for step in steps), 1.0):
        random_states.seed_everything(random.Random(until).randrange(1000))
        record = train(made, job(made, until, plan), folder, None, "cpu")
        assert record.status == ("done" if until == 1 else "paused"), record.error
        forget(record, folder)
        kept = [path.name for path in (folder / layout.TRAINER).glob("*")]
        assert kept == ([f"{round(until * TOTAL)}.ckpt"] if until < 1 else [])
        assert (folder / layout.CHECKPOINT).is_file() == (until < 1)
    return record


def what_counts(record, folder):
    history = (folder / layout.HISTORY).read_bytes()
    return record.metrics, list(record.coefficients), list(record.reports), history.splitlines()


# Settings, and steps at which it pauses; many where none are named. Of twelve steps six are an epoch.
SOME = (1, 6, 7)
CASES = {
    "lightning": (with_lightning, {}, None),
    "lightning, a schedule per epoch": (with_lightning, {"per_epoch": True}, SOME),
    "lightning, accumulating": (with_lightning, {"accumulate": 2}, SOME),
    "lightning, validating": (with_lightning, {"validate": 1.0}, SOME),
    "lightning, noise": (with_lightning, {"noise": 0.1}, SOME),
    "lightning, a worker": (with_lightning, {"noise": 0.1, "workers": 1}, (6,)),
    "lightning, epochs": (with_lightning, {"epochs": 2}, SOME),
    "lightning, epochs, a schedule per epoch": (with_lightning, {"epochs": 2, "per_epoch": True}, SOME),
    "lightning, epochs, accumulating": (with_lightning, {"accumulate": 4, "epochs": 6}, SOME),
    "lightning, epochs, validating": (with_lightning, {"epochs": 2, "validate": 1.0}, SOME),
    "lightning, epochs, validating twice in each": (with_lightning, {"epochs": 2, "validate": 0.5}, (1, 3, 6, 7)),
    "lightning, epochs, min_epochs": (with_lightning, {"epochs": 2, "min_epochs": 2}, (3,)),
    "transformers": (with_trainer, {}, None),
    "transformers, accumulating": (with_trainer, {"accumulate": 2}, SOME),
    "transformers, evaluating": (with_trainer, {"validate": "steps"}, SOME),
    "transformers, saving": (with_trainer, {"save": "steps"}, (2, 3)),
    "transformers, a worker": (with_trainer, {"workers": 1}, (6,)),
    "transformers, epochs": (with_trainer, {"epochs": 2}, SOME),
    "transformers, epochs, accumulating": (with_trainer, {"accumulate": 4, "epochs": 6}, SOME),
    "transformers, epochs, evaluating": (with_trainer, {"epochs": 2, "validate": "epoch"}, SOME),
}


@pytest.mark.parametrize("name", CASES)
def test_a_paused_training_ends_as_if_it_had_not_paused(name, tmp_path):
    made, settings, steps = CASES[name]
    made = made.using(**settings)
    whole = what_counts(run(made, tmp_path / "a"), tmp_path / "a")
    drawn = tuple(sorted(random.Random(name).sample(range(1, TOTAL), 3)))
    for group in [steps or (1, 2, 5, 6, 7, 11), drawn]:
        folder = tmp_path / "-".join(map(str, group))
        assert what_counts(run(made, folder, *group), folder) == whole, group


@pytest.mark.parametrize("plan", ["balance", "uniform"])
@BOTH
def test_other_rules_go_on_as_well(made, plan, tmp_path):
    whole = what_counts(run(made, tmp_path / "a", plan=plan), tmp_path / "a")
    assert what_counts(run(made, tmp_path / "b", 2, 6, 7, plan=plan), tmp_path / "b") == whole


def read(folder):
    return torch.load(folder / layout.CHECKPOINT, weights_only=True)


# Killed

DRIVER = """
import signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
import _trials
from test_trials import job
from trainonce.errors import TerminatedError
from trainonce.study import loop
from trainonce.study.executors.run_trial import train
signal.signal(signal.SIGTERM, lambda *_: loop.end_by_signal())
if sys.argv[3] == str(int(signal.SIGKILL)):
    loop.EVERY, loop.SHARE = 0.0, float("inf")
made = getattr(_trials, sys.argv[1]).using(at=(7, int(sys.argv[3])), accumulate=2)
try:
    train(made, job(made), Path(sys.argv[2]), None, "cpu")
except TerminatedError:
    sys.exit(143)
"""


@pytest.mark.parametrize(("number", "code", "kept"), [(signal.SIGKILL, -9, 7), (signal.SIGTERM, 143, 8)])
@BOTH
def test_a_killed_training_goes_on_from_its_last_snapshot(made, number, code, kept, tmp_path):
    folder, paths = tmp_path / "k", [path for path in sys.path if path]
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, made.function.__name__, folder, str(int(number)), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert read(folder)["iteration"] == kept
    assert len(list((folder / layout.TRAINER).iterdir())) <= 2
    made = made.using(accumulate=2)
    whole = what_counts(run(made, tmp_path / "a"), tmp_path / "a")
    assert what_counts(run(made, folder), folder) == whole


@BOTH
def test_what_was_killed_after_its_last_step_makes_no_other(made, tmp_path):
    folder = tmp_path / "k"
    for _ in range(2):  # the second as if the first had been killed before its record was written
        record = train(made, job(made, 0.5), folder, None, "cpu")
        assert (record.status, record.until, record.fraction) == ("paused", 0.5, 0.5), record.error
        assert read(folder)["steps"] == 6
        assert [path.name for path in (folder / layout.TRAINER).iterdir()] == ["6.ckpt"]
    assert what_counts(run(made, folder), folder) == what_counts(run(made, tmp_path / "a"), tmp_path / "a")


@BOTH
def test_a_training_that_is_asked_to_end_after_its_last_step_makes_no_other(made, tmp_path, monkeypatch):
    whole = what_counts(run(made, tmp_path / "a"), tmp_path / "a")
    monkeypatch.setattr("trainonce.study.loop.EVERY", 0.0)
    monkeypatch.setattr("trainonce.study.loop.SHARE", float("inf"))
    folder = tmp_path / "k"
    for _ in range(2):
        record = train(made, job(made), folder, None, "cpu")
        assert record.status == "done"
        assert read(folder)["iteration"] == TOTAL
    assert what_counts(record, folder) == whole


def test_a_checkpoint_that_the_user_asked_for_stays(tmp_path):
    made = with_trainer.using(save="steps")
    train(made, job(made, 0.5), tmp_path, None, "cpu")
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]


# Mistakes


def paused(made, folder):
    assert train(made, job(made, 0.5), folder, None, "cpu").status == "paused"


@pytest.mark.parametrize(
    ("made", "call"),
    [
        (with_lightning, r"trainer\.fit\(\.\.\., ckpt_path=callback\.checkpoint\)"),
        (with_trainer, r"trainer\.train\(resume_from_checkpoint=callback\.checkpoint\)"),
    ],
    ids=["lightning", "transformers"],
)
def test_a_trainer_that_would_begin_anew_is_refused(made, call, tmp_path):
    paused(made, tmp_path)
    with pytest.raises(InputError, match=rf"was trained for 6 steps before, .* Call {call}"):
        train(made.using(forget=True), job(made), tmp_path, None, "cpu")
    assert run(made, tmp_path).metrics == run(made, tmp_path / "a").metrics  # nothing was lost


@BOTH
def test_a_checkpoint_that_is_gone_is_named(made, tmp_path):
    paused(made, tmp_path)
    (tmp_path / layout.TRAINER / "6.ckpt").rename(tmp_path / "elsewhere")
    record = train(made, job(made), tmp_path, None, "cpu")
    assert record.status == "failed"
    assert "6.ckpt, which is not there. Delete" in record.error["message"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (with_lightning.using(callback=False), "trains without trial.loop, .* TrialCallback"),
        (with_trainer.using(callback=False), "trains without trial.loop, .* TrialCallback"),
        (with_trainer.using(only_model=True), "Leave them out of the TrainingArguments"),
        (with_lightning.using(plain=True), r"loader anew\. Give fit, .* trial\.batches\(loader\)"),
    ],
    ids=["lightning", "transformers", "transformers, the model alone", "lightning, a plain loader"],
)
def test_what_a_plan_that_pauses_needs_is_said_at_its_first_step_and_other_plans_need_nothing(made, said, tmp_path):
    with pytest.raises(InputError, match=said):
        train(made, job(made, 0.5), tmp_path / "a", None, "cpu")
    assert train(made, job(made), tmp_path / "b", None, "cpu").status == "done"


# A study


@BOTH
def test_successive_halving_by_the_command(made, tmp_path):
    def command(*arguments):
        found = [sys.executable, "-W", "ignore", "-m", "trainonce", *map(str, arguments)]
        done = subprocess.run(found, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    name = f"{os.path.dirname(__file__)}/_trials.py:{made.function.__name__}"
    out = tmp_path / "out"
    command("compare", name, "--plans", "sha(9)", "--seeds", 1, "--workers", 1, "--device", "cpu", "--out", out)
    store = Store(out)
    last = store.read()
    assert sorted(record.status for record in last.values()) == ["done", *["paused"] * 8]
    (best,) = (record for record in last.values() if record.status == "done")
    straight = train(made, Job("k", best.seed, best.rule), tmp_path / "a", None, "cpu")
    assert (best.metrics, list(best.coefficients)) == (straight.metrics, list(straight.coefficients))
    assert not (store.folder(best.key) / layout.TRAINER).exists()
    assert "8 snapshots of paused trainings deleted" in command("clean", out)
    assert not list(out.rglob(layout.TRAINER))
