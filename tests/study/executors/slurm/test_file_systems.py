"""What a network file system may do to a study on Slurm: errors that pass, files that stay, disks that are full."""

import errno
import os
import shutil

import pytest
from _slurm_driver import KEY, Driver, fail

from trainonce.study import layout
from trainonce.study.executors.slurm import attempt, patience, worker


@pytest.fixture
def driver(tmp_path, monkeypatch):
    made = Driver(tmp_path, monkeypatch)
    yield made
    made.executor.stop()


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.parametrize("function", ["_names", "_read"])
def test_an_error_that_passes_ends_neither_the_driver_nor_its_jobs(driver, monkeypatch, function, number):
    monkeypatch.setattr(attempt, function, fail(number, 2, getattr(attempt, function)))
    assert [driver.start(), driver.turn(), driver.turn()] == [[], [], []]
    assert len(driver.engine.submitted) == 1
    driver.attempt.begin("1")
    driver.attempt.write_beat(3, 10, "")
    monkeypatch.setattr(attempt, function, fail(number, 2, getattr(attempt, function)))
    found = [driver.turn() for _ in range(3)]
    assert [(KEY, ("beat", (3, 10, "")))] in found
    driver.finish()
    monkeypatch.setattr(attempt, function, fail(number, 2, getattr(attempt, function)))
    ends = [event for _ in range(3) for _, event in (driver.turn() if not driver.executor.is_idle else ())]
    assert [event.kind for event in ends] == ["end"]
    assert driver.engine.cancelled == []


def test_a_job_whose_number_could_not_be_written_is_not_submitted_twice(driver, monkeypatch):
    act = fail(errno.ESTALE, 1, attempt.Attempt.note_job)
    monkeypatch.setattr(attempt.Attempt, "note_job", lambda *given: act(*given))
    driver.start()
    driver.turn()
    assert len(driver.engine.submitted) == 1
    assert driver.attempt.job()["job"] == "1"


def test_an_error_that_does_not_pass_ends_the_study_in_one_sentence(driver, monkeypatch):
    driver.start()
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "_names", fail(errno.ESTALE))
        ((_, event),) = driver.turn()
    assert event.kind == "stop"
    assert event.content == (
        f"{driver.attempt.folder} could not be read for 0 minutes: ESTALE. The same command goes on once its file "
        "system answers again."
    )


def test_a_folder_with_files_that_stay_for_a_while_is_replaced(driver, monkeypatch):
    folder = driver.store.folder(KEY)
    folder.mkdir(parents=True)
    (folder / ".nfs0001").touch()
    driver.start()
    driver.save("new")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # such files are there until nobody has them open
    driver.finish()
    ((_, event),) = driver.turn()
    assert event.kind == "end"
    assert os.listdir(folder) == [layout.CHECKPOINT]


def test_a_job_goes_on_while_it_cannot_look_whether_it_is_wanted(driver, monkeypatch):
    driver.start()
    progress = worker.Progress(driver.attempt, driver.attempt.begin("1"), worker.Pace(0.0, 0.0))
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "_names", fail(errno.ESTALE))
        progress(1, 10, "")
    assert driver.attempt.beat() == (1, 10, "")


def test_a_job_insists_on_what_it_cannot_do_without(monkeypatch):
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)
    assert patience.insist(fail(errno.EIO, 3, lambda: "done"), 60) == "done"
    for number, seconds in ((errno.EIO, 0), (errno.ENOSPC, 60)):
        with pytest.raises(OSError, match=errno.errorcode[number]):
            patience.insist(fail(number), seconds)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
def test_a_full_disk_keeps_no_job_from_being_cancelled(driver, monkeypatch, number):
    driver.start()
    driver.save("so far")
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "_beside", fail(number))
        driver.executor.stop()
    assert set(driver.engine.cancelled) == {"1"}
    assert (driver.store.folder(KEY) / layout.CHECKPOINT).read_text() == "so far"
    with driver.store.claim(KEY) as free:
        assert free


def interrupt(*_):
    raise KeyboardInterrupt


def test_jobs_are_cancelled_before_a_file_system_that_hangs_is_asked(driver, monkeypatch):
    driver.start()
    with monkeypatch.context() as patch:
        patch.setattr(attempt.Attempt, "give_up", interrupt)
        with pytest.raises(KeyboardInterrupt):
            driver.executor.stop()
    assert driver.engine.cancelled == ["1"]


def test_a_result_that_could_not_be_recorded_is_recorded_by_the_next_driver(driver, monkeypatch):
    driver.start()
    driver.finish()
    with monkeypatch.context() as patch:
        patch.setattr(driver.store, "append", fail(errno.ENOSPC))
        ((_, event),) = driver.turn()
    assert event.kind == "stop"
    driver.executor.stop()
    again = Driver(driver.path, monkeypatch)
    assert [event.kind for _, event in again.start()] == ["end"]
    again.executor.stop()
    assert again.engine.submitted == []
    assert not (driver.path / layout.SLURM).exists()
