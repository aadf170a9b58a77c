"""Tasks for the tests on clusters."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import torch

from trainonce.study import InputError, task

TERMS = ("fit", "small")


def note(path, *words):
    """Append a line, in one write, to a file that tests read: all workers of the tests see one file system."""
    if path:
        with open(path, "ab", buffering=0) as file:
            file.write((" ".join(map(str, words)) + "\n").encode())


@task(terms=TERMS, metric="error", direction="minimize")
def steady(trial, *, notes="", steps=10, pause=0.0, save_every=0, trouble="", seed_of_trouble=0):
    """Fits a number, slowly where asked, with checkpoints where asked; and gets into trouble where asked."""
    worker = multiprocessing.parent_process()
    w = torch.nn.Parameter(torch.tensor([float(trial.seed)]))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.05)
    trial.attach(optimizer)
    loop = trial.loop([torch.nn.ParameterList([w])])
    note(notes, trial.dir.name, trial.seed, loop.start, worker.pid if worker else 0, time.time())
    if trial.seed == seed_of_trouble:
        _get_into(trouble, trial)
    for done in loop:
        if save_every and done and done % save_every == 0:
            loop.snapshot()
        optimizer.zero_grad()
        criterion(fit=(w - 3).square().sum(), small=w.square().sum()).backward()
        optimizer.step()
        time.sleep(pause)
        trial.report(done + 1, error=(w - 3).abs().item())
    print("a last word")
    error = (w - 3).abs().item()
    return {"validation/error": error, "test/error": error}


@task(terms=TERMS, metric="error", direction="minimize")
def visible(trial, *, notes="", together=1):
    """Notes which GPUs its process sees; when all have, ends it, since there may be no GPU to train on."""
    note(notes, trial.device, os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    end = time.monotonic() + 60
    while len(Path(notes).read_text().splitlines()) < together and time.monotonic() < end:
        time.sleep(0.1)
    os._exit(3)


def _get_into(trouble, trial):
    match trouble:
        case "kill worker":
            os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
            time.sleep(60)
        case "die":
            print("a word before the trouble", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ZeroDivisionError("the divisor was 0")
        case "input":
            raise InputError("The data is not where it should be.")


class Start(NamedTuple):
    """What a training noted when it started."""

    key: str
    seed: int
    done: int
    worker: int
    when: float


def starts(path):
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return [Start(key, *map(int, numbers), float(when)) for key, *numbers, when in map(str.split, lines)]
