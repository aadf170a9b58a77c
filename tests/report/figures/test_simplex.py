"""The simplex of three terms."""

import math

import _stores
import pytest
from _figures import marked
from matplotlib.legend import Legend

from trainonce import report
from trainonce.report.drawing import render
from trainonce.study import Summary


def test_the_simplex_places_equal_weights_in_the_middle(studies):
    summary = studies[2]
    figure = report.simplex(summary)
    assert len(marked(figure, "choice")) == 9
    assert "<title>1 : 1 : 1: " in render.svg(figure, "simplex")  # under the pointer
    assert len(marked(figure, "path")) == 6
    (uniform,) = marked(figure, "plan uniform")
    assert (uniform.get_xdata()[0], uniform.get_ydata()[0]) == pytest.approx((0.5, math.sqrt(3) / 6))


def test_without_histories_the_simplex_shows_where_the_rules_ended(studies, tmp_path):
    def legend(summary):
        found = [a for a in report.simplex(summary).axes[0].artists if isinstance(a, Legend)]
        return {text.get_text() for one in found for text in one.get_texts()}

    without = Summary.read(_stores.build(tmp_path, terms=("ce", "consistency", "rec"), histories=False))
    assert "yoto, at the end" in legend(without)
    assert "yoto, start to end" in legend(studies[2])
