"""A task over several processes, each with its share of the batch."""

import multiprocessing
import os
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from trainonce.study import task


@task(terms=("fit", "small"), metric="error", direction="minimize")
def shared(trial, *, steps=10, trouble="", pause=0.0, save_every=0, notes=""):
    """Fits a number under DistributedDataParallel; each process has other data."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trial.attach(optimizer)
    loop = trial.loop([model])
    if notes:
        with open(notes, "ab", buffering=0) as file:
            file.write(f"{rank} {loop.start} {multiprocessing.parent_process().pid}\n".encode())
    x = torch.arange(4.0)[rank::size, None] / 4
    for step in loop:
        if save_every and step and step % save_every == 0:
            loop.snapshot()
        time.sleep(pause)
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
