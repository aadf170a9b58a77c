"""Tasks of one kind whose models, losses and optimizers are hard to stack, each by its name."""

import functools

import torch
from torch import nn

from trainonce.optim import SGDW
from trainonce.study import task
from trainonce.study.stacked import Stackable, stack

TERMS = ("fit", "small")


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(1, 8), nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.drop(self.first(x[..., None]).transpose(0, 1)).mean(0))


class Keeping(nn.Module):
    """Keeps a mean, as a buffer that is assigned or as a plain attribute, or counts its steps."""

    def __init__(self, how):
        super().__init__()
        self.how, self.last, self.steps = how, nn.Linear(4, 1), 0
        if how == "buffer":
            self.register_buffer("mean", torch.zeros(4))
        elif how == "attribute":
            self.mean = torch.zeros(4)

    def forward(self, x):
        if self.training and self.how == "counter":
            self.steps += 1
        elif self.training:
            self.mean = 0.5 * self.mean + x.detach().mean(0)
        return self.last(x) * self.steps if self.how == "counter" else self.last(x - self.mean)


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.last = scale, nn.Linear(4, 1)

    def forward(self, x):
        return self.scale * self.last(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.GRU(1, 3, batch_first=True), nn.Linear(3, 1)

    def forward(self, x):
        return self.last(self.first(x[..., None])[0][:, -1])


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.first(x[:, None], x[:, None], x[:, None], need_weights=False)[0][:, 0])


def partly_frozen():
    """A dropout and batch normalisation that were put into eval mode, beside a dropout that was not."""
    first = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)).eval()
    return nn.Sequential(first, nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))


def twice():
    drop = nn.Dropout(0.3)
    return nn.Sequential(nn.Linear(4, 6), drop, nn.ReLU(), nn.Linear(6, 6), drop, nn.Linear(6, 1))


def net():
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 1))


MODELS = {
    "transposed": lambda seed: Transposed(),
    "twice": lambda seed: twice(),
    "buffer": lambda seed: Keeping("buffer"),
    "attribute": lambda seed: Keeping("attribute"),
    "counter": lambda seed: Keeping("counter"),
    "model by seed": lambda seed: Scaled(1.0 + seed),
    "partly frozen": lambda seed: partly_frozen(),
    "recurrent": lambda seed: Recurrent(),
    "attention": lambda seed: Attending(),
    "other model": lambda seed: nn.Sequential(nn.Linear(4, 3 + seed), nn.Linear(3 + seed, 1)),
}


def batch_sizes(case):
    while True:
        yield 8
        yield 1 if case == "small batches" else 8


def made(seed, case):
    rng, sizes = torch.Generator().manual_seed(seed), batch_sizes(case)
    data = {"x": torch.randn(32 + (seed if case == "other size" else 0), 4, generator=rng)}
    model = MODELS.get(case, lambda seed: net())(seed)
    left = iter(range(5))

    def draw():
        if case == "few batches":
            next(left)
        rows = torch.randint(32, (next(sizes),), generator=rng)
        return {"rows": rows.numpy() if case == "numpy" else rows}

    return data, model, draw


def losses_of(seed, case):
    factor = 1.0 + seed if case == "losses by seed" else 1.0

    def losses(model, data, drawn):
        x = data["x"][drawn["rows"]]
        y = factor * model(x)
        return {"fit": (y - x.sum(1, keepdim=True)).square().mean(), "small": 3 * (y - 1).abs().mean()}

    return losses


OPTIMIZERS = {
    "Adagrad": functools.partial(torch.optim.Adagrad, initial_accumulator_value=0.1),
    "Adamax": torch.optim.Adamax,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": torch.optim.RMSprop,
    "SGDW": SGDW,
}


def optimizer_of(case, parameters):
    if case == "groups":
        matrices, others = ([p for p in parameters if (p.dim() > 1) == large] for large in (True, False))
        groups = [{"params": matrices, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0, "lr": 0.01}]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    optimizer = OPTIMIZERS.get(case, torch.optim.AdamW)(parameters, lr=0.05, weight_decay=0.1)
    if case == "hook":
        optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


def error(model, data):
    return (model(data["x"]) - data["x"].sum(1, keepdim=True)).square().mean()


@task(terms=TERMS, metric="error", direction="minimize")
def hard(trial, *, steps=8, case=""):
    data, model, draw = made(trial.seed, case)
    losses, criterion = losses_of(trial.seed, case), trial.criterion()
    optimizer = optimizer_of(case, list(model.parameters()))
    trial.attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(losses(model, data, draw())).backward()
        optimizer.step()
    with torch.no_grad():
        value = error(model.eval(), data).item()
    return {"validation/error": value, "test/error": value}


@stack(hard)
def parts(seed, *, steps, case):
    data, model, draw = made(seed, case)
    own = dict(data)

    def metrics(model, data):
        value = error(model, own if case == "metrics by seed" else data)
        return {f"{split}/error": 1.0 if case == "numbers" else value for split in ("validation", "test")}

    return Stackable(
        model,
        draw,
        losses_of(seed, case),
        metrics,
        lambda parameters: optimizer_of(case, parameters),
        steps,
        torch.optim.lr_scheduler.ReduceLROnPlateau if case == "plateau" else None,
        data,
    )
