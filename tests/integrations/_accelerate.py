"""Accelerate: prepare, accumulate, clip, save_state and load_state. The criterion lies beside the model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import accelerate
from _problem import Case, Net, Result, criterion, data, evaluate, falling, optimizer, result, terms
from _tester import Adapter
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader

import trainonce
from trainonce.integrations.accelerate import attach

if TYPE_CHECKING:
    from pathlib import Path


class Accelerate(Adapter):
    name = "Accelerate"
    module = "_accelerate"
    packages = ("accelerate",)
    extra = integration = "accelerate"

    def train(self, folder: Path, case: Case) -> Result:
        return self._run(folder, case, range(case.steps))

    def interrupted(self, folder: Path, case: Case, after: int) -> Result:
        self._run(folder, case, range(after))
        return self._run(folder, case, range(after, case.steps))

    def _run(self, folder: Path, case: Case, steps: range) -> Result:
        AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=case.accumulate)
        model, chosen = Net(case.dtype), criterion(case)
        made = optimizer(model)
        attach(accelerator, made, chosen)
        loader = DataLoader(data(case), 8 // int(os.environ.get("WORLD_SIZE", "1")))
        forward, made, loader, schedule = accelerator.prepare(model, made, loader, falling(made, case))
        if steps.start:
            accelerator.load_state(str(folder))
        logged: dict[str, list[float]] = {}
        wanted = range(steps.start * case.accumulate, steps.stop * case.accumulate)
        for batch, (x, y) in enumerate(loader):
            if batch not in wanted:
                continue
            with accelerator.accumulate(forward):
                accelerator.backward(chosen(terms(forward(x), y)))
                if accelerator.sync_gradients and case.clip is not None:
                    accelerator.clip_grad_norm_(trainonce.model_parameters(forward), case.clip)
                made.step()
                schedule.step()
                made.zero_grad()
            for name, value in chosen.log_dict().items():
                logged.setdefault(name, []).append(value.item())
            chosen.eval()
            evaluate(forward, chosen, case)
            chosen.train()
        accelerator.save_state(str(folder))
        return result(model, chosen, **logged)


ADAPTER = Accelerate()
