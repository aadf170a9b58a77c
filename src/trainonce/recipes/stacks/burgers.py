"""The burgers recipe in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainonce.recipes import burgers as recipe
from trainonce.study.stacked import Stackable, stack

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainonce.study.stacked.stackable import Tensors


@stack(recipe.burgers)
def parts(seed: int, *, steps: int, lr: float) -> Stackable:
    rng, cpu = torch.Generator().manual_seed(seed), torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = recipe.Model()
    held_out = recipe.load()._asdict()
    return Stackable(
        model,
        lambda: recipe.draw(rng, cpu)._asdict(),
        losses,
        lambda model, data: {f"{name}/error": error(model, data, name) for name in ("validation", "test")},
        lambda parameters: torch.optim.Adam(parameters, lr=lr, betas=(0.95, 0.95), fused=True),
        steps,
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        {f"{name}_{column}": value for name, part in held_out.items() for column, value in part._asdict().items()},
        lambda model, data: {"error": error(model, data, "validation")},
        max(1, steps // 27),
        validation,
    )


def losses(model: nn.Module, data: Tensors, drawn: Tensors) -> dict[str, Tensor]:
    assert isinstance(model, recipe.Model)
    return recipe.losses(model, recipe.Batch(**drawn))


def validation(model: nn.Module, data: Tensors, drawn: Tensors) -> Tensor:
    found: Tensor = (model(data["validation_points"].float()) - data["validation_solution"].float()).square().mean()
    return found


def error(model: nn.Module, data: Tensors, name: str) -> Tensor:
    solution = data[f"{name}_solution"]
    u = model(data[f"{name}_points"].float()).double()
    found: Tensor = 100 * (u - solution).norm() / solution.norm()
    return found
