"""Every seed's result as a dot."""

import pytest
from _figures import TERMS, marked, texts

from trainonce import report
from trainonce.report.drawing import plans


@pytest.mark.parametrize("k", TERMS)
def test_there_is_a_dot_for_every_seed(studies, k):
    figure = report.seeds(studies[k])
    dots = sum(len(line.get_xdata()) for line in marked(figure, "seed"))
    assert dots == sum(len(row.chosen.report) for row in studies[k].ranked)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == [plans.label(row) for row in reversed(studies[k].ranked)]
    for row in studies[k].ranked:
        for bar in marked(figure, f"mean {row.plan}"):
            assert bar.get_xdata()[0] == pytest.approx(row.chosen.mean)


def test_an_outlying_seed_is_an_arrow_with_its_value_and_the_others_stay_apart(hard):
    summary = hard("outlier of learned weights")
    figure = report.seeds(summary)
    low, high = figure.axes[0].spines["bottom"].get_bounds()
    assert high - low < 0.5
    assert "40000; mean 13334" in texts(figure)
    assert [line.get_xdata()[0] for line in marked(figure, "beyond")] == [high]


def test_diverged_seeds_are_named(hard):
    summary = hard("diverged")
    figure = report.seeds(summary)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert "uniform" in names  # it has no result at all
    assert {"3 diverged", "1 diverged"} <= set(texts(figure))


def test_plans_of_different_seeds_say_how_many_they_have(hard):
    figure = report.seeds(hard("other seeds"))
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert {"one-shot, 3 seeds", "uw, 1 seed", "best of grid, 10 seeds"} <= set(names)
