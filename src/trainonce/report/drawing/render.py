"""From a figure to bytes: SVG that follows the page's theme, PNG on white. The same figure gives the same bytes."""

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
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return target.getvalue()


def svg(figure: Figure, name: str) -> str:
    """The figure as a file of its own: transparent, its text and axes in the colour of whatever text surrounds it.

    :param name: Unique among the figures of a page; all ids start with it.
    """
    matplotlib = require("matplotlib", "matplotlib", "study")
    target = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", target.getvalue(), flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", text)
    text = text.replace(INK, "currentColor")
    text = _inked_text(text)
    return _own_ids(text, name)


def inline(text: str, title: str) -> str:
    """What of an SVG file goes into a page, as wide as its place, with a title for those who cannot see it."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)  # it would style the page
    head, rest = body.split(">", 1)
    head = re.sub(r' (?:width|height|version|xmlns(?::\w+)?)="[^"]*"', "", head)
    return f'{head} role="img" aria-label={quoteattr(title)}><title>{escape(title)}</title>{rest.strip()}'


def _inked_text(text: str) -> str:
    """Text that names no colour is black, which is ink."""

    def inked(found: re.Match[str]) -> str:
        style = found.group(1)
        return f'<text style="{style}' if "fill:" in style else f'<text style="{style}; fill: currentColor'

    return re.sub(r'<text style="([^"]*)', inked, text)


def _own_ids(text: str, name: str) -> str:
    """Ids that are used get the figure's name; all others go."""
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", text)
