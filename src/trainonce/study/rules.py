"""A rule as plain data: which one, and all its settings. A study trains under it, and records hold it.

A rule's settings are those of its constructor, which is where they and their defaults are written, and nowhere else;
:mod:`~trainonce.study.rule_classes` reads them there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.study import layout, rule_classes
from trainonce.study.peers import PEERS
from trainonce.text import is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch.optim import Optimizer

    import trainonce
    from trainonce.study.record import Record
    from trainonce.study.task import Task
    from trainonce.weighting import LossWeighting, NonFinite

PARTS = ["negentropy", "softplus"]  # of the paper's regularizer
#: What plans call its readings.
REGULARIZERS = {"paper": PARTS, "softplus": PARTS[1:]}


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule with all its settings.

    :param name: ``"CompositeLoss"``, ``"BalancedLoss"``, ``"FixedLoss"``, the plan of one of TorchJD's, or one's own,
        ``"my_rules.py:GradNorm"``.
    :param settings: What its constructor takes besides the terms, as JSON holds it: lists, not tuples. Of ``FixedLoss``
        the ``weights`` as a list, in the order of the terms.
    :param version: Of the rule's arithmetic.
    :param source: A hash of the code of a rule of one's own.
    :param place: The file of such a rule on this machine, or its module; records do not hold it.
    """

    name: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    version: int = 1
    source: str = ""
    place: str = dataclasses.field(default="", compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json(), sort_keys=True))

    def to_json(self) -> dict[str, Any]:
        """Return what a record holds."""
        found = {"rule": self.name, "version": self.version, "settings": dict(self.settings)}
        return found | ({"source": self.source} if self.source else {})

    # What kind of rule it is

    @property
    def is_fixed(self) -> bool:
        """Whether it holds given weights."""
        return self.name == "FixedLoss"

    @property
    def is_own(self) -> bool:
        """Whether it is somebody's own rule, of a file or a module."""
        return ":" in self.name

    @property
    def trains(self) -> bool:
        """Whether its history has the columns of exponents."""
        return self.name == "CompositeLoss"

    @property
    def measures(self) -> bool:
        """Whether it may run backward through the losses itself, besides the loop's own pass."""
        return self.name == "BalancedLoss" or self.is_own

    @property
    def aligns(self) -> bool:
        """Whether a validation loss moves it."""
        return self.name == "BalancedLoss" and self.settings.get("travel") != 0

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The weights of fixed ones, base first; they sum to 1."""
        return tuple(self.settings["weights"]) if self.is_fixed else ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Each auxiliary weight of fixed ones over the base's; infinite or 0 where the base has 0."""
        return ratios_of(self.coefficients)[1:]

    # In words

    @property
    def plan(self) -> str:
        """The name of the plan that trains once under such a rule."""
        return rule_classes.OURS[self.name][1] if self.name in rule_classes.OURS else self.name

    @property
    def label(self) -> str:
        """What distinguishes this rule within its plan. Of two that are very close :func:`labels` shows more."""
        return self.describe(3 if self.is_fixed else 6)

    def describe(self, digits: int) -> str:
        """Return what distinguishes this rule within its plan, with so many digits of each number."""
        if self.is_fixed:
            weights = self.coefficients
            base = weights[0] if weights else 0.0
            return " : ".join(f"{w / base if base else w:.{digits}g}" for w in weights)
        shown = dict(self.settings)
        if self.trains:
            if shown.get("regularizer") == PARTS:
                del shown["regularizer"]
            parts = []
        else:
            usual = _defaults(self.name)
            shown = {key: value for key, value in shown.items() if key not in usual or value != usual[key]}
            parts = [self.plan]
        parts += [f"{key} {_show(value, digits)}" for key, value in shown.items() if value is not None]
        return ", ".join(parts)

    # In a trial

    def needs(self, seed: int) -> tuple[Rule, int] | None:
        """Return the trial that must have ended before this one of a seed: its rule and its seed."""
        return None

    def check(self, task: Task) -> None:
        """Raise if the task cannot be trained under this rule."""
        if self.is_fixed:
            if len(self.coefficients) != len(task.terms):
                raise ValueError(
                    f"Fixed weights for the task {task.name!r} need one value for each of {quoted(task.terms)}; "
                    f"got {len(self.coefficients)} ({self.label})."
                )
            return
        at = self.settings.get("at")
        if self.name == "BalancedLoss" and at not in ("all", "last"):
            raise ValueError(f"In a study balance measures at 'all' shared parameters or at the 'last'; got {at!r}.")
        for key, value in self.settings.items() if self.name in PEERS else ():
            if value is not None and not is_number(value):
                raise ValueError(f"The plan {self.name!r} takes numbers; got {value!r} for {key!r}.")
        self.build(task.terms).coefficients()

    def build(
        self,
        terms: tuple[str, ...],
        *,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
        validation: Callable[[], Any] | None = None,
        steps: int | None = None,
        source: Path | None = None,
    ) -> LossWeighting:
        """Make the criterion.

        :param validation: What rules that align evaluate.
        :param steps: Of the training, where they are known.
        :param source: The folder of the trial that :meth:`needs` names.
        """
        if self.is_own and rule_classes.source_of(self.name, self.place) != self.source:
            raise InputError(f"The rule {self.name!r} was changed while the study was running. Start it again.")
        return rule_classes.build(
            self.name,
            self.place,
            self.settings,
            terms,
            scale=scale,
            nonfinite=nonfinite,
            validation=validation,
            steps=steps,
        )

    def attach(
        self, optimizer: Optimizer, criterion: LossWeighting, history: trainonce.History
    ) -> trainonce.Attachment:
        """Connect the criterion with the optimizer; what TorchJD trains gets groups of its own."""
        import trainonce

        attachment = trainonce.attach(optimizer, criterion, history=history)
        if self.name in PEERS:
            criterion.join(optimizer)  # type: ignore[operator]
        return attachment


