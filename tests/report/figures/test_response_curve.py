"""The response curve of one auxiliary term."""

import math

import pytest
from _figures import boxes, marked

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


@pytest.mark.parametrize("name", ["one seed", "outlier of a grid point", "diverged", "negative", "tiny"])
def test_no_bar_strikes_out_the_name_of_the_learned_weights(name, hard):
    figure = report.response_curve(hard(name))
    found = [box for text, box in boxes(figure) if text.startswith("learned")]
    assert found
    for line in [*marked(figure, "spread"), *marked(figure, "error bar")]:
        assert not any(box.overlaps(line.get_window_extent().padded(0.5)) for box in found)
