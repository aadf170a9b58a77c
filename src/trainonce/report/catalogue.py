"""The catalogue of figures: what a figure says about itself, and how all figures of a study are drawn.

A figure is a function with the decorator :func:`entry`; ``figures/__init__.py`` lists all of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from trainonce.report.drawing import render, sweeps
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.report.plotly import elements
from trainonce.study import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trainonce.study.summary import Summary

F = TypeVar("F", bound="Callable[..., Any]")

Part = Literal["comparison", "weights", "losses", "sensitivity", "diagnostics"]


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
    interactive: Callable[..., Any] | None
    wide: Callable[[Summary], bool]

    @property
    def name(self) -> str:
        """The name of the figure's files, without the number and the label of a case."""
        return str(self.draw.__name__).replace("_", "-")


class Drawing(NamedTuple):
    """A drawn figure: its place on the page, its files' name, its words and its files.

    ``plotly`` is its interactive version as JSON, ``wide`` whether that needs the width of the page.
    """

    part: Part
    name: str
    title: str
    caption: str
    svg: str
    png: bytes
    plotly: str = ""
    wide: bool = False


def entry(
    *,
    part: Part,
    title: str,
    caption: str,
    applies: Callable[[Summary], bool] = lambda summary: True,
    cases: Callable[[Summary], Sequence[Case]] | None = None,
    interactive: Callable[..., Any] | None = None,
    wide: Callable[[Summary], bool] = lambda summary: False,
) -> Callable[[F], F]:
    """Describe a figure for the page. The decorated function stays as it is.

    :param part: The part of the page.
    :param title: May contain the fields of :func:`fields`, such as ``{case}``.
    :param caption: How to read the figure; may contain the same fields.
    :param applies: Whether the figure suits a study at all, for example its number of terms.
    :param cases: Where the figure is drawn several times, such as once for each term, its cases.
    :param interactive: The function of ``plotly/`` that draws the same with Plotly, with the same arguments.
    :param wide: Whether the interactive version needs the width of the page.
    """

    def describe(draw: F) -> F:
        vars(draw)["entry"] = Entry(draw, part, title, caption, applies, cases, interactive, wide)
        return draw

    return describe


def collect(namespace: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The entries of all figures in a module, in the order in which it names them."""
    return tuple(value.entry for value in namespace.values() if isinstance(getattr(value, "entry", None), Entry))


def fields(summary: Summary, case: Case | None = None) -> dict[str, str]:
    """What titles and captions may contain in braces: the splits, the metric, the base term, the case, our weights."""
    task, ours = summary.task, sentences.weights_of(summary.one_shot)
    named = {"select": task.select, "report": task.report, "metric": task.metric, "base": task.terms[0]}
    of_units = " of the losses in their units" if sentences.is_in_units(summary.one_shot) else ""
    named |= {"ours": ours, "Ours": ours[0].upper() + ours[1:], "in_units": of_units}
    return named | {"case": case.label if case else ""}


def each_term(summary: Summary) -> list[Case]:
    """The terms, as cases of a figure."""
    return [Case(number, term, term) for number, term in enumerate(summary.task.terms)]


def each_auxiliary_term(summary: Summary) -> list[Case]:
    """The auxiliary terms, as cases of a figure."""
    return each_term(summary)[1:]


def each_sweep(summary: Summary) -> list[Case]:
    """The sweeps of a study, as cases of a figure."""
    return [Case(number, sweeps.setting(row), row.plan) for number, row in enumerate(summary.sweeps)]


def draw_all(
    summary: Summary, catalogue: Iterable[Entry], interactive: bool = False
) -> tuple[list[Drawing], list[str]]:
    """The figures that the study has the data for, and one sentence for each thing that the others lack."""
    drawings: list[Drawing] = []
    lacking: dict[str, None] = {}
    for one, case in _list_cases(summary, catalogue):
        try:
            drawings.append(_draw(summary, one, case, interactive))
        except NothingToDrawError as reason:
            lacking[str(reason)] = None
    return drawings, list(lacking)


def _list_cases(summary: Summary, catalogue: Iterable[Entry]) -> Iterator[tuple[Entry, Case | None]]:
    """Every figure to draw. Neighbours with the same cases take turns: both figures of a sweep are side by side."""
    suited = [one for one in catalogue if one.applies(summary)]
    for cases, group in itertools.groupby(suited, key=lambda one: one.cases):
        for case, one in itertools.product(cases(summary) if cases else [None], list(group)):
            yield one, case


def _draw(summary: Summary, one: Entry, case: Case | None, interactive: bool) -> Drawing:
    arguments = (case.argument,) if case else ()
    figure = one.draw(summary, *arguments)
    name = f"{one.name}-{case.number}{_slug(case.label)}" if case else one.name
    plotly = _draw_interactive(one.interactive, summary, *arguments) if interactive and one.interactive else ""
    words = fields(summary, case)
    title, caption = one.title.format_map(words), one.caption.format_map(words)
    return Drawing(
        one.part, name, title, caption, render.svg(figure, name), render.png(figure), plotly, one.wide(summary)
    )


def _draw_interactive(draw: Callable[..., Any], summary: Summary, *arguments: str) -> str:
    """The figure as Plotly's JSON, or nothing where only the still figure has its data."""
    try:
        return elements.to_json(draw(summary, *arguments))
    except NothingToDrawError:
        return ""


def _slug(text: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:30]
    return f"-{plain}" if plain else ""
