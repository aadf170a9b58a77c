"""Every rule of the contract, a stranger's among them, and the small training that each is put through."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from _examples import load
from torch import Tensor, nn

import trainonce
from trainonce import health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TERMS = ("fit", "far", "size")
ADAMW = functools.partial(torch.optim.AdamW, lr=0.02)
sys.modules["gradnorm"] = load("gradnorm")  # where pickle looks for it
GradNorm = sys.modules["gradnorm"].GradNorm


class Net(nn.Module):
    """A body that all terms share and a head for each of two targets; returns the losses of a batch."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.head, self.other = nn.Linear(6, 1), nn.Linear(6, 1)
        self.to(dtype)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z = self.body(x)
        a, b = self.head(z), self.other(z)
        return {
            "fit": (a - x[:, :1]).square().mean(),
            "far": 3 * (b - x[:, 1:2].square()).abs().mean(),
            "size": (a + b).square().mean() + 0.3,
        }


@functools.cache
def batch(number: int, rank: int = 0, size: int = 16, device: str | torch.device = "cpu") -> Tensor:
    """A batch; those of the second rank are larger, so that the ranks disagree."""
    generator = torch.Generator().manual_seed(10 * number + rank)
    return (torch.randn(size, 4, generator=generator) * (1 + rank)).to(device)


# How each rule is made, for terms in any order


def paper(net: Net, terms: Sequence[str], **options: Any) -> Any:
    start = {"fit": 1.0, "far": 0.5, "size": 2.0}
    return trainonce.CompositeLoss(terms, init={term: start[term] for term in terms[1:]}, **{"lr": "model"} | options)


def paced(net: Net, terms: Sequence[str], **options: Any) -> Any:
    return trainonce.CompositeLoss(terms, **options)


def balance(net: Net, terms: Sequence[str], **options: Any) -> Any:
    return trainonce.BalancedLoss(terms, **options)


def balance_from_weights(net: Net, terms: Sequence[str], **options: Any) -> Any:
    weights = {"fit": 1.0, "far": 0.1, "size": 3.0}
    return trainonce.BalancedLoss({term: weights[term] for term in terms}, **options)


def aligned(net: Net, terms: Sequence[str], **options: Any) -> Any:
    return trainonce.BalancedLoss(terms, steps=24, validation=validation_of(net), **options)


def validation_of(net: Net) -> Callable[[], Tensor]:
    return lambda: net(batch(1000, device=net.head.weight.device))["fit"]


def fixed(net: Net, terms: Sequence[str], **options: Any) -> Any:
    weights = {"fit": 1.0, "far": 0.25, "size": 3.0}
    return trainonce.FixedLoss({term: weights[term] for term in terms}, **options)


def replay(net: Net, terms: Sequence[str], **options: Any) -> Any:
    scale = options.pop("scale", 1.0)
    return trainonce.Replay(_recorded(tuple(terms), scale), **options)


@functools.cache
def _recorded(terms: tuple[str, ...], scale: float) -> trainonce.History:
    history = trainonce.History()
    Loop(paper, terms=terms, history=history, ranks=False, scale=scale).run(range(30))
    return history


def gradnorm(net: Net, terms: Sequence[str], **options: Any) -> Any:
    return GradNorm(terms, at=net.body[2].parameters(), **options)


class Uncertainty(trainonce.LossWeighting):
    """Kendall et al. (2018): the sum of exp(-s) l + s."""

    def __init__(self, terms: Any, **options: Any) -> None:
        super().__init__(terms, **options)
        self.add_trainable("log_variances", 0.5)

    def weigh(self) -> Tensor:
        return torch.exp(-self.live("log_variances"))

    def combine(self, batch: Any) -> Tensor:
        there = slice(None) if batch.present is None else batch.present.indices
        return super().combine(batch) + self.live("log_variances")[there].sum()


def uncertainty(net: Net, terms: Sequence[str], **options: Any) -> Any:
    return Uncertainty(terms, **options)


