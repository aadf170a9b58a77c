"""The training of a stack, step by step, and what each of its trials has to show for it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.balance import places
from trainonce.history import Mark
from trainonce.study.stacked import alike, reasons
from trainonce.study.stacked.kinds import groups_of, points_of
from trainonce.study.stacked.models import StackedModel
from trainonce.study.stacked.points import BalancedPoints, Points, measure_at
from trainonce.study.stacked.random_numbers import RandomNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from trainonce.study.rules import Rule
    from trainonce.study.stacked.stackable import Losses, Stackable, Tensors
    from trainonce.weighting import LossWeighting

BLOCK = 64  # steps of history that stay on the device
AT_ONCE = 32  # rules of a seed that are evaluated at a time: held-out sets are larger than batches


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A trained model: what its training function would have returned, reported and recorded."""

    metrics: dict[str, float]
    reports: list[tuple[int, dict[str, float]]]
    coefficients: list[float]
    columns: list[str]  # of its history, as History.begin takes them
    rows: Tensor  # as History.extend takes them


class StackedTraining:
    """Trains rules times seeds of a task. Rules of a kind must stand side by side.

    :param make: The parts of a seed.
    :param dtype: The precision of the models; by default their own.
    :param steps: The length of the training that rules are told, where a task's settings say it.
    """

    def __init__(
        self,
        terms: Sequence[str],
        rules: Sequence[Rule],
        seeds: Sequence[int],
        make: Callable[[int], Stackable],
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        steps: int | None = None,
    ) -> None:
        self.terms, self.seeds, self.rules = tuple(terms), list(seeds), list(rules)
        self._random = RandomNumbers(make, seeds)
        self.parts = self._random.parts[0]
        self._check(reasons.of_model(self.parts.model))
        self.model = StackedModel([p.model for p in self._random.parts], len(rules), torch.device(device), dtype)
        self._data = self.model.stack([p.data for p in self._random.parts], "data")
        self._trained = list(self.model.parameters.values())
        self._like = self._trained[0].detach().new_zeros(())
        self._losses = functools.partial(in_order, self.parts.losses, self.terms)
        self._look()
        self._check_validation()
        self.points = self._make_points(steps)
        self.optimizer = self._make_optimizer()
        for some in sorted(self.points, key=lambda some: some.lr is not None):  # the model's rate is read off first
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

    def _check_validation(self) -> None:
        if self.parts.validation is None and any(rule.aligns for rule in self.rules):
            self._check(reasons.NO_VALIDATION)

    def _look(self) -> None:
        """Train the first model in thought: which dropouts it passes, and which parameters its terms share."""
        drawn = {name: self.model.to(value) for name, value in self._random.peek().items()}
        data = {name: value[0] for name, value in self._data.items()}
        other = self._random.parts[-1]
        alike.check(self.parts, other, lambda p, *args: in_order(p.losses, self.terms, *args), data, drawn)
        losses, self._masks = self.model.look(self._losses, data, drawn)
        names: dict[Tensor, str] = {p: name for name, p in self.model.template.named_parameters() if p.requires_grad}
        self._places = {
            at: [names[p] for p in places.find(losses.unbind(), at, list(names)) or ()]
            for at in {rule.settings["at"] for rule in self.rules if rule.measures}
        }

    def _make_optimizer(self) -> Optimizer:
        """Make the optimizer for all models. Its groups are made of one model's parameters, whose shapes may count."""
        own = [p for p in self.model.template.parameters() if p.requires_grad]
        made = self.parts.optimizer(own)
        self._check(reasons.of_optimizer(made))
        stacked = dict(zip(own, self._trained, strict=True))
        groups = [group | {"params": [stacked[p] for p in group["params"]]} for group in made.param_groups]
        takes = inspect.signature(type(made)).parameters
        return type(made)(groups, **{name: value for name, value in made.defaults.items() if name in takes})

    def _make_points(self, steps: int | None) -> list[Points]:
        made = list[Points]()
        self._measured_at: dict[int, list[Tensor]] = {}
        for some in groups_of(self.rules):
            if some[0].measures:
                at = self._places[some[0].settings["at"]]
                self._measured_at[len(made)] = [self.model.parameters[name] for name in at]
            criteria = [self._build(rule, steps) for rule in some]
            made.append(points_of(some[0])(criteria, len(self.seeds), self._like))
        return made

    def _build(self, rule: Rule, steps: int | None) -> LossWeighting:
        return rule.build(self.terms, scale=1.0, nonfinite="propagate", validation=None, steps=steps, source=None)

    # Steps

    def run(self) -> Iterator[int]:
        """Make all steps; yields how many have been made."""
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
        batch = self.model.stack(drawn, "draw")
        losses = self.model.call(self._losses, self._data, batch, train=True)
        parts = list(losses.split([some.count for some in self.points], dim=1))
        self._measure(losses, batch)
        with torch.no_grad():
            factors = torch.cat([some.coefficients() for some in self.points], dim=1)
        found = torch.autograd.grad(losses, self._trained, factors.to(losses), allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self._trained, found, strict=True):
                parameter.grad = None if gradient is None else gradient.contiguous()  # fused steps go by memory
            self._move([part.detach() for part in parts])

    def _measure(self, losses: Tensor, batch: Mapping[str, Tensor]) -> None:
        first = 0
        for i, some in enumerate(self.points):
            own = slice(first, first + some.count)
            if isinstance(some, BalancedPoints) and some.is_due:
                beside = self.parts.validation if some.aligns else None
                found = None if beside is None else self.model.call(beside, self._data, batch, train=False)[:, own]
                some.take(measure_at(self._measured_at[i], losses, own, found))
            first += some.count

    def _move(self, losses: Sequence[Tensor]) -> None:
        """Step, decay, and note a row of history."""
        for some, part in zip(self.points, losses, strict=True):
            some.set_gradients(part)
        before = [some.coefficients().clone() for some in self.points]
        self.optimizer.step()
        for i, (some, part) in enumerate(zip(self.points, losses, strict=True)):
            some.after_step()
            mark = torch.full_like(before[i][..., :1], Mark.CALLED)
            row = part, before[i], *some.own_columns(), mark
            self._rows[i].append(torch.cat([one.to(before[i]) for one in row], dim=-1))
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
        """Return metrics of all models, ``(S, P)`` each."""
        found: list[Mapping[str, Tensor]] = [
            self.model.call(function, self._data, train=False, points=slice(start, start + AT_ONCE))
            for start in range(0, len(self.rules), AT_ONCE)
        ]
        return {name: torch.cat([part[name] for part in found], dim=1).cpu() for name in found[0]}

    # Results

    def outcomes(self) -> Iterator[tuple[int, Rule, Outcome]]:
        """Return the seed, the rule and the outcome of every trial."""
        self._bring_rows()
        metrics = self._evaluate(self.parts.metrics)
        first = 0
        for some, history in zip(self.points, self._history, strict=True):
            rows, last = torch.cat(history, dim=2), some.coefficients().cpu()
            for s, seed in enumerate(self.seeds):
                for p in range(some.count):
                    yield (
                        seed,
                        self.rules[first + p],
                        Outcome(
                            {name: value[s, first + p].item() for name, value in metrics.items()},
                            [(at, {n: v[s, first + p].item() for n, v in told.items()}) for at, told in self._reports],
                            last[s, p].tolist(),
                            some.columns,
                            rows[s, p].clone(),
                        ),
                    )
            first += some.count


def in_order(losses: Callable[..., Losses], terms: Sequence[str], model: nn.Module, *more: Tensors) -> Tensor:
    """Return the losses as one tensor, base first."""
    found = losses(model, *more)
    if isinstance(found, Tensor):
        return found
    values = [found[term] for term in terms] if isinstance(found, Mapping) else list(found)
    return torch.stack([value.reshape(()) for value in values])
