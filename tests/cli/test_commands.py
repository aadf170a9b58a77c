"""The command: what a user sees when it works, and one sentence when it does not."""

import contextlib
import dataclasses
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import _tasks
import pytest

from trainonce import cli
from trainonce.study import Study, Summary
from trainonce.study.executors.task_location import load_file
from trainonce.study.plans import KINDS, PLANS
from trainonce.study.store import Store

TESTS = Path(__file__).parents[1]
TASKS = TESTS / "study" / "_tasks.py"
TASK = f"{TASKS}:line"


def run(*arguments):
    return cli.main([str(a) for a in arguments])


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("compare", "run", "summary", "report", "recipes", "plans", "explain"))


def test_the_recipes_are_listed_with_their_cost(capsys):
    assert run("recipes") == 0
    text = capsys.readouterr().out
    for name in ("digits", "burgers", "distillation"):
        assert re.search(
            rf"^{name}\n    .*?One\s+training\s+takes\s+about\s+[\d.]+\s+s\s+on\s+one\s+CPU\s+core\.", text, re.M | re.S
        )
    assert max(map(len, text.splitlines())) <= 100


def test_a_recipe_tells_its_settings(capsys):
    assert run("recipes", "ciss-paper") == 0
    text = capsys.readouterr().out
    assert re.search(r"^steps +148750 +Optimizer steps\.$", text, re.M)
    assert "\nyoto: init 0.0183156, decay 0.05, regularizer softplus, lr 0.00025\n" in text
    assert re.search(r"^schedule +'constant' +constant, or poly: falling", text, re.M)
    assert max(map(len, text.splitlines())) <= 100
    assert run("recipes", "digits") == 0
    assert re.search(r"^lr +0\.01$", capsys.readouterr().out, re.M)
    assert run("recipes", "digit") == 1
    assert "There is no recipe 'digit'" in capsys.readouterr().err


def test_the_plans_are_listed(capsys):
    assert run("plans") == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in PLANS)
    assert all(f"{title}\n" in text for title in KINDS.values())
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_alone_prints_its_help(capsys):
    assert run() == 0
    assert "compare" in capsys.readouterr().out


