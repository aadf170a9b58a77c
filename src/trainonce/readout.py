"""What a criterion shows: a table of its weights, and scalars by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Value = TypeVar("Value")


def table(
    terms: Sequence[str], weights: Sequence[float], exponents: Sequence[float], units: Sequence[float] | None
) -> list[str]:
    """The rows of a table with a head; ``exponents`` are those of all terms, ``units`` None for raw ones.

    >>> print(*table(["fit", "smooth"], [0.8, 0.2], [0.0, -1.3863], None), sep="\\n")
    term    weight  ratio to base  exponent
    fit     0.8000              1         0 (base)
    smooth  0.2000           0.25   -1.3863
    """
    width = max(len("term"), *(len(term) for term in terms))
    rows = [f"{'term':<{width}}  weight  ratio to base  exponent{'' if units is None else '      unit'}"]
    for i, (term, weight) in enumerate(zip(terms, weights, strict=True)):
        ratio = weight / weights[0] if weights[0] else math.nan if weight == 0 else math.inf
        unit = "" if units is None else f"  {units[i]:8.4g}"
        note = " (base)" if i == 0 else ""
        rows.append(f"{term:<{width}}  {weight:6.4f}  {ratio:13.4g}  {exponents[i]:8.5g}{unit}{note}")
    return rows


def by_name(kind: str, terms: Iterable[str], values: Iterable[Value]) -> dict[str, Value]:
    """``kind/term`` for each of the values."""
    return {f"{kind}/{term}": value for term, value in zip(terms, values, strict=True)}
