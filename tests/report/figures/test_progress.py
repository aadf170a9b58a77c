"""The metric during training."""

import statistics

import pytest
from _figures import marked

from trainonce import report
from trainonce.report.drawing import plans


def test_progress_shows_what_the_trials_reported(studies):
    summary = studies[1]
    figure = report.progress(summary)
    (line,) = marked(figure, "rule yoto")
    records = plans.rules(summary)[0].chosen.records.values()
    steps = [step for step, _ in next(iter(records)).reports]
    assert list(line.get_xdata()) == steps
    last = statistics.fmean(record.reports[-1][1]["accuracy"] for record in records)
    assert line.get_ydata()[-1] == pytest.approx(last)
    assert len(marked(figure, "fixed weights")) == len(summary.reference.outcomes) - 1
