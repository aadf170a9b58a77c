"""Scouts: short branches of a training that ask whether a term is better with less weight, or put back."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from typing import TYPE_CHECKING, Any

import torch

from trainonce import distributed
from trainonce.states import States
from trainonce.text import is_number, is_positive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from trainonce.composite import CompositeLoss
    from trainonce.history import History
    from trainonce.states import Part

__all__ = ["Answer", "Scouts"]

LEVELS = (1 / 30,)
SHORTEST = 4  # steps of a branch


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a scout asked and found: the mean score of each change, by its name, and which one the training took."""

    step: int
    scores: Mapping[str, float]
    chosen: str


class Scouts:
    """The steps of a training, with branches that try it with less of a term for a while.

    Iterate over it in place of ``range(steps)``. At the start of a branch the state is kept; then the same steps come
    several times, as the training is and under each change: with one of the auxiliary terms at another level of its
    weight, such as a thirtieth, or in full again where that was lowered before. Near
    the end of each, :attr:`wants_score` asks for a score on held-out data. A change that is clearly better is what the
    training goes on from. The base's weight is the same in all branches, so that lowering a term does not change the
    steps that the base alone would make.

    :param criterion: A :class:`CompositeLoss` in gradient units, attached.
    :param steps: The length of the training.
    :param parts: What the training changes, besides the criterion: model, optimizer, scheduler, and whatever else has a
        ``state_dict``, and generators that batches are drawn with. Torch's own random states are kept in any case, so
        each branch gets the same batches.
    :param higher: Whether a higher score is better.
    :param at: When branches start, as parts of the training. One at 0 spares a pretrained model what a term would do to
        it at full weight before anyone has asked.
    :param length: How long each is, as a part of the training.
    :param levels: What parts of its weight to try for each auxiliary term. A branch for each of them, besides the one
        that the term is at.
    :param errors: A change must be better by so many standard errors of the readings,
    :param margin: and by this part of the score besides.
    :param readings: How often the score is read, over the second half of a branch; less where that has fewer steps.

    >>> import trainonce
    >>> model = torch.nn.Linear(2, 1)
    >>> criterion = trainonce.CompositeLoss(["fit", "noise"], units="gradient")
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion)
    >>> scouts = Scouts(criterion, 500, [model, optimizer], higher=False)
    >>> x, count = torch.eye(2), 0
    >>> for step in scouts:
    ...     optimizer.zero_grad()
    ...     error = (model(x) - 1).square().mean()
    ...     criterion(fit=error, noise=(model(x) + 5 * (-1) ** step).square().mean()).backward()
    ...     _ = optimizer.step()
    ...     count += 1
    ...     if scouts.wants_score:
    ...         scouts.score(error.item())
    >>> count, scouts.answers[0].chosen
    (620, 'with noise at 1/30')
    """

    def __init__(
        self,
        criterion: CompositeLoss,
        steps: int,
        parts: Iterable[Part | torch.Generator],
        *,
        higher: bool,
        at: float | Sequence[float] = (0.0, 0.1, 0.35),
        length: float = 0.08,
        levels: float | Sequence[float] = LEVELS,
        errors: float = 2.0,
        margin: float = 0.01,
        readings: int = 5,
    ) -> None:
        if criterion.meter is None or criterion.learned:
            raise ValueError("Scouts need a criterion with units='gradient', whose weights the loss does not move.")
        self._states = States(parts, criterion, "Scouts")
        when: Sequence[float] = (at,) if isinstance(at, (int, float)) else at
        self.criterion, self.steps, self.higher = criterion, steps, higher
        self.levels = (1.0, *checked_levels(levels))
        self.errors, self.margin = errors, margin
        self.answers: list[Answer] = []
        self.done = 0  # steps of the training itself, with the one under way
        self.made = 0  # steps in all, with those of branches
        self._moments, self._length = branches(steps, when, length, readings)
        self._reading_steps = reading_steps(self._length, readings)
        self._readings: list[float] = []
        self._wanted = False
        self.is_branching = False

    # The loop

    def __iter__(self) -> Iterator[int]:
        while self.done < self.steps:
            if self.done in self._moments:
                self.is_branching = True
                try:
                    yield from self._branch()
                finally:
                    self.is_branching = False
            else:
                self.done += 1  # before the step: a checkpoint is written after it
                self.made += 1
                yield self.done - 1

    def _branch(self) -> Iterator[int]:
        begin, start = self.done, self._states.save()
        history = None if self.criterion.attachment is None else self.criterion.attachment.history
        mark = None if history is None else history.mark()
        found: list[tuple[str, list[float], Any, Any]] = []
        try:
            for name, asked in self._changes():
                self._states.load(start)
                set_asked(self.criterion, asked)
                yield from self._try_for_a_while(begin)
                rows = None if history is None or mark is None else history.rewind(mark)
                found.append((name, self._readings, self._states.save(), rows))
        except BaseException:  # the loop was left: back to before the branch
            self._wanted = False
            self._states.load(start)
            if history is not None and mark is not None:
                history.rewind(mark)
            raise
        self._decide(begin, found, history)
        self.done = begin + self._length

    def _try_for_a_while(self, begin: int) -> Iterator[int]:
        self._readings = []
        for offset in range(self._length):
            self._wanted = offset in self._reading_steps
            self.made += 1
            yield begin + offset
            if self._wanted:
                raise RuntimeError("scouts.wants_score asked for a score that scouts.score was not given.")

    @property
    def wants_score(self) -> bool:
        """Whether :meth:`score` is to be called after this step."""
        return self._wanted

    def score(self, value: float) -> None:
        """Tell the score on held-out data, of the model as it is after this step."""
        if not self._wanted:
            raise RuntimeError("scouts.score is for the steps at which scouts.wants_score is true.")
        self._readings.append(agree(value, self.criterion))
        self._wanted = False

    @property
    def can_save(self) -> bool:
        """Whether :meth:`state_dict` holds all that is needed: not in a branch."""
        return not self.is_branching

    # What is asked, and what is answered

    def _changes(self) -> list[tuple[str, list[float]]]:
        """Each change by its name, with what is added to the exponents; first none."""
        assert self.criterion.meter is not None
        now = self.criterion.meter.asked.tolist()
        return [("as it is", now)] + [
            (change_name(term, level), [*now[:i], math.log(level), *now[i + 1 :]])
            for i, term in enumerate(self.criterion.terms[1:])
            for level in self.levels
            if not math.isclose(math.log(level), now[i], abs_tol=1e-6)
        ]

    def _decide(self, step: int, found: Sequence[tuple[str, list[float], Any, Any]], history: History | None) -> None:
        """Go on from the best change, if it is clearly better than none."""
        best = choose([readings for _, readings, _, _ in found], self.higher, self.errors, self.margin)
        name, _, state, rows = found[best]
        self._states.load(state)
        if history is not None and rows is not None:
            history.extend(rows)
        self.answers.append(Answer(step, {n: statistics.fmean(readings) for n, readings, _, _ in found}, name))

    # Going on later

    def state_dict(self) -> dict[str, Any]:
        """Where the training goes on. Save it after a step of the training itself, not in a branch."""
        if not self.can_save:
            raise RuntimeError("A branch is no place to save a training: wait until scouts.is_branching is false.")
        counts = {"done": self.done, "made": self.made, "steps": self.steps}
        return {**counts, "answers": [dataclasses.asdict(answer) for answer in self.answers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.done, self.made = state["done"], state["made"]
        self.answers = [Answer(**answer) for answer in state["answers"]]


def checked_levels(levels: float | Sequence[float]) -> tuple[float, ...]:
    """As a tuple, or an error."""
    found = tuple(levels) if isinstance(levels, (tuple, list)) else (levels,)
    if not found or len(set(found)) < len(found) or not all(is_positive(level) and level != 1 for level in found):
        raise ValueError(f"The levels of Scouts must be different positive numbers other than 1; got {levels!r}.")
    return found


def set_asked(criterion: CompositeLoss, asked: Sequence[float]) -> None:
    """What is added to the exponents, for each auxiliary term."""
    assert criterion.meter is not None
    for i, value in enumerate(asked):
        criterion.meter.asked[i].fill_(value)


def agree(score: float, criterion: CompositeLoss) -> float:
    """The score of the first rank, so that all decide alike."""
    if not distributed.is_distributed():
        return float(score)
    told = torch.tensor([float(score)], dtype=torch.float64, device=criterion.exponents.device)
    distributed.broadcast_(told)
    return told.item()


def change_name(term: str, level: float) -> str:
    """What is changed, for answers."""
    if level == 1:
        return f"with {term} again"
    if level > 1:
        return f"with {term} times {level:.3g}"
    parts = 1 / level
    return f"with {term} at " + (f"1/{parts:.0f}" if abs(parts - round(parts)) < 1e-3 else f"{level:.3g}")


def branches(steps: int, at: Sequence[float], length: float, readings: int = 5) -> tuple[list[int], int]:
    """The steps at which branches start, and how many steps each has; an error if that cannot be.

    >>> branches(1000, at=(0.1, 0.35), length=0.08)
    ([100, 350], 80)
    """
    if not all(is_number(moment) and 0 <= moment < 1 for moment in at) or not is_positive(length) or length > 1:
        raise ValueError(f"Scouts need moments and a length between 0 and 1; got {list(at)} and {length!r}.")
    if steps < 1 or readings < 2:
        raise ValueError(f"Scouts need a step and two readings at least; got {steps} and {readings}.")
    moments, size = sorted({round(moment * steps) for moment in at}), max(SHORTEST, round(length * steps))
    if any(b - a < size for a, b in itertools.pairwise([*moments, steps])):
        raise ValueError(
            f"Branches of {size} steps at {moments} overlap, or reach beyond the {steps} steps: Scouts "
            "need other moments, or a longer training."
        )
    return moments, size


def reading_steps(length: int, readings: int) -> set[int]:
    """The steps of a branch after which the score is read: the last one, and back from it over the second half.

    >>> sorted(reading_steps(80, 5))
    [47, 55, 63, 71, 79]
    """
    half = max(1, round(length / 2))
    return {length - 1 - round(half * i / readings) for i in range(readings)}


def choose(readings: Sequence[Sequence[float]], higher: bool, errors: float, margin: float) -> int:
    """Which of the changes is clearly better than the first, which is none; 0 if none of them is.

    One with a reading that is not finite never is, and any other is better than a first that diverged.

    >>> choose([[80.0, 81.0], [79.0, 80.0], [85.0, 86.5]], higher=True, errors=2.0, margin=0.01)
    2
    """
    sign = 1 if higher else -1
    first = [sign * value for value in readings[0]]
    best, lead = 0, 0.0
    for index, others in enumerate(readings[1:], start=1):
        if not all(map(math.isfinite, others)):
            continue
        if not all(map(math.isfinite, first)):
            return index
        ahead = [sign * value - mine for value, mine in zip(others, first, strict=True)]
        mean = statistics.fmean(ahead)
        error = statistics.stdev(ahead) / math.sqrt(len(ahead))
        needed = errors * error + margin * abs(statistics.fmean(first))
        if mean > needed and mean > lead:
            best, lead = index, mean
    return best
