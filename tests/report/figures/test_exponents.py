"""The learned exponents over steps."""

import math

import _stores
import pytest
from _figures import TERMS, marked

from trainonce import report
from trainonce.study import Summary
from trainonce.study.weightings import Learned


@pytest.mark.parametrize("k", TERMS)
def test_exponents_are_of_the_auxiliary_terms_alone(studies, k):
    lines = marked(report.exponents(studies[k]), "exponent ")
    assert [line.get_gid() for line in lines] == [f"exponent {t}" for t in studies[k].task.terms[1:]]
    assert all(line.get_ydata()[0] == pytest.approx(math.log(0.1), abs=0.1) for line in lines)


def test_long_histories_are_thinned_to_means(tmp_path):
    path = _stores.build(tmp_path, plans=[_stores.plan("one-shot", "learned", [Learned()])], histories=False)
    summary = Summary.read(path)
    for record in summary.one_shot.chosen.records.values():
        _stores.write_history(path / "trials" / record.key / "history.jsonl", ("ce", "consistency"), Learned(), 0, 1000)
    (line,) = marked(report.exponents(summary), "exponent ")
    assert 200 <= len(line.get_xdata()) <= 250
    assert line.get_xdata()[0] == pytest.approx(2.5)  # the mean of steps 1 to 4
