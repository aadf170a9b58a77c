"""Plain torch under torchrun: the baseline, in double precision. DistributedDataParallel wraps the model alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from _problem import Case, Net, Result, criterion, data, evaluate, falling, optimizer, result, terms
from _tester import Adapter
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import trainonce

if TYPE_CHECKING:
    from pathlib import Path


class PlainTorch(Adapter):
    name = "plain torch, torchrun"
    module = "_torch"
    packages = ()
    extra = integration = ""
    dtype = torch.float64
    tolerance = 1e-12

    def train(self, folder: Path, case: Case) -> Result:
        return self._run(folder, case, range(case.steps))

    def interrupted(self, folder: Path, case: Case, after: int) -> Result:
        self._run(folder, case, range(after))
        return self._run(folder, case, range(after, case.steps))

    def _run(self, folder: Path, case: Case, steps: range) -> Result:
        two = distributed.is_torchelastic_launched()
        if two:
            distributed.init_process_group("gloo")
        model, chosen = Net(case.dtype), criterion(case)
        made = optimizer(model)
        trainonce.attach(made, chosen)
        schedule = falling(made, case)
        kept, path = {"model": model, "criterion": chosen, "optimizer": made, "schedule": schedule}, folder / "kept.pt"
        if steps.start:
            saved = torch.load(path, weights_only=True)
            for name, part in kept.items():
                part.load_state_dict(saved[name])
        forward = DistributedDataParallel(model) if two else model
        everything = data(case)
        sampler = DistributedSampler(everything, shuffle=False) if two else None
        batches = list(DataLoader(everything, 4 if two else 8, sampler=sampler))
        logged: dict[str, list[float]] = {}
        for step in steps:
            for x, y in batches[step * case.accumulate : (step + 1) * case.accumulate]:
                (chosen(terms(forward(x), y)) / case.accumulate).backward()
            if case.clip is not None:
                torch.nn.utils.clip_grad_norm_(trainonce.model_parameters(model), case.clip)
            made.step()
            made.zero_grad()
            schedule.step()
            for name, value in chosen.log_dict().items():
                logged.setdefault(name, []).append(value.item())
            chosen.eval()
            evaluate(forward, chosen, case)
            chosen.train()
        folder.mkdir(exist_ok=True)
        torch.save({name: part.state_dict() for name, part in kept.items()}, path)
        self.alive = forward  # until the worker exits: taking gloo's group down can hang
        return result(model, chosen, **logged)


ADAPTER = PlainTorch()
