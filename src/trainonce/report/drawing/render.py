"""Figures as bytes: SVG that follows the page's theme, PNG on white. The same figure gives the same bytes."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from trainonce.extras import require
from trainonce.report.drawing.style import INK, ignore_missing_glyphs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
HOVER = ("choice ", "fixed weights ", "plan ")  # ids of what shows the rest of its id under the pointer
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG file."""
    target = io.BytesIO()
    with ignore_missing_glyphs():
        figure.savefig(target, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return target.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Return the figure as an SVG file: transparent, its text and axes in the colour of the surrounding text.

    :param name: Unique among the figures of a page; all ids start with it.
    """
    matplotlib = require("matplotlib", "matplotlib", "study")
    target = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}), ignore_missing_glyphs():
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", target.getvalue(), flags=re.DOTALL)
    used = set(re.findall(r'<[^<>]*(?:href="|url\()#([^")]+)', text))
    return re.sub("<[^<>]*>", lambda tag: _adapt_tag(tag[0], name, used), text)  # the texts between tags are the user's


def _adapt_tag(tag: str, name: str, used: set[str]) -> str:
    """Return a tag with the page's fonts and colour, and with ids of its own: those in use, after the name."""
    title = ""

    def prefix(found: re.Match[str]) -> str:
        nonlocal title
        kind = next((kind for kind in HOVER if found[2].startswith(kind)), None)
        title = f"<title>{found[2].removeprefix(kind)}</title>" if kind else ""
        return f' id="{name}-{found[2]}"' if found[2] in used else ""

    tag = re.sub(r""" id=(["'])(.*?)\1""", prefix, tag)  # first: some hold names
    tag = re.sub(r"font-family: [^;\"]*", f"font-family: {FONTS}", tag).replace(INK, "currentColor")
    if tag.startswith("<text ") and "fill:" not in tag:
        tag = re.sub(r'style="([^"]*)', r'style="\1; fill: currentColor', tag)
    return re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", tag) + title


def inline(text: str, title: str) -> str:
    """Return the SVG element of a file for use in a page, as wide as its container, with a title for screen readers."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)  # it would style the page
    head, rest = body.split(">", 1)
    head = re.sub(r' (?:width|height|version|xmlns(?::\w+)?)="[^"]*"', "", head)
    return f'{head} role="img" aria-label={quoteattr(title)}><title>{escape(title)}</title>{rest.strip()}'
