"""Small tasks for the tests of studies, in a file so that worker processes find them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

import trainonce
from trainonce.study import task

TERMS = ("fit", "small", "flat")


def train(trial, steps, lr=0.1, each=None):
    """A line through noisy points; the other two terms pull its slope and offset to 0."""
    rng = torch.Generator().manual_seed(trial.seed)
    x = torch.randn(48, generator=rng).to(trial.device)
    y = 2 * x + 1 + torch.randn(48, generator=rng).to(trial.device) / 2
    w = torch.nn.Parameter(torch.zeros(2, device=trial.device))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD([w], lr=lr)
    trial.attach(optimizer)

    def error(part):
        return (w[0] * x[part] + w[1] - y[part]).square().mean()

    for step in trial.loop([torch.nn.ParameterList([w])], steps=steps):
        optimizer.zero_grad()
        criterion(fit=error(slice(16)), small=w[0].square() + 0.1, flat=w[1].square() + 0.1).backward()
        optimizer.step()
        if each is not None:
            each(step + 1, error(slice(16, 32)).item())
    return {"validation/error": error(slice(16, 32)).item(), "test/error": error(slice(32, 48)).item()}


@task(terms=TERMS, metric="error", direction="minimize", margin=0.1)
def line(trial, *, steps=20, lr=0.1, pause=0.0):
    """A line with two regularizers."""

    def each(step, value):
        time.sleep(pause)
        if step % 2 == 0:
            trial.report(step, error=value)

    return train(trial, steps, lr, each)


@task(terms=TERMS, metric="error", direction="minimize")
def noted(trial, *, notes="", pause=0.01):
    """Writes a line when it starts: which trial, and when."""
    with open(notes, "ab", buffering=0) as file:
        file.write(f"{trial.dir.name} {time.time()}\n".encode())
    time.sleep(pause)
    return train(trial, 3)


@task(terms=TERMS, metric="error", direction="minimize")
def gambler(trial, *, widths=[1]):  # noqa: B006 a setting that it changes is what is tested
    """Draws from the global random state in every step, and changes its settings."""
    widths.append(len(widths))
    drawn = [0.0]

    def each(step, value):
        drawn[0] += torch.rand(()).item()

    return train(trial, 5, each=each) | {"drawn": drawn[0], "widths": len(widths)}


@task(terms=TERMS, metric="error", direction="minimize")
def vanishing(trial):
    """A term that is exactly 0, at which a logarithm has no slope."""
    w, criterion = torch.nn.Parameter(torch.ones(3)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        criterion((w * torch.tensor([0.0, 1.0, 1.0])).square()).backward()
        optimizer.step()
    return {"validation/error": 1.0, "test/error": 1.0}


@task(terms=TERMS, metric="error", direction="minimize")
def troubled(trial, *, how="raise", seed=1, marker="", steps=6):
    """Goes wrong in a given way for one seed; with a marker only as long as that file is there."""
    if trial.seed != seed or (marker and not Path(marker).exists()):
        return train(trial, steps)
    print("a word before the trouble")
    match how:
        case "third":
            done = len(list(trial.dir.parent.iterdir()))
            return train(trial, steps) if done != 3 else None
        case "slow":
            time.sleep(0.3)
            raise ZeroDivisionError
        case "thread":
            threading.Thread(target=time.sleep, args=(60,)).start()
            return train(trial, steps)
        case "child":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            return train(trial, steps)
        case "orphan":
            if os.fork() == 0:
                time.sleep(60)
            os._exit(7)
        case "chdir":
            os.chdir("/")
            return train(trial, steps)
        case "quit":
            sys.exit()
        case "raise":

            def each(step, _):
                if step > steps // 2:
                    raise ZeroDivisionError("the divisor was 0")

            return train(trial, steps, each=each)
        case "nan":
            return train(trial, steps) | {"test/error": float("nan")}
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "nothing":
            train(trial, steps)
            return None
        case "names":
            return {"val/error": 1.0, "test/error": 1.0}
        case "text":
            return {"validation/error": "good", "test/error": 1.0}
        case "detached":
            return {"validation/error": 1.0, "test/error": 1.0}
    return None


class FakeTrial:
    """As much of a trial as a task needs, around a given criterion; records nothing but the validation loss."""

    device = torch.device("cpu")
    paused = False

    def __init__(self, criterion, seed=0, history=None):
        self.made, self.seed, self.reports, self.history = criterion, seed, [], history

    def criterion(self, *, validation=None):
        self.validation = validation
        return self.made

    def attach(self, optimizer):
        return trainonce.attach(optimizer, self.made, history=self.history)

    def loop(self, parts):
        """As many steps as the cosine of the learning rate has."""
        return range(next(part.T_max for part in parts if hasattr(part, "T_max")))

    def report(self, step, **metrics):
        self.reports.append((step, metrics))


@task(terms=TERMS, metric="error", direction="minimize")
def gated(trial, *, notes="", gate=""):
    """Takes a snapshot, notes where it begins, and goes on once a file is there."""
    w, criterion = torch.nn.Parameter(torch.ones(3)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    loop = trial.loop([w], steps=2000)
    for step in loop:
        if step == max(1, loop.start):
            loop.snapshot()
            with open(notes, "ab", buffering=0) as file:
                file.write(f"{trial.dir.name} {time.time()} {'saved' if loop.start else 'new'}\n".encode())
        if not os.path.exists(gate):
            time.sleep(0.05)
        optimizer.zero_grad()
        criterion(w.square()).backward()
        optimizer.step()
    return {"validation/error": w.sum().item(), "test/error": w.sum().item()}
