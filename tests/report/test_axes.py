"""What every figure keeps to, whatever the study: nothing is cut off in silence, and all text can be read."""

import contextlib
import itertools
import math

import _studies
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from trainonce import report
from trainonce.report import catalogue
from trainonce.report.figures import CATALOGUE

SMALLEST = 7  # points


@pytest.fixture(scope="module", params=_studies.HARD)
def figures(request, hard):
    """Every figure of a study; of those with a case for each term, the last."""
    summary = hard(request.param)
    found = {}
    for one, group in itertools.groupby(catalogue._list_cases(summary, CATALOGUE), key=lambda pair: pair[0]):
        *_, (_, case) = group
        with contextlib.suppress(report.NothingToDrawError):
            found[one.name] = one.draw(summary, *((case.argument,) if case else ()))
            FigureCanvasAgg(found[one.name]).draw()
    return found


def points(axes):
    """What is drawn in data coordinates: lines and bands."""
    for line in axes.lines:
        if line.get_transform().contains_branch(axes.transData):
            yield line.get_gid(), line.get_xydata()
    for band in axes.collections:
        for path in band.get_paths():
            yield band.get_gid(), path.vertices


def test_nothing_is_drawn_beyond_its_axes(figures):
    assert figures
    for name, figure in figures.items():
        for axes in figure.axes:
            boxes = [sorted(axes.get_xlim()), sorted(axes.get_ylim())]
            for gid, places in points(axes):
                for side, (low, high) in enumerate(boxes):
                    spare = 1e-6 * (high - low)
                    out = [p for p in places if math.isfinite(p[side]) and not low - spare <= p[side] <= high + spare]
                    assert not out, (name, gid, out[:3], (low, high))


def test_all_text_is_large_enough_and_inside_its_figure(figures):
    for name, figure in figures.items():
        width, height = figure.get_size_inches()
        assert width < 6, name  # a column of the page
        assert 1.4 < height < 12, name
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text():
                assert text.get_fontsize() >= SMALLEST, (name, text)
                box = text.get_window_extent()
                assert box.x0 > -3, (name, text)
                assert box.x1 < figure.bbox.x1 + 3, (name, text)


def test_labels_are_apart(figures):
    for name, figure in figures.items():
        for axes in figure.axes:
            texts = [t for t in axes.texts if t.get_gid() in ("label", "beyond")]
            found = [(t.get_text(), t.get_window_extent().shrunk(0.97, 0.8)) for t in texts]
            for (a, one), (b, other) in itertools.combinations(found, 2):
                assert not one.overlaps(other), (name, a, b)


def test_tick_labels_are_apart_and_different(figures):
    for name, figure in figures.items():
        found = []
        for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
            low, high = sorted(axis.get_view_interval())
            ticks = [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            texts = [(t.get_text(), t.get_window_extent()) for t in ticks if t.get_visible() and t.get_text()]
            assert len({text for text, _ in texts}) == len(texts), (name, texts)
            found += texts
        for (a, one), (b, other) in itertools.combinations(found, 2):
            assert not one.shrunk(0.97, 0.8).overlaps(other.shrunk(0.97, 0.8)), (name, a, b)
