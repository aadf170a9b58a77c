"""Successive halving within a training: it starts with several weights, and after a while the best ones go on."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import torch

from trainonce import distributed
from trainonce.states import States
from trainonce.text import is_positive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from trainonce.composite import Carried, CompositeLoss
    from trainonce.history import History
    from trainonce.states import Part, State

__all__ = ["Answer", "Halving"]

#: Chosen in the arena, with a drift of 4 (docs/results/arena.md).
FACTORS = (1 / 30, 30.0)
ROUNDS = (1 / 18, 1 / 9, 1 / 3)
KEEP = (3, 2, 1)
AS_IT_IS = "as it is"
UNTOLD = "halving.wants_score asked for a score that halving.score was not given."


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the end of a round found: the score of each start that was left, by its name, and which one was best."""

    step: int
    scores: Mapping[str, float]
    chosen: str


@dataclasses.dataclass
class Start:
    """One of the weights that are tried. ``asked`` is added to the exponents; ``state`` is None in the first round.

    ``carried``: what the criterion has from its last call for the next one, which is in no checkpoint.
    """

    name: str
    asked: list[float]
    state: State = None
    rows: Tensor | None = None
    carried: Carried = (None, None)

    def kept(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        return {name: value for name, value in vars(self).items() if name != "carried"}


class Halving:
    """The steps of a training that begins with several weights, of which the best go on.

    Iterate over it in place of ``range(steps)``. The training begins once in gradient units as they are, and once for
    each auxiliary term and each factor with so much more or less of that term. At the end of each round
    :attr:`wants_score` asks for a score on held-out data, and the best go on from where they were. The training as it
    is stays until the last round, unless it diverges: some terms cost at first and help later. So the first steps come
    several times, with the same batches; the last part of the training comes once.

    The states of those that go on are kept in memory, on the device, and that of the start.

    :param criterion: A :class:`CompositeLoss` in gradient units, attached.
    :param steps: The length of the training, in steps of the optimizer: gradients do not go back.
    :param parts: What the training changes, besides the criterion: model, optimizer, scheduler, and whatever else has a
        ``state_dict``, and generators that batches are drawn with. The random states of torch, Python and numpy are
        kept in any case. What is in none of them does not go back: make a loader anew where the step goes back.
    :param higher: Whether a higher score is better.
    :param factors: By what the weight of each auxiliary term is multiplied, one at a time.
    :param rounds: When each round ends, as a part of the training.
    :param keep: How many go on after each, with the training as it is; after the last one 1.

    >>> import torch, trainonce
    >>> model = torch.nn.Linear(2, 1)
    >>> criterion = trainonce.CompositeLoss(["fit", "noise"], units="gradient")
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion)
    >>> halving = Halving(criterion, 180, [model, optimizer], higher=False)
    >>> x, count = torch.eye(2), 0
    >>> for step in halving:
    ...     optimizer.zero_grad()
    ...     error = (model(x) - 1).square().mean()
    ...     criterion(fit=error, noise=(model(x) + 5 * (-1) ** step).square().mean()).backward()
    ...     _ = optimizer.step()
    ...     count += 1
    ...     if halving.wants_score:
    ...         halving.score(error.item())
    >>> count, halving.answers[-1].chosen
    (260, 'with noise at 1/30')
    """

    def __init__(
        self,
        criterion: CompositeLoss,
        steps: int,
        parts: Iterable[Part | torch.Generator],
        *,
        higher: bool,
        factors: Sequence[float] = FACTORS,
        rounds: Sequence[float] = ROUNDS,
        keep: Sequence[int] = KEEP,
    ) -> None:
        if criterion.meter is None or criterion.learned:
            raise ValueError("Halving needs a criterion with units='gradient', whose weights the loss does not move.")
        self._states = States(parts, criterion)
        self._ends = round_ends(steps, rounds, keep)
        self.criterion, self.steps, self.higher, self.keep = criterion, steps, higher, tuple(keep)
        self.answers: list[Answer] = []
        self.done = 0  # steps of what is under way, with the present one
        self.made = 0  # steps in all
        self._round = 0
        self._waiting = list(starts(criterion.terms, factors, criterion.meter.asked.tolist()))
        self._names = [start.name for start in self._waiting]
        self._running: Start | None = None
        self._best: list[Start] = []  # of those that have run in this round, best first
        self._scores: dict[str, float] = {}
        self._first: State = None  # before the first step
        self._first_carried: Carried = (None, None)
        self._mark: tuple[int, int] | None = None  # of the history, likewise
        self._rows: Tensor | None = None  # of what was under way when it was saved
        self._begun = self._wanted = False

    # The loop

    def __iter__(self) -> Iterator[int]:
        if self._wanted:
            raise RuntimeError(UNTOLD)
        if not self._begun:
            self._begun, self._first, self._first_carried = True, self._states.save(), self.criterion._carried()
            self._mark = None if self._history is None else self._history.mark()
        if self._history is not None and self._mark is not None and self._rows is not None:
            self._history.rewind(self._mark)
            self._history.extend(self._rows)
        self._rows = None
        while self.is_branching:
            yield from self._run_round()
        while self.done < self.steps:
            self.done += 1  # before the step: a checkpoint is written after it
            self.made += 1
            yield self.done - 1

    def _run_round(self) -> Iterator[int]:
        while self._running is not None or self._waiting:
            if self._running is None:
                self._go_to(self._waiting.pop(0))
                self.done = self._ends[self._round - 1] if self._round else 0
            while self.done < self._ends[self._round]:
                self.done += 1
                self.made += 1
                self._wanted = self.done == self._ends[self._round]
                yield self.done - 1
                if self._wanted:
                    raise RuntimeError(UNTOLD)
            self._leave()
        self._close_round()

    @property
    def is_branching(self) -> bool:
        """Whether more than one of the starts is still in the training."""
        return self._round < len(self._ends)

    @property
    def can_save(self) -> bool:
        """Whether :meth:`state_dict` holds all that is needed: not before a score that is wanted.

        On several ranks not before the last round has ended, either: the random states of the others are not in it.
        """
        return not self._wanted and not (self.is_branching and distributed.is_distributed())

    @property
    def wants_score(self) -> bool:
        """Whether :meth:`score` is to be called after this step.

        What computing the score draws of random numbers is drawn from those of the training.
        """
        return self._wanted

    def score(self, value: float) -> None:
        """Tell the score on held-out data, of the model as it is after this step."""
        if not self._wanted or self._running is None:
            raise RuntimeError("halving.score is for the steps at which halving.wants_score is true.")
        self._scores[self._running.name] = agree(value, self.criterion)
        self._wanted = False

    # From one start to the next

    @property
    def _history(self) -> History | None:
        return None if self.criterion.attachment is None else self.criterion.attachment.history

    def _go_to(self, start: Start) -> None:
        fresh = start.state is None
        self._states.load(self._first if fresh else start.state)
        self.criterion._carry_on(self._first_carried if fresh else start.carried)
        set_asked(self.criterion, start.asked)
        if self._history is not None and start.rows is not None:
            self._history.extend(start.rows)
        self._running, start.state, start.rows, start.carried = start, None, None, (None, None)

    def _rows_so_far(self) -> Tensor | None:
        return None if self._history is None or self._mark is None else self._history.since(self._mark)

    def _leave(self) -> None:
        """Take a start that has reached the end of the round out of the way; only the best so far are kept."""
        start, self._running = self._running, None
        assert start is not None
        if self._history is not None and self._mark is not None:
            start.rows = self._history.rewind(self._mark)
        ranked = sorted([*self._best, start], key=self._rank, reverse=True)
        self._best = ranked[: self.keep[self._round]]
        if any(one is start for one in self._best):
            start.state, start.carried = self._states.save(), self.criterion._carried()

    def _rank(self, start: Start) -> tuple[bool, float]:
        """Higher goes on first: before the last round what is as it is, then by the score."""
        worth = self._worth(start.name)
        has_seat = start.name == AS_IT_IS and self.keep[self._round] > 1 and worth > -math.inf
        return has_seat, worth

    def _worth(self, name: str) -> float:
        score = self._scores[name]
        return -math.inf if not math.isfinite(score) else score if self.higher else -score

    def _close_round(self) -> None:
        chosen = max(self._best, key=lambda start: self._worth(start.name))
        self.answers.append(Answer(self.done, dict(self._scores), chosen.name))
        self._waiting, self._best, self._scores = self._best, [], {}
        self._round += 1
        self._first = None
        if not self.is_branching:
            self._go_to(self._waiting.pop())
            self._running = None

    # Going on later

    def state_dict(self) -> dict[str, Any]:
        """Where the training goes on, with the states of those starts that are not under way."""
        if not self.can_save:
            raise RuntimeError("This is no step to save at: wait until halving.can_save is true.")
        return {
            **{name: getattr(self, name) for name in ("done", "made", "steps")},
            "settings": self._settings(),
            "begun": self._begun,
            "first": self._first,
            "round": self._round,
            "scores": dict(self._scores),
            "history": None if self._running is None else self._rows_so_far(),
            "answers": [dataclasses.asdict(answer) for answer in self.answers],
            "mark": None if self._mark is None else list(self._mark),
            "running": None if self._running is None else self._running.kept(),
            "waiting": [start.kept() for start in self._waiting],
            "best": [start.kept() for start in self._best],
        }

    def _settings(self) -> dict[str, Any]:
        """What a state depends on."""
        found = {"steps": self.steps, "terms": list(self.criterion.terms), "starts": self._names}
        return found | {"rounds": self._ends, "keep": list(self.keep), "higher": self.higher}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.get("settings") != self._settings():
            raise ValueError(
                "This state is of another Halving: make it with the same terms, steps, factors, rounds, keep, higher."
            )
        self.done, self.made, self._begun = state["done"], state["made"], state["begun"]
        self._round, self._first, self._rows = state["round"], state["first"], state["history"]
        self._scores, self._wanted = dict(state["scores"]), False
        self.answers = [Answer(**answer) for answer in state["answers"]]
        self._mark = None if state["mark"] is None else (state["mark"][0], state["mark"][1])
        self._running = None if state["running"] is None else Start(**state["running"])
        self._waiting, self._best = ([Start(**one) for one in state[name]] for name in ("waiting", "best"))


def starts(terms: Sequence[str], factors: Sequence[float], asked: Sequence[float] = ()) -> Iterator[Start]:
    """Each of the weights to begin with; first those of the units, with what was asked of them before."""
    each = factors if isinstance(factors, (tuple, list)) else ()
    names = {
        change_name("", factor) for factor in each if is_positive(factor) and 1e-30 < factor < 1e30 and factor != 1
    }
    if not each or len(names) < len(each):
        raise ValueError(f"The factors of Halving must be different positive numbers other than 1; got {factors!r}.")
    now = list(asked or [0.0] * (len(terms) - 1))
    yield Start(AS_IT_IS, now)
    for (i, term), factor in itertools.product(enumerate(terms[1:]), factors):
        yield Start(change_name(term, factor), [*now[:i], now[i] + math.log(factor), *now[i + 1 :]])


def round_ends(steps: int, rounds: Sequence[float], keep: Sequence[int]) -> list[int]:
    """After how many steps each round ends; an error if that cannot be.

    >>> round_ends(1000, (0.1, 0.5), (2, 1))
    [100, 500]
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"Halving needs the number of steps of the training; got {steps!r}.")
    if not isinstance(rounds, (tuple, list)) or not isinstance(keep, (tuple, list)):
        raise ValueError(f"The rounds of Halving, and how many go on, are tuples; got {rounds!r} and {keep!r}.")
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in keep)
    if len(rounds) != len(keep) or not whole or list(keep)[-1:] != [1] or list(keep) != sorted(keep, reverse=True):
        raise ValueError(
            f"Halving needs, for each round, how many go on, ever fewer and in the end 1; got {list(keep)!r} for the "
            f"rounds {list(rounds)!r}."
        )
    if not all(is_positive(part) and part <= 1 for part in rounds):
        raise ValueError(f"The rounds of Halving end at parts of the training, up to 1; got {list(rounds)!r}.")
    ends = [max(1, round(part * steps)) for part in rounds]
    if any(b <= a for a, b in itertools.pairwise(ends)):
        raise ValueError(f"Rounds that end after {ends} steps are too short: Halving needs a longer training.")
    return ends


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


def change_name(term: str, factor: float) -> str:
    """What is changed, for answers."""
    if factor > 1:
        return f"with {term} times {factor:.3g}"
    parts = 1 / factor
    return f"with {term} at " + (f"1/{parts:.0f}" if abs(parts - round(parts)) < 1e-3 else f"{factor:.3g}")
