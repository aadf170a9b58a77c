"""Cost against quality: positions, error bars and names against the data."""

import itertools
import math

import _stores
import _studies
import pytest
from _figures import TERMS, boxes, marked, texts
from _stores import yoto

from trainonce import report
from trainonce.report.drawing import plans
from trainonce.study import Summary
from trainonce.study.rules import fixed
from trainonce.study.store import Store


@pytest.mark.parametrize("k", TERMS)
def test_cost_quality_puts_each_plan_at_its_cost_and_mean(studies, k):
    summary = studies[k]
    figure = report.cost_quality(summary)
    low, high = figure.axes[0].get_ylim()
    for row in summary.ranked:
        (point,) = marked(figure, f"plan {row.plan}")
        assert point.get_xdata()[0] == pytest.approx(math.log10(row.cost))
        assert point.get_ydata()[0] == pytest.approx(min(max(row.chosen.mean, low), high))
    inside = [row for row in summary.ranked if low <= row.chosen.mean <= high and row.chosen.standard_deviation]
    bars = marked(figure, "error bar")
    assert len(bars) == len(inside)
    whole = [b for b in bars if low < min(b.get_ydata()) and max(b.get_ydata()) < high]
    deviations = {round(row.chosen.standard_deviation, 9) for row in inside}
    assert whole
    assert all(round((b.get_ydata()[1] - b.get_ydata()[0]) / 2, 9) in deviations for b in whole)


@pytest.mark.parametrize("k", TERMS)
def test_cost_quality_names_every_plan_and_no_names_overlap(studies, k):
    figure = report.cost_quality(studies[k])
    found = boxes(figure)
    for row in studies[k].ranked:
        assert any(text.startswith(plans.label(row)) for text, _ in found), row.plan
    for (a, one), (b, other) in itertools.combinations(found, 2):
        assert not one.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)), (a, b)
    frame = figure.bbox
    assert all(box.x0 >= frame.x0 and box.x1 <= frame.x1 for _, box in found)


def test_many_plans_of_one_cost_are_still_apart(tmp_path):
    plans = [_stores.plan("yoto", "rule", [yoto()]), _stores.plan("grid", "set", _stores.ratio_grid(1))]
    plans += [_stores.plan(f"fixed(1,{i})", "fixed", [fixed((1.0, float(i)))]) for i in range(1, 19)]
    figure = report.cost_quality(Summary.read(_stores.build(tmp_path, plans=plans, histories=False)))
    found = boxes(figure)
    assert len(found) >= 20
    for (a, one), (b, other) in itertools.combinations(found, 2):
        assert not one.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)), (a, b)


def test_a_far_off_plan_stands_at_the_edge_with_its_value(tmp_path):
    def result(point, terms, seed):
        good = _stores.quality(point, terms, seed)
        return (10.0, 10.0 + seed) if point.coefficients == (0.5, 0.5) else good

    plans = [*_stores.usual(("ce", "consistency"))[:1], _stores.plan("grid", "set", _stores.ratio_grid(1, (0.1, 0.3)))]
    plans += [_stores.plan("uniform", "fixed", [fixed((1.0, 1.0))]), _stores.plan("uw", "peer", [])][:1]
    summary = Summary.read(_stores.build(tmp_path, plans=plans, result=result, histories=False))
    figure = report.cost_quality(summary)
    low, _ = figure.axes[0].get_ylim()
    assert low > 50
    assert marked(figure, "plan uniform")[0].get_ydata()[0] == low
    assert any(text.startswith("uniform") and "11.0" in text and "↓" in text for text in texts(figure))


def test_a_long_name_stays_inside_the_axes(tmp_path):
    name = "yoto(init=0.0183156,decay=0.05,regularizer=softplus)"
    plans = [_stores.plan(name, "rule", [yoto()]), _stores.plan("grid", "set", _stores.ratio_grid(1))]
    figure = report.cost_quality(Summary.read(_stores.build(tmp_path, plans=plans, histories=False)))
    found = boxes(figure)
    (box,) = [box for text, box in found if text.startswith("yoto(init=0.0183")]
    assert box.x0 > figure.axes[0].get_window_extent().x0


def test_the_reference_is_named_by_what_it_is(hard):
    found = texts(report.cost_quality(hard("twelve terms")))
    assert {"best of random", "part of random"} <= set(found)
    assert not any("grid" in text for text in found)


def test_two_grids_have_names_of_their_own(tmp_path):
    grids = [_stores.plan(f"grid({r},1)", "set", _stores.ratio_grid(1, (r, 1.0))) for r in (0.1, 10.0)]
    plans = [_stores.plan("yoto", "rule", [yoto()]), *grids]
    summary = Summary.read(_stores.build(tmp_path, plans=plans, histories=False))
    assert {"best of grid(0.1,1)", "best of grid(10.0,1)"} <= set(texts(report.cost_quality(summary)))


def test_plans_of_different_seeds_say_how_many_they_have(hard):
    found = texts(report.cost_quality(hard("other seeds")))
    assert {"yoto, 3 seeds", "uw, 1 seed", "best of grid, 10 seeds"} <= set(found)


def test_plans_with_as_many_but_other_seeds_say_so(tmp_path):
    plans = _stores.usual(_studies.TWELVE[:2])[:3]
    others = {"yoto": [0, 1], "grid": [2, 3], "uniform": [2, 3]}
    store = Store(_stores.build(tmp_path, plans=plans, seeds=range(4), histories=False))
    manifest = store.read_manifest()
    store.write_manifest(manifest | {"plans": [plan | {"seeds": others[plan["name"]]} for plan in manifest["plans"]]})
    for figure in (report.cost_quality(Summary.read(tmp_path)), report.seeds(Summary.read(tmp_path))):
        names = [*texts(figure), *(tick.get_text() for tick in figure.axes[0].get_yticklabels())]
        assert {"yoto, other seeds", "uniform", "best of grid"} <= set(names)


def test_error_bars_and_the_grey_line_end_in_arrows_where_they_leave_the_axes(hard):
    summary = hard("outlier of a grid point")
    figure = report.cost_quality(summary)
    low, high = figure.axes[0].get_ylim()
    assert high - low < 0.5
    (line,) = marked(figure, "expected")
    assert max(y for y in line.get_ydata() if math.isfinite(y)) == high
    assert high in [arrow.get_ydata()[0] for arrow in marked(figure, "beyond")]
    assert any(text.startswith("uniform  13334") for text in texts(figure))
