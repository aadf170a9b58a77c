"""The interactive versions of the figures."""

import json

import _stores
import pytest
from _pages import Page, plans

from trainonce import report
from trainonce.report.drawing import render
from trainonce.report.plotly import elements
from trainonce.report.plotly.parallel_coordinates import parallel_coordinates
from trainonce.report.plotly.simplex import simplex
from trainonce.study import Summary


def test_plotly_is_in_the_page_once(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")
    path = _stores.build(tmp_path, plans=plans("one-shot", "grid", "uniform"))
    text = report.write(path, interactive=True).read_text(encoding="utf-8")
    page = Page(text)
    assert sum("plotly.js v" in script for script in page.scripts) == 1
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    figures = [json.loads(s) for s in page.scripts if s.startswith('{"data"')]
    assert len(figures) == 5  # cost and quality, weights, response curve, two losses
    names = {trace.get("name") for trace in figures[0]["data"]}
    assert {"one-shot", "best of grid", "uniform"} <= names
    summary = Summary.read(path)
    (ours,) = [trace for trace in figures[0]["data"] if trace.get("name") == "one-shot"]
    assert ours["y"] == pytest.approx([summary.one_shot.chosen.mean])
    assert ours["error_y"]["array"] == pytest.approx([summary.one_shot.chosen.deviation])


@pytest.mark.parametrize("terms", [("a", "<b>b</b>", "c"), ("a", "b", "c", "d")])
def test_interactive_figures_of_more_terms(tmp_path, terms):
    learned, grid = _stores.usual(terms)[:2]
    summary = Summary.read(_stores.build(tmp_path, terms=terms, plans=[learned, grid], seeds=(0, 1)))
    draw = simplex if len(terms) == 3 else parallel_coordinates
    found = json.loads(elements.to_json(draw(summary)))
    if len(terms) == 3:
        assert sum(trace.get("name") == "learned" for trace in found["data"]) == 2
        assert "&lt;b>" in json.dumps(found)
    else:
        (trace,) = found["data"]
        assert len(trace["dimensions"]) == 4
