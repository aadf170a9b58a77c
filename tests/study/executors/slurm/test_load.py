"""How often the driver and a job use a file system that hundreds of jobs may share, by a clock of the test."""

import time

import pytest
from _slurm_driver import Driver

from trainonce.study.executors.slurm import attempt, engines, worker

SECONDS = 60
WRITE = attempt._write  # without counting


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def count(monkeypatch):
    """How many times the folder of an attempt was listed, and a file in it read or written."""
    calls = []

    def counted(act):
        return lambda *given: (calls.append(act), act(*given))[1]

    for name in ("_names", "_read", "_write"):
        monkeypatch.setattr(attempt, name, counted(getattr(attempt, name)))
    return calls


def test_the_driver_looks_at_a_job_of_slurm_every_few_seconds(tmp_path, monkeypatch, clock, count):
    driver = Driver(tmp_path, monkeypatch)
    driver.engine.look, driver.engine.interval = engines.SlurmEngine.look, engines.SlurmEngine.interval
    driver.start()
    made = driver.attempt
    made.begin("1")
    count.clear()
    for second in range(SECONDS):
        WRITE(made.folder / attempt.BEAT, {"step": second, "total": 60, "note": ""})
        for _ in range(2):
            clock[0] += 0.5
            driver.turn()
    assert 0 < len(count) / SECONDS < 0.5
    driver.executor.stop()


def test_a_job_of_slurm_writes_every_few_seconds(tmp_path, monkeypatch, clock, count):
    driver = Driver(tmp_path, monkeypatch)
    driver.start()
    progress = worker.Progress(driver.attempt, driver.attempt.begin("1"), worker.SLOW)
    count.clear()
    for step in range(10 * SECONDS):
        clock[0] += 0.1
        progress(step, None, "")
    assert 0 < len(count) / SECONDS < 0.3
    driver.executor.stop()
