"""Parts of messages and names: quoted names, suggestions for misspelled ones, numbers and checks of them."""

from __future__ import annotations

import difflib
import math
import numbers
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def names_error(owner: str, expected: Sequence[str], found: Sequence[object]) -> ValueError:
    """The error for wrong names: what was expected, what was found, and the names that were probably meant."""
    text = f"{owner} expects {quoted(expected)}; got {quoted(found) or 'nothing'}."
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    hints = [f"{guess!r} for {name!r}" for name in extra if (guess := _closest(str(name), missing))]
    if hints:
        text += f" Did you mean {', '.join(hints)}?"
    elif missing:
        text += f" Missing: {quoted(missing)}."
    elif extra:
        text += f" Not a term: {quoted(extra)}."
    else:
        text += " Some name appears more than once."
    return ValueError(text)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A suggestion to end an error about an unknown name; empty if no candidate is similar."""
    guess = _closest(name, list(candidates))
    return f" Did you mean {guess!r}?" if guess else ""


def is_number(value: object) -> bool:
    """Whether it is a real number, including numpy's but not True and False."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_positive(value: object) -> bool:
    """Whether it is a finite real number above 0."""
    return is_number(value) and 0 < cast("float", value) < math.inf


def exact(value: float) -> str:
    """The shortest text that reads back as the same number.

    >>> exact(0.1), exact(2.0), exact(20240601), exact(2.00000001), exact(1e-5)
    ('0.1', '2', '20240601', '2.00000001', '1e-05')
    """
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)  # numpy's, too
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def quoted(names: Iterable[object]) -> str:
    """The names in quotation marks, separated by commas."""
    return ", ".join(repr(name) for name in names)


def _closest(name: str, candidates: Sequence[str]) -> str | None:
    related = [c for c in candidates if c.startswith(name) or name.startswith(c)]
    related += difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    return related[0] if related else None
