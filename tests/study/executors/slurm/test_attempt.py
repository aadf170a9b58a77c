"""The folder that the driver and a job share: who may begin, and what is brought back."""

import errno
import os
import shutil
import threading

import pytest
from _slurm_driver import fail

from trainonce.study import layout
from trainonce.study.executors.base import Event
from trainonce.study.executors.slurm import worker
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


def test_a_copy_of_a_folder_that_is_being_written_has_all_rows_up_to_its_checkpoint(tmp_path, monkeypatch):
    source = tmp_path / "source"
    (source / "pictures").mkdir(parents=True)
    (source / "pictures" / "1.png").touch()
    for name in (layout.CHECKPOINT, layout.HISTORY, layout.SPENT, f"{layout.CHECKPOINT}.part"):
        (source / name).write_text("step 1")
    copy, copied = shutil.copy2, []

    def copy_while_the_job_writes(path, target):
        copied.append(path.name)
        if path.name == layout.SPENT:
            path.unlink()
        copy(path, target)
        for name in (layout.HISTORY, layout.CHECKPOINT):
            (source / name).write_text("step 2")

    monkeypatch.setattr(shutil, "copy2", copy_while_the_job_writes)
    made = make(tmp_path / "root", source)
    found = {path.name: path.read_text() for path in (made.folder / TRIAL).iterdir() if path.is_file()}
    assert found == {layout.CHECKPOINT: "step 1", layout.HISTORY: "step 2"}
    assert (made.folder / TRIAL / "pictures" / "1.png").is_file()
    assert copied[0] == layout.CHECKPOINT
    assert copied[-1] == layout.HISTORY


def test_a_folder_that_cannot_be_copied_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / layout.CHECKPOINT).touch()
    monkeypatch.setattr(shutil, "copy2", fail(errno.ESTALE))
    with pytest.raises(OSError, match="ESTALE"):
        make(tmp_path / "root", tmp_path / "source")
    assert list((tmp_path / "root" / "key").iterdir()) == []


@pytest.mark.parametrize("clock", [-3600, 3600])
def test_a_checkpoint_of_a_machine_with_another_clock_is_progress(tmp_path, clock):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / layout.CHECKPOINT).touch()
    made = make(tmp_path / "root", tmp_path / "source")
    assert not made.has_progressed()
    path = made.folder / TRIAL / layout.CHECKPOINT
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + clock))
    assert made.has_progressed()
    path.unlink()
    assert not made.has_progressed()


def test_the_process_of_an_earlier_turn_ends_and_writes_no_result(tmp_path, monkeypatch):
    attempt = make(tmp_path)
    first = attempt.begin("1")
    assert (first, attempt.has_later_turn(first)) == (1, False)
    exits = []
    monkeypatch.setattr(worker.os, "_exit", exits.append)
    progress = worker.Progress(attempt, first, worker.Pace(0.0, 0.0))
    progress(1, 10, "")
    assert exits == []
    second = attempt.begin("1")
    assert (second, attempt.has_later_turn(second)) == (2, False)
    progress(2, 10, "")
    assert exits == [1]
    assert attempt.has_later_turn(first)
