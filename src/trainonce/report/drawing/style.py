"""The style of all figures: colours with one meaning each, plain axes, titles, text in the colour of the page."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class NothingToDrawError(ValueError):
    """The study lacks the data of a figure; the message says what is missing."""


#: Text and axes. An SVG turns it into ``currentColor``, so that a figure follows the page's theme.
INK = "#010203"

#: One colour per role, the same in every figure, distinct for the colour-blind and on light and dark backgrounds.
COLOURS = {
    "rule": "#D55E00",
    "reference": INK,
    "set": "#8A9099",
    "fixed": "#B58A00",
    "peer": "#2E86C8",
    "search": "#009E73",
    "control": "#B268AC",
    "sweep": "#D55E00",
}

#: The marker shows the role too, for readers who do not see the colour.
MARKERS = {
    "rule": "*",
    "reference": "D",
    "set": "o",
    "fixed": "s",
    "peer": "^",
    "search": "v",
    "control": "P",
    "sweep": "*",
}

ROLES = {
    "rule": "rule: one training",
    "reference": "reference: best fixed weights of a set",
    "set": "set of fixed weights",
    "fixed": "other fixed weights",
    "peer": "other method",
    "search": "search",
    "control": "control",
}

#: Colours of the rules of a study, in their order, with their names; the first is that of the role.
RULES = {COLOURS["rule"]: "orange", "#C2407F": "pink", "#7A5230": "brown"}

#: Colours of terms, where a figure shows several; none is the colour of a rule.
TERMS = ("#2E86C8", "#B58A00", "#009E73", "#B268AC", "#7A7F88", "#6A5ACD")
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))

WIDTH, HEIGHT = 5.2, 3.7  # inches
SMALL = 9.0  # points
MINUS = "\N{MINUS SIGN}"  # as tick labels have it
NAME = 24  # columns of a user's name within a longer text; the page has it in full
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
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
}


class Margins(NamedTuple):
    """The margins around the axes, in inches, the same for all figures so that they line up."""

    left: float = 0.72
    right: float = 0.22
    top: float = 0.66
    bottom: float = 0.62


#: The most terms whose lines share one pair of axes.
TOGETHER = len(TERMS)


def term_style(number: int) -> tuple[str, Any]:
    """Return the colour and the dash pattern of a term's line."""
    return TERMS[number % len(TERMS)], DASHES[number // len(TERMS) % len(DASHES)]


@functools.cache
def _figure_class() -> Any:
    base = require("matplotlib.figure", "matplotlib", "study").Figure

    class NotebookFigure(base):  # type: ignore[misc, valid-type]
        """A figure that a notebook shows by itself, also where pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            from trainonce.report.drawing.render import png

            return png(self)

    return NotebookFigure


@contextlib.contextmanager
def panel(
    axes: Axes | None, *, width: float = WIDTH, height: float = HEIGHT, margins: Margins | None = None
) -> Iterator[Axes]:
    """Yield the axes to draw on: the given ones, or those of a new figure. What is written on them is plain text."""
    matplotlib = require("matplotlib", "matplotlib", "study")
    with matplotlib.rc_context(_RC), ignore_missing_glyphs():
        ours = axes is None
        if axes is None:
            left, right, top, bottom = margins or Margins()
            inside = (
                left / width,
                bottom / height,
                (width - left - right) / width,
                (height - top - bottom) / height,
            )
            axes = _figure_class()(figsize=(width, height)).add_axes(inside)
        before = {text: text.get_text() for text in _texts(axes)}
        yield axes
        for text in itertools.chain.from_iterable(map(_texts, root(axes).axes if ours else [axes])):
            if before.get(text) != text.get_text():  # ours: a $ in a name starts no formula, also where TeX is on
                text.set_parse_math(False)
                text.set_usetex(False)


def _texts(axes: Axes) -> list[Any]:
    found: list[Any] = axes.findobj(require("matplotlib.text", "matplotlib", "study").Text)
    return found


@contextlib.contextmanager
def ignore_missing_glyphs() -> Iterator[None]:
    """Do not warn of each character that the font lacks. A PNG shows a box for it, an SVG leaves it to the browser."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from|Matplotlib currently does not support")
        yield


def root(axes: Axes) -> Figure:
    """Return the figure that the axes are on."""
    figure: Any = axes.get_figure(root=True)
    return figure  # type: ignore[no-any-return]


def grid_lines(axes: Axes, which: str = "both") -> None:
    """Draw faint grid lines behind the data."""
    axes.grid(axis=which, color=INK, alpha=0.12, linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def typeset(text: str) -> str:
    """Return a text of the summary, which is plain ASCII, with ± for +-."""
    return text.replace("+-", "±")


def widen(values: Iterable[float], part: float = 0.08) -> tuple[float, float]:
    """Return the range of the values with a margin around it."""
    found = [v for v in values if math.isfinite(v)]
    low, high = min(found), max(found)
    air = part * (high - low) or part * abs(high) or 1.0
    return low - air, high + air
