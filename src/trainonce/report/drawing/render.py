"""Figures as bytes: SVG that follows the page's theme, PNG on white. The same figure gives the same bytes."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from trainonce.extras import require
from trainonce.report.drawing.style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return target.getvalue()


def svg(figure: Figure, name: str) -> str:
    """The figure as an SVG file: transparent, its text and axes in the colour of the surrounding text.

    :param name: Unique among the figures of a page; all ids start with it.
    """
    matplotlib = require("matplotlib", "matplotlib", "study")
    target = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", target.getvalue(), flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", text)
    text = text.replace(INK, "currentColor")
    text = _colour_text(text)
    return _prefix_ids(text, name)


def inline(text: str, title: str) -> str:
    """The SVG element of a file for use in a page, as wide as its container, with a title for screen readers."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)  # it would style the page
    head, rest = body.split(">", 1)
    head = re.sub(r' (?:width|height|version|xmlns(?::\w+)?)="[^"]*"', "", head)
    return f'{head} role="img" aria-label={quoteattr(title)}><title>{escape(title)}</title>{rest.strip()}'


def _colour_text(text: str) -> str:
    """Give text without a colour the colour of the surrounding text."""

    def colour(found: re.Match[str]) -> str:
        style = found.group(1)
        return f'<text style="{style}' if "fill:" in style else f'<text style="{style}; fill: currentColor'

    return re.sub(r'<text style="([^"]*)', colour, text)


def _prefix_ids(text: str, name: str) -> str:
    """Prefix the ids that are used with the figure's name, and remove all others."""
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", text)
