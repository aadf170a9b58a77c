"""Searches: the weights to try in a seed, drawn at random or proposed by Optuna from what is already known of it."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.study.rules import Rule, digest, fixed
from trainonce.study.rungs import Rung, halving
from trainonce.text import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.record import Record
    from trainonce.study.task import Direction


@dataclasses.dataclass(frozen=True)
class Search:
    """A search over the ratios of the auxiliary weights to the base weight, log-uniform from ``low`` to ``high``.

    Each seed has its own. ``tpe`` proposes one trial after the other; ``sha`` draws all at random, and of those that
    trained equally long one in ``eta`` goes on. ``rung`` is of searches of an earlier version.
    """

    method: str
    trials: int
    low: float
    high: float
    eta: int | None = None
    rung: int | None = None

    def check(self) -> None:
        if not (isinstance(self.trials, int) and self.trials >= 1):
            raise ValueError(
                f"The plan {self.method!r} takes a whole number of trials, at least 1; got {self.trials!r}."
            )
        if not (is_number(self.low) and is_number(self.high) and 0 < self.low < self.high < math.inf):
            raise ValueError(
                f"The plan {self.method!r} searches ratios between two numbers above 0; got {self.low} and {self.high}."
            )
        if self.eta is not None and not (isinstance(self.eta, int) and self.eta >= 2):
            raise ValueError(f"The plan {self.method!r} needs eta of at least 2; got {self.eta!r}.")
        if self.method == "tpe":
            _optuna()

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest exponent."""
        return math.log(self.low), math.log(self.high)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Where trainings pause; none in a search that trains all to their end."""
        return halving(self.trials, self.eta) if self.method == "sha" and self.eta else ()

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
        if self.method == "sha":
            rng = random.Random(f"{seed}/{number}")
            return fixed((1.0, *(math.exp(rng.uniform(*self.range)) for _ in terms[1:])))
        trial = self._study(terms, direction, done, key, _optuna().samplers.TPESampler(seed=1000 * seed + number)).ask()
        return fixed((1.0, *(trial.suggest_float(t, self.low, self.high, log=True) for t in terms[1:])))

    def _study(self, terms: Sequence[str], direction: Direction, done: Sequence[Record], key: str, sampler: Any) -> Any:
        """Return Optuna's study as it stands after the given trials, reported in their order."""
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction=direction, sampler=sampler)
        for record in done:
            if record.status == "failed" or not record.rule.coefficients:
                continue
            ratios = (min(max(ratio, self.low), self.high) for ratio in record.rule.ratios)
            study.enqueue_trial(dict(zip(terms[1:], ratios, strict=True)))
            trial = study.ask()
            for term in terms[1:]:
                trial.suggest_float(term, self.low, self.high, log=True)
            if record.status == "done":
                study.tell(trial, record.metrics[key])
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return study


def _optuna() -> Any:
    return require("optuna", "Optuna", "search")
