"""Points around gradient units, and the times of trainings."""

import pytest

from benchmarks.arena import points, times
from benchmarks.arena.rules import Point


@pytest.mark.parametrize(("auxiliary", "count"), [(1, 44), (2, 84), (3, 124)])
def test_points_around_units_have_their_middle_there(auxiliary, count):
    found = points.named("around", auxiliary)
    assert len(found) == count
    assert found[0] == Point("units", {})
    assert all(point in found for point in points.named("halving", auxiliary))
    priors = [point.settings["prior"] for point in found if "prior" in point.settings]
    assert len({tuple(prior) for prior in priors}) == count / 4 - 1
    for prior in priors:  # with each point there is its opposite
        assert any(
            all(a * b == pytest.approx(1, rel=1e-4) for a, b in zip(prior, other, strict=True)) for other in priors
        )


def record(rule, task, seconds, **settings):
    return {"rule": rule, "task": task, "seconds": seconds, "settings": settings}


def test_times_are_ratios_to_equal_weights_of_the_same_task():
    plain = [record("uniform", "a", s) for s in (1.0, 2.0, 9.0)] + [record("uniform", "b", 4.0)]
    others = [record("upgrad", "a", 6.0), record("upgrad", "b", 6.0)]
    assert times.ratios([*plain, *others])["upgrad"] == {"a": 3.0, "b": 1.5}
    assert "| upgrad | 3.00 | 1.50 |" in times.table([*plain, *others])
