"""A small trunk with two heads and three losses, which the tests of gradient units train."""

import torch
from torch import nn

import trainonce

TERMS = ["fit", "twice", "flat"]


class Heads(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.fit, self.twice = nn.Linear(8, 1), nn.Linear(8, 1)
        self.to(dtype)

    def forward(self, x):
        z = self.trunk(x)
        a, b = self.fit(z), self.twice(z)
        return {"fit": (a - x[:, :1]).square().mean(), "twice": (b - 2 * x[:, 1:2]).square().mean(), "flat": a.var()}


def batches(count, dtype=torch.float32, size=16):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 4, generator=generator).to(dtype) for _ in range(count)]


def make(units="gradient", optimizer=torch.optim.Adam, dtype=torch.float32, lr=1e-2, **options):
    torch.manual_seed(0)
    model = Heads(dtype)
    criterion = trainonce.CompositeLoss(TERMS, units=units, **options).to(dtype)
    optimizer = optimizer(model.parameters(), lr=lr)
    trainonce.attach(optimizer, criterion, decay=0.0)
    return model, criterion, optimizer


def train(model, criterion, optimizer, data, factors=(1, 1, 1)):
    for x in data:
        optimizer.zero_grad()
        losses = {name: c * loss for c, (name, loss) in zip(factors, model(x).items(), strict=True)}
        criterion(losses).backward()
        optimizer.step()
    return criterion


def norms(model, losses):
    """The norm of each loss's gradient at the trunk, by plain backward passes."""
    found = {}
    for name, loss in losses.items():
        model.zero_grad()
        loss.backward(retain_graph=True)
        found[name] = torch.cat([p.grad.flatten() for p in model.trunk.parameters()]).norm().item()
    model.zero_grad()
    return found
