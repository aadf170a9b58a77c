"""Studies for the tests on Slurm, and what is left of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import _slurm_tasks

from trainonce.study import Study, layout
from trainonce.study.store import Store

LOCAL = {"executor": "slurm", "options": {"cluster": "local", "max_concurrent": 3}, "show": False}


def make_study(folder, plans=("uniform",), seeds=2, **settings):
    task = _slurm_tasks.plodding.using(notes=str(folder / "notes"), **settings)
    made = Study(task, folder / "out", seeds=seeds)
    for plan in plans:
        made.add(plan)
    return made


def records(folder):
    return Store(folder / "out").read_all()


def starts(folder):
    """For each start of a training: the trial, the step it went on from, its process, its seed."""
    path = folder / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(key, *map(int, numbers)) for key, *numbers in map(str.split, lines)]


def shared(folder):
    """The folder that a study shares with its jobs."""
    return folder / "out" / layout.SLURM


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def command(folder, *more, seeds=2, cluster="local", **settings):
    """The command that does the same as :func:`make_study`."""
    settings = {"notes": folder / "notes", **settings}
    return [
        *(sys.executable, "-m", "trainonce", "compare", f"{_slurm_tasks.__file__}:plodding", "--out", folder / "out"),
        *("--plans", "uniform", "--seeds", seeds, "--no-report", "--executor", "slurm", "--cluster", cluster),
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
        *more,
    ]


def start_driver(folder, *more, **asked):
    given = list(map(str, command(folder, *more, **asked)))
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
