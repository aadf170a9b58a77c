"""The distillation recipe in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from trainonce.recipes import distillation as recipe
from trainonce.recipes.digits import noisy
from trainonce.recipes.stacks.digits import accuracy, validation
from trainonce.study.stacked import Stackable, stack

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainonce.study.stacked.stackable import Tensors


@stack(recipe.distillation)
def parts(seed: int, *, steps: int, lr: float) -> Stackable:
    data, teacher = recipe.load(seed), recipe.advice(seed)
    rng = torch.Generator().manual_seed(seed)

    def draw() -> Tensors:
        batch = torch.randint(recipe.UNLABELLED, (recipe.BATCH,), generator=rng)
        seen = noisy(torch.cat([data.labelled.images, data.unlabelled.images[batch]]), rng)
        return {"seen": seen, "advice": teacher[batch]}

    held_out = {"validation": data.validation, "test": data.test}
    kept = {"labels": data.labelled.labels}
    kept |= {f"{name}_{column}": getattr(p, column) for name, p in held_out.items() for column in ("images", "labels")}
    return Stackable(
        recipe.network(32, seed),
        draw,
        losses,
        lambda model, data: {f"{name}/accuracy": accuracy(model, data, name) for name in held_out},
        lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        steps,
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        kept,
        lambda model, data: {"accuracy": accuracy(model, data, "validation")},
        max(1, steps // 27),
        validation,
    )


def losses(model: nn.Module, data: Tensors, drawn: Tensors) -> dict[str, Tensor]:
    logits, copies = model(drawn["seen"]).split([len(data["labels"]), recipe.BATCH])
    return {
        "ce": F.cross_entropy(logits, data["labels"]),
        "distillation": recipe.distillation_loss(copies, drawn["advice"]),
    }
