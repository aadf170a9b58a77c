"""The options of executors, each described once: for :meth:`trainonce.study.Study.run` and for the command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Option(NamedTuple):
    """An option: the type it is read as, what it must be, and what it means."""

    kind: type
    rule: str
    holds: Callable[[Any], bool]
    about: str


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


#: Every option by name. The command writes them with hyphens.
OPTIONS = {
    "max_concurrent": Option(int, "a whole number of at least 1", _is_count, "trainings at a time (default: 16)"),
    "cpus": Option(float, "a number of at least 0", _is_amount, "CPU cores of a training (default: 1)"),
    "gpus": Option(float, "a number of at least 0", _is_amount, "GPUs of a training, 0.25 for a quarter (default: 0)"),
    "address": Option(str, "text, such as auto or host:6379", _is_text, "a running Ray cluster"),
}

#: Which executors take which options; those that are not named take none, and train on this machine.
TAKES: dict[str, tuple[str, ...]] = {"ray": ("max_concurrent", "cpus", "gpus", "address")}

CONCURRENT = 16  # trainings at a time on a cluster, unless an option says more


def check_options(executor: str, given: Mapping[str, Any]) -> None:
    """Raise, in one sentence, if the executor does not take one of the options, or not with this value."""
    taken = TAKES.get(executor, ())
    for name, value in given.items():
        if name not in taken:
            others = [other for other, names in TAKES.items() if name in names]
            whose = f"; {quoted(others)} does" if others else f".{did_you_mean(name, taken)}"
            has = f"it takes {quoted(taken)}" if taken else "it takes none"
            raise ValueError(f"The executor {executor!r} does not take the option {name!r}: {has}{whose}".rstrip("."))
        check_value(name, value)


def check_value(name: str, value: Any) -> None:
    option = OPTIONS[name]
    if not option.holds(value):
        raise ValueError(f"The option {name!r} must be {option.rule}; got {value!r}.")
