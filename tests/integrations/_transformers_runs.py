"""Short trainings by the Trainer, of the common problem."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import transformers
from _problem import Case, data
from _transformers import Model, arguments, collate
from safetensors.torch import load_file

from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


CASE = Case(steps=4)
SHARDED = Case(steps=4, clip=0.5, schedule=True)
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "label_names": ["y"], "eval_dataset": data(Case(steps=3))}


def make(folder: Path, case: Case = CASE, *, model: nn.Module | None = None, kind: Any = Trainer, **more: Any) -> Any:
    """A Trainer of the problem. What it does not know of are training arguments."""
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    changed = {key: more.pop(key) for key in list(more) if key in fields}
    model = Model(case) if model is None else model
    given = {"decay": case.decay, "weights_lr": case.lr, "train_dataset": data(case), "data_collator": collate}
    return kind(model, arguments(folder, case, **changed), **given | more)


def trained(folder: Path, case: Case = CASE, **more: Any) -> Any:
    trainer = make(folder, case, **more)
    trainer.train()
    return trainer


def exponents(trainer: Any) -> list[float]:
    return trainer.model.criterion.exponents.tolist()


def exponents_in(checkpoint: Path) -> list[float]:
    return load_file(checkpoint / "model.safetensors")["criterion.exponents"].tolist()
