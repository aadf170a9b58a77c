"""Differences to the reference."""

import statistics

import pytest
from _figures import marked, texts

from trainonce import report


def test_differences_are_paired_by_seed(studies):
    summary = studies[1]
    figure = report.differences(summary)
    theirs = summary.reference.chosen.report
    for row in summary.ranked:
        if row is summary.reference:
            assert not marked(figure, f"difference {row.plan}")
            continue
        mean = statistics.fmean(row.chosen.report[s] - theirs[s] for s in theirs)
        reach = figure.axes[0].get_xlim()[1]
        assert marked(figure, f"difference {row.plan}")[0].get_xdata()[0] == pytest.approx(
            max(-reach, min(mean, reach))
        )


def test_an_interval_beyond_the_axis_ends_in_an_arrow_with_its_number(studies):
    summary = studies[2]
    figure = report.differences(summary)
    low, high = figure.axes[0].spines["bottom"].get_bounds()
    found = [row.difference for row in summary.ranked if row.difference]
    expected = [d.low for d in found if d.low < low] + [d.high for d in found if d.high > high]
    arrows = marked(figure, "beyond")
    assert len(arrows) == len(expected) > 0
    assert {arrow.get_xdata()[0] for arrow in arrows} <= {low, high}
    written = [float(t.replace("−", "-")) for t in texts(figure) if t[0] in "+−"]  # noqa: RUF001
    assert sorted(written) == pytest.approx(sorted(expected), abs=0.01)


def test_an_outlier_does_not_hide_the_other_differences(hard):
    figure = report.differences(hard("outlier of a grid point"))
    low, high = figure.axes[0].spines["bottom"].get_bounds()
    assert high - low < 0.5
    assert any(text.startswith("mean ") and text.endswith("13333") for text in texts(figure))


def test_a_plan_with_one_seed_in_common_is_a_ring(hard):
    figure = report.differences(hard("other seeds"))
    (ring,) = marked(figure, "difference uw")
    assert ring.get_markerfacecolor() == "none"
    assert not marked(figure, "interval uw")
