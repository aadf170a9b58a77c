"""The figures show what the store holds: positions, numbers of marks and labels against the data."""

import itertools
import math
import re
import statistics

import _stores
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trainonce import report
from trainonce.report.drawing import labels, render, style
from trainonce.report.figures.cost_quality import expected_best, name_of
from trainonce.study import Summary
from trainonce.study.weightings import Fixed, Learned

TERMS = {1: ("ce", "consistency"), 2: ("ce", "consistency", "rec"), 3: ("ce", "consistency", "rec", "smooth")}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    return {k: Summary.read(_stores.build(tmp_path_factory.mktemp(f"k{k}"), terms=t)) for k, t in TERMS.items()}


def marked(figure, gid):
    """The lines of a figure with the given mark, or whose mark starts with it."""
    return [line for line in figure.axes[0].lines if str(line.get_gid() or "").startswith(gid)]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def boxes(figure, gid="label"):
    """The places of labels as they are drawn."""
    FigureCanvasAgg(figure).draw()
    found = [text for text in figure.axes[0].texts if text.get_gid() == gid]
    return [(text.get_text(), text.get_window_extent()) for text in found]


# Cost against quality


@pytest.mark.parametrize("k", TERMS)
def test_cost_quality_puts_each_plan_at_its_cost_and_mean(studies, k):
    summary = studies[k]
    figure = report.cost_quality(summary)
    low, high = figure.axes[0].get_ylim()
    for row in summary.ranked:
        (point,) = marked(figure, f"plan {row.plan}")
        assert point.get_xdata()[0] == pytest.approx(math.log10(row.cost))
        assert point.get_ydata()[0] == pytest.approx(min(max(row.chosen.mean, low), high))
    inside = [row for row in summary.ranked if low <= row.chosen.mean <= high and row.chosen.deviation]
    bars = marked(figure, "error bar")
    assert len(bars) == len(inside)
    whole = [b for b in bars if low < min(b.get_ydata()) and max(b.get_ydata()) < high]
    spreads = {round(row.chosen.deviation, 9) for row in inside}
    assert whole
    assert all(round((b.get_ydata()[1] - b.get_ydata()[0]) / 2, 9) in spreads for b in whole)


@pytest.mark.parametrize("k", TERMS)
def test_cost_quality_names_every_plan_and_no_name_is_upon_another(studies, k):
    figure = report.cost_quality(studies[k])
    found = boxes(figure)
    for row in studies[k].ranked:
        assert any(text.startswith(name_of(row)) for text, _ in found), row.plan
    for (a, one), (b, other) in itertools.combinations(found, 2):
        assert not one.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)), (a, b)
    frame = figure.bbox
    assert all(box.x0 >= frame.x0 and box.x1 <= frame.x1 for _, box in found)


def test_many_plans_of_one_cost_are_still_apart(tmp_path):
    plans = [_stores.plan("one-shot", "learned", [Learned()]), _stores.plan("grid", "set", _stores.ratio_grid(1))]
    plans += [_stores.plan(f"fixed(1,{i})", "fixed", [Fixed.of((1.0, float(i)))]) for i in range(1, 19)]
    figure = report.cost_quality(Summary.read(_stores.build(tmp_path, plans=plans, histories=False)))
    found = boxes(figure)
    assert len(found) >= 20
    for (a, one), (b, other) in itertools.combinations(found, 2):
        assert not one.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)), (a, b)


def test_the_expected_best_of_some_points_is_that_of_all_ways_to_choose_them(studies):
    summary = studies[1]
    outcomes, sign = summary.reference.outcomes, summary.task.sign
    for k, (cost, value) in enumerate(expected_best(summary), start=1):
        tried = [max(c, key=lambda o: sign * o.select_mean).mean for c in itertools.combinations(outcomes, k)]
        assert value == pytest.approx(statistics.fmean(tried))
        assert cost == pytest.approx(k)
    assert value == pytest.approx(summary.reference.chosen.mean)


def test_a_far_off_plan_stands_at_the_edge_with_its_value(tmp_path):
    def result(point, terms, seed):
        good = _stores.quality(point, terms, seed)
        return (10.0, 10.0 + seed) if isinstance(point, Fixed) and point.weights == (0.5, 0.5) else good

    plans = [*_stores.usual(("ce", "consistency"))[:1], _stores.plan("grid", "set", _stores.ratio_grid(1, (0.1, 0.3)))]
    plans += [_stores.plan("uniform", "fixed", [Fixed.of((1.0, 1.0))]), _stores.plan("uw", "peer", [])][:1]
    summary = Summary.read(_stores.build(tmp_path, plans=plans, result=result, histories=False))
    figure = report.cost_quality(summary)
    low, _ = figure.axes[0].get_ylim()
    assert low > 50
    assert marked(figure, "plan uniform")[0].get_ydata()[0] == low
    assert any(text.startswith("uniform") and "11.0" in text and "↓" in text for text in texts(figure))


