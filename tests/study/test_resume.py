"""Trials that go on after an interruption, and trials that several processes train together."""

import collections
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
import torch
from _runs import torchrun
from _stores import yoto
from _tasks import TERMS

import trainonce
from trainonce import cli
from trainonce.study import Study, progress, task
from trainonce.study.checkpoint import read_checkpoint
from trainonce.study.layout import CHECKPOINT, HISTORY, SPENT
from trainonce.study.store import Store
from trainonce.study.trial import Trial

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


@task(terms=TERMS, metric="error", direction="minimize", yoto={"lr": 0.05})
def slow(trial, *, steps=12, stop_at=0, flag="", how="raise"):
    """Takes a snapshot at every fourth step, and is stopped once in the middle if asked to."""
    weights = torch.nn.Parameter(torch.zeros(2))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD([weights], lr=0.05, momentum=0.9)
    trial.attach(optimizer)
    steps_left = trial.loop([torch.nn.ParameterList([weights])])
    for done in steps_left:
        if done and done % 4 == 0:
            steps_left.snapshot()
        step = done + 1
        if step == stop_at and not os.path.exists(flag):
            Path(flag).touch()
            if how == "kill":
                time.sleep(2)  # until the study has heard of the last step
                trial.report(step - 1, error=0.0)
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("stopped")
        optimizer.zero_grad()
        loss = (weights - torch.tensor([2.0, 1.0]) * (1 + 0.1 * step)).square().sum()
        criterion(fit=loss, small=weights[0].square() + 0.1, flat=weights[1].square() + 0.1).backward()
        optimizer.step()
        if step % 3 == 0:
            trial.report(step, error=loss.item())
    return {"validation/error": weights[0].item(), "test/error": weights.sum().item()}


def run(out, *, plan="yoto", **settings):
    study = Study(slow.using(**settings), out, seeds=1).add(plan)
    study.run(workers=0, show=False)
    (record,) = study.store.read().values()
    return record, study.store.folder(record.key)


def test_a_killed_trial_costs_what_its_checkpoint_does_not_keep(tmp_path, capfd):
    flag = str(tmp_path / "flag")
    settings = {"stop_at": 11, "flag": flag, "how": "kill"}
    study = Study(slow.using(**settings), tmp_path / "out", seeds=1).add("yoto")
    study.run(workers=1, show=False)
    (died,) = study.store.read().values()
    assert died.error["type"] == "ProcessDied"
    assert died.fraction == pytest.approx(2 / 12, abs=1e-3)  # ten steps done, eight kept
    study.run(workers=1, show=False)
    (record,) = study.store.read().values()
    assert record.status == "done"
    assert record.fraction == 1.0
    assert died.seconds < 20


def test_the_time_before_the_interruption_counts(tmp_path, monkeypatch, capsys):
    flag = str(tmp_path / "flag")
    run(tmp_path / "b", stop_at=6, flag=flag)
    (folder,) = (tmp_path / "b" / "trials").iterdir()
    content = torch.load(folder / CHECKPOINT, weights_only=True)
    torch.save(content | {"seconds": 1000.0}, folder / CHECKPOINT)
    assert 1000 < run(tmp_path / "b", stop_at=6, flag=flag)[0].seconds < 1060


def test_a_study_says_which_trials_go_on(tmp_path, capsys):
    study = Study(slow.using(stop_at=6, flag=str(tmp_path / "flag")), tmp_path / "b", seeds=2).add("yoto")
    for said in (False, True, False):
        study.run(workers=0)
        assert ("1 trial has a checkpoint to go on from.\n" in capsys.readouterr().out) == said
    for item in study.items():
        for at in (study, Study(study.task, tmp_path / "new").add("yoto")):
            at.store.folder(item.keys[0]).mkdir(parents=True, exist_ok=True)
            (at.store.folder(item.keys[0]) / CHECKPOINT).touch()
    progress.listener(study.task, study.items(), study.store)
    assert "checkpoint" not in capsys.readouterr().out  # they are done
    progress.listener(study.task, study.items(), Store(tmp_path / "new"))
    assert "2 trials have checkpoints to go on from.\n" in capsys.readouterr().out


