"""The trained exponents over steps."""

import math

import _stores
import pytest
from _figures import TERMS, marked
from _stores import yoto

from trainonce import report
from trainonce.report.drawing import plans
from trainonce.study import Summary


@pytest.mark.parametrize("k", TERMS)
def test_exponents_are_of_the_auxiliary_terms_alone(studies, k):
    lines = marked(report.exponents(studies[k]), "line ")
    assert [line.get_gid() for line in lines] == [f"line {t}" for t in studies[k].task.terms[1:]]
    assert all(line.get_ydata()[0] == pytest.approx(math.log(0.1), abs=0.1) for line in lines)


def test_long_histories_are_thinned_to_means(tmp_path):
    path = _stores.build(tmp_path, plans=[_stores.plan("yoto", "rule", [yoto()])], histories=False)
    summary = Summary.read(path)
    for record in plans.rules(summary)[0].chosen.records.values():
        _stores.write_history(path / "trials" / record.key / "history.jsonl", ("ce", "consistency"), yoto(), 0, 1000)
    (line,) = marked(report.exponents(summary), "line ")
    assert 200 <= len(line.get_xdata()) <= 250
    assert line.get_xdata()[0] == pytest.approx(2.5)  # the mean of steps 1 to 4
