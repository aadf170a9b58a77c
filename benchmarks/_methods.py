"""The ways to weigh losses that the overhead benchmark compares.

Each function takes a :class:`Problem` and returns its training step: forward, losses, weighting, backward, AdamW step,
zero_grad. Each is used as its documentation says. A missing package shows as ImportError when the step is built.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable

    from _models import Problem

    Step = Callable[[], None]
    Weigh = Callable[[list[Tensor]], Tensor]

DECAY = 2.0
NEVER = 10**12  # a step that never comes


def static(problem: Problem, **options: bool) -> Step:
    """The baseline: a fixed weighted sum."""
    weights = torch.full((problem.count,), 1 / problem.count, device=problem.device)
    return training_step(problem, _adamw(problem, **options), lambda losses: (torch.stack(losses) * weights).sum())


def ours(problem: Problem) -> Step:
    return training_step(problem, *attached(problem))


def ours_at_the_models_rate(problem: Problem) -> Step:
    return training_step(problem, *attached(problem, lr="model"))


def ours_with_history(problem: Problem) -> Step:
    return training_step(problem, *attached(problem, trainonce.History()))


def balance(problem: Problem) -> Step:
    """Gradient balance between two measurements, as almost all steps of a training are."""
    names = names_of(problem)
    criterion = trainonce.BalancedLoss(names)
    step = training_step(problem, *attached(problem, criterion=criterion))
    step()
    criterion.next = NEVER
    return step


def attached(
    problem: Problem,
    history: trainonce.History | None = None,
    decay: float = DECAY,
    lr: Literal["model"] | None = None,
    criterion: trainonce.LossWeighting | None = None,
    **options: bool,
) -> tuple[torch.optim.Optimizer, Weigh]:
    """Return the optimizer and a rule of ours, by default the paper's.

    The losses are passed as a dict, and the dict counts as our cost.
    """
    names = names_of(problem)
    criterion = (criterion or trainonce.CompositeLoss(names, init=0.1, decay=decay, lr=lr)).to(problem.device)
    optimizer = _adamw(problem, **options)
    trainonce.attach(optimizer, criterion, history=history)
    # strict=False: the criterion itself says so if a name is missing.
    return optimizer, lambda losses: criterion(dict(zip(names, losses, strict=False)))


def names_of(problem: Problem) -> list[str]:
    return [f"loss{i}" for i in range(problem.count)]


class NaiveWeights(nn.Module):
    """The method written down in a dozen lines: the regularizer is added to the loss and differentiated by autograd."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.exponents = nn.Parameter(torch.full((count - 1,), math.log(0.1)))

    def forward(self, losses: list[Tensor]) -> Tensor:
        exponents = torch.cat([self.exponents.new_zeros(1), self.exponents])
        weights = torch.softmax(exponents, dim=0)
        regularizer = (weights * weights.log()).sum() + softplus(self.exponents).sum()
        return (weights * torch.stack(losses)).sum() + DECAY * regularizer


def naive(problem: Problem) -> Step:
    weigh = NaiveWeights(problem.count).to(problem.device)
    return training_step(problem, _adamw(problem, weigh), weigh)


def torchjd_uw(problem: Problem) -> Step:
    from torchjd.scalarization import UW

    scalarizer = UW(problem.count).to(problem.device)
    return training_step(problem, _adamw(problem, scalarizer), lambda losses: scalarizer(torch.stack(losses)))


def torchjd_dwa(problem: Problem) -> Step:
    """An epoch, after which its history is rolled forward, is one pass over the batches."""
    from torchjd.scalarization import DWA

    scalarizer = DWA()
    inner = training_step(problem, _adamw(problem), lambda losses: scalarizer(torch.stack(losses)))
    seen = 0

    def step() -> None:
        nonlocal seen
        inner()
        seen += 1
        if seen % len(problem.batches) == 0:
            scalarizer.step()

    return step


def torchjd_famo(problem: Problem) -> Step:
    """FAMO compares the losses before and after the step, so it needs a second forward pass of the same batch."""
    from torchjd.scalarization import FAMO

    scalarizer = FAMO(problem.count).to(problem.device)
    optimizer = _adamw(problem)

    def step() -> None:
        batch = problem.next_batch()
        _, losses = problem.losses(batch)
        scalarizer(torch.stack(losses)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            _, after = problem.losses(batch)
            scalarizer.update(torch.stack(after))

    return step


def torchjd_upgrad(problem: Problem) -> Step:
    """Jacobian descent: the gradient of each loss at all shared parameters, then a projection by quadratic programs."""
    from torchjd.aggregation import UPGrad
    from torchjd.autojac import jac_to_grad, mtl_backward

    aggregator = UPGrad()  # needs the extra quadprog-projector
    optimizer = _adamw(problem)
    shared = list(problem.model.trunk.parameters())

    def step() -> None:
        features, losses = problem.losses(problem.next_batch())
        mtl_backward(losses, features=features)
        jac_to_grad(shared, aggregator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def gradnorm(problem: Problem, alpha: float = 1.5, lr: float = 0.025) -> Step:
    """GradNorm (Chen et al. 2018) with the gradient norms taken at the last shared weight matrix only.

    The norms are constants to the model, so one first-order gradient per loss is enough: the norm of a weighted
    gradient is the weight times the norm. The weights have their own Adam and are rescaled to sum to their number.
    """
    weights = nn.Parameter(torch.ones(problem.count, device=problem.device))
    optimizer, weight_optimizer = _adamw(problem), torch.optim.Adam([weights], lr=lr)
    shared = problem.model.last_shared
    start: Tensor | None = None

    def norms_of(losses: list[Tensor]) -> Tensor:
        gradients = [torch.autograd.grad(loss, shared, retain_graph=True)[0] for loss in losses]
        return torch.stack([g.norm() for g in gradients])

    def step() -> None:
        nonlocal start
        _, losses = problem.losses(problem.next_batch())
        norms, stacked = norms_of(losses), torch.stack(losses)
        with torch.no_grad():
            start = stacked.clone() if start is None else start
            rate = stacked / start
            target = (weights * norms).mean() * (rate / rate.mean()) ** alpha
            weights.grad = (weights * norms - target).sign() * norms  # of the sum of |weight * norm - target|
        (weights.detach() * stacked).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        weight_optimizer.step()
        with torch.no_grad():
            weights.clamp_(min=1e-3)
            weights.mul_(len(losses) / weights.sum())

    return step


def _adamw(problem: Problem, weigh: nn.Module | None = None, **options: bool) -> torch.optim.AdamW:
    extra = [] if weigh is None else weigh.parameters()
    return torch.optim.AdamW([*problem.model.parameters(), *extra], **options)


def training_step(problem: Problem, optimizer: torch.optim.Optimizer, weigh: Weigh) -> Step:
    def step() -> None:
        _, losses = problem.losses(problem.next_batch())
        weigh(losses).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


BASELINE = "static sum"
AGAIN = "static sum again"
OURS = "ours"
UW = "TorchJD UW"

METHODS: dict[str, Callable[[Problem], Step]] = {
    BASELINE: static,
    AGAIN: static,
    OURS: ours,
    "ours, model's rate": ours_at_the_models_rate,
    "ours + History": ours_with_history,
    "balance": balance,
    "naive": naive,
    UW: torchjd_uw,
    "TorchJD DWA": torchjd_dwa,
    "TorchJD FAMO": torchjd_famo,
    "TorchJD UPGrad": torchjd_upgrad,
    "GradNorm": gradnorm,
}
