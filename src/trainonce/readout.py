"""What a criterion shows: a table of its terms, and scalars by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def table(terms: Sequence[str], columns: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the rows of a table with a head; a column without the base's entry leaves it out.

    >>> print(*table(["fit", "smooth"], {"coefficient": [0.8, 0.2], "exponent": [-1.3863]}), sep="\\n")
    term    coefficient  exponent
    fit             0.8           (base)
    smooth          0.2    -1.386
    """
    cells = [["term", *columns]]
    for i, term in enumerate(terms):
        row = [term]
        for column in columns.values():
            at = i - (len(terms) - len(column))
            row.append("" if at < 0 else number(column[at]))
        cells.append(row)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = []
    for at, (term, *values) in enumerate(cells):
        line = "  ".join([f"{term:<{widths[0]}}", *(f"{v:>{w}}" for v, w in zip(values, widths[1:], strict=True))])
        lines.append(line + " (base)" if at == 1 else line)
    return lines


def number(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def names(kind: str, terms: Sequence[str], values: Tensor) -> list[str]:
    """Return ``kind/term`` for values of all terms or of the auxiliary ones, and ``kind`` for a single value."""
    shape = tuple(values.shape)
    if shape == (len(terms),):
        return [f"{kind}/{term}" for term in terms]
    if shape == (len(terms) - 1,):
        return [f"{kind}/{term}" for term in terms[1:]]
    if shape:
        raise ValueError(f"{kind!r} needs a value per term, per auxiliary term, or a single one; got shape {shape}.")
    return [kind]
