"""Ratios over steps, and what alignment has added."""

import json
import math

import _stores
import _studies
import pytest
from _figures import TERMS, marked, texts
from _stores import balance, yoto

from trainonce import report
from trainonce.report.drawing import plans
from trainonce.report.drawing.weight_space import last_ratios
from trainonce.study import Summary
from trainonce.study.layout import HISTORY
from trainonce.study.rules import key_of


@pytest.mark.parametrize("plan", ["yoto", "balance"])
@pytest.mark.parametrize("k", TERMS)
def test_ratios_have_a_line_per_auxiliary_term_that_ends_at_the_last_one(studies, k, plan):
    summary = studies[k]
    (row,) = [row for row in plans.rules(summary) if row.plan == plan]
    figure = report.ratios(summary, plan)
    lines = marked(figure, "line ")
    assert [line.get_gid() for line in lines] == [f"line {term}" for term in summary.task.terms[1:]]
    for line, ratio in zip(lines, last_ratios(row.chosen), strict=True):
        assert line.get_ydata()[-1] == pytest.approx(math.log10(ratio), abs=0.05)
    assert len(figure.axes[0].collections) == k  # the range of the seeds
    assert set(summary.task.terms[1:]) <= set(texts(figure))


def test_alignment_is_a_factor_and_drawn_of_rules_that_have_it(studies):
    lines = marked(report.alignment(studies[2]), "line ")
    assert [line.get_ydata()[-1] for line in lines] == pytest.approx([math.log10(math.exp(0.4))] * 2, abs=0.01)
    with pytest.raises(report.NothingToDrawError, match="a validation loss has aligned"):
        report.alignment(studies[2], "yoto")


COEFFICIENTS = {
    "a base of 0": ([0.0, 1.0, 0.5], {"∞"}),
    "an auxiliary of 0": ([1.0, 0.0, 0.5], {"0"}),
    "both": ([0.0, 0.0, 1.0], {"0", "∞"}),
    "far apart": ([1e-4, 65236.0, 1e-9], {"1e-05"}),
    "no finite one": ([math.nan, math.nan, math.nan], None),
}


@pytest.mark.parametrize("case", COEFFICIENTS)
@pytest.mark.parametrize("terms", [_studies.TWELVE[:3], _studies.TWELVE[:9]], ids=["together", "panels"])
def test_any_coefficients_can_be_drawn(tmp_path, case, terms):
    values, shown = COEFFICIENTS[case]
    values = [*values, *values[1:] * 3][: len(terms)]
    path = _stores.build(tmp_path, terms=terms, plans=[_stores.plan("balance", "rule", [balance()])], seeds=(0,))
    columns = [f"{kind}/{term}" for kind in ("loss", "coefficient") for term in terms]
    row = dict(zip(columns, ["1.0"] * len(terms) + [str(v) for v in values], strict=True))
    lines = [{"trainonce_history": 2, "terms": terms, "columns": columns}, *({"step": s} | row for s in (1, 2, 3))]
    file = path / "trials" / key_of(_stores.IDENTITY, balance(), 0) / HISTORY
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = Summary.read(path)
    if shown is None:
        with pytest.raises(report.NothingToDrawError, match="no step has a finite value"):
            report.ratios(summary)
        return
    figure = report.ratios(summary)
    assert figure._repr_png_()
    ticks = {tick.get_text() for axes in figure.axes for tick in axes.get_yticklabels()}
    assert shown <= ticks


def test_twelve_terms_have_a_panel_each_on_one_scale(hard):
    figure = report.ratios(hard("twelve terms"))
    assert [axes.texts[0].get_text() for axes in figure.axes] == list(_studies.TWELVE[1:])
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert all(len(axes.collections) == 1 for axes in figure.axes)  # the range of the seeds


def test_of_very_many_terms_those_with_the_largest_ratios_are_drawn_and_others_named(tmp_path):
    terms = tuple(f"t{i}" for i in range(40))
    path = _stores.build(tmp_path, terms=terms, plans=[_stores.plan("yoto", "rule", [yoto()])], seeds=(0,))
    summary = Summary.read(path)
    figure = report.ratios(summary)
    ratios = dict(zip(terms[1:], last_ratios(plans.rules(summary)[0].chosen), strict=True))
    shown = {axes.texts[0].get_text() for axes in figure.axes}
    assert shown == set(sorted(ratios, key=lambda term: -ratios[term])[:24])
    assert figure.get_size_inches()[1] < 11
    (note,) = [text.get_text() for text in figure.texts]
    assert next(term for term in ratios if term not in shown) in note
