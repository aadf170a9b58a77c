"""Parts of messages and names: quoted names, suggestions for misspelled ones, numbers and checks of them."""

from __future__ import annotations

import difflib
import math
import numbers
import unicodedata
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


def check_line(what: str, text: str) -> None:
    """Raise unless a name is one line of text that any page, table and terminal can show."""
    bad = next((c for c in text if unicodedata.category(c) in _NOT_IN_A_LINE or c in _DIRECTIONS), None)
    if bad is not None:
        raise ValueError(f"{what} must be one line without control characters; got {text!r}. Leave out {bad!a}.")


#: Control characters (line breaks and tabs are some), lone surrogates, separators of lines and paragraphs.
_NOT_IN_A_LINE = ("Cc", "Cs", "Zl", "Zp")
#: Characters that turn the writing direction of what follows them.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def display_width(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> display_width("loss"), display_width("損失"), display_width("e\\u0301")
    (4, 4, 1)
    """
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, length: int) -> str:
    """The text, cut with an ellipsis where it is wider than so many columns.

    >>> shorten("consistency", 8), shorten("損失関数", 6)
    ('consist…', '損失…')
    """
    if display_width(text) <= length:
        return text
    room, kept = length - 1, ""
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept += character
    return f"{kept.rstrip()}…"


def quoted(names: Iterable[object]) -> str:
    """The names in quotation marks, separated by commas."""
    return ", ".join(repr(name) for name in names)


def singular(name: str) -> str:
    """Return a trained vector's name in columns: ``exponents`` gives ``exponent/x``."""
    return name.removesuffix("s")


def _closest(name: str, candidates: Sequence[str]) -> str | None:
    related = [c for c in candidates if c.startswith(name) or name.startswith(c)]
    related += difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    return related[0] if related else None
