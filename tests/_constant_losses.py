"""A criterion whose losses stay the same: the exponents move by the rule alone."""

import torch
from torch import nn

import trainonce


def constant_losses(optimizer_of, losses, *, decay, steps, init=0.1, noise=0.0, whole_path=False, **options):
    """Train the exponents alone on losses of constant mean."""
    names = [f"t{i}" for i in range(len(losses))]
    criterion = trainonce.CompositeLoss(names, init=init, decay=decay, **{"lr": "model"} | options).double()
    w = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = optimizer_of([w])
    trainonce.attach(optimizer, criterion)
    values = torch.tensor(losses, dtype=torch.float64)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        factor = 1 + noise * torch.randn((), dtype=torch.float64)
        criterion(values * factor + 0 * w).backward()
        optimizer.step()
        path.append(criterion.exponents.detach().clone())
    return torch.stack(path) if whole_path else path[-1]
