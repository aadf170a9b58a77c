"""A task of the size of ResNet-18 on images of 64 x 64 pixels, one by one or stacked, for the time it takes.

    python benchmarks/executors.py --task benchmarks.resnet_task:resnet18 --executors one-by-one,stacked --trials 8 \
        --out scale.jsonl

The images are made: noise with one of eight patterns, seen upright or turned. The network learns which pattern it is
(the base loss) and whether it is turned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import _models
from trainonce.study import Trial, task
from trainonce.study.stacked import Stackable, stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIDE, CLASSES, BATCH = 64, 8, 32
SIZES = {"train": 1024, "validation": 256, "test": 256}


def made_data(seed: int) -> dict[str, Tensor]:
    """Images and labels of each split; the patterns are the same for all seeds."""
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    rng, data = torch.Generator().manual_seed(seed), {}
    for split, size in SIZES.items():
        labels = torch.randint(CLASSES, (size,), generator=rng)
        data[split] = 0.2 * patterns[labels] + torch.randn(size, 3, SIDE, SIDE, generator=rng)
        data[f"{split}_labels"] = labels
    return data


def made_model(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _models.resnet18(2)


def draws(seed: int) -> Callable[[], dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(seed)

    def draw() -> dict[str, Tensor]:
        rows = torch.randint(SIZES["train"], (BATCH,), generator=rng)
        return {"rows": rows, "turned": torch.randint(2, (BATCH,), generator=rng)}

    return draw


def losses(model: nn.Module, data: Mapping[str, Tensor], drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
    images, turned = data["train"][drawn["rows"]], drawn["turned"]
    seen = torch.where(turned[:, None, None, None] == 1, images.flip(-1).transpose(-1, -2), images)
    found = model.trunk(seen)
    pattern, way = (head(found) for head in model.heads)
    return {"ce": cross_entropy(pattern, data["train_labels"][drawn["rows"]]), "turn": cross_entropy(way, turned)}


def accuracy(model: nn.Module, data: Mapping[str, Tensor], split: str) -> Tensor:
    right = model.heads[0](model.trunk(data[split])).argmax(1) == data[f"{split}_labels"]
    return 100 * right.double().mean()


def metrics(model: nn.Module, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{split}/accuracy": accuracy(model, data, split) for split in ("validation", "test")}


@task(terms=("ce", "turn"), metric="accuracy", direction="maximize", unit="%", version=1)
def resnet18(trial: Trial, *, steps: int = 100, lr: float = 0.01) -> dict[str, float]:
    """ResNet-18 on made images of 64 x 64 pixels."""
    data = {name: value.to(trial.device) for name, value in made_data(trial.seed).items()}
    model, draw, criterion = made_model(trial.seed).to(trial.device), draws(trial.seed), trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    trial.attach(optimizer)
    for _ in range(steps):
        drawn = {name: value.to(trial.device) for name, value in draw().items()}
        optimizer.zero_grad()
        criterion(losses(model, data, drawn)).backward()
        optimizer.step()
    with torch.no_grad():
        return {name: value.item() for name, value in metrics(model.eval(), data).items()}


@stack(resnet18)
def parts(seed: int, *, steps: int, lr: float) -> Stackable:
    return Stackable(
        made_model(seed),
        draws(seed),
        losses,
        metrics,
        lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        steps,
        data=made_data(seed),
    )
