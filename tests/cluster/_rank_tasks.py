"""A task over several processes, each with its share of the batch."""

import os

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from trainonce.study import task


@task(terms=("fit", "small"), metric="error", direction="minimize")
def shared(trial, *, steps=10, trouble=""):
    """Fits a number under DistributedDataParallel; each process has other data."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trial.attach(optimizer)
    x = torch.arange(4.0)[rank::size, None] / 4
    for step in range(steps):
        if trouble == "follower" and rank == 1 and step == 3:
            raise ZeroDivisionError("a follower's divisor was 0")
        if trouble == "first" and rank == 0 and step == 3:
            raise ZeroDivisionError("the first one's divisor was 0")
        if trouble == "exit" and rank == 1 and step == 3:
            os._exit(3)
        optimizer.zero_grad()
        out = model(x)
        criterion(fit=(out - 2 * x).square().mean(), small=out.square().mean()).backward()
        optimizer.step()
    total = torch.tensor(float(rank + 1))
    distributed.all_reduce(total)
    error = (out - 2 * x).square().mean().item()
    return {"validation/error": error, "test/error": error, "sum of ranks": total.item(), "processes": float(size)}
