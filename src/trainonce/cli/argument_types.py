"""What the texts of options are read as: counts, seeds, amounts."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from trainonce.study.executors.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable


def seed_list(text: str) -> int | list[int]:
    if "," not in text and "-" not in text.strip("-"):
        return _check_seed_count(count(text))
    seeds = [seed for part in text.split(",") for seed in _seed_range(part)]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"must be different seeds; got {text!r}")
    return seeds


def _seed_range(text: str) -> range:
    """One seed, or those from the first to the last: 0-4."""
    first, dash, last = text.partition("-")
    if not dash or not first.strip():
        return range(whole(text), whole(text) + 1)
    if whole(last) < whole(first):
        raise argparse.ArgumentTypeError(f"must be ranges from the lower to the higher seed, as 0-4; got {text!r}")
    _check_seed_count(whole(last) - whole(first))
    return range(whole(first), whole(last) + 1)


def _check_seed_count(count: int) -> int:
    if count > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_SEEDS:,} seeds; got {count:,}")
    return count


MOST_SEEDS = 100_000


def count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1; got {text!r}")
    return int(text)


def whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0; got {text!r}")
    return int(text)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text!r}")
    return value


def image_size(text: str) -> tuple[int, int]:
    sides = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(sides) != 2 or text.count(",") != 1 or min(sides) < SMALLEST:
        raise argparse.ArgumentTypeError(f"must be a height and a width of at least {SMALLEST}, as 48,64; got {text!r}")
    return sides[0], sides[1]


SMALLEST = 32  # pixels of a side of made-up images


def option_type(name: str) -> Callable[[str], Any]:
    """What reads an option of an executor."""
    option = OPTIONS[name]

    def read(text: str) -> Any:
        try:
            value = option.kind(text)
        except ValueError:
            value = None
        if not option.holds(value):
            raise argparse.ArgumentTypeError(f"must be {option.rule}; got {text!r}")
        return value

    return read