@dataclasses.dataclass(frozen=True)
class Control(Rule):
    """The coefficients of a run of another seed, replayed whatever the losses are, or its last ones held throughout.

    The run is that of another seed (see :func:`donor`): with its own it would be the same run again, bit for bit.
    """

    name: str = "Replay"
    of: Rule = dataclasses.field(default_factory=lambda: Rule(""), compare=False)

    __hash__ = Rule.__hash__

    @classmethod
    def make(cls, of: Rule, *, last: bool = False) -> Control:
        """Return the control of a rule."""
        return cls(settings={"of": of.to_json(), "last": last}, of=of)

    @property
    def plan(self) -> str:
        return "final" if self.settings["last"] else "replay"

    def describe(self, digits: int) -> str:
        return self.of.describe(digits)

    def needs(self, seed: int) -> tuple[Rule, int] | None:
        return self.of, donor(seed)

    def check(self, task: Task) -> None:
        self.of.check(task)

    def build(
        self,
        terms: tuple[str, ...],
        *,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
        validation: Callable[[], Any] | None = None,
        steps: int | None = None,
        source: Path | None = None,
    ) -> LossWeighting:
        import torch

        import trainonce

        assert source is not None
        if not (source / layout.HISTORY).is_file():
            raise FileNotFoundError(
                f"The control needs the history of another run in {source}, and it is gone. Compare in a new folder."
            )
        history = trainonce.History.load(source / layout.HISTORY)
        if not len(history):
            raise ValueError(f"The history in {source} has no step whose coefficients could be held.")
        if not self.settings["last"]:
            return trainonce.Replay(history, nonfinite=nonfinite)
        if not self.of.trains:
            weights, scale = history.coefficients()[-1].tolist(), 1.0  # which the recorded ones include
        else:  # where the last step has moved the exponents
            last = {name: values[-1] for name, values in history.columns().items()}
            moved = [last[f"exponent/{t}"] + last[f"empirical/{t}"] + last[f"decay/{t}"] for t in terms[1:]]
            weights = trainonce.functional.weights(torch.tensor(moved)).tolist()
        return trainonce.FixedLoss(dict(zip(terms, weights, strict=True)), scale=scale, nonfinite=nonfinite)


def _show(value: Any, digits: int) -> str:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return "/".join(_show(one, digits) for one in value)
    return f"{value:.{digits}g}" if is_number(value) else str(value)


@functools.cache
def _defaults(name: str) -> dict[str, Any]:
    """Return the defaults of a rule's settings; nothing for one whose class is not at hand."""
    with contextlib.suppress(InputError, ImportError):
        return {} if ":" in name else rule_classes.parameters(name)
    return {}


# Making rules


