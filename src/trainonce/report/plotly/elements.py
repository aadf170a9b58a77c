"""Elements of all Plotly figures: an empty figure, points, lines with bands, ticks; and Plotly's own source."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import style
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.report.drawing.curves import Curve
    from trainonce.report.drawing.log_axis import LogScale
    from trainonce.study.summary import Outcome


MARKERS = {
    "rule": "star",
    "reference": "diamond",
    "set": "circle",
    "fixed": "square",
    "peer": "triangle-up",
    "search": "triangle-down",
    "control": "cross",
}


def plotly_source() -> str:
    """Plotly's JavaScript, for one script tag of the page."""
    return str(require("plotly.offline", "plotly", "interactive").get_plotlyjs())


def new_figure(title: str, above: str, x: Mapping[str, Any], y: Mapping[str, Any]) -> Any:
    """Return an empty figure with a title, a line ``above`` the axes, and settings of both axes."""
    plotly = require("plotly.graph_objects", "plotly", "interactive")
    head = f"<b>{label(title, 52)}</b><br><span style='font-size:12px'>{label(above, 66)}</span>"
    common = {
        "template": "none",
        "title": {"text": head, "x": 0.02, "xanchor": "left", "font": {"size": 16}},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 55, "r": 15, "t": 70, "b": 50},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "font": {"size": 11}},
        "hovermode": "closest",
        "font": {"size": 12},
    }
    axes = {"xaxis": {"zeroline": False, "automargin": True, **x}, "yaxis": {"zeroline": False, **y}}
    return plotly.Figure(layout=common | axes)


def to_json(figure: Any) -> str:
    """Return a figure as JSON, with room for its legend."""
    entries = sum(trace.type == "scatter" and trace.showlegend is not False for trace in figure.data)
    if entries:
        figure.update_layout(margin={"b": 62 + 19 * math.ceil(entries / 3)})
        figure.update_xaxes(title_standoff=6)
    return str(figure.to_json())


def add_points(figure: Any, places: Sequence[tuple[float, float]], texts: Sequence[str], name: str, look: Any) -> None:
    """Add markers, each with a text for the pointer."""
    hover = "%{text}<extra></extra>"
    xs, ys = [x for x, _ in places], [y for _, y in places]
    figure.add_scatter(x=xs, y=ys, text=texts, mode="markers", name=name, marker=look, hovertemplate=hover)


def add_outcome(
    figure: Any, x: float, outcome: Outcome, limits: tuple[float, float], look: Mapping[str, Any], **others: Any
) -> None:
    """Add a point with its error bar; what is beyond the vertical limits becomes an arrow at the edge of the axes."""
    low, high = limits
    mean, deviation = outcome.mean, outcome.standard_deviation
    inside = low <= mean <= high
    arrow = {"symbol": "triangle-up" if mean > high else "triangle-down", "size": 11}
    bar = {"error_y": {"array": [deviation], "thickness": 1.2, "width": 0}} if inside else {}
    place = {"x": [x], "y": [min(max(mean, low), high)], "mode": "markers", "cliponaxis": False}
    figure.add_scatter(**place, marker=dict(look) if inside else dict(look) | arrow, **bar, **others)
    if inside and mean - deviation < low:
        add_arrow(figure, x, low, "down", look["color"])
    if inside and mean + deviation > high:
        add_arrow(figure, x, high, "up", look["color"])


def add_arrow(figure: Any, x: float, y: float, way: str, colour: str) -> None:
    """Add an arrowhead where a bar or a line leaves the axes, "up" or "down"."""
    marker = {"color": colour, "symbol": f"triangle-{way}", "size": 8}
    look = {"hoverinfo": "skip", "showlegend": False, "cliponaxis": False, "mode": "markers"}
    figure.add_scatter(x=[x], y=[y], marker=marker, **look)


def add_line(
    figure: Any, line: Curve, name: str, colour: str, band: bool = True, texts: Sequence[str] | None = None
) -> None:
    """Add the mean over the seeds and, behind it, their range.

    :param texts: What the pointer shows for the values, if not they themselves.
    """
    if band and line.seeds > 1:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "legendgroup": name}
        figure.add_scatter(x=line.steps, y=line.low, **edge)
        clear = f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},{int(colour[5:7], 16)},0.22)"
        figure.add_scatter(x=line.steps, y=line.high, fill="tonexty", fillcolor=clear, **edge)
    look = {"color": colour, "width": 2.2}
    hover = f"{name}: %{{{'y:.4g' if texts is None else 'text'}}} at step %{{x:.0f}}<extra></extra>"
    shown = {"mode": "lines", "name": name, "legendgroup": name, "line": look, "hovertemplate": hover}
    figure.add_scatter(x=line.steps, y=line.mean, text=texts, **shown)


def log_ticks(scale: LogScale, power: bool = False) -> dict[str, Any]:
    """Return the ticks of a logarithmic axis, in powers of 10 or, where Plotly takes the logarithm, as they are."""
    places, names = zip(*scale.ticks(), strict=True)
    return {"tickvals": [10**t if power else t for t in places], "ticktext": list(names)}


def step_axis() -> dict[str, Any]:
    """Return the horizontal axis of optimizer steps."""
    return {"title": {"text": "optimizer step"}, "rangemode": "tozero"}


def label(text: str, length: int = style.NAME) -> str:
    """Return a user's text where there is little room, escaped."""
    return escape(shorten(text, length))


def escape(text: str) -> str:
    """Return a user's text with the characters escaped that Plotly would read as HTML, or as a field of a template."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%", "&#37;")
