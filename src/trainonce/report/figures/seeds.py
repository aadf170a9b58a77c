"""The figure of every seed's result, one row per plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, plans, style
from trainonce.report.drawing.rows import mark_beyond, plan_rows, set_titles, set_width
from trainonce.report.drawing.style import NothingToDrawError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Row, Summary


@entry(
    part="comparison",
    title="Every seed",
    caption="One dot for each seed with a complete training, a bar at the mean, the best plan on top. A set is shown "
    "by the point it chose. An arrow stands for seeds beyond the axis, with their values, or for diverged ones.",
)
def seeds(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw every complete trial of every plan as a dot, one row per plan, best on top; a bar marks the mean."""
    rows = summary.ranked
    if not rows:
        raise NothingToDrawError(plans.NO_RESULT)
    low, high = _range(summary, rows)
    rows += tuple(row for row in summary.without_result if row.chosen.lost)
    notes = plans.seed_notes([row.chosen.wanted for row in rows], [summary.has_other_seeds(row) for row in rows])
    with plan_rows(axes, summary, rows, notes) as axes:
        beyond = [_beyond(summary, row.chosen, low, high) for row in rows]
        set_width(axes, low, high, *zip(*beyond, strict=True))
        for y, (row, texts) in enumerate(reversed(list(zip(rows, beyond, strict=True)))):
            colour, values = plans.colour(summary, row), list(row.chosen.report.values())
            for marker, kept in (
                ("o", [v for v in values if low <= v <= high]),
                ("<", [low for v in values if v < low]),
                (">", [high for v in values if v > high]),
            ):
                look = {"color": colour, "alpha": 0.65, "markersize": 6, "clip_on": False, "gid": "seed"}
                axes.plot(kept, [y] * len(kept), marker, **look)  # type: ignore[arg-type]
            mark_beyond(axes, (low, high), y, texts, colour)
            mean = row.chosen.mean
            if low <= mean <= high:
                axes.plot([mean] * 2, [y - 0.32, y + 0.32], color=colour, linewidth=2.4, gid=f"mean {row.plan}")
        set_titles(axes, "Every seed", "dot: one training; bar: mean", plans.metric_label(summary))
    return style.root(axes)


def _range(summary: Summary, rows: Sequence[Row]) -> tuple[float, float]:
    """Return the range of the metric to show: that of means and deviations, widened for seeds that are near."""
    low, high = plans.metric_range(summary, rows)
    usual = edges.usual_range(value for row in rows for value in row.chosen.report.values())
    reach = REACH * (high - low)
    near = [v for row in rows for v in row.chosen.report.values() if max(low - v, v - high) <= reach]
    shown = [v for v in near if usual[0] <= v <= usual[1]]
    first, last = style.widen(shown or [low, high], EDGE)
    return min(low, first), max(high, last)


REACH = 1.5  # times the range of the means: how far an axis is widened for seeds
EDGE = 0.06  # of the axis, between the last dot and its end


def _beyond(summary: Summary, outcome: Outcome, low: float, high: float) -> tuple[str, str]:
    """Return what to write left and right of the axis: seeds and mean beyond it, and how many seeds diverged."""
    decimals = numbers.decimal_places(summary)
    texts = []
    for side, worse in ((-1, summary.task.sign > 0), (1, summary.task.sign < 0)):
        edge = low if side < 0 else high
        seeds = sorted((v for v in outcome.report.values() if side * v > side * edge), key=lambda v: side * v)
        parts = [", ".join(edges.number(v, decimals) for v in seeds)] if 0 < len(seeds) < 3 else []
        parts += (
            [f"{len(seeds)} seeds, {edges.number(min(seeds), decimals)} to {edges.number(max(seeds), decimals)}"]
            if len(seeds) > 2
            else []
        )
        parts += [f"mean {edges.number(outcome.mean, decimals)}"] if side * outcome.mean > side * edge else []
        parts += [f"{outcome.diverged} diverged"] if worse and outcome.diverged else []
        texts.append("; ".join(parts))
    return texts[0], texts[1]