def test_compare_end_to_end(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("compare", TASK, "--plans", "yoto,grid(0.1,1)", "--seeds", 2, "--out", out, "--workers", 0) == 0
    text = capsys.readouterr().out
    assert "10 trials: yoto, grid(0.1,1); seeds 0 to 1." in text
    assert len(re.findall(r"^ +\d+ s +\d+/10 ", text, re.M)) == 10  # a line for each trial
    assert re.search(r"^plan +test error +difference", text, re.M)
    assert re.search(r"one run of the paper's rule.* the\s+best\s+of\s+4\s+grid\s+points", text, re.I | re.S)
    assert f"Report: {out / 'report.html'}" in text
    assert "best of 4 grid points" in (out / "report.html").read_text()
    assert len(Store(out).read()) == 10
    assert max(map(len, text.splitlines())) <= 110


def test_compare_again_runs_nothing_and_report_writes_the_page_anew(tmp_path, capsys):
    arguments = ("compare", TASK, "--plans", "uniform", "--seeds", 2, "--out", tmp_path, "--workers", 0, "--no-report")
    assert run(*arguments) == 0
    assert not (tmp_path / "report.html").exists()
    capsys.readouterr()
    assert run(*arguments) == 0
    assert "2 of 2 trials are already in" in capsys.readouterr().out
    assert run("report", tmp_path) == 0
    assert (tmp_path / "report.html").is_file()


def test_summary_prints_what_compare_does_or_writes_a_row_per_trial(tmp_path, capsys):
    out, plans = tmp_path / "out", ("--plans", "uniform", "base", "--seeds", 2)
    assert run("compare", TASK, *plans, "--out", out, "--workers", 0, "--no-report") == 0
    compared = capsys.readouterr().out
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert run("summary", out) == 0
    assert compared.endswith(capsys.readouterr().out)
    assert run("summary", out, "--table", tmp_path / "mine.csv") == 0
    assert capsys.readouterr().out == f"4 trials: {tmp_path / 'mine.csv'}\n"
    assert (tmp_path / "mine.csv").read_bytes() == (out / "trials.csv").read_bytes()
    assert run("summary", out, "--table", tmp_path / "mine.xlsx") == 1
    assert f"a file that ends in .csv; got {tmp_path / 'mine.xlsx'}." in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_earlier_trials_are_mentioned_where_there_are_some(tmp_path, capsys):
    given = ("compare", TASK, "--plans=uniform", "--seeds=1", "--out", tmp_path, "--workers=0", "--no-report")
    notice = "Changed since the last run: the setting steps. Earlier trials are kept, and not used."
    assert run(*given) == 0
    assert run(*given, "--steps=5") == 0
    assert capsys.readouterr().out.count(notice) == 1
    (tmp_path / "trials.jsonl").write_bytes(b"")
    assert run(*given, "--steps=6") == 0
    assert notice not in capsys.readouterr().out


def test_settings_margin_and_steps_reach_the_study(tmp_path):
    assert (
        run("compare", TASK, "--plans=uniform", "--seeds=1", "--out", tmp_path, "--workers=0", "--no-report")
        + run("compare", TASK, "--plans=uniform", "--seeds=1", "--out", tmp_path, "--workers=0", "--no-report")
        == 0
    )
    other = tmp_path / "other"
    more = ("--steps=5", "--set", "lr=0.05", "--margin=0.3")
    assert (
        run("compare", TASK, "--plans=uniform", "--seeds=1", "--out", other, "--workers=0", "--no-report", *more) == 0
    )
    task = json.loads((other / "study.json").read_text())["task"]
    assert task["settings"] == {"steps": 5, "lr": 0.05, "pause": 0.0}
    assert task["margin"] == 0.3


def test_run_trains_once_and_says_where(tmp_path, capsys):
    assert run("run", TASK, "--steps", 4, "--seed", 3, "--out", tmp_path, "--workers", 0) == 0
    text = capsys.readouterr().out
    assert re.search(r"validation/error +[\d.]+", text)
    assert re.search(r"ratios: fit [\d.]+, small [\d.]+, flat [\d.]+", text)
    (record,) = Store(tmp_path).read().values()
    assert record.seed == 3
    assert str(tmp_path / "trials" / record.key) in text


@pytest.mark.filterwarnings("always:frame")
def test_warnings_of_a_training_are_shown_and_trials_that_warned_are_counted(tmp_path, capsys):
    (tmp_path / "shaky.py").write_text(
        "import warnings, _tasks\nfrom trainonce.study import task\n\n\n"
        "@task(terms=_tasks.TERMS, metric='error', direction='minimize', unit='m')\n"
        "def shaky(trial):\n"
        "    for i in range(5):\n        warnings.warn(f'frame {i} is gone')\n"
        "    return _tasks.train(trial, 3)\n"
    )
    given = (tmp_path / "shaky.py", "--workers", 0, "--out", tmp_path / "out")
    assert run("run", *given) == 0
    text = capsys.readouterr().out
    assert text.count("It warned: UserWarning: frame") == 3
    assert re.search(r"test/error +[\d.]+ m\n", text)
    assert "frame 2 is gone" in text
    assert "and 2 more, in its record" in text
    assert run("compare", *given, "--plans", "yoto,uniform", "--seeds", 2, "--no-report") == 0
    assert (
        "2 trials of yoto warned: UserWarning.\n2 trials of uniform warned: UserWarning.\n" in capsys.readouterr().out
    )


def test_run_speaks_of_its_own_training_only(tmp_path, capsys):
    run("compare", TASK, "--plans", "yoto,uniform", "--seeds", 2, "--out", tmp_path, "--workers", 0, "--no-report")
    capsys.readouterr()
    assert run("run", TASK, "--seed", 1, "--out", tmp_path, "--workers", 0) == 0
    assert capsys.readouterr().out.count("validation/error") == 1


def test_plans_may_be_given_one_by_one(tmp_path):
    out, given = tmp_path / "out", ("--seeds=1", "--workers=0", "--no-report")
    assert run("compare", TASK, "--plans=uniform", "--plans=base,fixed(1,2,3)", "--out", out, *given) == 0
    assert [row.plan for row in Summary.read(out).rows] == ["uniform", "base", "fixed(1,2,3)"]


def test_seeds_may_be_listed(tmp_path, capsys):
    assert run("compare", TASK, "--plans=uniform", "--seeds=3,7", "--out", tmp_path, "--workers=0", "--no-report") == 0
    assert "; seeds 3, 7." in capsys.readouterr().out
    assert sorted(r.seed for r in Store(tmp_path).read().values()) == [3, 7]


BROKEN = f"{TASKS}:troubled"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "digit"], r"There is no recipe 'digit'; there are: digits, .*Did you mean 'digits'\?"),
        (["compare", "none.py"], r"There is no file none\.py\."),
        (["compare", f"{TASKS}:lin"], r"_tasks\.py has no task 'lin'; .* Did you mean 'line'\?"),
        (
            ["compare", f"{TASKS}"],
            r"must have one function decorated .*; it has line, noted, gambler, vanishing, troubled, gated: write",
        ),
        (["compare", f"{TESTS / '_two_ranks.py'}"], r"must have one function decorated .*; it has none\."),
        (["compare", "no.such.module:task"], r"no\.such\.module:task cannot be loaded: ModuleNotFoundError"),
        (["compare", TASK, "--plans", "gird"], r"There is no plan 'gird'; .*Did you mean 'grid'\?"),
        (["compare", TASK, "--plans", "yoto(init=-1)"], r"init must be a positive number, .*; got -1\.0"),
        (["compare", TASK, "--plans", "grid(1),uniform,grid(1.0)"], r"The plan 'grid\(1\)' is given twice\."),
        (["compare", TASK, "--plans", "grid", "--plans", "uniform,grid"], r"The plan 'grid' is given twice\."),
        (
            ["compare", TASK, "--plans", ","],
            r"There is no plan to compare: name some, such as --plans yoto balance uniform\.",
        ),
        (["compare", TASK, "--set", "lr"], r"--set takes key=value; got 'lr'\."),
        (["compare", TASK, "--set", "rate=1"], r"The task 'line' has no setting 'rate'"),
        (["compare", TASK, "--data-root", "x"], r"The task 'line' has no setting 'data_root'"),
        (["compare", TASK, "--device", "abacus"], r"There is no device 'abacus'"),
        (["run", TASK, "--plan", "grid"], r"trainonce run trains once: 'grid' is more than one training"),
        (["report", "nowhere"], r"There is no study in nowhere"),
        (["summary", "nowhere"], r"There is no study in nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_nothing_is_trained(arguments, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert re.search(sentence, captured.err)
    assert "Traceback" not in captured.err or "cannot be loaded" in sentence
    assert not list(tmp_path.rglob("history.jsonl"))
    assert not (tmp_path / "out").exists() or "--device" in arguments or "run" in arguments


@pytest.mark.parametrize("option", ["--steps", "--seeds"])
def test_counts_below_one_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        run("compare", TASK, option, "0")
    assert "must be a whole number of at least 1; got '0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--seeds", "a", "must be a whole number of at least 1; got 'a'"),
        ("--seeds", "1,x", "must be a whole number of at least 0; got 'x'"),
        ("--workers", "-1", "must be a whole number of at least 0; got '-1'"),
        ("--margin", "-3", "must be a number above 0; got '-3'"),
        ("--margin", "x", "must be a number above 0; got 'x'"),
    ],
)
def test_options_of_another_kind_are_one_sentence(option, value, message, capsys):
    with pytest.raises(SystemExit):
        run("compare", TASK, f"{option}={value}")
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run("compare", TASK, "--out", tmp_path / "file" / "x") == 1
    assert re.fullmatch(r"The folder .* cannot be written: .*\. Choose another with --out\.\n", capsys.readouterr().err)


