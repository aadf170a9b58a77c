"""Figures on given axes."""

from matplotlib.figure import Figure

from trainonce import report


def test_given_axes_are_drawn_on(studies):
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert report.cost_quality(studies[1], axes[0]) is figure
    assert report.ratios(studies[1], axes=axes[1]) is figure
    assert all(a.lines for a in axes)
