"""Labels keep clear of each other."""

from trainonce.report.drawing import labels


def test_keeping_apart_keeps_order_and_room():
    found = labels.keep_apart([5, 5, 5, 1], 2, 0, 10)
    assert sorted(found) == [1, 3, 5, 7]
    assert labels.keep_apart([9, 9, 9], 2, 0, 10) == [6, 8, 10]
    crowded = labels.keep_apart([0.0] * 11, 2, 0, 10)
    assert max(crowded) <= 10
    assert len(set(crowded)) == 11
