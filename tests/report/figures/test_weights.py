"""The learned weights over steps."""

import _stores
import _studies
import pytest
from _figures import TERMS, marked, texts

from trainonce import report
from trainonce.study import Summary
from trainonce.study.layout import HISTORY
from trainonce.study.weightings import Learned, key_of


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


def test_twelve_terms_have_a_panel_each_on_one_scale(hard):
    figure = report.weights(hard("twelve terms"))
    names = [axes.texts[0].get_text() for axes in figure.axes]
    assert names == list(_studies.TWELVE)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert all(len(axes.collections) == 1 for axes in figure.axes)  # the range of the seeds


def test_of_very_many_terms_those_with_the_largest_weights_are_drawn_and_others_named(tmp_path):
    terms = tuple(f"t{i}" for i in range(40))
    plans = [_stores.plan("one-shot", "learned", [Learned()])]
    path = _stores.build(tmp_path, terms=terms, plans=plans, seeds=(0,), histories=False)
    _stores.write_history(
        path / "trials" / key_of(_stores.IDENTITY, Learned(), 0) / HISTORY, terms, Learned(), 0, steps=5
    )
    summary = Summary.read(path)
    figure = report.weights(summary)
    weights = dict(zip(terms, summary.one_shot.chosen.weights, strict=True))
    shown = {axes.texts[0].get_text() for axes in figure.axes}
    assert shown == set(sorted(terms, key=lambda term: -weights[term])[:24])
    assert figure.get_size_inches()[1] < 11
    (note,) = [text.get_text() for text in figure.texts]
    assert next(term for term in terms if term not in shown) in note
