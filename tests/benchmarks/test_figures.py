"""The figures of the results pages."""

import re
from pathlib import Path

import dynamics
import pytest
import records
import starts
import study_figures
from _figures import boxes, texts

from trainonce.study import Summary

RESULTS = Path(__file__).parents[2] / "docs" / "results"

pytestmark = pytest.mark.skipif(not study_figures.DATA.is_dir(), reason="a source distribution has no records")


def test_the_pages_show_every_figure_and_the_script_draws_some_of_them():
    shown = {
        name for page in RESULTS.glob("*.md") for name in re.findall(r"\(figures/([\w-]+)\.png\)", page.read_text())
    }
    assert shown == {path.stem for path in (RESULTS / "figures").glob("*.png")}
    assert set(study_figures.FIGURES) < shown


def test_a_figure_is_drawn_from_the_kept_records_with_the_usual_spelling_of_its_metric():
    figure = study_figures.draw("segmentation-camvid-response-curve")
    assert "test mIoU, % (higher is better ↑)" in texts(figure)


def test_labels_of_a_response_curve_keep_clear_of_the_line_where_the_axis_is_interrupted():
    figure = study_figures.draw("study-distillation-response-curve")
    found, axes = boxes(figure), figure.axes[0]
    (line,) = [line for line in axes.lines if list(line.get_ydata()) == [0, 1]]
    at = axes.transData.transform((line.get_xdata()[0], 0))[0]
    assert "one-shot" in [text for text, _ in found]
    assert all(min(abs(box.x0 - at), abs(box.x1 - at)) > 4 and not box.x0 < at < box.x1 for _, box in found)


@pytest.mark.parametrize(("study", "seeds"), [("nyu", 3), ("rooms-mixed", 1)])
def test_the_papers_figures_are_drawn_from_the_kept_records(study, seeds):
    with records.open_study(study_figures.DATA / "depth" / f"{study}.tar.xz") as folder:
        dynamics_panels, starts_panels = dynamics.draw(folder).axes, starts.draw(Summary.read(folder)).axes
    assert [len(axes.lines) for axes in dynamics_panels] == [10, 10, 10, 10, 1, 1, 10, 10, 10]
    ends = [line for line in starts_panels[2].lines if line.get_gid() == "end"]
    assert len(ends) == 5 * seeds
    assert ends[-1].get_ydata()[0] > max(-0.2, ends[0].get_ydata()[0])  # from 10 both terms are kept


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.02, 0.7, [0.02, 0.05, 0.1, 0.2, 0.5]),
        (0.14, 0.33, [0.15, 0.2, 0.3]),
        (0.013, 0.055, [0.015, 0.02, 0.03, 0.05]),
        (0.24, 0.41, [0.25, 0.3, 0.35, 0.4]),
    ],
)
def test_logarithmic_ticks_are_round_and_at_least_three(low, high, ticks):
    assert dynamics.log_ticks(low, high) == ticks
