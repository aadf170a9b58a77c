"""How figures show plans."""

import itertools
import math
import random
import statistics
import time

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


def exact(ordered, k):
    n = len(ordered)
    return math.fsum(math.comb(n - i, k - 1) / math.comb(n, k) * v for i, v in enumerate(ordered, start=1))


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_the_mean_of_the_best_is_the_exact_formula(n):
    values = [random.Random(n).gauss(90, 5) for _ in range(n)]
    for k in range(1, n + 1):
        assert plans.mean_of_best(values, k) == pytest.approx(exact(values, k), rel=1e-13)


def test_the_mean_of_the_best_of_ten_thousand_is_quick_and_right():
    n = 10_000
    values = [1e6 + i for i in range(n)]
    begin = time.process_time()
    for k in (1, 2, 17, 5000, n):
        assert plans.mean_of_best(values, k) == pytest.approx(1e6 + (n + 1) / (k + 1) - 1, rel=1e-12)
    assert time.process_time() - begin < 1


def test_a_line_over_many_points_has_few():
    assert plans._spread(250) == list(range(1, 251))
    found = plans._spread(10_000)
    assert found[0] == 1
    assert found[-1] == 10_000
    assert len(found) <= 250
    assert sorted(set(found)) == found
