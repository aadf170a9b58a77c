"""A tiny task for the arena's tests: a regression with two auxiliary terms, one of them on a head of its own."""

import torch
from torch import nn

from benchmarks.arena.task import Task


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.head = nn.Linear(6, 1)
        self.side = nn.Linear(6, 2)

    def forward(self, x, which):
        return (self.head if which == "head" else self.side)(self.trunk(x))


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for split, count in (("train", 40), ("validation", 30), ("test", 30)):
        x = torch.randn(count, 3, generator=generator)
        found[f"{split}_x"] = x
        found[f"{split}_y"] = x.sin().sum(-1, keepdim=True)
    return found


def draw(generator):
    return {
        "rows": torch.randint(40, (10,), generator=generator),
        "held": torch.randint(30, (10,), generator=generator),
        "noise": 0.3 * torch.randn(10, 3, generator=generator),
    }


def losses(net, data, draw):
    x, y = data["train_x"][draw["rows"]], data["train_y"][draw["rows"]]
    found = net(x, "head")
    return torch.stack(
        [
            (found - y).square().mean(),
            (found - net(x + draw["noise"], "head")).square().mean(),
            (net(x, "side") - x[:, :2]).square().mean(),
        ]
    )


def held_out(net, data, draw):
    rows = draw["held"]
    return (net(data["validation_x"][rows], "head") - data["validation_y"][rows]).square().mean()


def score(net, data, split):
    return (net(data[f"{split}_x"], "head") - data[f"{split}_y"]).square().mean()


TOY = Task(
    name="toy",
    terms=("fit", "smooth", "side"),
    metric="error",
    higher=False,
    steps=50,
    lr=0.01,
    shared=("trunk.",),
    last=("trunk.2.",),
    data=data,
    model=Toy,
    draw=draw,
    losses=losses,
    held_out=held_out,
    score=score,
    sgd_lr=0.05,
    betas=(0.9, 0.99),
)
