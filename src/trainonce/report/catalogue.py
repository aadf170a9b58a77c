"""The catalogue of figures: what a figure says about itself, and how all figures of a study are drawn.

A figure is a function with the decorator :func:`entry`; ``figures/__init__.py`` lists all of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from trainonce.report.drawing import curves, plans, render, sweeps
from trainonce.report.drawing.style import NothingToDrawError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trainonce.study.summary import Row, Summary

F = TypeVar("F", bound="Callable[..., Any]")

Part = Literal["comparison", "ratios", "losses", "sensitivity", "diagnostics"]


class Case(NamedTuple):
    """One of several drawings of the same figure, such as the loss of one term.

    ``number`` and ``label`` name it, ``argument`` is passed to the figure's function after the summary.
    """

    number: int
    label: str
    argument: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """A figure and what the page needs to know of it; see :func:`entry`."""

    draw: Callable[..., Any]
    part: Part
    title: str
    caption: str
    applies: Callable[[Summary], bool]
    cases: Callable[[Summary], Sequence[Case]] | None

    @property
    def name(self) -> str:
        """Return the name of the figure's files, without the number and the label of a case."""
        return str(self.draw.__name__).replace("_", "-")


class Drawing(NamedTuple):
    """A drawn figure: its place on the page, its files' name, its words and its files."""

    part: Part
    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def entry(
    *,
    part: Part,
    title: str,
    caption: str,
    applies: Callable[[Summary], bool] = lambda summary: True,
    cases: Callable[[Summary], Sequence[Case]] | None = None,
) -> Callable[[F], F]:
    """Describe a figure for the page. The decorated function stays as it is.

    :param part: The part of the page.
    :param title: May contain the fields of :func:`fields`, such as ``{case}``.
    :param caption: How to read the figure; may contain the same fields.
    :param applies: Whether the figure suits a study at all, for example its number of terms.
    :param cases: Where the figure is drawn several times, such as once for each term, its cases.
    """

    def describe(draw: F) -> F:
        vars(draw)["entry"] = Entry(draw, part, title, caption, applies, cases)
        return draw

    return describe


def collect(namespace: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Return the entries of all figures in a module, in the order in which it names them."""
    return tuple(value.entry for value in namespace.values() if isinstance(getattr(value, "entry", None), Entry))


def fields(summary: Summary, case: Case | None = None) -> dict[str, str]:
    """Return what titles and captions may contain in braces: splits, metric, base, the rule that trains, the case."""
    task, trained = summary.task, [plans.label(row) for row in plans.trained(summary)[:1]]
    named = {"select": task.select, "report": task.report, "metric": task.metric, "base": task.terms[0]}
    return named | {"trained": "".join(trained), "case": case.label if case else ""}


def each_term(summary: Summary) -> list[Case]:
    """Return the terms, as cases of a figure."""
    return [Case(number, term, term) for number, term in enumerate(summary.task.terms)]


def each_auxiliary_term(summary: Summary) -> list[Case]:
    """Return the auxiliary terms, as cases of a figure."""
    return each_term(summary)[1:]


def each_rule(summary: Summary) -> list[Case]:
    """Return the plans that train once under a rule, as cases of a figure."""
    return _cases(plans.rules(summary))


def each_trained_rule(summary: Summary) -> list[Case]:
    """Return those whose rule trains exponents."""
    return _cases(plans.trained(summary))


def each_aligned_rule(summary: Summary) -> list[Case]:
    """Return those whose histories say that a validation loss has moved a coefficient."""
    return _cases([row for row in plans.rules(summary) if curves.moved(summary, row.chosen, "alignment/")])


def _cases(rows: Sequence[Row]) -> list[Case]:
    return [Case(number, plans.label(row), row.plan) for number, row in enumerate(rows)]


def each_sweep(summary: Summary) -> list[Case]:
    """Return the sweeps of a study, as cases of a figure."""
    return [Case(number, sweeps.setting(row), row.plan) for number, row in enumerate(summary.sweeps)]


def draw_all(summary: Summary, catalogue: Iterable[Entry]) -> tuple[list[Drawing], list[str]]:
    """Draw the figures that the study has the data for; with a sentence for each thing that the others lack."""
    drawings: list[Drawing] = []
    lacking: dict[str, None] = {}
    for one, case in _list_cases(summary, catalogue):
        try:
            drawings.append(_draw(summary, one, case))
        except NothingToDrawError as reason:
            lacking[str(reason)] = None
    return drawings, list(lacking)


def _list_cases(summary: Summary, catalogue: Iterable[Entry]) -> Iterator[tuple[Entry, Case | None]]:
    """Yield every figure to draw. Neighbours with the same cases take turns: a sweep's two are side by side."""
    suited = [one for one in catalogue if one.applies(summary)]
    for cases, group in itertools.groupby(suited, key=lambda one: one.cases):
        for case, one in itertools.product(cases(summary) if cases else [None], list(group)):
            yield one, case


def _draw(summary: Summary, one: Entry, case: Case | None) -> Drawing:
    arguments = (case.argument,) if case else ()
    figure = one.draw(summary, *arguments)
    name = f"{one.name}-{case.number}{_slug(case.label)}" if case else one.name
    words = fields(summary, case)
    title, caption = one.title.format_map(words), one.caption.format_map(words)
    return Drawing(one.part, name, title, caption, render.svg(figure, name), render.png(figure))


def _slug(text: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:30]
    return f"-{plain}" if plain else ""
