"""Checks of the data before a long run, and what they found as one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: How many problems are listed.
SHOWN = 5


def check_in_first_process(check: Callable[[], object]) -> None:
    """Run a check in the first process only, and raise its error in all of them."""
    problem = ""
    if torchrun.is_first():
        try:
            check()
        except (OSError, ValueError) as error:
            problem = str(error)
    problem = torchrun.broadcast(problem)
    if problem:
        raise ValueError(problem)


def summarize(problems: list[str]) -> str:
    """One problem as it is; of several the first ones as a list, and how many more there are.

    >>> print(summarize(["The image a is empty.", "The image b is empty."]))
    The data have 2 problems:
    - The image a is empty.
    - The image b is empty.
    """
    if len(problems) == 1:
        return problems[0]
    more = [f"- and {len(problems) - SHOWN} more."] if len(problems) > SHOWN else []
    listed = [f"- {problem}" for problem in problems[:SHOWN]]
    return "\n".join([f"The data have {len(problems)} problems:", *listed, *more])


def format_size(size: Sequence[int]) -> str:
    """A size in messages.

    >>> format_size((480, 640))
    '480x640'
    """
    return "x".join(map(str, size))