def test_what_a_checkpoint_has_kept_is_paid_once(tmp_path, capsys):
    flag = str(tmp_path / "flag")
    study = Study(slow.using(stop_at=10, flag=flag), tmp_path / "b", seeds=1).add("yoto")
    study.run(workers=0, show=False)
    study.run(workers=0, show=False)
    failed, done = study.store.read_all()
    assert (failed.fraction, done.fraction) == (pytest.approx(1 / 12, abs=1e-3), 1.0)
    assert study.summary().rows[0].cost == pytest.approx(13 / 12, abs=1e-3)


def test_a_checkpoint_of_another_rule_is_not_used(tmp_path):
    for init, start in ((1.0, 0), (1.0, 1), (0.7, 0)):
        trial, loop = looped(tmp_path, init)
        assert loop.start == start
        assert (trial.steps, len(trial.history)) == (start, start)
        train_once(loop)
        loop.snapshot()


def looped(folder, init=1.0, steps=5):
    """A trial at the begin of its loop, and the loop, which has what a step needs."""
    trial = Trial(slow, yoto(init=init), 0, dir=folder)
    criterion, weight = trial.criterion(), torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    trial.attach(optimizer)
    loop = trial.loop([torch.nn.ParameterList([weight])], steps=steps)
    loop.train = lambda: (criterion(weight.square()).backward(), optimizer.step())
    return trial, loop


def train_once(loop):
    next(loop)
    loop.train()
    next(loop)


def test_input_errors_stop_the_study_in_one_sentence(tmp_path, capsys):
    (tmp_path / "wrong.py").write_text(
        "from trainonce.study import InputError, task\n"
        "@task(terms=['a', 'b'], metric='error', direction='minimize')\n"
        "def wrong(trial):\n"
        "    raise InputError('There is no folder here.')\n"
    )
    for workers in ("0", "1"):
        given = ["compare", str(tmp_path / "wrong.py"), "--out", str(tmp_path / workers), "--workers", workers]
        assert cli.main([*given, "--device", "cpu"]) == 1
        said = capsys.readouterr().err
        assert said.strip().splitlines()[-1] == "There is no folder here."
        assert "Traceback" not in said
        assert (tmp_path / workers / "trials.jsonl").read_text() == ""


@pytest.mark.parametrize("length", [0, 500])
def test_a_damaged_checkpoint_is_a_warning_and_the_trial_starts_anew(tmp_path, capsys, length):
    flag = str(tmp_path / "flag")
    straight, _ = run(tmp_path / "a", stop_at=0, flag=flag)
    run(tmp_path / "b", stop_at=6, flag=flag)
    (folder,) = (tmp_path / "b" / "trials").iterdir()
    path = folder / CHECKPOINT
    path.write_bytes(path.read_bytes()[:length])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        record, _ = run(tmp_path / "b", stop_at=6, flag=flag)
    assert record.metrics == straight.metrics
    assert any("cannot be read, and the trial starts anew" in text for text in record.warnings)


def test_a_snapshot_replaces_the_last_and_is_never_half_written(tmp_path, monkeypatch):
    _, loop = looped(tmp_path)
    for step in range(3):
        if step == 2:
            monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert next(loop) == step
        loop.train()
        if step == 2:
            next(loop)
            with pytest.warns(UserWarning, match=r"checkpoint could not be written .* No space left .* last one"):
                loop.snapshot()
        else:
            loop._step += 1  # as the next step would find it
            loop._given = False
            loop.snapshot()
    assert read_checkpoint(tmp_path).iteration == 2
    assert {p.name for p in tmp_path.iterdir()} == {CHECKPOINT, HISTORY, SPENT}


# Several processes


