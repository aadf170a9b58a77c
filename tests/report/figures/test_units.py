"""The gradient units over steps, and what other figures say of a plan in gradient units."""

import pytest
from _figures import TERMS, marked, texts

from trainonce import report
from trainonce.report import catalogue
from trainonce.report.drawing import render
from trainonce.report.figures import CATALOGUE
from trainonce.report.page import sections
from trainonce.report.plotly.weights import weights as interactive
from trainonce.study import sentences

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def no_png(monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")


@pytest.mark.parametrize("k", TERMS)
def test_units_have_a_line_for_each_auxiliary_term(in_units, k):
    summary = in_units[k]
    figure = report.units(summary)
    lines = {line.get_gid().removeprefix("unit "): line for line in marked(figure, "unit ")}
    assert tuple(lines) == summary.task.terms[1:]
    last = summary.one_shot.chosen.weights
    for line, weight in zip(lines.values(), last[1:], strict=True):
        assert line.get_ydata()[-1] == pytest.approx(last[0] / weight, rel=0.1)  # the exponents rest
    assert set(summary.task.terms[1:]) <= set(texts(figure))


def test_raw_units_are_not_drawn(studies):
    with pytest.raises(report.NothingToDrawError, match="does not weigh the losses in gradient units"):
        report.units(studies[2])
    drawn, lacking = {e.name for e in CATALOGUE if e.applies(studies[2])}, {"units"}
    assert not drawn & lacking


def test_exponents_that_rest_are_left_out_in_a_sentence(in_units, drifting, studies, no_png):
    for draw in (report.exponents, report.drives):
        with pytest.raises(report.NothingToDrawError, match=r"exponents of .*gradient units"):
            draw(in_units[2])
    drawings, lacking = catalogue.draw_all(in_units[2], CATALOGUE)
    assert len(lacking) == 2
    assert {"weights", "units"} <= {d.name for d in drawings}
    assert len(marked(report.exponents(drifting), "exponent ")) == 2
    (caption,) = [d.caption for d in catalogue.draw_all(drifting, CATALOGUE)[0] if d.name == "exponents"]
    assert "the weights of the losses in their units are their softmax" in caption
    (caption,) = [d.caption for d in catalogue.draw_all(studies[1], CATALOGUE)[0] if d.name == "exponents"]
    assert "the weights are their softmax" in caption


@pytest.mark.parametrize("k", TERMS)
def test_figures_do_not_call_the_weights_learned(in_units, k, no_png):
    summary = in_units[k]
    drawings, _ = catalogue.draw_all(summary, CATALOGUE, interactive=True)
    (mine,) = [d for d in drawings if d.name == "weights"]
    assert mine.title == "Weights in gradient units over steps"
    assert "Weights in gradient units" in texts(report.weights(summary))
    assert "Weights in gradient units" in interactive(summary).layout.title.text
    for drawing in drawings:
        if not drawing.name.startswith("sensitivity"):
            assert "earned" not in drawing.title + drawing.caption
            assert "earned" not in drawing.svg.partition("</metadata>")[2], drawing.name
            assert '"learned"' not in drawing.plotly.replace('"legendgroup":"learned"', "")


def test_sentences_say_gradient_units(in_units, studies):
    summary = in_units[2]
    text = sentences.sentence(summary) + sentences.details(summary) + sentences.text_table(summary)
    assert "ne run with weights in gradient units" in sentences.sentence(summary)
    assert "than the weights in gradient units" in sentences.details(summary)
    assert "\nweights of the raw losses, found in gradient units: ce 0." in text
    assert "learned" not in text
    assert "(sum 2.50)" in sentences.weights_cell(summary.one_shot.chosen)
    assert "\nlearned weights: ce 0." in sentences.text_table(studies[2])


def test_the_page_says_what_the_plan_is(in_units):
    table = sections.protocol(in_units[2], [], 0)
    assert table.count("each loss weighed by the size of its gradient, in one run") == 1
    assert table.count("weights learned in one run") == 1


def test_controls_are_compared_with_the_plan_whose_weights_they_use(in_units):
    summary = in_units[2]
    rows = {row.plan: row for row in summary.rows}
    table = sections.controls(summary)
    for control, of in (("replay(units=gradient)", "one-shot(units=gradient)"), ("final", "one-shot")):
        report_of = rows[control].chosen.report, rows[of].chosen.report
        mean = sum(report_of[0][seed] - report_of[1][seed] for seed in report_of[0]) / len(report_of[0])
        shown = table.partition(f">{control}<")[2].partition("</tr>")[0]
        assert f"{mean:+.1f}".replace("-", "\u2212") in shown.replace("-", "\u2212")
