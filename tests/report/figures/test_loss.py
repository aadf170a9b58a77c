"""A term's loss over steps."""

from _figures import marked

from trainonce import report
from trainonce.report.drawing import style


def test_a_loss_is_drawn_for_every_point_the_others_in_grey(studies):
    summary = studies[2]
    for term in summary.task.terms:
        figure = report.loss(summary, term)
        assert len(marked(figure, "fixed weights")) == len(summary.reference.outcomes) - 1
        assert {line.get_color() for line in marked(figure, "fixed weights")} == {style.COLOURS["set"]}
        assert marked(figure, "learned")[0].get_color() == style.COLOURS["learned"]
        assert marked(figure, "reference")[0].get_color() == style.INK
