"""The figures of the sweeps."""

import math

import _studies
import pytest
from _figures import boxes, marked, texts

from trainonce import report
from trainonce.report.drawing import weight_space


def test_a_sweep_shows_its_values_zero_included(studies):
    summary = studies[1]
    figure = report.sensitivity(summary, "sweep-decay")
    assert sum(len(line.get_xdata()) for line in marked(figure, "seed")) == 4 * 3
    assert figure.axes[0].get_xticklabels()[0].get_text() == "0"
    assert "Sensitivity to decay" in texts(figure)
    (line,) = marked(report.sensitivity_ratios(summary, "sweep-init"), "line consistency")
    (ratio,) = weight_space.last_ratios(summary.sweeps[0].outcomes[0])
    assert line.get_ydata()[0] == pytest.approx(math.log10(ratio))


def test_the_axis_ends_before_the_labels_of_the_lines(studies):
    figure = report.sensitivity(studies[1])
    axes = figure.axes[0]
    found = boxes(figure)
    end = axes.transData.transform((axes.spines["bottom"].get_bounds()[1], 0))[0]
    assert found
    assert all(box.x0 > end for _, box in found)


def test_a_mean_beyond_the_axis_is_an_arrow_and_interrupts_the_line(hard):
    summary = hard("outlier of five terms")
    figure = report.sensitivity(summary, "sweep-init")
    assert "mean 13334" in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert high - low < 2
    (line,) = marked(figure, "mean")
    assert sum(math.isnan(y) for y in line.get_ydata()) == 1
    assert len(marked(figure, "beyond")) == 1


def test_many_terms_have_a_panel_each(hard):
    figure = report.sensitivity_ratios(hard("twelve terms"), "sweep-init")
    assert [axes.lines[-1].get_gid() for axes in figure.axes] == [f"line {term}" for term in _studies.TWELVE[1:]]