PAIRED = textwrap.dedent("""
    import os
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from trainonce.study import torchrun, task

    @task(terms=["fit", "small"], metric="error", direction="minimize", yoto={"lr": 0.1})
    def paired(trial, *, steps=8, stop_at=0, break_at=-1):
        rank = torch.distributed.get_rank() if torchrun.world_size() > 1 else 0
        model = torch.nn.Linear(1, 1, dtype=torch.float64)
        criterion = trial.criterion().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trial.attach(optimizer)
        loop = trial.loop([model])
        forward = DistributedDataParallel(model) if torchrun.world_size() > 1 else model
        x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        mine = x[rank : rank + 1] if torchrun.world_size() > 1 else x
        for step in loop:
            if step == 3:
                loop.snapshot()
            if step == break_at and rank == 0 and loop.start == 0:
                raise ValueError("broken on purpose")
            optimizer.zero_grad()
            found = forward(mine)
            criterion(fit=(found - 3 * mine).square().mean(), small=found.square().mean()).backward()
            optimizer.step()
        return {"validation/error": model.weight.item(), "test/error": model.bias.item()}
""")


@pytest.mark.dist
def test_two_processes_train_as_one_would(tmp_path):
    (tmp_path / "paired.py").write_text(PAIRED)
    said = torchrun(tmp_path, "run", "paired.py", "--out", "two")
    assert said.count("Recorded in") == 1
    done = subprocess.run(
        [sys.executable, "-m", "trainonce", "run", "paired.py", "--out", "one", "--device", "cpu"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    two, one = (json.loads((tmp_path / name / "trials.jsonl").read_text()) for name in ("two", "one"))
    for name, value in one["metrics"].items():
        assert two["metrics"][name] == pytest.approx(value, abs=1e-12)
    assert two["coefficients"] == pytest.approx(one["coefficients"], abs=1e-7)


@pytest.mark.dist
def test_several_plans_and_a_failure_that_goes_on_from_its_checkpoint(tmp_path):
    (tmp_path / "paired.py").write_text(PAIRED)
    plans = ["--plans", "yoto,fixed(1,1),final,sha(3)", "--seeds", "2", "--no-report", "--out", "out"]
    torchrun(tmp_path, "compare", "paired.py", *plans)
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert collections.Counter(line["status"] for line in lines) == {"done": 8, "paused": 8}
    arguments = ["run", "paired.py", "--out", "broken", "--set", "break_at=5"]
    said = torchrun(tmp_path, *arguments, code=1)
    assert "broken on purpose" in said
    torchrun(tmp_path, *arguments)
    first, second = [json.loads(line) for line in (tmp_path / "broken" / "trials.jsonl").read_text().splitlines()]
    straight = next(line for line in lines if line["rule"]["rule"] == "CompositeLoss")
    assert (first["status"], second["status"]) == ("failed", "done")
    assert second["metrics"] == straight["metrics"]


@pytest.mark.dist
def test_the_number_of_processes_is_part_of_a_trial(tmp_path):
    (tmp_path / "paired.py").write_text(PAIRED)
    torchrun(tmp_path, "run", "paired.py", "--out", "out")
    command = [sys.executable, "-m", "trainonce", "run", "paired.py", "--out", "out", "--device", "cpu"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert len((tmp_path / "out" / "trials.jsonl").read_text().splitlines()) == 2


@pytest.mark.dist
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "paired.py", "--plan", "uw"], "TorchJD's, which does not keep the processes of torchrun together"),
        (["run", "paired.py", "--plan", "on-shot"], "There is no plan 'on-shot'"),
        (["run", "paired.py", "--device", "cuda:1"], "--device is cpu or cuda" if torch.cuda.is_available() else ""),
    ],
)
def test_under_torchrun_one_sentence_is_one_sentence(tmp_path, arguments, said):
    (tmp_path / "paired.py").write_text(PAIRED)
    if not said:
        pytest.skip("no CUDA device to choose")
    text = torchrun(tmp_path, *arguments, "--out", "out", code=1)
    assert text.count(said) == 1
    ours = text.partition("ChildFailedError")[0].partition("elastic")[0]
    assert "Traceback" not in ours


def test_trainonce_is_importable_without_distributed(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    from trainonce.study import torchrun

    assert torchrun.world_size() == 1
    assert torchrun.is_first()
    assert torchrun.broadcast(3) == 3
    assert trainonce.__version__
