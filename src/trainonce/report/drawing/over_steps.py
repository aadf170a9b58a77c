"""Drawing over training steps: lines with the range of the seeds, alone or against a grid's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import edges, labels, plans, style, titles
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.study.summary import Outcome, Row, Summary

STEPS = "optimizer step"
NO_HISTORY = "The histories of the trials are not in the folder: figures over steps that need them are left out."


def find_rule(summary: Summary, plan: str | None = None) -> Row:
    """Return the plan of that name, by default the first that trains once under a rule; raises where there is none."""
    row = next((row for row in plans.rules(summary) if plan in (None, row.plan)), None)
    if row is None:
        raise NothingToDrawError("This study has no training under a rule: add one, such as yoto or balance.")
    return row


def find_trained(summary: Summary, plan: str | None = None) -> Row:
    """Return the plan of that name, by default the first whose rule trains exponents; raises where there is none."""
    row = next((row for row in plans.trained(summary) if plan in (None, row.plan)), None)
    if row is None:
        raise NothingToDrawError("This study has no rule that trains exponents: add one, such as yoto.")
    return row


def draw_curve(axes: Axes, line: Curve, colour: str, dash: object, name: str) -> None:
    """Draw the mean over the seeds and, behind it, their range."""
    if line.seeds > 1:
        axes.fill_between(line.steps, line.low, line.high, color=colour, alpha=0.22, linewidth=0, gid=f"band {name}")
    axes.plot(line.steps, line.mean, color=colour, linestyle=dash, linewidth=2, zorder=3, gid=name)


def draw_within(
    axes: Axes, line: Curve, colour: str, name: str, band: bool = False, arrows: bool = True, **look: Any
) -> None:
    """Draw a curve within the present limits, with an arrow where it first leaves them, upwards and downwards."""
    low, high = axes.get_ylim()
    logarithmic = axes.get_yscale() == "log"
    height, back = (_log, math.exp) if logarithmic else (float, float)
    kept, exits = edges.cut_line(
        [(x, height(y)) for x, y in zip(line.steps, line.mean, strict=True)], height(low), height(high)
    )
    if kept:
        xs, ys = zip(*kept, strict=True)
        inside = [min(max(back(y), low), high) if math.isfinite(y) else math.nan for y in ys]
        axes.plot(xs, inside, color=colour, gid=name, **look)
    for (x, y), way in {way: (place, way) for place, way in reversed(exits)}.values() if arrows else ():
        edges.draw_arrow(axes, x, min(max(back(y), low), high), way, colour)
    if band and line.seeds > 1:
        bottom, top = ([min(max(v, low), high) for v in side] for side in (line.low, line.high))
        axes.fill_between(line.steps, bottom, top, color=colour, alpha=0.22, linewidth=0, gid=f"band {name}")
        for side, edge, way in ((line.low, low, "down"), (line.high, high, "up")):
            far = [x for x, v in zip(line.steps, side, strict=True) if (v < low if way == "down" else v > high)]
            if far:
                edges.draw_arrow(axes, far[len(far) // 2], edge, way, colour)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan if math.isnan(value) else -math.inf


def finish(axes: Axes, ends: Sequence[Label], title: str, above: str, zero: bool = False) -> None:
    """Set the step axis, name the lines at their ends, and write the titles.

    :param zero: Draw a line at 0 where the axes show it.
    """
    longest = max(float(x) for line in axes.lines if line.get_gid() for x in line.get_xdata() if math.isfinite(x))  # type: ignore[union-attr, arg-type]
    axes.set_xlim(0, longest)
    style.grid_lines(axes)
    if zero and axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
        axes.plot([0, longest], [0, 0], color=INK, linewidth=0.8, alpha=0.5, zorder=1)
    ticks = [t for t in axes.get_xticks() if 0 <= t <= longest]
    axes.set_xticks(ticks, [f"{t:,.0f}".replace(",", " ") if t == int(t) else f"{t:g}" for t in ticks])
    labels.place_at_ends(axes, ends)
    titles.head(axes, title, above, STEPS)


def end_label(line: Curve, text: str, colour: str, bold: bool = False) -> list[Label]:
    """Return the label at the end of a line, or nothing where the line has no value."""
    known = [(x, y) for x, y in zip(line.steps, line.mean, strict=True) if math.isfinite(y)]
    return [Label(*known[-1], text, colour, bold)] if known else []


def describe_band(seeds: int) -> str:
    """Return what a line and its band are, in words."""
    return f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"


def draw_against_grid(
    summary: Summary, axes: Axes | None, line: Callable[[Outcome], Curve | None], title: str, what: str, lacking: str
) -> Figure:
    """Draw the curves of the rules with the range of their seeds, of the reference, and of the other choices in grey.

    :param lacking: What the error says where no outcome has a curve.
    """
    reference = summary.reference
    rules = [(row, found) for row in plans.rules(summary) if (found := line(row.chosen)) is not None]
    best = line(reference.chosen) if reference else None
    fixed, every = fixed_choices(summary)
    grey = [(o.label, c) for o in fixed if (c := line(o)) is not None]
    if not rules and best is None and not grey:
        raise NothingToDrawError(lacking)
    with style.panel(axes) as axes:
        logarithmic = choose_scale(
            axes, [curve for _, curve in rules], [c for c in (best, *(curve for _, curve in grey)) if c]
        )
        ends: list[Label] = []
        for name, curve in grey:
            draw_within(axes, curve, COLOURS["set"], f"fixed weights {name}", linewidth=0.9, alpha=0.7)
        if grey:
            middle = sorted((curve for _, curve in grey), key=lambda c: c.mean[-1])[len(grey) // 2]
            count = f"{len(grey)} fixed weights" if len(fixed) == every else f"{len(grey)} of {every} fixed weights"
            ends += end_label(middle, count, COLOURS["set"])
        if best is not None and reference is not None:
            draw_within(axes, best, INK, "reference", linewidth=2, zorder=3)
            ends += end_label(best, plans.label(reference, summary.rows), INK)
        for row, curve in rules:
            colour = plans.colour(summary, row)
            draw_within(axes, curve, colour, f"rule {row.plan}", band=True, linewidth=2, zorder=3)
            ends += end_label(curve, shorten(plans.label(row), 24), colour, True)
        band = describe_band(max(curve.seeds for _, curve in rules)) if rules else "means over the seeds"
        finish(axes, ends, title, f"{what}{' (log scale)' if logarithmic else ''}; {band}")
    return style.root(axes)


GREY = 60  # lines of fixed choices: more would hide each other, and fill the page


def fixed_choices(summary: Summary) -> tuple[list[Outcome], int]:
    """Return the fixed choices to draw beside the reference, and how many there are.

    Of very many, evenly from the best to the worst result; those without a result are not drawn.
    """
    reference = summary.reference
    every = [o for row in summary.rows if row.kind == "set" for o in row.outcomes if o.records]
    others = [o for o in every if reference is None or o is not reference.chosen]
    if len(others) <= GREY:
        return others, len(others)
    ordered = sorted(range(len(others)), key=lambda number: -summary.task.sign * others[number].mean)
    taken = sorted(ordered[round(i * (len(others) - 1) / (GREY - 1))] for i in range(GREY))
    return [others[number] for number in taken], len(others)


def choose_scale(axes: Axes, whole: Sequence[Curve], others: Sequence[Curve] = ()) -> bool:
    """Set limits that show what most runs do. Returns whether the axis is logarithmic: values span a factor of 20.

    :param whole: Curves that are shown with the range of their seeds.
    """
    sides = [side for curve in whole for side in (curve.mean, curve.low, curve.high)]
    found = [v for side in (*sides, *(curve.mean for curve in others)) for v in side]
    values = sorted(v for v in found if math.isfinite(v))
    if not values:
        return False
    low, high = values[0], values[-1]
    if low > 0 and high / low > 20:
        floor = max(low, values[len(values) // 100] / 3)
        bottom, top = floor / 1.25, high * 1.25
        axes.set_yscale("log")
        axes.set_ylim(bottom, top)
        powers = range(math.floor(math.log10(bottom)), math.ceil(math.log10(top)) + 1)
        every = max(1, len(powers) // 6)
        steps = (1, 2, 5) if high < 200 * floor else (1,)
        ticks = [m * 10.0**p for p in list(powers)[::every] for m in steps if bottom <= m * 10.0**p <= top]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.set_yticks([], minor=True)
        return True
    axes.set_ylim(*edges.limits(values, 0.05))
    return False
