"""The digits recipe in parts: views and noise are drawn, the model and its losses are stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from trainonce.recipes.digits import BATCH, Model, consistency, digits, load, noisy, view
from trainonce.study.stacked import Stackable, stack

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainonce.study.stacked.stackable import Tensors


@stack(digits)
def parts(seed: int, *, steps: int, lr: float) -> Stackable:
    data, rng = load(seed), torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model()

    def draw() -> Tensors:
        images = data.unlabelled.images[torch.randint(len(data.unlabelled.images), (BATCH,), generator=rng)]
        labelled, plain, moved = noisy(data.labelled.images, rng), noisy(images, rng), view(images, rng)
        return {"seen": torch.cat([labelled, plain, moved]), "clean": images.flatten(1)}

    held_out = {"validation": data.validation, "test": data.test}
    kept = {"labels": data.labelled.labels}
    kept |= {f"{name}_{column}": getattr(p, column) for name, p in held_out.items() for column in ("images", "labels")}
    return Stackable(
        model,
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
    assert isinstance(model, Model)
    codes = model.encoder(drawn["seen"])
    logits, plain, moved = model.classes(codes).split([len(data["labels"]), BATCH, BATCH])
    return {
        "ce": F.cross_entropy(logits, data["labels"]),
        "consistency": consistency(plain, moved),
        "reconstruction": (model.decoder(codes[-BATCH:]) - drawn["clean"]).square().mean(),  # vmap fails in mse_loss
    }


def validation(model: nn.Module, data: Tensors, drawn: Tensors) -> Tensor:
    return F.cross_entropy(model(data["validation_images"]), data["validation_labels"])


def accuracy(model: nn.Module, data: Tensors, name: str) -> Tensor:
    right = model(data[f"{name}_images"]).argmax(1) == data[f"{name}_labels"]
    found: Tensor = 100 * right.double().mean()
    return found