def test_a_task_with_a_mistake_shows_where(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("compare", BROKEN, "--plans", "uniform", "--out", out, "--workers", 0, "--no-report") == 1
    captured = capsys.readouterr()
    assert "FAILED: ZeroDivisionError: the divisor was 0" in captured.out
    assert "1 trial failed. The first, uniform 1 : 1 : 1, seed 1:" in captured.err
    assert 'raise ZeroDivisionError("the divisor was 0")' in captured.err
    assert "The same command runs failed trials again" in captured.err
    assert "2 of 3" in captured.out or "1 of 3 seeds missing" in captured.out


def test_a_process_that_was_killed_is_called_so(tmp_path, capsys):
    arguments = ("--plans", "uniform", "--set", "how=die", "--out", tmp_path, "--workers", 2, "--no-report")
    assert run("compare", BROKEN, *arguments) == 1
    assert "ProcessDied: The trial's process died (signal SIGKILL). Was memory short?" in capsys.readouterr().err


def test_a_metric_that_is_nan_is_called_diverged(tmp_path, capsys):
    arguments = ("--plans", "uniform", "--set", "how=nan", "--out", tmp_path, "--workers", 0, "--no-report")
    assert run("compare", BROKEN, *arguments) == 0
    assert re.search(r"uniform .* seed 1  diverged", text := capsys.readouterr().out)
    assert "(diverged in 1 of 3 seeds)" in text


EXPLODING = """
import math
import torch
from trainonce.study import task

@task(terms=["a", "b"], metric="error", direction="minimize")
def exploding(trial):
    w, criterion = torch.nn.Parameter(torch.ones(1)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    criterion([w.sum() * (math.nan if trial.seed == 1 else 1)] * 2).backward()
    optimizer.step()
    return {"validation/error": w.item(), "test/error": w.item()}
"""


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_controls_that_cannot_be_trained_are_left_out_and_no_failure(tmp_path, capsys):
    (tmp_path / "exploding.py").write_text(EXPLODING)
    out = tmp_path / "out"
    given = ("--out", out, "--workers", 0, "--device", "cpu")
    for _ in range(2):
        plans = ("--plans", "yoto,final,replay", "--seeds", 2)
        assert run("compare", tmp_path / "exploding.py", *plans, *given) == 0
        said = capsys.readouterr()
        assert "final is left out in seed 0: the coefficients of the run of seed 1 diverged." in said.out
        assert "FAILED" not in said.out
        assert "Traceback" not in said.err
        assert len(Store(out).read_all()) == 4
    page = (out / "report.html").read_text()
    assert "final is left out in seed 0: the coefficients of the run of seed 1 diverged." in page


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_a_failure_of_an_earlier_version_that_is_now_left_out_is_none(tmp_path, capsys):
    (tmp_path / "exploding.py").write_text(EXPLODING)
    given = ("compare", tmp_path / "exploding.py", "--plans", "yoto,final", "--seeds", 2, "--out", tmp_path / "out")
    given += ("--workers", 0, "--device", "cpu", "--no-report")
    assert run(*given) == 0
    store = Store(tmp_path / "out")
    final = next(r for r in store.read().values() if r.rule.plan == "final")
    study = Study(load_file(tmp_path / "exploding.py").exploding, tmp_path / "out", seeds=2).add("final")
    key = next(item.keys[0] for item in study.items() if item.plan == "final" and item.seed == 0)
    store.append(dataclasses.replace(final, key=key, seed=0, status="failed"))
    assert run(*given) == 0
    assert len(store.read_all()) == 4


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_run_says_why_a_control_cannot_be_trained(tmp_path, capsys):
    (tmp_path / "exploding.py").write_text(EXPLODING)
    arguments = ("run", tmp_path / "exploding.py", "--plan", "final", "--out", tmp_path / "out", "--workers", 0)
    assert run(*arguments, "--device", "cpu") == 1
    err = capsys.readouterr().err
    assert err.endswith("The plan 'final' cannot be trained: the coefficients of the run of seed 1 diverged.\n")


def test_run_shows_the_failure_of_the_run_that_a_control_needs(tmp_path, capsys):
    arguments = ("run", BROKEN, "--plan", "final", "--out", tmp_path / "out", "--workers", 0, "--device", "cpu")
    assert run(*arguments) == 1
    said = capsys.readouterr()
    assert "left out: the run of seed 1 failed" in said.out
    assert "1 trial failed. The first, yoto init 1, decay 4, seed 1:" in said.err


def test_a_file_with_a_syntax_error_shows_it(tmp_path, capsys):
    (tmp_path / "bad.py").write_text("def x(:\n")
    assert run("compare", tmp_path / "bad.py") == 1
    assert "def x(:" in (err := capsys.readouterr().err)
    assert "cannot be loaded: SyntaxError" in err


def test_a_missing_extra_is_one_sentence_before_any_training(tmp_path, capsys, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run("compare", TASK, "--out", tmp_path, "--workers", 0) == 1
    assert capsys.readouterr().err == 'This needs matplotlib, which is not installed: pip install "trainonce[study]"\n'
    assert not list(tmp_path.rglob("history.jsonl"))


def command(*arguments):
    return [sys.executable, "-W", "error", "-m", "trainonce", *map(str, arguments)]


def test_as_a_command_from_a_file_with_processes_and_no_warning(tmp_path):
    task = tmp_path / "mine.py"
    task.write_text((TASKS).read_text().replace('"""A line with', '"""My own line with'))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONWARN", "MPL"))}
    done = subprocess.run(
        command("compare", "mine.py:line", "--plans", "yoto,grid(0.1,1),final", "--seeds", 2, "--workers", 2),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "My own line with two regularizers." in done.stdout
    assert len(Store(tmp_path / "out" / "line").read()) == 12


def _read_all(terminal, into):
    with contextlib.suppress(OSError):  # which a terminal without processes gives
        while chunk := os.read(terminal, 65536):
            into += chunk


def test_on_a_terminal_there_is_a_live_line_for_each_trial_and_ctrl_c_keeps_what_is_there(tmp_path):
    master, slave = pty.openpty()
    arguments = ("compare", TASK, "--plans", "grid(0.1,1,10)", "--seeds", 90, "--set", "pause=0.05", "--out", tmp_path)
    process = subprocess.Popen(
        command(*arguments, "--workers", 2),
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )
    os.close(slave)
    shown = bytearray()
    reader = threading.Thread(target=_read_all, args=(master, shown), daemon=True)
    reader.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (len(Store(tmp_path).read()) < 3 or shown.count(b"seed ") <= 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        code = process.wait(100)
    finally:
        process.kill()
        process.wait()
    assert code == 130
    reader.join(60)  # until the last of its processes has ended
    assert not reader.is_alive()
    text = shown.decode(errors="replace")
    assert re.search(r"\d+/810 trials", text)
    assert "Stopped. Finished trials are kept: the same command goes on from there." in text
    assert "Traceback" not in text
    kept = len(Store(tmp_path).read())
    assert 3 <= kept < 810
    assert all(r.status == "done" for r in Store(tmp_path).read().values())
    assert _tasks.line.using(pause=0.05).steps == 20


def test_a_file_that_the_task_imports_is_edited_and_its_trials_run_again(tmp_path):
    """Each time in new processes, as a user would; the page of an earlier study must not pass for a new one."""
    (tmp_path / "shift.py").write_text("BY = 0.0\n")
    (tmp_path / "mine.py").write_text(
        Path(_tasks.__file__).read_text().replace("import trainonce\n", "import trainonce\nfrom shift import BY\n")
        + "\n\n@task(terms=TERMS, metric='error', direction='minimize')\ndef moved(trial, *, steps=3):\n"
        "    return {name: value + BY for name, value in train(trial, steps).items()}\n"
    )

    def compare():
        options = ["--plans", "uniform", "--seeds", "1", "--workers", "1", "--no-report", "--out", "out"]
        command = [sys.executable, "-m", "trainonce", "compare", "mine.py:moved", *options]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120)
        return done.stdout, [record.metrics["test/error"] for record in Store(tmp_path / "out").read_all()]

    first, found = compare()
    assert compare()[1] == found
    (tmp_path / "shift.py").write_text("BY = 100.0  # a great deal\n")
    again, both = compare()
    assert "Changed since the last run: shift.py. Earlier trials are kept, and not used." in again
    assert "Changed" not in first
    assert both == [found[0], pytest.approx(found[0] + 100)]
