"""The response curve of one auxiliary term."""

import math

import pytest
from _figures import boxes

from trainonce import report


def test_the_response_curve_has_every_ratio_and_the_learned_end(studies):
    summary = studies[1]
    axes = report.response_curve(summary).axes[0]
    shown = {round(float(x), 6) for line in axes.lines for x in line.get_xdata()}
    for outcome in summary.reference.outcomes:
        ratio = outcome.weighting.ratios[0]
        assert ratio == 0 or round(math.log10(ratio), 6) in shown
    base, other = summary.one_shot.chosen.weights
    assert any(x == pytest.approx(math.log10(other / base), abs=1e-4) for x in shown)
    assert "0" in [tick.get_text() for tick in axes.get_xticklabels()]


def test_labels_keep_clear_of_the_line_where_the_axis_is_interrupted(studies):
    figure = report.response_curve(studies[1])
    found = boxes(figure)
    axes = figure.axes[0]
    (line,) = [line for line in axes.lines if list(line.get_ydata()) == [0, 1]]
    at = axes.transData.transform((line.get_xdata()[0], 0))[0]
    assert {text for text, _ in found} >= {"learned"}
    assert all(not box.x0 <= at <= box.x1 for _, box in found)
