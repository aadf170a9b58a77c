"""One small problem that every adapter trains, and the plain loop whose result each must reach."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TERMS = ("fit", "small", "even")
BATCH = 8  # over all processes
LR, WEIGHT_DECAY = 0.05, 0.1
INIT, DECAY, EXPONENTS_LR = 0.3, 0.5, 0.2
MOVING = ("CompositeLoss", "BalancedLoss", "Uncertainty")
RULES = (*MOVING, "FixedLoss", "Replay")


class Uncertainty(trainonce.LossWeighting):
    """A rule that the package does not know: Kendall's uncertainty weighting, with a running mean of the losses."""

    def __init__(self, terms: Iterable[str]) -> None:
        super().__init__(terms)
        self.add_trainable("logs", 0.0, lr=EXPONENTS_LR)
        self.add_state("usual", 0.0)
        self.add_count("calls", 0)

    def weigh(self) -> Tensor:
        return torch.exp(-self.live("logs"))

    def combine(self, batch: Any) -> Tensor:
        return super().combine(batch) + self.live("logs").sum()

    @torch.no_grad()
    def observe(self, batch: Any) -> None:
        self.calls += 1
        self.usual.lerp_(self.mean(batch.losses), 0.5)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is asked of a training."""

    rule: str = "CompositeLoss"
    steps: int = 6  # of the optimizer
    accumulate: int = 1  # batches to a step
    clip: float | None = None  # the norm of the model's gradient; the exponents' is not part of it
    schedule: bool = False  # a learning rate that falls to 0 over the steps, of all groups
    evaluate: bool = False  # after each step, on other data, with gradients on
    dtype: torch.dtype = torch.float32


@dataclasses.dataclass
class Result:
    """What came out, as plain numbers: they travel between processes."""

    coefficients: list[float]
    model: list[float]
    logged: dict[str, list[float]] = dataclasses.field(default_factory=dict)


class Net(nn.Module):
    """The same from every start: it draws nothing."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8, dtype=dtype), nn.Linear(8, 2, dtype=dtype)
        for i, parameter in enumerate(self.parameters()):
            values = torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) + i)
            parameter.data.copy_(values.reshape(parameter.shape) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(x)))


def terms(out: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Three losses, each a mean over the samples: the mean over processes is that of the whole batch."""
    return {
        "fit": (out[:, :1] - y).square().mean(),
        "small": out.square().mean(),
        "even": (out[:, 0] - out[:, 1]).square().mean(),
    }


def data(case: Case) -> TensorDataset:
    """As many samples as the training needs, to be taken in order, BATCH at a time."""
    count = BATCH * case.steps * case.accumulate
    x = torch.cos(torch.arange(4 * count, dtype=torch.float64) * 0.7).reshape(count, 4)
    return TensorDataset(x.to(case.dtype), x.sum(1, keepdim=True).sin().to(case.dtype))


def criterion(case: Case = Case()) -> trainonce.LossWeighting:
    weights = dict.fromkeys(TERMS, INIT) | {"fit": 1.0}
    made: trainonce.LossWeighting
    if case.rule == "CompositeLoss":
        made = trainonce.CompositeLoss(TERMS, init=INIT, decay=DECAY, lr=EXPONENTS_LR)
    elif case.rule == "BalancedLoss":
        made = trainonce.BalancedLoss(TERMS)
    elif case.rule == "Uncertainty":
        made = Uncertainty(TERMS)
    elif case.rule == "FixedLoss":
        made = trainonce.FixedLoss(weights)
    else:
        history = trainonce.History()
        plain(Case(steps=case.steps), history)
        made = trainonce.Replay(history)
    return made.double() if case.dtype == torch.float64 else made


def evaluate(model: Callable[[Tensor], Tensor], chosen: trainonce.LossWeighting, case: Case) -> None:
    """Call the criterion as physics-informed networks do in validation: losses are derivatives, so gradients are on."""
    if case.evaluate:
        x, y = (tensor[:BATCH] + 1 for tensor in data(case).tensors)
        with torch.enable_grad():
            chosen(terms(model(x), y))


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """With weight decay, which must not reach the exponents."""
    return torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)


def plain(case: Case, history: trainonce.History | None = None) -> Result:
    """The loop that the documentation shows, on one process with the whole batch."""
    model, chosen = Net(case.dtype), criterion(case)
    made = optimizer(model)
    trainonce.attach(made, chosen, history=history)
    schedule = falling(made, case)
    x, y = data(case).tensors
    for step in range(case.steps):
        for part in range(case.accumulate):
            at = slice((step * case.accumulate + part) * BATCH, (step * case.accumulate + part + 1) * BATCH)
            (chosen(terms(model(x[at]), y[at])) / case.accumulate).backward()
        if case.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        made.step()
        made.zero_grad()
        schedule.step()
    return result(model, chosen)


def falling(made: torch.optim.Optimizer, case: Case) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1 - step / case.steps if case.schedule else 1.0)


def result(model: nn.Module, chosen: trainonce.LossWeighting, **logged: list[float]) -> Result:
    flat = torch.cat([p.detach().flatten().cpu().double() for p in trainonce.model_parameters(model)])
    return Result(chosen.coefficients().cpu().tolist(), flat.tolist(), dict(logged))


def state_of(chosen: trainonce.LossWeighting) -> dict[str, str]:
    """Return what is saved of a criterion, as text: NaN is what it was."""
    return {name: str(value.tolist()) for name, value in chosen.state_dict().items()}
