"""Where the class of a rule is found, what settings it takes, and how a study makes it."""

from __future__ import annotations

import importlib
import inspect
import json
import traceback
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.study import identity, peers
from trainonce.study.peers import PEERS
from trainonce.text import did_you_mean, is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainonce.weighting import LossWeighting, NonFinite

    Validation = Callable[[], Any]

#: The rules of this package by the name of their class: the module, and the plan.
OURS = {
    "CompositeLoss": ("trainonce.composite", "yoto"),
    "BalancedLoss": ("trainonce.balance", "balance"),
    "FixedLoss": ("trainonce.fixed", "fixed"),
    "Replay": ("trainonce.fixed", "replay"),
}

#: Settings that a rule of this package, or of TorchJD, has got since results under it were kept, each with the default
#: it came with, such as ``{"BalancedLoss": {"travel": None}}``: at that value the keys of trials leave it out. Keep the
#: value here when the default changes later.
ADDED: dict[str, dict[str, Any]] = {}

#: What a trial gives to a rule that takes it, so that no plan does.
GIVEN = ("scale", "nonfinite", "validation", "steps", "eval_mode")


def find(name: str, place: str) -> type[LossWeighting]:
    """Return the class of a rule.

    :param name: ``CompositeLoss``, or ``my_rules.py:GradNorm``.
    :param place: The path of that file, or its module; empty for the rules of this package.
    """
    from trainonce.weighting import LossWeighting

    if name in OURS:
        found: type[LossWeighting] = getattr(importlib.import_module(OURS[name][0]), name)
        return found
    own = name.rpartition(":")[2]
    if not place:
        raise InputError(f"Where the rule {name!r} is, its record does not say. Name it as a plan again.")
    module = _load(name, place)
    rules = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, LossWeighting) and value is not LossWeighting
    }
    if own not in rules:
        known = ", ".join(rules) or "none"
        raise InputError(
            f"{place_name(place)} has no rule {own!r}, a class derived from trainonce.LossWeighting; it has: {known}."
            f"{did_you_mean(own, rules)}"
        )
    return rules[own]


def _load(name: str, place: str) -> Any:
    from trainonce.study.executors.task_location import load_file

    if place.endswith(".py") and not Path(place).is_file():
        raise InputError(f"There is no file {place} for the rule {name!r}.")
    try:
        return load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        lines = traceback.format_exc().splitlines()
        text = f"The rule {name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise InputError("\n".join([*lines, "", text])) from None


def place_name(place: str) -> str:
    """Return the name of a rule's file or module as records hold it, which says nothing of the machine.

    >>> place_name("some/folder/my_rules.py"), place_name("package.rules")
    ('my_rules.py', 'package.rules')
    """
    return Path(place).name if place.endswith(".py") else place


def source_of(name: str, place: str) -> str:
    """Return a hash of what a rule of one's own computes: its file, and those beside it that it imports."""
    path = Path(place) if place.endswith(".py") else Path(inspect.getsourcefile(find(name, place)) or "")
    return identity.digest(identity.hashes_of(path.absolute()))


# Settings


def parameters(name: str, place: str = "") -> dict[str, Any]:
    """Return the settings that a rule takes, with their defaults: what its constructor takes besides the terms.

    A setting that must be given has the default ``Parameter.empty``.

    >>> parameters("CompositeLoss")
    {'init': 1.0, 'decay': 4.0, 'regularizer': ('negentropy', 'softplus'), 'lr': None, 'travel': None}
    """
    if name in PEERS:
        return peers.settings_of(name)
    _first, *others = _signature(find(name, place))
    return {p.name: p.default for p in others if p.name not in GIVEN and p.kind is not Parameter.VAR_KEYWORD}


def _signature(rule: type[LossWeighting]) -> list[Parameter]:
    """Return what a rule's constructor takes, the terms first."""
    found = [p for p in inspect.signature(rule).parameters.values() if p.kind is not Parameter.VAR_POSITIONAL]
    if not found or found[0].kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        raise InputError(
            f"The constructor of the rule {rule.__name__} takes the terms first, as in def __init__(self, terms, "
            "alpha=1.5, **options); it does not."
        )
    return found


def resolve(name: str, given: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return all settings of a rule as JSON has them: those that are given, and the defaults of the others.

    A whole number for a setting whose default has a point, or, of this package's rules, is None, becomes a float:
    ``lr=1`` and ``lr=1.0`` are the same training.
    """
    known, shown = parameters(name, place), OURS[name][1] if name in OURS else name.rpartition(":")[2]
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        has = quoted(known) or "none"
        raise ValueError(f"The rule {shown} has no setting {unknown!r}; it has: {has}.{did_you_mean(unknown, known)}")
    missing = [key for key, default in known.items() if default is Parameter.empty and key not in given]
    if missing:
        raise ValueError(f"The rule {shown} needs the setting {quoted(missing)}: write {name}({missing[0]}=...).")
    found = {}
    for key, default in known.items():
        value = given.get(key, default)
        wide = isinstance(default, float) or (default is None and name in OURS)
        try:
            found[key] = _plain(_as_floats(value) if wide else value)
        except TypeError:
            if key in given:
                raise ValueError(
                    f"The setting {key!r} of the rule {shown} is a number, a text, or a list of them, as a record can "
                    f"hold it; got {value!r}."
                ) from None
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back; raises TypeError for what it cannot hold."""
    return json.loads(json.dumps(value))


def _as_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_floats(v) for key, v in value.items()}
    return float(value) if is_number(value) else value


# Making


def build(
    name: str,
    place: str,
    settings: Mapping[str, Any],
    terms: tuple[str, ...],
    *,
    scale: float = 1.0,
    nonfinite: NonFinite = "propagate",
    validation: Validation | None = None,
    steps: int | None = None,
) -> LossWeighting:
    """Make the criterion of a rule; each gets of the trial what its constructor takes.

    In a study fixed weights sum to 1, so a balance holds the base where equal weights have it, at 1/(K+1).
    """
    if name in PEERS:
        return peers.build(name, terms, settings, scale=scale, nonfinite=nonfinite, steps=steps)
    rule = find(name, place)
    if name == "FixedLoss":
        return rule(dict(zip(terms, settings["weights"], strict=True)), scale=scale, nonfinite=nonfinite)
    if name == "BalancedLoss":
        scale = scale / len(terms)
    known = _signature(rule)
    names, open_ended = {p.name for p in known}, known[-1].kind is Parameter.VAR_KEYWORD
    options: dict[str, Any] = {}
    for key, value, usual in (("scale", scale, 1.0), ("nonfinite", nonfinite, "propagate")):
        if key in names or (open_ended and value != usual):
            options[key] = value
        elif value != usual:
            raise InputError(
                f"The task asks for {key}={value!r}, which the rule {rule.__name__} does not take: add {key} to its "
                "constructor, or **options, and pass it to LossWeighting."
            )
    options |= {key: value for key, value in (("validation", validation), ("steps", steps)) if key in names}
    return rule(terms, **settings, **options)
