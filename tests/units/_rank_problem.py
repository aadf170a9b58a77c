"""The trunk with two heads on two ranks, and the same training by hand in one process."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from tests.units._task import TERMS, Heads
from trainonce import GradientUnits, HeldOut

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, RISE, LR = 12, 4, 0.05
UNITS = GradientUnits(rise=RISE, every=0.2)  # measures at steps 0 to 5, then at every second
SETTINGS = HeldOut(steps=STEPS, travel=20.0)


def batch(step: int, rank: int, micro: int = 0) -> Tensor:
    """The second rank's samples are larger: the ranks disagree."""
    generator = torch.Generator().manual_seed(100 * step + 10 * micro + rank)
    return torch.randn(8, 4, generator=generator, dtype=torch.float64) * (1 + 2 * rank)


def held_out_batch(step: int, rank: int) -> Tensor:
    return batch(step + 1000, rank)


class Model(nn.Module):
    """The heads, and the criterion where it is inside."""

    def __init__(self, criterion: nn.Module | None = None, *, in_forward: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads = Heads(torch.float64)
        self.criterion = criterion
        self.in_forward = in_forward

    def forward(self, x: Tensor) -> Any:
        losses = self.heads(x)
        return self.criterion(losses) if self.in_forward else losses


def new_criterion(**options: Any) -> trainonce.CompositeLoss:
    given: dict[str, Any] = {"units": UNITS, "signal": SETTINGS} | options
    return trainonce.CompositeLoss(TERMS, **given).double()


class Placed(NamedTuple):
    total: Callable[[Tensor], Tensor]
    criterion: trainonce.CompositeLoss
    wrapper: nn.Module  # what the user calls
    model: Model


def beside(**options: Any) -> Placed:
    """The criterion beside the model, which DDP wraps alone."""
    model, criterion = Model(), new_criterion()
    wrapper = DistributedDataParallel(model, **options)
    return Placed(lambda x: criterion(wrapper(x)), criterion, wrapper, model)


def inside(*, in_forward: bool, keep_out: bool = False, **options: Any) -> Placed:
    criterion = new_criterion()
    model = Model(criterion, in_forward=in_forward)
    if keep_out:
        trainonce.keep_out(model)
    wrapper = DistributedDataParallel(model, **options)
    return Placed(wrapper if in_forward else lambda x: criterion(wrapper(x)), criterion, wrapper, model)


def alone() -> Placed:
    """No wrapper: the user averages the gradients."""
    model, criterion = Model(), new_criterion()
    return Placed(lambda x: criterion(model(x)), criterion, model, model)


PLACEMENTS: dict[str, tuple[Callable[..., Placed], dict[str, Any]]] = {
    "alone": (alone, {}),
    "beside": (beside, {}),
    "beside-find_unused": (beside, {"find_unused_parameters": True}),
    "beside-static_graph": (beside, {"static_graph": True}),
    "beside-bucket_view": (beside, {"gradient_as_bucket_view": True}),
    "in_forward": (inside, {"in_forward": True}),
    "in_forward-find_unused": (inside, {"in_forward": True, "find_unused_parameters": True}),
    "in_forward-static_graph": (inside, {"in_forward": True, "static_graph": True}),
    "in_forward-kept_out": (inside, {"in_forward": True, "keep_out": True}),
    "after_forward": (inside, {"in_forward": False}),
    "after_forward-find_unused": (inside, {"in_forward": False, "find_unused_parameters": True}),
    "after_forward-kept_out": (inside, {"in_forward": False, "find_unused_parameters": True, "keep_out": True}),
}


def place(placement: str) -> Placed:
    build, options = PLACEMENTS[placement]
    return build(**options)


class Setting(NamedTuple):
    micro: int = 1  # micro-batches a step
    held_out: str = ""  # "wrapper" or "module": through which the held-out loss is computed
    sync: bool = True
    steps: int = STEPS


class Row(NamedTuple):
    """After a step."""

    units: list[float]
    weights: list[float]
    exponents: list[float]
    total: float


class Result(NamedTuple):
    rows: list[Row]
    model: list[float]


def train(placed: Placed, setting: Setting) -> Result:
    """On one rank, its own batches."""
    optimizer = torch.optim.SGD(placed.model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, placed.criterion, sync=setting.sync)
    return Result([train_step(placed, optimizer, step, setting) for step in range(setting.steps)], flat(placed.model))


def train_step(placed: Placed, optimizer: torch.optim.Optimizer, step: int, setting: Setting) -> Row:
    rank, criterion = dist.get_rank(), placed.criterion
    through = placed.wrapper if setting.held_out == "wrapper" else placed.model.heads
    ddp = placed.wrapper if isinstance(placed.wrapper, DistributedDataParallel) else None
    for micro in range(setting.micro):
        if setting.held_out:
            criterion.held_out(lambda: through(held_out_batch(step, rank))["fit"])
        syncs = micro == setting.micro - 1 or (step == 0 and getattr(ddp, "static_graph", False))
        with contextlib.nullcontext() if syncs or ddp is None else ddp.no_sync():
            (placed.total(batch(step, rank, micro)) / setting.micro).backward()
    if ddp is None:
        for parameter in placed.model.heads.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
    return row(criterion)


def row(criterion: trainonce.CompositeLoss) -> Row:
    units, weights = criterion.units.tolist(), criterion.weights.tolist()
    return Row(units, weights, criterion.exponents.detach().tolist(), criterion.total.item())


def flat(model: Model) -> list[float]:
    return [v for p in model.heads.parameters() for v in p.detach().flatten().tolist()]


def train_placed(placement: str, setting: Setting) -> Result:
    return train(place(placement), setting)


# The same, by hand


def by_hand(setting: Setting) -> Result:
    """Both ranks in one process, one after the other, with plain gradients and Python's arithmetic."""
    model = Model()
    trunk = list(model.heads.trunk.parameters())
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=LR)
    norm: dict[str, float] = {}
    peak: dict[str, float] = {}
    means: list[list[float]] = []
    mu, due, last, rows = dict.fromkeys(TERMS, 0.0), 0, 0, []

    def at_trunk(loss: Tensor) -> Tensor:
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trunk, retain_graph=True)])

    def weigh(step: int) -> dict[str, float]:
        found = {"fit": 1 / 3}
        for term in TERMS[1:]:
            fade = (norm["fit"] / peak["fit"]) / (norm[term] / peak[term])
            ratio = peak["fit"] / peak[term] * min(max(fade**UNITS.blend, 1 / UNITS.limit), UNITS.limit)
            units[term] = 1 / ratio
            found[term] = math.exp(mu[term]) * ratio * min(1.0, step / RISE) / 3
        return found

    for step in range(setting.steps):
        losses = [[model(batch(step, rank, micro)) for rank in range(2)] for micro in range(setting.micro)]
        if step == due:
            gradients = [{term: at_trunk(loss) for term, loss in each.items()} for each in losses[0]]
            for term in TERMS:
                now = sum(float(g[term] @ g[term]) for g in gradients) / 2
                norm[term] = math.sqrt(UNITS.keep * norm.get(term, math.sqrt(now)) ** 2 + (1 - UNITS.keep) * now)
                peak[term] = max(peak.get(term, 0.0), norm[term])
            if setting.held_out:
                beside = [at_trunk(model(held_out_batch(step, rank))["fit"]) for rank in range(2)]
                fresh = []
                for term in TERMS:
                    pairs = [(g[term], h) for g, h in zip(gradients, beside, strict=True)]
                    fresh.append([sum(float(f(g, h)) for g, h in pairs) / 2 for f in (_product, _own, _other)])
                means = means or fresh
                means = [
                    [0.9 * a + 0.1 * b for a, b in zip(*two, strict=True)] for two in zip(means, fresh, strict=True)
                ]
                cosine = {t: p / math.sqrt(a * b) for t, (p, a, b) in zip(TERMS, means, strict=True)}
                mean = sum(math.exp(mu[t]) * cosine[t] for t in TERMS) / sum(math.exp(mu[t]) for t in TERMS)
                rate = SETTINGS.travel * (step - last) / STEPS
                mu |= {t: mu[t] + rate * (cosine[t] - mean) for t in TERMS[1:]}
                last = step
            due = step + max(1, math.ceil(UNITS.every * step))
        units = {"fit": 1.0}
        weights = weigh(step)
        optimizer.zero_grad()
        parts = [weights[t] * each[t] for micro in losses for each in micro for t in TERMS]
        (sum(parts) / (2 * setting.micro)).backward()
        optimizer.step()
        after = weigh(step + 1)
        total = sum(after.values())
        rows.append(Row(list(units.values()), [w / total for w in after.values()], [mu[t] for t in TERMS[1:]], total))
    return Result(rows, flat(model))


def _product(g: Tensor, h: Tensor) -> Tensor:
    return g @ h


def _own(g: Tensor, h: Tensor) -> Tensor:
    return g @ g


def _other(g: Tensor, h: Tensor) -> Tensor:
    return h @ h


def assert_same(found: list[Result], expected: Result) -> None:
    assert found[0] == found[1]  # identical, not close
    for step, (got, wanted) in enumerate(zip(found[0].rows, expected.rows, strict=True)):
        for name in Row._fields:
            pair = [torch.tensor(getattr(one, name), dtype=torch.float64) for one in (got, wanted)]
            torch.testing.assert_close(*pair, rtol=1e-9, atol=0, msg=lambda text, at=(step, name): f"{at}: {text}")
    pair = [torch.tensor(one.model, dtype=torch.float64) for one in (found[0], expected)]
    torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)
