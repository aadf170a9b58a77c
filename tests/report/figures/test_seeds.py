"""Every seed's result as a dot."""

import _studies
import pytest
from _figures import TERMS, marked, texts

from trainonce import report
from trainonce.report.drawing import plans
from trainonce.study import Summary


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
    summary = hard("outlier of a rule")
    figure = report.seeds(summary)
    low, high = figure.axes[0].spines["bottom"].get_bounds()
    assert high - low < 0.5
    assert "40000; mean 13334" in texts(figure)
    assert [line.get_xdata()[0] for line in marked(figure, "beyond")] == [high]


def test_ordinary_seeds_stay_dots_beside_an_outlier_of_their_plan(tmp_path):
    """One plan is a little worse, and one of its seeds explodes."""
    ours, theirs = (0.41, 0.6, 1.0, 1.1, 1.05), (1.13, 1.2, 1.5, 40_002.0, 2.02)

    def result(rule, terms, seed):
        value = (theirs if rule.name == "uw" else ours)[seed]
        return value, value

    folder = _studies.build(tmp_path, seeds=range(5), result=result, histories=False, **_studies.ERROR)
    figure = report.seeds(Summary.read(folder))
    dots = [x for line in marked(figure, "seed") if line.get_marker() == "o" for x in line.get_xdata()]
    assert {*ours, *theirs} - {40_002.0} == set(dots)
    assert "40002; mean 8002" in texts(figure)


def test_many_seeds_beyond_the_axis_are_a_range(tmp_path):
    def result(rule, terms, seed):
        value = 100.0 + 10 * seed if rule.name == "uw" else 0.7 + 0.01 * seed
        return value, value

    folder = _studies.build(tmp_path, seeds=range(4), result=result, histories=False, **_studies.ERROR)
    assert "4 seeds, 100.0 to 130.0; mean 115.0" in texts(report.seeds(Summary.read(folder)))


def test_diverged_seeds_are_named(hard):
    summary = hard("diverged")
    figure = report.seeds(summary)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert "uniform" in names  # it has no result at all
    assert {"3 diverged", "1 diverged"} <= set(texts(figure))


def test_plans_of_different_seeds_say_how_many_they_have(hard):
    figure = report.seeds(hard("other seeds"))
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert {"yoto, 3 seeds", "uw, 1 seed", "best of grid, 10 seeds"} <= set(names)
