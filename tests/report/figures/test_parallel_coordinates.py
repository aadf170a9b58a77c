"""Parallel coordinates of four terms."""

import math

import pytest
from _figures import marked

from trainonce import report
from trainonce.report.drawing import plans


def test_parallel_coordinates_have_a_line_per_point_and_per_seed(studies):
    summary = studies[3]
    figure = report.parallel_coordinates(summary)
    assert len(marked(figure, "choice")) == 27
    ends = marked(figure, "end yoto")
    assert len(ends) == len(marked(figure, "end balance")) == 3
    base, *rest = next(iter(plans.rules(summary)[0].chosen.records.values())).coefficients
    assert list(ends[0].get_xdata()[:3]) == pytest.approx([math.log10(w / base) for w in rest], abs=1e-4)
