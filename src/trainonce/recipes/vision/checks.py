"""Checks of the data before a long run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many problems are said in full.
SHOWN = 5


def checked(look: Callable[[], object]) -> None:
    """Look at all data once, in the first process, and let all know what is wrong."""
    problem = ""
    if torchrun.is_first():
        try:
            look()
        except (OSError, ValueError) as error:
            problem = str(error)
    problem = torchrun.broadcast(problem)
    if problem:
        raise ValueError(problem)


def summary(problems: list[str]) -> str:
    """One problem as it is; several as a list of the first, and how many more there are."""
    if len(problems) == 1:
        return problems[0]
    more = [f"- and {len(problems) - SHOWN} more."] if len(problems) > SHOWN else []
    listed = [f"- {problem}" for problem in problems[:SHOWN]]
    return "\n".join([f"The data have {len(problems)} problems:", *listed, *more])
