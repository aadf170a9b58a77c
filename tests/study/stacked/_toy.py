"""A task with what makes stacking hard: batch norm, dropout twice, a frozen layer, own and global random numbers."""

import torch
from torch import nn

from trainonce.study import task
from trainonce.study.stacked import Stackable, stack

TERMS = ("fit", "second", "small")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 6)
        self.frozen.requires_grad_(False)
        self.body = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
        self.head, self.other = nn.Linear(8, 1), nn.Linear(8, 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = self.body(self.frozen(x))
        return self.head(self.drop(h)), self.other(self.drop(h))


def losses(model, data, drawn):
    x = data["x"][drawn["rows"]]
    y, z = model(x + 0.1 * drawn["noise"])
    target = x.sum(1, keepdim=True)
    return {
        "fit": (y - target).square().mean(),
        "second": 30 * (z - target.square()).abs().mean(),
        "small": 0.01 * y.square().mean(),
    }


def made(seed, steps, lr):
    """What both ways of training have in common: data, model, a draw."""
    rng = torch.Generator().manual_seed(seed)
    data = {"x": torch.randn(40, 3, generator=rng), "held": torch.randn(20, 3, generator=rng)}
    model = Model()

    def draw():
        return {"rows": torch.randint(40, (16,), generator=rng), "noise": torch.randn(16, 3)}  # global, like dropout

    return data, model, draw, rng


def error(model, data):
    y, _ = model(data["held"])
    return (y - data["held"].sum(1, keepdim=True)).square().mean()


@task(terms=TERMS, metric="error", direction="minimize")
def toy(trial, *, steps=50, lr=0.01, optimizer="AdamW"):
    data, model, draw, rng = made(trial.seed, steps, lr)
    criterion = trial.criterion(validation=lambda: error(model, data))
    step = _optimizer(optimizer, [p for p in model.parameters() if p.requires_grad], lr)
    trial.attach(step)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(step, steps, eta_min=1e-3)
    for i in trial.loop([model, schedule, rng]):
        step.zero_grad()
        criterion(losses(model, data, draw())).backward()
        step.step()
        schedule.step()
        if (i + 1) % 10 == 0:
            with torch.no_grad():
                trial.report(i + 1, error=error(model.eval(), data).item())
            model.train()
    with torch.no_grad():
        value = error(model.eval(), data).item()
    return {"validation/error": value, "test/error": 2 * value}


def _optimizer(name, parameters, lr):
    given = {"momentum": 0.9, "weight_decay": 0.1} if name == "SGD" else {"weight_decay": 0.1}
    return getattr(torch.optim, name)(parameters, lr=lr, **given)


@stack(toy)
def parts(seed, *, steps, lr, optimizer):
    data, model, draw, _ = made(seed, steps, lr)
    return Stackable(
        model,
        draw,
        losses,
        lambda model, data: {"validation/error": error(model, data), "test/error": 2 * error(model, data)},
        lambda parameters: _optimizer(optimizer, parameters, lr),
        steps,
        lambda step: torch.optim.lr_scheduler.CosineAnnealingLR(step, steps, eta_min=1e-3),
        data,
        lambda model, data: {"error": error(model, data)},
        10,
        lambda model, data, drawn: error(model, data),
    )
