"""The driver of a study on Slurm, with jobs that the tests themselves are."""

import pytest
from _slurm_driver import KEY, Driver


@pytest.fixture
def driver(tmp_path, monkeypatch):
    made = Driver(tmp_path, monkeypatch)
    yield made
    made.executor.stop()


def test_a_job_that_was_taken_over_may_run_out_of_time_after_its_last_checkpoint(driver, monkeypatch):
    driver.start()
    driver.attempt.begin("1")
    driver.save()
    driver.executor._alive.close()  # as if it was killed
    driver.executor._driver.close()
    again = Driver(driver.path, monkeypatch)
    again.start()
    assert again.engine.submitted == []
    again.engine.states["1"] = "TIMEOUT"
    assert again.turn() == []
    assert [event.kind for _, event in again.turn()] == []
    assert len(again.engine.submitted) == 1  # another job goes on
    assert again.attempt.saved()
    again.executor.stop()
    assert KEY not in again.store.read()