def make(name: str, settings: Mapping[str, Any] | None = None, place: str = "") -> Rule:
    """Return a rule with all its settings: those that are given, and its constructor's defaults.

    >>> make("CompositeLoss", {"decay": 20}).settings["decay"]
    20.0
    """
    resolved = rule_classes.resolve(name, settings or {}, place)
    if name in PEERS:
        from trainonce.study.peer_loss import PeerLoss

        return Rule(name, resolved, PeerLoss.version)
    source = rule_classes.source_of(name, place) if ":" in name else ""
    return Rule(name, resolved, rule_classes.find(name, place).version, source, place)


def fixed(values: Sequence[float]) -> Rule:
    """Return the rule with the given weights or ratios, divided by their sum.

    >>> fixed((1, 3)).settings
    {'weights': [0.25, 0.75]}
    """
    if not all(is_number(v) and 0 <= v < math.inf for v in values) or math.fsum(values) <= 0:
        raise ValueError(f"Fixed weights are numbers of at least 0, not all 0; got {tuple(values)}.")
    total = math.fsum(values)
    return Rule("FixedLoss", {"weights": [float(f"{v / total:.12g}") for v in values]})  # the same from 1:10 and 0.1:1


def grid(axes: Sequence[Sequence[float]]) -> list[Rule]:
    """Return every combination of the ratios of each auxiliary term, in order, each once.

    A manifest may hold the ratios alone, so the points must stay the same to the last digit.
    """
    points = [fixed((1.0, *ratios)) for ratios in itertools.product(*axes)]
    return list({rule.coefficients: rule for rule in points}.values())


def ratios_of(coefficients: Sequence[float]) -> tuple[float, ...]:
    """Return each coefficient relative to the base's, which comes first; infinite or 0 where the base has 0.

    >>> ratios_of((0.5, 0.1, 0.0)), ratios_of((0.0, 1.0, 0.0)), ratios_of(())
    ((1.0, 0.2, 0.0), (1.0, inf, 0.0), ())
    """
    if not coefficients:
        return ()
    base, *rest = coefficients
    return (1.0, *(0.0 if c == 0 else c / base if base else math.inf for c in rest))


# Reading and comparing rules


def read_rule(content: Mapping[str, Any]) -> Rule:
    """Return the rule that a record or a manifest holds; it has the settings, too, that were added since."""
    name, version = content["rule"], content["version"]
    added = rule_classes.ADDED.get(name, {})
    settings = {**content["settings"], **{key: added[key] for key in added if key not in content["settings"]}}
    if name == "Replay":
        of = read_rule(settings["of"])
        return Control(settings=settings | {"of": of.to_json()}, version=version, of=of)
    return Rule(name, settings, version, content.get("source", ""))


def labels(rules: Sequence[Rule]) -> list[str]:
    """Return the labels of a plan's rules, with more digits where different ones would have the same."""
    found = [rule.label for rule in rules]
    for digits in (6, 9, 12, 17):
        groups: dict[str, list[int]] = {}
        for index, label in enumerate(found):
            groups.setdefault(label, []).append(index)
        alike = [i for same in groups.values() if any(rules[i] != rules[same[0]] for i in same) for i in same]
        for index in alike:
            found[index] = rules[index].describe(digits)
    return found


def key_of(identity: str, rule: Rule, seed: int) -> str:
    """Return the key of a trial: a hash of what was trained, under which rule with all its settings, from which seed.

    A default that changes gives another key. A setting that was added to a rule later is left out at the default that
    it came with, so that earlier results are still found: see ``ADDED`` of :mod:`~trainonce.study.rule_classes`.
    """
    return digest([identity, _without_added(rule.to_json()), seed])


def _without_added(content: dict[str, Any]) -> dict[str, Any]:
    added, settings = rule_classes.ADDED.get(content["rule"], {}), content["settings"]
    kept = {key: value for key, value in settings.items() if key not in added or value != added[key]}
    if content["rule"] == "Replay":
        kept["of"] = _without_added(kept["of"])
    return content | {"settings": kept}


def digest(content: Any) -> str:
    """Return a short name for JSON data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def donor(seed: int) -> int:
    """Return the seed whose coefficients a control of this seed uses: the one before, or 1 for seed 0."""
    return seed - 1 if seed else 1


def obstacle(source: Record) -> str:
    """Say why no control can be made from a run that has ended; nothing where one can."""
    if source.status == "failed":
        return f"the run of seed {source.seed} failed"
    if not all(map(math.isfinite, source.coefficients)):
        return f"the coefficients of the run of seed {source.seed} diverged"
    return ""
