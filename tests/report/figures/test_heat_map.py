"""The map of two auxiliary terms."""

import math

import _stores
import pytest
from _figures import TERMS, marked

from trainonce import report
from trainonce.report.drawing import plans
from trainonce.study import Summary
from trainonce.study.rules import fixed


def test_the_map_has_a_cell_per_point_and_a_path_per_seed(studies):
    summary = studies[2]
    figure = report.heat_map(summary)
    patches = [patch.get_gid() for patch in figure.axes[0].patches]
    assert patches.count("cell") == 9
    assert patches.count("chosen") == 1
    paths = marked(figure, "path")
    records = [record for row in plans.rules(summary) for record in row.chosen.records.values()]
    assert {path.get_color() for path in paths} == {plans.colour(summary, row) for row in plans.rules(summary)}
    for path, record in zip(paths, records, strict=True):
        base, first, second = record.coefficients
        assert path.get_xdata()[-1] == pytest.approx(math.log10(first / base), abs=1e-4)
        assert path.get_ydata()[-1] == pytest.approx(math.log10(second / base), abs=1e-4)
    best = max(
        (p for p in figure.axes[0].patches if p.get_gid() == "cell"), key=lambda p: p.get_alpha()
    )  # the strongest cell is the best on the reported split
    top = max(summary.reference.outcomes, key=lambda o: o.mean)
    assert best.get_x() < math.log10(top.rule.ratios[0]) < best.get_x() + best.get_width()


def test_random_points_are_dots_on_the_map(tmp_path):
    points = [fixed((1.0, a, b)) for a, b in ((0.1, 3.0), (2.0, 0.2), (0.5, 0.7))]
    asked = [_stores.plan("random(trials=3)", "set", points)]
    summary = Summary.read(_stores.build(tmp_path, terms=TERMS[2], plans=asked, histories=False))
    figure = report.heat_map(summary)
    assert len(marked(figure, "choice")) == 3
    assert not figure.axes[0].patches