RULES = {
    "paper": paper,
    "paper-paced": paced,
    "balance": balance,
    "balance-from-weights": balance_from_weights,
    "balance-aligned": aligned,
    "fixed": fixed,
    "replay": replay,
    "gradnorm": gradnorm,
    "uncertainty": uncertainty,
}
ADDS = ("uncertainty",)  # those whose sum has more than the weighted losses


@functools.cache
def trained_by(rule: str) -> str:
    """The name of what the optimizer trains; empty where it trains nothing."""
    return RULES[rule](Net(), TERMS).trainable or ""


@functools.cache
def observes(rule: str) -> bool:
    """Whether the rule looks at the losses, or their gradients, before a sum."""
    return type(RULES[rule](Net(), TERMS)).observe is not trainonce.LossWeighting.observe


def moves(rule: str) -> bool:
    """Whether training changes its coefficients."""
    return observes(rule) or RULES[rule](Net(), TERMS).follows_steps


class Loop:
    """A model, a rule and an optimizer, attached."""

    def __init__(
        self,
        make: Callable[..., Any],
        optimizer: Callable[..., torch.optim.Optimizer] = ADAMW,
        *,
        terms: Sequence[str] = TERMS,
        history: Any = None,
        ranks: bool | None = None,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        self.net, self.device = Net().to(device), device
        self.criterion = make(self.net, terms, **options).to(device)
        self.model: nn.Module = self.net
        self.rank = 0
        if dist.is_initialized() if ranks is None else ranks:
            self.model = nn.parallel.DistributedDataParallel(self.net, find_unused_parameters=True)
            self.rank = dist.get_rank()
        self.optimizer = optimizer(self.net.parameters())
        sync = ranks is not False
        self.attachment = trainonce.attach(self.optimizer, self.criterion, history=history, sync=sync)
        self.seen: list[Tensor] = []  # the coefficients of each call

    def losses(self, number: int, lacks: Iterable[str] = ()) -> dict[str, Tensor | None]:
        found = self.model(batch(number, self.rank, device=self.device))
        return {term: None if term in lacks else found[term] for term in self.criterion.terms}

    def backward(self, number: int, lacks: Iterable[str] = (), micro: int = 1, call: Any = None) -> Tensor:
        self.optimizer.zero_grad()
        for part in range(micro):
            call = self.criterion if call is None else call
            total = call(self.losses(number + 100 * part, lacks)) / micro
            self.seen.append(self.criterion.coefficients())
            total.backward()
        return total

    def run(self, steps: Iterable[int], lacks: Callable[[int], Iterable[str]] = lambda step: (), **how: Any) -> Loop:
        for step in steps:
            self.backward(step, lacks(step), **how)
            self.optimizer.step()
        return self

    def states(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in (self.net, self.optimizer, self.criterion)]

    def load(self, states: Sequence[dict[str, Any]]) -> Loop:
        for part, state in zip((self.net, self.optimizer, self.criterion), states, strict=True):
            part.load_state_dict(state)
        return self

    def numbers(self) -> list[Tensor]:
        """All that training has moved: parameters, and the tensors and counts of the rule."""
        own = [value.detach().clone() for value in (*self.net.parameters(), *tensors(self.criterion))]
        return [*own, self.criterion.get_extra_state()]


def tensors(criterion: nn.Module) -> list[Tensor]:
    return [*criterion.parameters(), *criterion.buffers()]


def some(step: int) -> tuple[str, ...]:
    """Which terms a batch lacks: in two of five steps some of them, and once all."""
    return TERMS if step == 8 else {1: ("far",), 3: ("fit",)}.get(step % 5, ())


def same(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Whether the tensors are equal to the last bit; NaN is equal to NaN."""
    pairs = list(zip(one, other, strict=True))
    return all(a.dtype == b.dtype and torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in pairs)


@contextlib.contextmanager
def given():
    """Collect the names of the warnings that are given."""
    names: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield names
    names += [w.category.__name__ for w in found if issubclass(w.category, health.HealthWarning)]
