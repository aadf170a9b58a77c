"""A task for the tests on Slurm, in a file that jobs find."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from trainonce.study import task


@task(terms=("fit", "small"), metric="error", direction="minimize")
def plodding(trial, *, notes="", steps=10, pause=0.0, save_every=0, trouble="", once=""):
    """Fits a number, slowly where asked, with checkpoints where asked; and gets into trouble where asked.

    Each start is a line in the notes: the trial, the step it goes on from, its process. Trouble of seed 0 comes at the
    middle of the training, unless the file ``once`` says that it has been there.
    """
    saved = trial.restore()
    done = saved["step"] if saved else 0
    if notes:
        with open(notes, "ab", buffering=0) as file:
            file.write(f"{trial.dir.parent.parent.name} {done} {os.getpid()} {trial.seed}\n".encode())
    w, criterion = torch.nn.Parameter(torch.tensor([float(trial.seed)])), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.05)
    trial.attach(optimizer)
    if saved:
        with torch.no_grad():
            w.copy_(saved["w"])
        criterion.load_state_dict(saved["criterion"])
        optimizer.load_state_dict(saved["optimizer"])
    print("a first word")
    for step in range(done + 1, steps + 1):
        optimizer.zero_grad()
        criterion(fit=(w - 3).square().sum(), small=w.square().sum()).backward()
        optimizer.step()
        time.sleep(pause)
        trial.report(step, error=(w - 3).abs().item())
        if trial.should_prune():
            return None
        if save_every and step % save_every == 0:
            states = {"criterion": criterion.state_dict(), "optimizer": optimizer.state_dict()}
            trial.save({"step": step, "w": w.detach().clone(), **states})
        if trouble and trial.seed == 0 and step == steps // 2 and not (once and Path(once).exists()):
            if once:
                Path(once).touch()
            _get_into(trouble)
    error = (w - 3).abs().item()
    return {"validation/error": error, "test/error": error}


def _get_into(trouble):
    match trouble:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ZeroDivisionError("the divisor was 0")
        case "preempt":  # as Slurm does, and when the time is nearly over
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(60)
        case "leave":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
