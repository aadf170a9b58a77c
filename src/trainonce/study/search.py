"""Searches: Optuna proposes the next weights of a seed from what is already known of it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.study.rules import Rule, digest, fixed
from trainonce.text import is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainonce.study.record import Record
    from trainonce.study.task import Direction

RUNGS = 2  # for eta = 3 at a ninth and at a third of a training


@dataclasses.dataclass(frozen=True)
class Search:
    """A search over the ratios of the auxiliary weights to the base weight, log-uniform from ``low`` to ``high``.

    ``asha`` draws at random and stops a training at the steps ``rung`` and ``eta * rung`` unless it is among the best
    ``1 / eta`` of those that came so far. Each seed has its own search, one trial after the other.
    """

    method: str
    trials: int
    low: float
    high: float
    eta: int | None = None
    rung: int | None = None

    def check(self) -> None:
        if not (isinstance(self.trials, int) and self.trials >= 1):
            raise ValueError(f"The plan {self.method!r} needs at least 1 trial; got {self.trials!r}.")
        if not (is_number(self.low) and is_number(self.high) and 0 < self.low < self.high < math.inf):
            raise ValueError(
                f"The plan {self.method!r} searches ratios between two numbers above 0; got {self.low} and {self.high}."
            )
        if self.eta is not None and not (isinstance(self.eta, int) and self.eta >= 2):
            raise ValueError(f"The plan {self.method!r} needs eta of at least 2; got {self.eta!r}.")
        if self.method != "random":
            _optuna()

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest exponent."""
        return math.log(self.low), math.log(self.high)

    def key(self, identity: str, seed: int, number: int) -> str:
        """The key of a search's trial; which weights it has is known only when its turn comes."""
        content = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        del content["trials"]  # more trials continue the same search
        return digest([identity, content, seed, number])

    def propose(
        self, terms: Sequence[str], direction: Direction, done: Sequence[Record], key: str, seed: int, number: int
    ) -> Rule:
        """The weights to try next, given the search's other trials.

        :param key: The metric that selects, as records name it.
        :param seed: Of the whole search, so that a seed's search is its own.
        :param number: Of the trial within the search, so that no two draw alike.
        """
        optuna = _optuna()
        sampler = (
            optuna.samplers.TPESampler(seed=1000 * seed + number)
            if self.method == "tpe"
            else optuna.samplers.RandomSampler(seed=1000 * seed + number)
        )
        study = self._study(terms, direction, done, key, sampler=sampler)
        trial = study.ask()
        return fixed((1.0, *(trial.suggest_float(t, self.low, self.high, log=True) for t in terms[1:])))

    def pruner(
        self, terms: Sequence[str], direction: Direction, done: Sequence[Record], key: str
    ) -> Callable[[Sequence[tuple[int, float]]], bool] | None:
        """What decides, from a trial's reports, whether to give it up; None for searches that do not."""
        if self.rung is None or self.eta is None:
            return None
        optuna = _optuna()
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=self.rung, reduction_factor=self.eta)
        study = self._study(terms, direction, done, key, pruner=pruner)
        trial = study.ask()
        reported: set[int] = set()

        def prune(reports: Sequence[tuple[int, float]]) -> bool:
            fresh = [(step, value) for step, value in reports if step not in reported]
            reported.update(step for step, _ in fresh)
            return self._report(trial, fresh)

        return prune

    def obstacle(self, record: Record, unit: str) -> str:
        """Why a trial that ended could not be stopped early, whatever its metric; nothing where it could.

        :param unit: Of the task's length: ``"steps"`` or ``"epochs"``.
        """
        if self.rung is None or record.status in ("failed", "pruned"):
            return ""
        if not record.reports:
            return f"The task never calls trial.report, so the plan {self.method!r} stops no training early."
        last = record.reports[-1][0]
        if last >= self.rung:
            return ""
        return (
            f"The task's last report was at {last}, so the plan {self.method!r} stops no training early: it first "
            f"decides at {self.rung} {unit}. Call trial.report with the {unit} done so far."
        )

    def _study(self, terms: Sequence[str], direction: Direction, done: Sequence[Record], key: str, **tools: Any) -> Any:
        """Optuna's study as it stands after the given trials, reported in their order."""
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction=direction, **tools)
        metric = key.partition("/")[2]
        for record in done:
            if record.status == "failed" or not record.rule.coefficients:
                continue
            ratios = (min(max(ratio, self.low), self.high) for ratio in record.rule.ratios)
            study.enqueue_trial(dict(zip(terms[1:], ratios, strict=True)))
            trial = study.ask()
            for term in terms[1:]:
                trial.suggest_float(term, self.low, self.high, log=True)
            self._report(trial, [(step, values[metric]) for step, values in record.reports])
            if record.status == "done":
                study.tell(trial, record.metrics[key])
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return study

    def _report(self, trial: Any, reports: Sequence[tuple[int, float]]) -> bool:
        """Report to Optuna; whether it would stop there. Near the end there is nothing left to save."""
        for step, value in reports:
            if self.rung is not None and self.eta is not None and step >= self.rung * self.eta**RUNGS:
                return False
            trial.report(value if math.isfinite(value) else math.nan, step)
            if trial.should_prune():
                return True
        return False


def _optuna() -> Any:
    return require("optuna", "Optuna", "search")
