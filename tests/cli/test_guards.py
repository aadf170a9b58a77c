"""The command before it trains much, when nothing works, and when a plan is no longer wanted."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from trainonce import cli
from trainonce.study import Summary, cost
from trainonce.study.store import Store

TASKS = Path(__file__).parents[1] / "study" / "_tasks.py"
TASK = f"{TASKS}:line"


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def names(out):
    return [plan["name"] for plan in json.loads((out / "study.json").read_text())["plans"]]


def test_a_dry_run_shows_trials_and_cost_and_touches_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("compare", "digits", "--dry-run", "--seeds", 2, "--workers", 2, "--plans", "yoto", "grid", "sha") == 0
    text = capsys.readouterr().out
    assert "yoto          2  1\n" in text
    assert "grid         18  9\n" in text
    assert "sha          54  7\n" in text
    assert "74 trials, seeds 0 to 1. 74 trials to do, about 20 s with 2 workers." in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("seeds", "said"), [(1, "1 trial, seed 0"), (3, "3 trials, seeds 0 to 2")])
def test_a_dry_run_knows_what_is_there(seeds, said, tmp_path, capsys):
    given = ("compare", TASK, "--out", tmp_path, "--steps", 1, "--workers", 0, "--no-report", "--plans", "uniform")
    assert run(*given, "--seeds", 1) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    assert run(*given, "--seeds", seeds, "--dry-run") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{said}, 1 of them in {tmp_path} already. {seeds - 1} trials to do." in shown
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


TWELVE = """
from trainonce.study import task

@task(terms=[f"t{i}" for i in range(12)], metric="error", direction="minimize")
def twelve(trial):
    pass
"""


def test_twelve_terms_with_a_grid_are_refused_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("twelve.py").write_text(TWELVE)
    assert run("compare", "twelve.py", "--yes") == 1
    error = capsys.readouterr().err
    assert "'grid' has 177,147 points" in error
    assert "Use random(trials=30) or sha, or name fewer ratios." in error
    assert not Path("out").exists()


MUCH = ("--plans", "uniform", "random(trials=40)", "--seeds", "2", "--steps", "1", "--workers", "0", "--no-report")


def test_very_much_is_refused_in_a_sentence_unless_yes_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cost.excess, "__defaults__", (50,))
    out = tmp_path / "out"
    assert run("compare", TASK, *MUCH, "--out", out) == 1
    assert capsys.readouterr().err == (
        "The study would train 82 times; the plan 'random(trials=40)' has 80 of the trials. random(trials=30) would "
        "take fewer. With --yes it runs all the same.\n"
    )
    assert not out.exists()
    assert run("compare", TASK, *MUCH, "--out", out, "--yes") == 0
    assert len(Store(out).read()) == 82


LONG = """
import _tasks
from trainonce.study import task

@task(terms=_tasks.TERMS, metric="error", direction="minimize", seconds=1e6)
def long(trial, *, steps=2):
    return _tasks.train(trial, steps)
