"""Hugging Face Trainer: the model holds the criterion and calls it in forward."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch
import transformers
from _problem import BATCH, Case, Net, Result, criterion, data, evaluate, optimizer, result, terms
from _tester import Adapter
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Subset

from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path


class Model(nn.Module):
    """The problem as the Trainer likes it: losses in, a dict with the loss out."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.net, self.criterion = case, Net(case.dtype), criterion(case)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        if not self.training:
            evaluate(self.net, self.criterion, self.case)
        return {"loss": self.criterion(terms(self.net(x), y))}


def collate(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    x, y = zip(*samples, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


def arguments(
    folder: Path, case: Case, kind: type = transformers.TrainingArguments, **more: object
) -> transformers.TrainingArguments:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    AcceleratorState._reset_state(reset_partial_state=True)
    given = {
        "output_dir": str(folder),
        "max_steps": case.steps,
        "per_device_train_batch_size": 8 // processes,
        "gradient_accumulation_steps": case.accumulate,
        "max_grad_norm": case.clip or 0.0,
        "lr_scheduler_type": "linear" if case.schedule else "constant",
        "train_sampling_strategy": "sequential",
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "ddp_backend": "gloo" if processes > 1 else None,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "report_to": "none",
    }
    return kind(**given | more)


class StopAfter(transformers.TrainerCallback):
    """As if the run were killed, right after a checkpoint."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.steps:
            control.should_save = control.should_training_stop = True


CASE = Case(steps=4)
SHARDED = Case(steps=4, clip=0.5, schedule=True)
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "label_names": ["y"], "eval_dataset": data(Case(steps=3))}


def make(folder: Path, case: Case = CASE, *, model: nn.Module | None = None, kind: Any = Trainer, **more: Any) -> Any:
    """A Trainer of the problem. What it does not know of are training arguments."""
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    changed = {key: more.pop(key) for key in list(more) if key in fields}
    model = Model(case) if model is None else model
    given = {"train_dataset": data(case), "data_collator": collate}
    return kind(model, arguments(folder, case, **changed), **given | more)


def trained(folder: Path, case: Case = CASE, **more: Any) -> Any:
    trainer = make(folder, case, **more)
    trainer.train()
    return trainer


def exponents(trainer: Any) -> list[float]:
    return trainer.model.criterion.exponents.tolist()


def exponents_in(checkpoint: Path) -> list[float]:
    return load_file(checkpoint / "model.safetensors")["criterion.exponents"].tolist()


class HuggingFace(Adapter):
    name = "Hugging Face Trainer"
    module = "_transformers"
    packages = ("transformers",)
    extra = "hf"
    integration = "transformers"

    def train(self, folder: Path, case: Case) -> Result:
        return self._run(folder, case)

    def interrupted(self, folder: Path, case: Case, after: int) -> Result:
        self._run(folder, case, callbacks=[StopAfter(after)])
        return self._run(folder, case, resume=str(folder / f"checkpoint-{after}"))

    def _run(self, folder: Path, case: Case, resume: str | None = None, **more: object) -> Result:
        model = Model(case)
        evaluated = {"eval_strategy": "steps", "eval_steps": 1, "label_names": ["y"]}
        trainer = Trainer(
            model,
            arguments(folder, case, **evaluated if case.evaluate else {}),
            eval_dataset=Subset(data(case), range(BATCH)),
            train_dataset=data(case),
            data_collator=collate,
            optimizers=(optimizer(model), None),
            **more,
        )
        trainer.train(resume_from_checkpoint=resume)
        logged: dict[str, list[float]] = {}
        for row in trainer.state.log_history:
            for name in row.keys() & set(model.criterion.log_dict()):
                logged.setdefault(name, []).append(row[name])
        return result(model.net, model.criterion, **logged)


ADAPTER = HuggingFace()
