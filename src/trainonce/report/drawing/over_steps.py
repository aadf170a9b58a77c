"""Drawing over training steps: lines with the range of the seeds, alone or against a grid's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import curves, labels, plans, style
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


def learned_plan(summary: Summary) -> Row:
    """The first plan that learns its weights; raises where there is none."""
    if summary.one_shot is None:
        raise NothingToDrawError("This study has no run with learned weights.")
    return summary.one_shot


def draw_curve(axes: Axes, line: Curve, colour: str, dash: object, name: str, band: bool = True) -> None:
    """Draw the mean over the seeds and, behind it, their range."""
    if band and line.seeds > 1:
        axes.fill_between(line.steps, line.low, line.high, color=colour, alpha=0.22, linewidth=0, gid=f"band {name}")
    axes.plot(line.steps, line.mean, color=colour, linestyle=dash, linewidth=2, zorder=3, gid=name)


def finish(axes: Axes, ends: Sequence[Label], title: str, above: str) -> None:
    """Set the step axis, name the lines at their ends, and write the titles."""
    longest = max(float(line.get_xdata()[-1]) for line in axes.lines if str(line.get_gid() or ""))  # type: ignore[index, arg-type]
    axes.set_xlim(0, longest)
    style.grid_lines(axes)
    ticks = [t for t in axes.get_xticks() if 0 <= t <= longest]
    axes.set_xticks(ticks, [f"{t:,.0f}".replace(",", " ") if t == int(t) else f"{t:g}" for t in ticks])
    labels.place_at_ends(axes, ends)
    style.head(axes, title, above, STEPS)


def describe_band(seeds: int) -> str:
    """What a line and its band are, in words."""
    return f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"


def draw_terms(
    summary: Summary, axes: Axes | None, column: str, terms: Sequence[str], title: str, above: str
) -> Figure:
    """A column of the histories of the learned weights, one line per term."""
    row = learned_plan(summary)
    runs = curves.read_histories(summary, row.chosen)
    found = {term: curves.curve(runs, f"{column}/{term}") for term in terms}
    if not any(found.values()):
        raise NothingToDrawError(NO_HISTORY)
    with style.panel(axes) as axes:
        ends = []
        for term, line in found.items():
            number = summary.task.terms.index(term)
            colour, dash = style.term_style(number)
            if line is not None:
                draw_curve(axes, line, colour, dash, f"{column} {term}")
                ends.append(Label(line.steps[-1], line.mean[-1], shorten(term, 24), colour))
        if column == "weight":
            axes.set_ylim(0, None)
        elif axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
            axes.axhline(0, color=INK, linewidth=0.8, alpha=0.5)
        finish(axes, ends, title, f"{above}; {describe_band(len(runs))}")
    return style.root(axes)


def draw_against_grid(
    summary: Summary, axes: Axes | None, line: Callable[[Outcome], Curve | None], title: str, what: str, lacking: str
) -> Figure:
    """The curves of the learned weights with the range of their seeds, of the reference, and of the others in grey.

    :param lacking: What the error says where no outcome has a curve.
    """
    ours, reference = summary.one_shot, summary.reference
    learned = line(ours.chosen) if ours else None
    best = line(reference.chosen) if reference else None
    others = [o for row in summary.rows if row.kind == "set" for o in row.outcomes]
    grey = [c for o in others if (reference is None or o is not reference.chosen) and (c := line(o)) is not None]
    if learned is None and best is None and not grey:
        raise NothingToDrawError(lacking)
    with style.panel(axes) as axes:
        ends = []
        for curve in grey:
            axes.plot(curve.steps, curve.mean, color=COLOURS["set"], linewidth=0.9, alpha=0.7, gid="fixed weights")
        if grey:
            middle = sorted(grey, key=lambda c: c.mean[-1])[len(grey) // 2]
            ends.append(Label(middle.steps[-1], middle.mean[-1], f"{len(grey)} fixed weights", COLOURS["set"]))
        if best is not None and reference is not None:
            draw_curve(axes, best, INK, "-", "reference", band=False)
            ends.append(Label(best.steps[-1], best.mean[-1], f"best of {plans.base_name(reference.plan)}", INK))
        if learned is not None:
            draw_curve(axes, learned, COLOURS["learned"], "-", "learned")
            ends.append(Label(learned.steps[-1], learned.mean[-1], "learned", COLOURS["learned"], True))
        shown = [c for c in (learned, best, *grey) if c is not None]
        logarithmic = _choose_scale(axes, shown)
        band = describe_band(learned.seeds) if learned is not None else "means over the seeds"
        finish(axes, ends, title, f"{what}{' (log scale)' if logarithmic else ''}; {band}")
    return style.root(axes)


def _choose_scale(axes: Axes, shown: Sequence[Curve]) -> bool:
    """Set limits that show what most runs do. Returns whether the axis is logarithmic: values span a factor of 20."""
    values = sorted(v for c in shown for v in (*c.mean, *(c.low if c is shown[0] else ())) if math.isfinite(v))
    if not values:
        return False
    low, high = values[0], values[-1]
    if low > 0 and high / low > 20:
        floor = max(low, values[len(values) // 100] / 3)
        axes.set_yscale("log")
        axes.set_ylim(floor / 1.25, high * 1.25)
        powers = range(math.floor(math.log10(floor)), math.ceil(math.log10(high)) + 1)
        every = max(1, len(powers) // 6)
        steps = (1, 2, 5) if high < 200 * floor else (1,)
        ticks = [
            m * 10.0**p for p in list(powers)[::every] for m in steps if floor / 1.25 <= m * 10.0**p <= high * 1.25
        ]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.set_yticks([], minor=True)
        return True
    axes.set_ylim(*style.widen([low, high], 0.05))
    return False
