"""The training of a stack, step by step, and what each of its trials has to show for it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.history import Mark
from trainonce.study.stacked import alike, reasons
from trainonce.study.stacked.models import StackedModel
from trainonce.study.stacked.random_numbers import RandomNumbers
from trainonce.study.stacked.weights import FixedPoints, LearnedPoints, Points, UnitPoints, squared_norms
from trainonce.study.weightings import Fixed, Learned
from trainonce.units import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from trainonce.study.stacked.stackable import Losses, Stackable, Tensors
    from trainonce.study.weightings import Weighting

BLOCK = 64  # steps of history that stay on the device
AT_ONCE = 32  # weightings of a seed that are evaluated at a time: held-out sets are larger than batches


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A trained model: what its training function would have returned, reported and recorded."""

    metrics: dict[str, float]
    reports: list[tuple[int, dict[str, float]]]
    weights: list[float]
    total: float
    rows: Tensor  # as History.extend takes them
    units: bool


class StackedTraining:
    """Trains weightings times seeds of a task. The weightings must be fixed ones first, then learned ones.

    :param make: The parts of a seed.
    :param dtype: The precision of the models; by default their own.
    """

    def __init__(
        self,
        terms: Sequence[str],
        weightings: Sequence[Weighting],
        seeds: Sequence[int],
        make: Callable[[int], Stackable],
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        self.terms, self.seeds, self.weightings = tuple(terms), list(seeds), list(weightings)
        self._random = RandomNumbers(make, seeds)
        self.parts = self._random.parts[0]
        self._check(reasons.of_model(self.parts.model))
        self.model = StackedModel([p.model for p in self._random.parts], len(weightings), torch.device(device), dtype)
        self._data = self.model.stack([p.data for p in self._random.parts], "data")
        self._trained = list(self.model.parameters.values())
        self._like = self._trained[0].detach().new_zeros(())
        self._losses = functools.partial(in_order, self.parts.losses, self.terms)
        self._look()
        self.points = self._make_points()
        self.optimizer = self._make_optimizer()
        for some in self.points:
            some.join(self.optimizer)
        self._schedule = None if self.parts.schedule is None else self.parts.schedule(self.optimizer)
        self._check(None if self._schedule is None else reasons.of_schedule(self._schedule))
        self.step = 0
        self._reports: list[tuple[int, dict[str, Tensor]]] = []
        self._rows: list[list[Tensor]] = [[] for _ in self.points]
        self._history: list[list[Tensor]] = [[] for _ in self.points]

    @staticmethod
    def _check(reason: str | None) -> None:
        if reason is not None:
            raise reasons.NotStackableError(reason)

    def _look(self) -> None:
        """Train the first model in thought: which dropouts it passes, and which parameters its terms share."""
        drawn = {name: self.model.to(value) for name, value in self._random.peek().items()}
        data = {name: value[0] for name, value in self._data.items()}
        other = self._random.parts[-1]
        alike.check(self.parts, other, lambda p, *args: in_order(p.losses, self.terms, *args), data, drawn)
        losses, self._masks = self.model.look(self._losses, data, drawn)
        names: dict[Tensor, str] = {p: name for name, p in self.model.template.named_parameters() if p.requires_grad}
        self._places = {
            at: [names[p] for p in places.find(losses.unbind(), at, list(names))]  # type: ignore[arg-type]
            for at in {w.at for w in self.weightings if isinstance(w, Learned) and w.measures}
        }
        leaves = [places.Leaves(loss).uses for loss in losses.unbind()]
        self._reached = [{names[leaf] for leaf in some if leaf in names} for some in leaves]

    def _make_optimizer(self) -> Optimizer:
        """The optimizer for all models. Its groups are made of one model's parameters, whose shapes may count."""
        own = [p for p in self.model.template.parameters() if p.requires_grad]
        made = self.parts.optimizer(own)
        self._check(reasons.of_optimizer(made))
        stacked = dict(zip(own, self._trained, strict=True))
        groups = [group | {"params": [stacked[p] for p in group["params"]]} for group in made.param_groups]
        takes = inspect.signature(type(made)).parameters
        return type(made)(groups, **{name: value for name, value in made.defaults.items() if name in takes})

    def _make_points(self) -> list[Points]:
        seeds, made = len(self.seeds), list[Points]()
        self._measured_at: dict[int, list[Tensor]] = {}
        for some in kinds(self.weightings):
            first = some[0]
            if isinstance(first, Fixed):
                made.append(FixedPoints(some, seeds, self._like))  # type: ignore[arg-type]
            elif isinstance(first, Learned) and first.measures:
                at = self._places[first.at]
                reaches = [not reached.isdisjoint(at) for reached in self._reached]
                self._measured_at[len(made)] = [self.model.parameters[name] for name in at]
                made.append(UnitPoints(some, self.terms, seeds, self._like, reaches))  # type: ignore[arg-type]
            else:
                made.append(LearnedPoints(some, self.terms, seeds, self._like))  # type: ignore[arg-type]
        return made

    # Steps

    def run(self) -> Iterator[int]:
        """All steps; yields how many have been made."""
        while self.step < self.parts.steps:
            self._make_step()
            self.step += 1
            every = self.parts.report_every
            if every and self.step % every == 0 and self.parts.report is not None:
                self._reports.append((self.step, self._evaluate(self.parts.report)))
            yield self.step

    def _make_step(self) -> None:
        drawn, masks = self._random.draw(self._masks, self._like.dtype)
        self.model.masks = self.model.stack(masks, "dropout")
        losses = self.model.call(self._losses, self._data, self.model.stack(drawn, "draw"), train=True)
        parts, first = list[Tensor](), 0
        for i, some in enumerate(self.points):
            count = some.exponents.shape[1]
            parts.append(losses.narrow(1, first, count))
            if isinstance(some, UnitPoints) and some.is_due:
                some.measure(squared_norms(losses, self._measured_at[i]).narrow(1, first, count))
            first += count
        with torch.no_grad():
            factors = torch.cat([some.factors() for some in self.points], dim=1)
        found = torch.autograd.grad(losses, self._trained, factors.to(losses), allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self._trained, found, strict=True):
                parameter.grad = None if gradient is None else gradient.contiguous()  # fused steps go by memory
            self._move(parts)

    def _move(self, losses: Sequence[Tensor]) -> None:
        """Step, decay, and note a row of history."""
        before = []
        for some, part in zip(self.points, losses, strict=True):
            some.set_gradients(part.detach())
            exponents = some.exponents.detach().clone()
            before.append([part.detach(), some.weights().clone(), exponents, some.extra_columns()])
        rates = [some.rate(self.optimizer) for some in self.points]
        self.optimizer.step()
        for i, some in enumerate(self.points):
            seen, weights, exponents, extra = before[i]
            rate = exponents.new_full((*exponents.shape[:2], 1), rates[i])
            mark = torch.full_like(rate, Mark.CALLED)
            row = (seen, weights, exponents, *some.after_step(), rate, extra, mark)
            self._rows[i].append(torch.cat([part.to(exponents) for part in row], dim=-1))
            some.advance()
        if self._schedule is not None:
            self._schedule.step()
        if len(self._rows[0]) == BLOCK:
            self._bring_rows()

    def _bring_rows(self) -> None:
        for rows, history in zip(self._rows, self._history, strict=True):
            if rows:
                history.append(torch.stack(rows, dim=2).cpu())
            rows.clear()

    @torch.no_grad()
    def _evaluate(self, function: Callable[[nn.Module, Tensors], Tensors]) -> dict[str, Tensor]:
        """Metrics of all models, ``(S, P)`` each."""
        found: list[Mapping[str, Tensor]] = [
            self.model.call(function, self._data, train=False, points=slice(start, start + AT_ONCE))
            for start in range(0, len(self.weightings), AT_ONCE)
        ]
        return {name: torch.cat([part[name] for part in found], dim=1).cpu() for name in found[0]}

    # Results

    def outcomes(self) -> Iterator[tuple[int, Weighting, Outcome]]:
        """What every trial has come to: seed, weighting, outcome."""
        self._bring_rows()
        metrics = self._evaluate(self.parts.metrics)
        first = 0
        for some, history in zip(self.points, self._history, strict=True):
            rows, weights, totals = torch.cat(history, dim=2), some.weights().cpu(), some.factors().sum(-1).cpu()
            count = weights.shape[1]
            for s, seed in enumerate(self.seeds):
                for p in range(count):
                    yield (
                        seed,
                        self.weightings[first + p],
                        Outcome(
                            {name: value[s, first + p].item() for name, value in metrics.items()},
                            [(at, {n: v[s, first + p].item() for n, v in told.items()}) for at, told in self._reports],
                            weights[s, p].tolist(),
                            totals[s, p].item() if some.units else 1.0,
                            rows[s, p].clone(),
                            some.units,
                        ),
                    )
            first += count


def kinds(weightings: Sequence[Weighting]) -> list[list[Weighting]]:
    """The weightings in groups that are computed alike, in their order: they must come one group after the other."""
    groups: list[list[Weighting]] = []
    for weighting in weightings:
        if groups and kind(groups[-1][0]) == kind(weighting):
            groups[-1].append(weighting)
        else:
            groups.append([weighting])
    return groups


def kind(weighting: Weighting) -> tuple[str, ...]:
    """What weightings of one group have in common; also how they are sorted."""
    if isinstance(weighting, Learned):
        return ("units", weighting.at) if weighting.measures else ("learned", weighting.preset, repr(weighting.lr))
    return ("fixed",)


def in_order(losses: Callable[..., Losses], terms: Sequence[str], model: nn.Module, *more: Tensors) -> Tensor:
    """The losses as one tensor, base first."""
    found = losses(model, *more)
    if isinstance(found, Tensor):
        return found
    values = [found[term] for term in terms] if isinstance(found, Mapping) else list(found)
    return torch.stack([value.reshape(()) for value in values])
