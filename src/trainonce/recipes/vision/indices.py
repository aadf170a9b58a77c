"""Which samples: evenly over a set."""

from __future__ import annotations


def spread(count: int, wanted: int) -> list[int]:
    """A few indices, evenly over all.

    >>> spread(10, 4)
    [1, 3, 6, 8]
    """
    few = min(count, wanted)
    return [(2 * i + 1) * count // (2 * few) for i in range(few)]
