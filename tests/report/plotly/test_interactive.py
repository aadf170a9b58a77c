"""The interactive versions of the figures."""

import json

import _stores
import pytest
from _pages import Page, plans

from trainonce import report
from trainonce.report.catalogue import Drawing
from trainonce.report.drawing import render
from trainonce.report.figures import CATALOGUE
from trainonce.report.page import document
from trainonce.report.plotly import elements
from trainonce.report.plotly.cost_quality import cost_quality
from trainonce.report.plotly.parallel_coordinates import parallel_coordinates
from trainonce.report.plotly.ratios import ratios
from trainonce.report.plotly.response_curve import response_curve
from trainonce.report.plotly.simplex import simplex
from trainonce.study import Summary


def test_plotly_is_in_the_page_once(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")
    path = _stores.build(tmp_path, plans=plans("yoto", "grid", "uniform"))
    text = report.write(path, interactive=True).read_text(encoding="utf-8")
    page = Page(text)
    assert sum("plotly.js v" in script for script in page.scripts) == 1
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    figures = [json.loads(s) for s in page.scripts if s.startswith('{"data"')]
    assert len(figures) == 5  # cost and quality, ratios, response curve, two losses
    names = {trace.get("name") for trace in figures[0]["data"]}
    assert {"yoto", "best of grid", "uniform"} <= names
    summary = Summary.read(path)
    (ours,) = [trace for trace in figures[0]["data"] if trace.get("name") == "yoto"]
    assert ours["y"] == pytest.approx([summary.rows[0].chosen.mean])
    assert ours["error_y"]["array"] == pytest.approx([summary.rows[0].chosen.standard_deviation])


@pytest.mark.parametrize("terms", [("a", "<b>b</b>", "c"), ("a", "b", "c", "d")])
def test_interactive_figures_of_more_terms(tmp_path, terms):
    rule, grid = _stores.usual(terms)[:2]
    summary = Summary.read(_stores.build(tmp_path, terms=terms, plans=[rule, grid], seeds=(0, 1)))
    draw = simplex if len(terms) == 3 else parallel_coordinates
    found = json.loads(elements.to_json(draw(summary)))
    if len(terms) == 3:
        assert sum(trace.get("name") == "yoto" for trace in found["data"]) == 2
        assert "&lt;b>" in json.dumps(found)
    else:
        (trace,) = found["data"]
        assert len(trace["dimensions"]) == 4


def test_what_is_beyond_an_interactive_axis_is_an_arrow_at_its_edge_with_its_number(hard):
    for name, draw in (("outlier of a rule", cost_quality), ("outlier of a grid point", response_curve)):
        summary = hard(name)
        found = json.loads(elements.to_json(draw(summary)))
        low, high = found["layout"]["yaxis"]["range"]
        assert high - low < 2
        drawn = [y for trace in found["data"] for y in trace["y"] if y is not None]
        assert all(low <= y <= high for y in drawn)
        arrows = [t for t in found["data"] if t.get("marker", {}).get("symbol") == "triangle-up" and t["y"] == [high]]
        assert any("1333" in arrow.get("hovertemplate", "") for arrow in arrows)


def test_interactive_parallel_coordinates_of_many_terms_get_the_width_of_the_page(hard):
    (one,) = [entry for entry in CATALOGUE if entry.name == "parallel-coordinates"]
    assert one.wide(hard("twelve terms"))
    assert not one.wide(hard("five terms"))
    drawing = Drawing("weights", "a-name", "A title", "A caption.", "<svg></svg>", b"", "{}", wide=True)
    assert "class=wide" in document._figure(drawing, False)
    assert "class=wide" not in document._figure(drawing._replace(plotly=""), False)


def test_the_ratios_of_twelve_terms_stay_in_panels(hard):
    with pytest.raises(report.NothingToDrawError):
        ratios(hard("twelve terms"))
    assert ratios(hard("five terms")).data
