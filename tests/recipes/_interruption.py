"""What both vision recipes are put through: pauses."""

import pytest

from trainonce.study import layout
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.plans import parse


def check_paused_as_straight(folder, task, settings):
    """Train in one go, and again with pauses after a third and two thirds: both must end with the same bits."""
    made = task.using(**settings)
    (rule,) = parse("yoto", made).rules
    straight = train(made, Job("k", 0, rule), folder / "a", None, "cpu")
    for until in (1 / 3, 2 / 3):
        paused = train(made, Job("k", 0, rule, until=until), folder / "b", None, "cpu")
        assert (paused.status, list(paused.metrics)) == ("paused", [made.select_key])
    resumed = train(made, Job("k", 0, rule), folder / "b", None, "cpu")
    assert resumed.metrics == pytest.approx(straight.metrics, abs=0, nan_ok=True)
    assert resumed.coefficients == straight.coefficients
    assert list(resumed.reports) == list(straight.reports)
    assert (folder / "b" / layout.HISTORY).read_bytes() == (folder / "a" / layout.HISTORY).read_bytes()
