"""Run a task as a user would: in this process, or with the command under torchrun."""

import os
import subprocess
import sys

from trainonce.study import Study


def train(out, task, plan="one-shot", **settings):
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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
