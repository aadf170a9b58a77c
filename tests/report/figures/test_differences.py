"""Differences to the reference."""

import statistics

import pytest
from _figures import marked

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
