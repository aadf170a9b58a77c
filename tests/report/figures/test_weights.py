"""The learned weights over steps."""

import pytest
from _figures import TERMS, marked, texts

from trainonce import report


@pytest.mark.parametrize("k", TERMS)
def test_weights_have_a_line_per_term_that_starts_and_ends_where_the_histories_do(studies, k):
    summary = studies[k]
    figure = report.weights(summary)
    lines = {line.get_gid().removeprefix("weight "): line for line in marked(figure, "weight ")}
    assert tuple(lines) == summary.task.terms
    sums = [sum(values) for values in zip(*(line.get_ydata() for line in lines.values()), strict=True)]
    assert all(total == pytest.approx(1) for total in sums)
    bands = [c for c in figure.axes[0].collections if str(c.get_gid()).startswith("band")]
    assert len(bands) == len(summary.task.terms)
    assert set(summary.task.terms) <= set(texts(figure))
