"""The driver of a study on Slurm, with jobs that the tests themselves are."""

import _tasks
import pytest
from _slurm_driver import KEY, Driver

from trainonce.study import layout
from trainonce.study.executors.slurm import reasons
from trainonce.study.executors.slurm.attempt import JOB
from trainonce.study.executors.slurm.engines import LocalEngine


@pytest.fixture
def driver(tmp_path, monkeypatch):
    made = Driver(tmp_path, monkeypatch)
    yield made
    made.executor.stop()


def die(driver):
    """End a driver as a kill does: its locks are gone, its files and jobs stay."""
    driver.executor._alive.close()
    driver.executor._driver.close()


def test_a_job_that_was_taken_over_may_run_out_of_time_after_its_last_checkpoint(driver, monkeypatch):
    driver.start()
    driver.attempt.begin("1")
    driver.save()
    die(driver)
    again = Driver(driver.path, monkeypatch, first=2)
    again.start()
    assert again.engine.submitted == []
    again.engine.states["1"] = "TIMEOUT"
    assert [again.turn(), again.turn()] == [[], []]
    assert len(again.engine.submitted) == 1  # another job goes on
    assert again.attempt.saved()
    again.executor.stop()
    assert KEY not in again.store.read()


def test_jobs_of_a_changed_task_are_cancelled_with_a_note(driver, monkeypatch):
    driver.start()
    driver.attempt.begin("1")
    driver.save("so far")
    die(driver)
    other = Driver(driver.path, monkeypatch, task=_tasks.line.using(steps=7))
    assert other.engine.cancelled == ["1"]
    assert not other.executor.is_idle
    assert other.turn() == [("", ("note", NOTE))]
    assert other.executor.is_idle
    assert (other.store.folder(KEY) / layout.CHECKPOINT).read_text() == "so far"
    other.executor.stop()
    assert not (driver.path / layout.SLURM).exists()


NOTE = (
    "A job was cancelled that an earlier driver had left for another version of the task 'line', or for other settings "
    "of it. Checkpoints are kept."
)


def test_jobs_of_a_driver_that_runs_are_left_alone(driver, monkeypatch):
    driver.start()
    other = Driver(driver.path, monkeypatch, task=_tasks.line.using(steps=7))
    assert other.engine.cancelled == []
    assert other.executor.is_idle
    other.executor.stop()
    assert driver.attempt is not None


def test_results_of_a_changed_task_wait_for_it(driver, monkeypatch):
    driver.start()
    driver.finish()
    die(driver)
    other = Driver(driver.path, monkeypatch, task=_tasks.line.using(steps=7))
    other.executor.stop()
    again = Driver(driver.path, monkeypatch)
    assert [event.kind for _, event in again.start()] == ["end"]
    again.executor.stop()


def test_a_trial_that_a_killed_driver_kept_from_its_job_has_another(driver, monkeypatch):
    driver.start()
    (driver.attempt.folder / JOB).unlink()
    assert driver.attempt.revoke()
    die(driver)
    again = Driver(driver.path, monkeypatch, first=2)
    again.start()
    assert len(again.engine.submitted) == 1
    assert again.attempt.begin("2")
    assert again.engine.cancelled == []
    again.executor.stop()


def test_a_job_without_a_number_has_ended():
    engine = LocalEngine.__new__(LocalEngine)
    engine._jobs = {}
    assert engine.ended([""]) == {"": "FAILED"}
    engine.cancel([""])


def test_a_reason_to_wait_that_does_not_pass_is_said_once(driver):
    driver.engine.reasons["1"] = "Priority"
    assert driver.start() == []
    driver.engine.reasons["1"] = "PartitionTimeLimit"
    ((_, event),) = driver.turn()
    assert event.kind == "note"
    assert event.content == (
        "Slurm job 1 waits, and will not start by itself (PartitionTimeLimit): ask for less with --time, or choose "
        "another --partition."
    )
    assert driver.turn() == []
    driver.engine.reasons["1"] = "JobHeldUser"
    assert [event.kind for _, event in driver.turn()] == ["note"]


def test_limits_of_a_single_job_do_not_pass():
    assert reasons.advice("QOSMaxWallDurationPerJobLimit") == reasons.LIMIT
    assert reasons.advice("QOSMaxCpuPerUserLimit") is None
    assert reasons.advice("Resources") is None
