"""The response curve of one auxiliary term."""

import math

import pytest
from _figures import boxes, marked

from trainonce import report
from trainonce.report.drawing import weight_space


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


@pytest.mark.parametrize("ends", [(0.2, 0.3, 0.9), (0.01, 0.1, 1.0), (0.25, 0.3, 0.35), (3.0, 30.0, 90.0)])
def test_no_bar_strikes_out_the_name_of_the_learned_weights(ends, studies, monkeypatch):
    monkeypatch.setattr(weight_space, "paths", lambda summary: [[(1 / (1 + end), end / (1 + end))] for end in ends])
    figure = report.response_curve(studies[1])
    (name,) = [box for text, box in boxes(figure) if text.startswith("learned")]
    (spread,) = marked(figure, "spread")
    assert not name.overlaps(spread.get_window_extent().padded(0.5))
    assert not any(name.overlaps(bar.get_window_extent().padded(0.5)) for bar in marked(figure, "error bar"))
