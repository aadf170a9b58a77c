"""How figures look: colours with one meaning each, quiet axes, text that follows the page it stands on."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Row, Summary


class NothingToDrawError(ValueError):
    """The study lacks what a figure shows; the sentence says what."""


#: Text and axes. An SVG turns it into ``currentColor``, so that a figure follows the page's theme.
INK = "#010203"

#: One colour a role, the same in every figure, told apart by the colour-blind and on light and dark grounds.
COLOURS = {
    "learned": "#D55E00",
    "reference": INK,
    "set": "#8A9099",
    "fixed": "#B58A00",
    "peer": "#2E86C8",
    "search": "#009E73",
    "control": "#B268AC",
    "sweep": "#D55E00",
}

#: The shape says the role a second time.
MARKERS = {
    "learned": "*",
    "reference": "D",
    "set": "o",
    "fixed": "s",
    "peer": "^",
    "search": "v",
    "control": "P",
    "sweep": "*",
}

ROLES = {
    "learned": "learned weights",
    "reference": "reference: best fixed weights of a set",
    "set": "set of fixed weights",
    "fixed": "one fixed choice",
    "peer": "other method",
    "search": "search",
    "control": "control",
}

#: Of terms, where a figure shows several. None of them is the colour of learned weights.
TERMS = ("#2E86C8", "#B58A00", "#009E73", "#B268AC", "#7A7F88", "#6A5ACD")
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))

WIDTH, HEIGHT = 5.2, 3.7  # inches
SMALL = 9.0  # points
_RC = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
}


class Margins(NamedTuple):
    """Around the axes, in inches, the same for all figures so that small multiples line up."""

    left: float = 0.72
    right: float = 0.22
    top: float = 0.66
    bottom: float = 0.62


@functools.cache
def _figure_class() -> Any:
    base = require("matplotlib.figure", "matplotlib", "study").Figure

    class Shown(base):  # type: ignore[misc, valid-type]
        """A figure that a notebook shows by itself, also where pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            from trainonce.report.drawing.render import png

            return png(self)

    return Shown


@contextlib.contextmanager
def panel(
    axes: Axes | None, *, width: float = WIDTH, height: float = HEIGHT, margins: Margins | None = None
) -> Iterator[Axes]:
    """The axes to draw on: the given ones, or those of a new figure."""
    matplotlib = require("matplotlib", "matplotlib", "study")
    with matplotlib.rc_context(_RC):
        if axes is None:
            left, right, top, bottom = margins or Margins()
            inside = (
                left / width,
                bottom / height,
                (width - left - right) / width,
                (height - top - bottom) / height,
            )
            axes = _figure_class()(figsize=(width, height)).add_axes(inside)
        yield axes


def root(axes: Axes) -> Figure:
    """The figure that the axes are on."""
    figure: Any = axes.get_figure(root=True)
    return figure  # type: ignore[no-any-return]


def head(axes: Axes, title: str, above: str, below: str = "", outset: float = 0.0) -> None:
    """The title, and under it what the vertical axis shows; the horizontal axis is named as usual.

    :param outset: How many points to start left of the axes.
    """
    frame = ("axes fraction", "offset points")
    axes.annotate(short(title, 52), (0, 1), (-outset, 25), *frame, fontweight="bold", fontsize=12, va="bottom")
    axes.annotate(short(above, 66), (0, 1), (-outset, 9), *frame, fontsize=9.5, va="bottom", alpha=0.75)
    axes.set_xlabel(short(below, 62))
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis)
    axes.tick_params(length=3, width=0.8, labelsize=9.5)


def _plain_ticks(axis: Any) -> None:
    """Numbers written out, or each with its own power of 10: none that stands alone at the end of the axis."""
    ticker = require("matplotlib.ticker", "matplotlib", "study")
    if isinstance(axis.get_major_formatter(), ticker.ScalarFormatter):
        largest = max(map(abs, axis.get_view_interval()))
        if 1e-3 <= largest < 1e6 or not largest:
            axis.get_major_formatter().set_scientific(False)
        else:
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.4g}"))


def bare(plan: str) -> str:
    """A plan's name without its settings."""
    return plan.partition("(")[0]


def short(text: str, length: int) -> str:
    """The text, cut with an ellipsis where it is too long to be drawn."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def grid_lines(axes: Axes, which: str = "both") -> None:
    axes.grid(axis=which, color=INK, alpha=0.12, linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def role(summary: Summary, row: Row) -> str:
    """What a row's colour and marker tell of it."""
    return "reference" if row is summary.reference else row.kind


def measured(summary: Summary) -> str:
    """The reported metric in words: which split, the unit, which way is better."""
    task = summary.task
    unit = f", {task.unit}" if task.unit else ""
    way = "higher is better ↑" if task.sign > 0 else "lower is better ↓"
    return f"{task.report} {task.metric}{unit} ({way})"


def pretty(text: str) -> str:
    """The texts of the summary in plain ASCII, as print shows them."""
    return text.replace("+-", "±")


def widen(values: Iterable[float], part: float = 0.08) -> tuple[float, float]:
    """The range of the values with some air around."""
    found = [v for v in values if math.isfinite(v)]
    low, high = min(found), max(found)
    air = part * (high - low) or part * abs(high) or 1.0
    return low - air, high + air
