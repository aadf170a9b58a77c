"""The response curve of one auxiliary term."""

import math

import pytest
from _figures import boxes, marked

from trainonce import report
from trainonce.report.drawing import plans, weight_space


def test_the_response_curve_has_every_ratio_and_where_the_rules_ended(studies):
    summary = studies[1]
    axes = report.response_curve(summary).axes[0]
    shown = {round(float(x), 6) for line in axes.lines for x in line.get_xdata()}
    for outcome in summary.reference.outcomes:
        ratio = outcome.rule.ratios[0]
        assert ratio == 0 or round(math.log10(ratio), 6) in shown
    for row in plans.rules(summary):
        (ratio,) = weight_space.last_ratios(row.chosen)
        assert any(x == pytest.approx(math.log10(ratio), abs=1e-4) for x in shown)
    assert "0" in [tick.get_text() for tick in axes.get_xticklabels()]


@pytest.mark.parametrize("ends", [(0.2, 0.3, 0.9), (0.01, 0.1, 1.0), (0.25, 0.3, 0.35), (3.0, 30.0, 90.0)])
def test_no_bar_strikes_out_the_name_of_a_rule(ends, studies, monkeypatch):
    monkeypatch.setattr(weight_space, "ends", lambda row: [([end], 90.0) for end in ends if row.plan == "yoto"])
    figure = report.response_curve(studies[1])
    (name,) = [box for text, box in boxes(figure) if text == "yoto"]
    (spread,) = marked(figure, "spread")
    assert not name.overlaps(spread.get_window_extent().padded(0.5))
    assert not any(name.overlaps(bar.get_window_extent().padded(0.5)) for bar in marked(figure, "error bar"))
