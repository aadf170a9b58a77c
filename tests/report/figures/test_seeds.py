"""Every seed's result as a dot."""

import pytest
from _figures import TERMS, marked

from trainonce import report
from trainonce.report.drawing import plans


@pytest.mark.parametrize("k", TERMS)
def test_there_is_a_dot_for_every_seed(studies, k):
    figure = report.seeds(studies[k])
    dots = sum(len(line.get_xdata()) for line in marked(figure, "seed"))
    assert dots == sum(len(row.chosen.report) for row in studies[k].ranked)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == [plans.label(row) for row in reversed(studies[k].ranked)]
    for row in studies[k].ranked:
        for bar in marked(figure, f"mean {row.plan}"):
            assert bar.get_xdata()[0] == pytest.approx(row.chosen.mean)
