"""A small training whose history the tests read."""

import itertools
import json
import math

import torch
from torch import nn

from trainonce import CompositeLoss, attach

TERMS = ["fit", "small", "smooth"]


class Run:
    """A small regression with three losses; ``step`` does one real optimizer step and notes the losses it used."""

    def __init__(self, history=None, *, criterion=None, dtype=torch.float32, lr=0.05, decay=1.0, **options):
        torch.manual_seed(1)
        self.model = nn.Linear(4, 2, dtype=dtype)
        self.data = torch.randn(64, 8, 4, dtype=dtype)
        self.criterion = criterion or CompositeLoss(TERMS, init=0.5, decay=decay, lr="model").to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, **options)
        self.attachment = attach(self.optimizer, self.criterion, history=history)
        self.batches = itertools.cycle(self.data)

    def losses(self):
        x = next(self.batches)
        y = self.model(x)
        return {
            "fit": ((y - x[:, :2]) ** 2).mean() + 0.1,
            "small": (self.model.weight**2).mean() + 0.2,
            "smooth": (y[1:] - y[:-1]).abs().mean(),
        }

    def backward(self, **change):
        losses = self.losses() | change
        self.criterion(losses).backward()
        return {k: math.nan if v is None else v.item() for k, v in losses.items()}

    def step(self, **change):
        self.optimizer.zero_grad()
        used = self.backward(**change)
        self.optimizer.step()
        return used

    def steps(self, count):
        return [self.step() for _ in range(count)]


def rows(path):
    """The rows of a file as a strict JSON reader sees them, without the first line."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    lines = path.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines][1:]
