"""The folder that the driver and a job share: who may begin, and what is brought back."""

import threading

from trainonce.study import layout
from trainonce.study.executors.base import Event
from trainonce.study.executors.slurm.attempt import TRIAL, Attempt, Given


def make(tmp_path, checkpoint=None):
    return Attempt.make(tmp_path, "key", Given(None, (), None), checkpoint)


def test_one_job_begins_and_may_begin_again(tmp_path):
    attempt = make(tmp_path)
    begun = []
    jobs = [threading.Thread(target=lambda job=job: begun.append((job, attempt.begin(str(job))))) for job in range(8)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    (first,) = [job for job, may in begun if may]
    assert attempt.begin(str(first))  # after it was requeued
    assert not attempt.revoke()
    assert attempt.job()["job"] == str(first)


def test_no_job_begins_with_what_was_given_up_or_has_ended(tmp_path):
    revoked, cancelled, ended = make(tmp_path), make(tmp_path), make(tmp_path)
    assert revoked.revoke()
    assert not revoked.begin("1")
    assert cancelled.begin("1")
    cancelled.give_up()
    assert not cancelled.begin("1")
    assert ended.begin("1")
    ended.write_end(Event("stop", "No."))
    assert not ended.begin("1")
    assert ended.end() == Event("stop", "No.")
    ended.remove()
    assert not ended.begin("1")


def test_a_later_attempt_goes_on_from_a_copy(tmp_path):
    first = make(tmp_path)
    (first.folder / TRIAL).mkdir()
    (first.folder / TRIAL / layout.CHECKPOINT).write_text("early")
    second = make(tmp_path, first.folder / TRIAL)
    assert Attempt.last(tmp_path, "key") == second
    assert second.saved() == first.saved() > 0
    (first.folder / TRIAL / layout.CHECKPOINT).write_text("a job that was given up still writes")
    second.bring_back(tmp_path / "store", tmp_path / "log")
    assert (tmp_path / "store" / layout.CHECKPOINT).read_text() == "early"