# One row a plan


@pytest.mark.parametrize("k", TERMS)
def test_the_strip_has_a_dot_for_every_seed(studies, k):
    figure = report.seeds(studies[k])
    dots = sum(len(line.get_xdata()) for line in marked(figure, "seed"))
    assert dots == sum(len(row.chosen.report) for row in studies[k].ranked)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == [name_of(row) for row in reversed(studies[k].ranked)]
    for row in studies[k].ranked:
        for bar in marked(figure, f"mean {row.plan}"):
            assert bar.get_xdata()[0] == pytest.approx(row.chosen.mean)


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


# Over steps


@pytest.mark.parametrize("k", TERMS)
def test_weights_have_a_line_a_term_that_starts_and_ends_where_the_histories_do(studies, k):
    summary = studies[k]
    figure = report.weights(summary)
    lines = {line.get_gid().removeprefix("weight "): line for line in marked(figure, "weight ")}
    assert tuple(lines) == summary.task.terms
    sums = [sum(values) for values in zip(*(line.get_ydata() for line in lines.values()), strict=True)]
    assert all(total == pytest.approx(1) for total in sums)
    bands = [c for c in figure.axes[0].collections if str(c.get_gid()).startswith("band")]
    assert len(bands) == len(summary.task.terms)
    assert set(summary.task.terms) <= set(texts(figure))


@pytest.mark.parametrize("k", TERMS)
def test_exponents_are_of_the_auxiliary_terms_alone(studies, k):
    lines = marked(report.exponents(studies[k]), "exponent ")
    assert [line.get_gid() for line in lines] == [f"exponent {t}" for t in studies[k].task.terms[1:]]
    assert all(line.get_ydata()[0] == pytest.approx(math.log(0.1), abs=0.1) for line in lines)


def test_a_loss_is_drawn_for_every_point_the_others_in_grey(studies):
    summary = studies[2]
    for term in summary.task.terms:
        figure = report.loss(summary, term)
        assert len(marked(figure, "fixed weights")) == len(summary.reference.outcomes) - 1
        assert {line.get_color() for line in marked(figure, "fixed weights")} == {style.COLOURS["set"]}
        assert marked(figure, "learned")[0].get_color() == style.COLOURS["learned"]
        assert marked(figure, "reference")[0].get_color() == style.INK


def test_what_moved_an_exponent_adds_up(studies):
    figure = report.drives(studies[1], "consistency")
    ends = {line.get_gid().split()[1]: line.get_ydata()[-1] for line in marked(figure, "drive ")}
    assert ends["both"] == pytest.approx(ends["losses"] + ends["decay"])
    assert ends["decay"] == pytest.approx(-0.004 * 120, rel=0.02)


def test_long_histories_are_thinned_to_means(tmp_path):
    path = _stores.build(tmp_path, plans=[_stores.plan("one-shot", "learned", [Learned()])], histories=False)
    summary = Summary.read(path)
    for record in summary.one_shot.chosen.records.values():
        _stores.write_history(path / "trials" / record.key / "history.jsonl", ("ce", "consistency"), Learned(), 0, 1000)
    (line,) = marked(report.exponents(summary), "exponent ")
    assert 200 <= len(line.get_xdata()) <= 250
    assert line.get_xdata()[0] == pytest.approx(2.5)  # the mean of steps 1 to 4


# In the space of weights


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


def test_the_map_has_a_cell_a_point_and_a_path_a_seed(studies):
    summary = studies[2]
    figure = report.heat_map(summary)
    patches = [patch.get_gid() for patch in figure.axes[0].patches]
    assert patches.count("cell") == 9
    assert patches.count("chosen") == 1
    paths = marked(figure, "path")
    assert len(paths) == 3
    for path, record in zip(paths, summary.one_shot.chosen.records.values(), strict=True):
        base, first, second = record.weights
        assert path.get_xdata()[-1] == pytest.approx(math.log10(first / base), abs=1e-4)
        assert path.get_ydata()[-1] == pytest.approx(math.log10(second / base), abs=1e-4)
    best = max(
        (p for p in figure.axes[0].patches if p.get_gid() == "cell"), key=lambda p: p.get_alpha()
    )  # the strongest cell is the best on the reported split
    top = max(summary.reference.outcomes, key=lambda o: o.mean)
    assert best.get_x() < math.log10(top.weighting.ratios[0]) < best.get_x() + best.get_width()