"""


@pytest.mark.parametrize("command", [("run",), ("compare", "--plans", "uniform", "--seeds", "1", "--no-report")])
def test_one_training_of_many_days_is_what_was_asked_for(command, tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    name, *more = command
    out = tmp_path / "out"
    assert run(name, tmp_path / "long.py", *more, "--workers", 0, "--device", "cpu", "--out", out) == 0
    assert [record.status for record in Store(out).read_all()] == ["done"]


ASK = """
import sys
from trainonce import cli
from trainonce.study import cost
cost.excess.__defaults__ = (1,)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("answer", "trials"), [(b"y\n", 2), (b"n\n", 0), (b"\n", 0), (b"\x04", 0)])
def test_on_a_terminal_it_asks(answer, trials, tmp_path):
    given = ["compare", TASK, "--plans", "uniform", "--seeds", "2", "--steps", "1", "--workers", "0", "--no-report"]
    master, slave = pty.openpty()
    command = [sys.executable, "-c", ASK, *given, "--device", "cpu", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm"})
    os.close(slave)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(master, 1024)
    os.write(master, answer)
    while True:
        try:
            chunk = os.read(master, 1024)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    assert process.wait(60) == (0 if trials else 1)
    assert (b"Nothing was trained." in shown) == (not trials)
    assert (len(Store(tmp_path / "out").read()) if trials else (tmp_path / "out").exists()) == trials


HOPELESS = """
from trainonce.study import task

@task(terms=["a", "b"], metric="error", direction="minimize")
def hopeless(trial):
    raise KeyError("label")
"""


def test_the_same_failure_in_every_trial_stops_the_study(tmp_path, capsys):
    (tmp_path / "hopeless.py").write_text(HOPELESS)
    out = tmp_path / "out"
    given = ("compare", tmp_path / "hopeless.py", "--plans", "uniform", "--seeds", 8, "--workers", 0, "--out", out)
    assert run(*given, "--no-report") == 1
    error = capsys.readouterr().err
    assert "3 trials failed. The first, uniform 1 : 1, seed 0:" in error
    assert 'raise KeyError("label")' in error
    assert "All failed in the same way, so the study has stopped; --keep-going runs the other trials, too." in error
    assert len(Store(out).read()) == 3
    assert run(*given, "--no-report", "--keep-going") == 1
    assert len(Store(out).read()) == 8


def compared(out):
    plans = ("--plans", "yoto", "grid:0.1,1", "uniform")
    assert run("compare", TASK, *plans, "--seeds=1", "--steps=1", "--out", out, "--workers=0", "--no-report") == 0


def test_a_plan_is_dropped_and_its_records_stay(tmp_path, capsys):
    compared(tmp_path)
    assert run("report", tmp_path, "--drop", "grid:0.10,1") == 0
    assert f"Dropped from {tmp_path}: grid(0.1,1). Their trials are kept." in capsys.readouterr().out
    assert names(tmp_path) == ["yoto", "uniform"]
    assert len(Store(tmp_path).read()) == 5
    assert "grid(0.1,1)" not in (tmp_path / "report.html").read_text()
    assert [row.plan for row in Summary.read(tmp_path).rows] == ["yoto", "uniform"]


def test_compare_drops_without_training_unless_plans_are_named(tmp_path, capsys):
    compared(tmp_path)
    given = ("compare", TASK, "--seeds=2", "--steps=1", "--out", tmp_path, "--workers=0", "--no-report")
    assert run(*given, "--drop", "uniform") == 0
    assert names(tmp_path) == ["yoto", "grid(0.1,1)"]
    assert len(Store(tmp_path).read()) == 5
    assert run(*given, "--drop", "grid(0.1,1)", "--plans", "base") == 0
    assert names(tmp_path) == ["yoto", "base"]
    assert len(Store(tmp_path).read()) == 7


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_plan_that_is_not_there_is_one_sentence_and_nothing_changes(command, tmp_path, capsys):
    compared(tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    what = (TASK, "--steps=1", "--out", tmp_path) if command == "compare" else (tmp_path,)
    capsys.readouterr()
    assert run(command, *what, "--drop", "yoto", "--drop", "unifrom") == 1
    assert capsys.readouterr().err == (
        f"The study in {tmp_path} has no plan 'unifrom'; it has: yoto, grid(0.1,1), uniform. Did you mean 'uniform'?\n"
    )
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_plan_is_not_dropped_and_compared_at_once(tmp_path, capsys):
    compared(tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    given = ("--steps=1", "--out", tmp_path, "--plans", "base", "grid(0.1,1)", "--drop", "grid:0.1,1")
    assert run("compare", TASK, *given) == 1
    assert "The plan 'grid(0.1,1)' is both to be dropped and to be compared" in capsys.readouterr().err
    assert (tmp_path / "study.json").read_bytes() == before


@pytest.mark.parametrize("plans", [[], ["--plans", "base"]])
def test_a_dry_run_drops_nothing(plans, tmp_path, capsys):
    compared(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    given = ("compare", TASK, "--steps=1", "--out", tmp_path, "--workers=0", "--dry-run", *plans)
    capsys.readouterr()
    assert run(*given, "--drop", "grid:0.1,1") == 0
    shown = capsys.readouterr().out
    assert f"grid(0.1,1) would be dropped from {tmp_path}, which has 2 other plans." in shown
    assert shown.endswith("Nothing was trained or written.\n")
    assert run(*given, "--drop", "unifrom") == 1
    assert "has no plan 'unifrom'" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_plans_of_another_task_are_not_dropped(more, tmp_path, capsys):
    compared(tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    assert run("compare", "digits", "--out", tmp_path, "--drop", "uniform", *more) == 1
    assert "holds a study of the task 'line', not of 'digits'. Choose another folder." in capsys.readouterr().err
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_folder_without_a_study_has_nothing_to_drop(tmp_path, capsys):
    assert run("compare", TASK, "--out", tmp_path / "new", "--drop", "grid") == 1
    assert "There is no study in" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
