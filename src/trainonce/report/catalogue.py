"""Which figures a study gets, in which order, and how to read each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from trainonce.report import figures
from trainonce.report.drawing import render
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.report.figures.sensitivity import swept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


class Entry(NamedTuple):
    """A figure that may be drawn: its part of the page, its file's name, its title, how to read it, what draws it."""

    part: str
    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


class Drawn(NamedTuple):
    """A figure that was drawn."""

    entry: Entry
    svg: str
    png: bytes


def entries(summary: Summary) -> Iterator[Entry]:
    """All figures that fit the number of terms."""
    terms, task = summary.task.terms, summary.task
    yield Entry(
        "comparison",
        "cost-quality",
        "Cost against quality",
        "Each plan by what it costs for one seed and how good it is; bars are one standard deviation over the seeds. "
        "Plans of equal cost stand side by side; an arrow with a number is a plan beyond the axis. The grey line is "
        "what trying only a part of the reference's points, in random order and choosing on "
        f"{task.select}, gives on average.",
        lambda: figures.cost_quality(summary),
    )
    yield Entry(
        "comparison",
        "differences",
        "Difference to the reference",
        "Each plan minus the reference, seed by seed, turned so that right is better: mean and 95 % interval. An "
        "interval that stays right of the shaded margin's left end is not worse by more than the margin.",
        lambda: figures.differences(summary),
    )
    yield Entry(
        "comparison",
        "seeds",
        "Every seed",
        "One dot for each complete training that a plan stands for, a bar at the mean, best plan on top.",
        lambda: figures.seeds(summary),
    )
    yield Entry(
        "weights",
        "weights",
        "Learned weights over steps",
        "The weight of each term in the first plan that learns them. A band runs from the lowest to the highest seed.",
        lambda: figures.weights(summary),
    )
    yield Entry(
        "weights",
        "exponents",
        "Learned exponents over steps",
        f"What is actually learned: the weights are the softmax of these, with 0 for {terms[0]}. "
        "Flat at the end means settled, or that the learning rate has ended.",
        lambda: figures.exponents(summary),
    )
    yield from _of_space(summary)
    for number, term in enumerate(terms):
        yield Entry(
            "losses",
            f"loss-{number}{_slug(term)}",
            f"Loss {term} over steps",
            "The term itself, not weighted, on the training batches: learned weights with their seeds' range, the "
            "reference, and every other fixed choice in grey, each the mean over its seeds.",
            lambda term=term: figures.loss(summary, term),  # type: ignore[misc]
        )
    yield Entry(
        "losses",
        "progress",
        "The metric on the way",
        f"The {task.select} {task.metric} that the trials reported while they trained.",
        lambda: figures.progress(summary),
    )
    for number, row in enumerate(summary.sweeps):
        yield Entry(
            "sensitivity",
            f"sensitivity-{number}{_slug(swept(row))}",
            f"Sensitivity to {swept(row)}",
            "The result of learned weights when one setting changes: dots are seeds, bars one standard deviation. The "
            "dashed line and its band are the reference.",
            lambda plan=row.plan: figures.sensitivity(summary, plan),  # type: ignore[misc]
        )
        yield Entry(
            "sensitivity",
            f"sensitivity-weights-{number}{_slug(swept(row))}",
            f"Last weights by {swept(row)}",
            "Where the weights end for each value. Flat lines mean that the setting does not matter to the weights.",
            lambda plan=row.plan: figures.sensitivity_weights(summary, plan),  # type: ignore[misc]
        )
    for number, term in enumerate(terms[1:], start=1):
        yield Entry(
            "diagnostics",
            f"drives-{number}{_slug(term)}",
            f"What moved the exponent of {term}",
            "What the losses and what the decay added to the exponent since the start; both together are its change.",
            lambda term=term: figures.drives(summary, term),  # type: ignore[misc]
        )


def _of_space(summary: Summary) -> Iterator[Entry]:
    terms, task = summary.task.terms, summary.task
    if len(terms) == 2:
        yield Entry(
            "weights",
            "response-curve",
            "Response curve",
            "The result at each fixed ratio, and the learned weights at the ratio where they ended. Bars are one "
            "standard deviation over the seeds, of the learned weights also sideways. A ratio of 0 stands left of the "
            "dotted line.",
            lambda: figures.response_curve(summary),
        )
    elif len(terms) == 3:
        yield Entry(
            "weights",
            "heat-map",
            "Map of the ratios",
            f"Each cell or dot is one fixed choice, stronger where {task.report} {task.metric} is better; the frame "
            f"or diamond marks the one that {task.select} chooses. Each orange path is a seed of the learned weights, "
            "from ring to star, where their histories are kept.",
            lambda: figures.heat_map(summary),
        )
        yield Entry(
            "weights",
            "simplex",
            "Simplex of the weights",
            "The same choices by their share of the whole weight, with where other methods and searches ended.",
            lambda: figures.simplex(summary),
        )
    else:
        yield Entry(
            "weights",
            "parallel-coordinates",
            "All choices of weights",
            "One line a choice through its ratios to the base weight to its result; the stronger the line, the better. "
            "Lines through the same values are set a little apart.",
            lambda: figures.parallel_coordinates(summary),
        )


def draw_all(summary: Summary) -> tuple[list[Drawn], list[str]]:
    """The figures that the study has the data for, and in a sentence each what the others lack."""
    drawn: list[Drawn] = []
    lacking: dict[str, None] = {}
    for entry in entries(summary):
        try:
            figure = entry.draw()
        except NothingToDrawError as reason:
            lacking[str(reason)] = None
            continue
        drawn.append(Drawn(entry, render.svg(figure, entry.name), render.png(figure)))
    return drawn, list(lacking)


def _slug(text: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:30]
    return f"-{plain}" if plain else ""
