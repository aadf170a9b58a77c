"""A term's loss over steps."""

import math

from _figures import marked
from matplotlib.figure import Figure

from trainonce import report
from trainonce.report.drawing import over_steps, style
from trainonce.report.drawing.curves import Curve


def test_a_loss_is_drawn_for_every_point_the_others_in_grey(studies):
    summary = studies[2]
    for term in summary.task.terms:
        figure = report.loss(summary, term)
        assert len(marked(figure, "fixed weights")) == len(summary.reference.outcomes) - 1
        assert {line.get_color() for line in marked(figure, "fixed weights")} == {style.COLOURS["set"]}
        assert [line.get_color() for line in marked(figure, "rule ")] == list(style.RULES)[:2]
        assert marked(figure, "reference")[0].get_color() == style.INK


def test_a_run_that_leaves_the_axis_ends_in_an_arrow():
    """Losses may be negative; one that explodes would hide the others."""
    axes = Figure().subplots()
    axes.set_ylim(-1, 1)
    exploding = Curve([0, 1, 2, 3], [0.0, 0.5, 1e6, 0.0], [-3.0] * 4, [0.0, 0.5, 1e6, 0.0], 2)
    over_steps.draw_within(axes, exploding, style.INK, "run", band=True)
    (line,) = [line for line in axes.lines if line.get_gid() == "run"]
    inside = [y for y in line.get_ydata() if math.isfinite(y)]
    assert (min(inside), max(inside)) == (0, 1)
    arrows = [(line.get_marker(), line.get_ydata()[0]) for line in axes.lines if line.get_gid() == "beyond"]
    assert sorted(set(arrows)) == [("^", 1), ("v", -1)]


def test_the_bands_of_the_rules_are_inside_the_axes(studies):
    axes = report.loss(studies[1], "ce").axes[0]
    low, high = axes.get_ylim()
    heights = [y for band in axes.collections for path in band.get_paths() for y in path.vertices[:, 1]]
    assert low <= min(heights) < max(heights) <= high
