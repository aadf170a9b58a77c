"""A task that goes back in its training, for plans with branches, and one that cannot."""

import os
from pathlib import Path

import torch
from torch import nn

from trainonce.study import Study, task

STEPS = 60


@task(terms=("fit", "wrong"), metric="error", direction="minimize")
def line(trial, *, steps=STEPS, keep=5, stop_at=0, flag="", log=""):
    """A line that the second term pulls away from; ``stop_at`` fails once, after so many calls of the loop."""
    saved = trial.restore()
    model = nn.Linear(2, 1)
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    trial.attach(optimizer)
    if saved is not None:
        for name, part in (("model", model), ("optimizer", optimizer), ("criterion", criterion)):
            part.load_state_dict(saved[name])

    def error():
        with torch.no_grad():
            return (model(torch.eye(2)) - 1).square().mean().item()

    for calls, step in enumerate(trial.loop([model, optimizer], first=saved["step"] if saved else 0), start=1):
        if calls == stop_at and not os.path.exists(flag):
            Path(flag).touch()
            raise RuntimeError("stopped")
        if log:
            with open(log, "a") as file:
                file.write(f"{step}\n")
        x = torch.randn(8, 2, generator=torch.Generator().manual_seed(step))
        y = model(x)
        optimizer.zero_grad()
        criterion(fit=(y - x.sum(1, keepdim=True)).square().mean(), wrong=(y - 5).square().mean()).backward()
        optimizer.step()
        if trial.wants_score:
            trial.score(error())
        if keep and (step + 1) % keep == 0:
            trial.report(step + 1, error=error())
            parts = {"model": model, "optimizer": optimizer, "criterion": criterion}
            trial.save({"step": step + 1, **{name: part.state_dict() for name, part in parts.items()}})
    return {"validation/error": error(), "test/error": error(), "bias": model.bias.item()}


@task(terms=("fit", "wrong"), metric="error", direction="minimize")
def without_loop(trial, *, steps=40):
    model = nn.Linear(2, 1)
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trial.attach(optimizer)
    for _ in range(steps):
        y = model(torch.eye(2))
        criterion(fit=y.square().mean(), wrong=y.abs().mean()).backward()
        optimizer.step()
    return {"validation/error": 1.0, "test/error": 1.0}


def run(folder, plan, made=line, **settings):
    study = Study(made.using(**settings), folder, seeds=1).add(plan)
    study.run(workers=0, show=False, device="cpu")
    (record,) = study.store.read().values()
    return study, record
