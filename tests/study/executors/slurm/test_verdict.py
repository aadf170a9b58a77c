"""What becomes of a trial whose job has ended without a result."""

import dataclasses

import pytest

from trainonce.study.executors.slurm.verdict import CLUSTER, RETRIES, Death, judge

DEATH = Death("7", "FAILED", 60, began=True, progressed=False, interrupted=False)


def after(**known):
    return judge(dataclasses.replace(DEATH, **known))


@pytest.mark.parametrize("state", CLUSTER)
def test_what_the_cluster_ended_has_another_job_but_not_for_ever(state):
    assert after(state=state, before=RETRIES - 1).what == "again"
    assert after(state=state, before=RETRIES - 1).counts
    assert after(state=state, before=RETRIES).kind == "JobLost"


def test_a_time_that_is_over_needs_a_checkpoint():
    assert after(state="TIMEOUT", progressed=True).what == "again"
    assert not after(state="TIMEOUT", progressed=True).counts
    assert after(state="FAILED", interrupted=True, progressed=True).what == "again"  # it could not requeue itself
    assert after(state="TIMEOUT").kind == "JobTimedOut"


def test_what_died_by_itself_is_a_failure():
    assert after().sentence == "The process of Slurm job 7 died (FAILED). The same command runs the trial again."
    assert after(state="CANCELLED").kind == "JobCancelled"
    assert after(state="OUT_OF_MEMORY").kind == "JobOutOfMemory"
    said = after(began=False, printed="bash: python: not found")
    assert said.sentence == "Slurm job 7 ended (FAILED) before the training began: bash: python: not found."
    assert after(began=False, output=False).what == "stop"
