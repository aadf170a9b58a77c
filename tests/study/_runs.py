"""Run a task as a user would: in this process, or with the command under torchrun; and read what was recorded."""

import collections
import functools
import os
import subprocess
import sys
from pathlib import Path

import _tasks

from trainonce.study import Study
from trainonce.study.store import Store


def train(out, task, plan="yoto", **settings):
    study = Study(task.using(**settings), out, seeds=1).add(plan)
    study.run(workers=0, show=False, device="cpu")
    record = list(study.store.read().values())[-1]
    assert record.status == "done", record.error
    return record, study.store.folder(record.key)


def torchrun(folder, *arguments, code=0):
    """The command under torchrun, with two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "--no-python"]
    command += [sys.executable, "-m", "trainonce", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def study(path, task=_tasks.line, plans=("yoto", "grid(0.1,1)"), seeds=2, **settings):
    made = Study(task.using(**settings), path, seeds=seeds)
    for plan in plans:
        made.add(plan)
    made.run = functools.partial(made.run, device="cpu")  # a forked process cannot use CUDA
    return made


def records(path):
    return Store(path).read_all()


def keys_of(study):
    return {key for item in study.items() for key in item.keys}


def starts(notes):
    """When each trial was started."""
    found = collections.defaultdict(list)
    for line in Path(notes).read_text().splitlines() if Path(notes).exists() else ():
        key, _, when = line.partition(" ")
        found[key].append(float(when))
    return found
