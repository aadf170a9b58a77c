"""What moved an exponent."""

import math

import _stores
import pytest
from _figures import marked
from _stores import yoto

from trainonce import report
from trainonce.study import Summary
from trainonce.study.layout import HISTORY
from trainonce.study.rules import key_of


def test_what_moved_an_exponent_adds_up(studies):
    figure = report.drives(studies[1], "consistency")
    ends = {line.get_gid().split()[1]: line.get_ydata()[-1] for line in marked(figure, "drive ")}
    assert ends["both"] == pytest.approx(ends["losses"] + ends["decay"])
    assert ends["decay"] == pytest.approx(-0.004 * 120, rel=0.02)


@pytest.mark.parametrize("steps", [250, 251, 499, 1001])
def test_a_thinned_history_adds_up_to_the_same(tmp_path, steps):
    """More rows than points are drawn: each point stands for several rows, the last one perhaps for fewer."""
    asked = _stores.plan("yoto", "rule", [yoto()])
    path = _stores.build(tmp_path, plans=[asked], seeds=(0,), histories=False)
    key = key_of(_stores.IDENTITY, yoto(), 0)
    _stores.write_history(path / "trials" / key / HISTORY, ("ce", "consistency"), yoto(), 0, steps=steps)
    figure = report.drives(Summary.read(path), "consistency")
    ends = {line.get_gid().split()[1]: line.get_ydata()[-1] for line in marked(figure, "drive ")}
    assert ends["decay"] == pytest.approx(-0.004 * steps, rel=1e-9)
    assert ends["losses"] == pytest.approx(sum(0.02 * math.exp(-t / 40) for t in range(1, steps + 1)), rel=1e-9)