def test_random_points_are_dots_on_the_map(tmp_path):
    points = [Fixed.of((1.0, a, b)) for a, b in ((0.1, 3.0), (2.0, 0.2), (0.5, 0.7))]
    plans = [_stores.plan("random(trials=3)", "set", points)]
    summary = Summary.read(_stores.build(tmp_path, terms=TERMS[2], plans=plans, histories=False))
    figure = report.heat_map(summary)
    assert len(marked(figure, "choice")) == 3
    assert not figure.axes[0].patches


def test_the_simplex_places_weights_by_their_shares(studies):
    summary = studies[2]
    figure = report.simplex(summary)
    assert len(marked(figure, "choice")) == 9
    assert len(marked(figure, "path")) == 3
    (uniform,) = marked(figure, "plan uniform")
    assert (uniform.get_xdata()[0], uniform.get_ydata()[0]) == pytest.approx((0.5, math.sqrt(3) / 6))


def test_parallel_coordinates_have_a_line_a_point_and_one_a_seed(studies):
    summary = studies[3]
    figure = report.parallel_coordinates(summary)
    assert len(marked(figure, "choice")) == 27
    ends = marked(figure, "end")
    assert len(ends) == 3
    base, *rest = next(iter(summary.one_shot.chosen.records.values())).weights
    assert list(ends[0].get_ydata()[:3]) == pytest.approx([math.log10(w / base) for w in rest], abs=1e-4)


# Sweeps


def test_a_sweep_shows_its_values_zero_included(studies):
    summary = studies[1]
    figure = report.sensitivity(summary, "sweep-decay")
    assert sum(len(line.get_xdata()) for line in marked(figure, "seed")) == 4 * 3
    assert figure.axes[0].get_xticklabels()[0].get_text() == "0"
    assert "Sensitivity to decay" in texts(figure)
    lines = marked(report.sensitivity_weights(summary, "sweep-init"), "weight ")
    assert [line.get_gid() for line in lines] == [f"weight {t}" for t in summary.task.terms]
    outcome = summary.sweeps[0].outcomes[0]
    assert lines[0].get_ydata()[0] == pytest.approx(outcome.weights[0])


# For all


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """No grid; no run with learned weights and no histories."""
    made = [({"plans": [plan]}, plan["kind"] == "learned") for plan in _stores.usual(TERMS[2])[:2]]
    folders = [_stores.build(tmp_path_factory.mktemp("odd"), terms=TERMS[2], histories=h, **p) for p, h in made]
    return [Summary.read(folder) for folder in folders]


def drawn_or_said(draw, summary):
    try:
        return draw(summary)
    except report.NothingToDrawError as reason:
        return str(reason)


ALL = [name for name in report.__all__ if name not in ("write", "NothingToDrawError")]


@pytest.mark.parametrize("name", ALL)
def test_a_figure_is_drawn_or_says_why_not(studies, odd, name):
    drawn = 0
    for summary in [*studies.values(), *odd]:
        figure = drawn_or_said(getattr(report, name), summary)
        if isinstance(figure, str):
            assert figure.endswith(".")
            continue
        drawn += 1
        assert isinstance(figure, Figure)
    assert drawn
    assert figure if isinstance(figure, str) else figure._repr_png_().startswith(b"\x89PNG")


def test_given_axes_are_drawn_on(studies):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert report.cost_quality(studies[1], axes[0]) is figure
    assert report.weights(studies[1], axes[1]) is figure
    assert all(a.lines for a in axes)


def test_svg_follows_the_theme_and_has_ids_of_its_own(studies):
    figure = report.cost_quality(studies[1])
    one, other = render.svg(figure, "one"), render.svg(figure, "other")
    assert "currentColor" in one
    assert style.INK not in one
    assert "<metadata>" not in one
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_spread_keeps_order_and_room():
    found = labels.spread([5, 5, 5, 1], 2, 0, 10)
    assert sorted(found) == [1, 3, 5, 7]
    assert labels.spread([9, 9, 9], 2, 0, 10) == [6, 8, 10]
    crowded = labels.spread([0.0] * 11, 2, 0, 10)
    assert max(crowded) <= 10
    assert len(set(crowded)) == 11
