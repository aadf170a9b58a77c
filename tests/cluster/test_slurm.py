"""Trials as jobs of submitit's local executor, which are processes of this machine, and of its debug executor."""

import errno
import os
import signal
import time

import pytest
from _slurm_studies import LOCAL, is_alive, make_study, records, shared, start_driver, starts, wait_for

from trainonce.study import layout
from trainonce.study.runner import StoppedError
from trainonce.study.store import locks


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit's debug leaves files open
@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_jobs_find_the_same_numbers_and_leave_nothing_behind(tmp_path, cluster):
    plans = ["yoto", "replay", "asha(trials=2)"]  # which need another trial's history, and earlier records
    here, there = (make_study(tmp_path / name, plans, seeds=1, steps=27) for name in ("here", "there"))
    here.run(workers=0, show=False, device="cpu")
    there.run(executor="slurm", options={"cluster": cluster}, show=False)
    found = [
        sorted(
            (r.seed, r.status, *r.metrics.values(), *r.coefficients, str(r.reports))
            for r in study.store.read().values()
        )
        for study in (here, there)
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= 4
    assert not shared(tmp_path / "there").exists()
    for key in there.store.read():
        assert (there.store.folder(key) / layout.HISTORY).stat().st_size
        if cluster == "local":
            assert "a first word" in there.store.log(key).read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_file_system_without_locks_is_enough_for_one_driver(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    for name in ("fcntl", "lockf"):
        monkeypatch.setattr(locks.fcntl, name, refuse)
    made = make_study(tmp_path)
    with pytest.raises(OSError, match=r"cannot be locked: No locks available\. A study needs"):
        made.run(workers=0, show=False, device="cpu")
    made.run(executor="slurm", options={"cluster": "debug"}, show=False)
    assert [r.status for r in records(tmp_path)] == ["done", "done"]
    assert not (tmp_path / "out" / layout.DRIVER).exists()


def test_a_worker_that_is_killed_is_a_failure_and_goes_on_from_its_checkpoint(tmp_path):
    once = str(tmp_path / "once")
    made = make_study(tmp_path, steps=10, save_every=2, trouble="kill", once=once)
    made.run(**LOCAL)
    failed = {r.seed: r for r in records(tmp_path) if r.status == "failed"}
    assert failed.keys() == {0}
    assert failed[0].error["type"] == "JobDied"
    assert failed[0].error["message"].startswith("The process of Slurm job ")
    assert not shared(tmp_path).exists()
    made.run(**LOCAL)
    assert [r.status for r in records(tmp_path) if r.seed == 0] == ["failed", "done"]
    assert [step for _, step, _, seed in starts(tmp_path) if seed == 0] == [0, 4]
    straight = make_study(tmp_path / "straight", seeds=1, steps=10)
    straight.run(workers=0, show=False, device="cpu")
    assert records(tmp_path)[-1].metrics == records(tmp_path / "straight")[-1].metrics


def test_a_job_whose_time_is_over_goes_on_from_its_checkpoint_in_another_turn(tmp_path):
    once = str(tmp_path / "once")
    make_study(tmp_path, seeds=1, steps=10, save_every=2, trouble="preempt", once=once).run(**LOCAL)
    assert [r.status for r in records(tmp_path)] == ["done"]
    assert [step for _, step, _, _ in starts(tmp_path)] == [0, 4]


def test_a_task_that_a_job_cannot_load_stops_the_study_in_one_sentence(tmp_path):
    source = tmp_path / "needy.py"
    text = "import os\nfrom trainonce.study import task\nif os.environ.get('SUBMITIT_EXECUTOR'):\n    import absent\n"
    source.write_text(text + "@task(terms=('a', 'b'), metric='error', direction='minimize')\ndef needy(trial): ...\n")
    from trainonce.study import Study
    from trainonce.study.executors.task_location import load_file

    study = Study(load_file(source).needy, tmp_path / "out", seeds=1).add("uniform")
    with pytest.raises(StoppedError, match=r"'needy' cannot be loaded on \S+: ModuleNotFoundError: No module named"):
        study.run(**LOCAL)
    assert records(tmp_path) == []
    assert not shared(tmp_path).exists()


def test_ctrl_c_cancels_the_jobs_and_keeps_their_checkpoints(tmp_path):
    asked = {"pause": 0.2, "steps": 200, "save_every": 1}
    driver = start_driver(tmp_path, **asked)
    wait_for(lambda: len(list(shared(tmp_path).glob(f"*/*/trial/{layout.CHECKPOINT}"))) == 2, 120)
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    wait_for(lambda: not any(is_alive(process) for _, _, process, _ in starts(tmp_path)), 10)
    assert records(tmp_path) == []
    assert len(list((tmp_path / "out" / layout.TRIALS).glob(f"*/{layout.CHECKPOINT}"))) == 2
    assert not shared(tmp_path).exists()


@pytest.mark.parametrize("moment", ["queued", "training"])
def test_jobs_of_a_driver_that_was_killed_are_taken_over(tmp_path, moment):
    asked = {"pause": 0.5, "steps": 20}
    driver = start_driver(tmp_path, seeds=2, **asked)
    if moment == "queued":
        wait_for(lambda: len(list(shared(tmp_path).glob("*/*/job.json"))) == 2, 120)
    else:
        wait_for(lambda: len(starts(tmp_path)) == 2, 120)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    again = start_driver(tmp_path, seeds=2, **asked)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert [r.status for r in records(tmp_path)] == ["done", "done"]
    assert len(starts(tmp_path)) == 2  # neither was trained twice


def test_a_driver_that_is_killed_again_and_again_loses_nothing_and_trains_nothing_twice(tmp_path):
    asked = {"pause": 0.3, "steps": 10}
    for seconds in (4, 6, 7, 9, 11):
        driver = start_driver(tmp_path, "--max-concurrent", 2, seeds=4, **asked)
        time.sleep(seconds)
        driver.kill()
        driver.communicate()
    last = start_driver(tmp_path, "--max-concurrent", 2, seeds=4, **asked)
    output, _ = last.communicate(timeout=250)
    assert last.returncode == 0, output
    assert sorted((r.seed, r.status) for r in records(tmp_path)) == [(seed, "done") for seed in range(4)]
    assert sorted(seed for _, _, _, seed in starts(tmp_path)) == [0, 1, 2, 3]
    assert not shared(tmp_path).exists()


def test_two_drivers_share_the_trials(tmp_path):
    drivers = [start_driver(tmp_path, "--max-concurrent", 2, seeds=4, pause=0.1) for _ in range(2)]
    for driver in drivers:
        output, _ = driver.communicate(timeout=250)
        assert driver.returncode == 0, output
    assert sorted((r.seed, r.status) for r in records(tmp_path)) == [(seed, "done") for seed in range(4)]
    assert sorted(seed for _, _, _, seed in starts(tmp_path)) == [0, 1, 2, 3]
