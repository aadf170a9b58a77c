"""The command with names that mean something to a parser, a file system or a terminal."""

import os
import subprocess
import sys
from pathlib import Path

from trainonce import cli


def run(*arguments):
    return cli.main([str(a) for a in arguments])


HOSTILE = r'''
import torch
from trainonce.study import task

@task(terms=["<b>b_{$", "$\\frac", "$^2"], metric="acc $\\frac", direction="minimize", unit="$", select="dev $",
      report="test_{$}", name="../$\\frac <script> 🔥")
def hostile(trial, *, steps=3):
    """A task with $\\frac in its docstring."""
    torch.manual_seed(trial.seed)
    w = torch.nn.Parameter(torch.randn(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    criterion = trial.criterion()
    trial.attach(optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        criterion([(w**2).sum(), w.abs().sum(), (w - 1).abs().sum()]).backward()
        optimizer.step()
        trial.report(step + 1, **{"acc $\\frac": float(w.detach().norm())})
    return {f"{split}/acc $\\frac": float(w.detach().norm()) for split in ("dev $", "test_{$}")}
'''


def test_a_task_with_any_names_is_compared_and_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("hostile.py").write_text(HOSTILE, encoding="utf-8")
    plans = "yoto,grid(0.1,1),sweep-init(0.1,1)"
    assert run("compare", "hostile.py", "--plans", plans, "--seeds", 2, "--workers", 0) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "../$\\frac <script> 🔥: A task with $\\frac in its docstring." in shown.out
    (folder,) = Path("out").iterdir()  # beside nothing else, and not above it
    assert Path(shown.out.strip().splitlines()[-1].removeprefix("Report: ")) == folder / "report.html"
    assert "<script> 🔥" not in (folder / "report.html").read_text(encoding="utf-8")
    assert len(list((folder / "figures").glob("*.png"))) > 10
    assert sorted(path.name for path in Path().iterdir() if path.name != "__pycache__") == ["hostile.py", "out"]
    assert run("run", "hostile.py", "--plan", "yoto", "--workers", 0) == 0
    assert "test_{$}/acc $\\frac" in capsys.readouterr().out


def test_a_terminal_that_lacks_a_character_gets_a_question_mark(tmp_path):
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    command = [sys.executable, "-m", "trainonce", "run", "hostile.py", "--plan", "yoto", "--workers", "0"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<script> ?: A task" in done.stdout
