"""What moved an exponent."""

import pytest
from _figures import marked

from trainonce import report


def test_what_moved_an_exponent_adds_up(studies):
    figure = report.drives(studies[1], "consistency")
    ends = {line.get_gid().split()[1]: line.get_ydata()[-1] for line in marked(figure, "drive ")}
    assert ends["both"] == pytest.approx(ends["losses"] + ends["decay"])
    assert ends["decay"] == pytest.approx(-0.004 * 120, rel=0.02)
