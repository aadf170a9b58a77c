"""How figures show plans."""

import itertools
import statistics

import pytest

from trainonce.report.drawing import plans


def test_the_expected_best_of_some_points_is_that_of_all_ways_to_choose_them(studies):
    summary = studies[1]
    outcomes, sign = summary.reference.outcomes, summary.task.sign
    for k, (cost, value) in enumerate(plans.expected_best(summary), start=1):
        tried = [max(c, key=lambda o: sign * o.select_mean).mean for c in itertools.combinations(outcomes, k)]
        assert value == pytest.approx(statistics.fmean(tried))
        assert cost == pytest.approx(k)
    assert value == pytest.approx(summary.reference.chosen.mean)
