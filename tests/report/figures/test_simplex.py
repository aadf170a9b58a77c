"""The simplex of three terms."""

import math

import pytest
from _figures import marked

from trainonce import report


def test_the_simplex_places_weights_by_their_shares(studies):
    summary = studies[2]
    figure = report.simplex(summary)
    assert len(marked(figure, "choice")) == 9
    assert len(marked(figure, "path")) == 3
    (uniform,) = marked(figure, "plan uniform")
    assert (uniform.get_xdata()[0], uniform.get_ydata()[0]) == pytest.approx((0.5, math.sqrt(3) / 6))
