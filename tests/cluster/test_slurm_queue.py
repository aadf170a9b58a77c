"""Trials as jobs of Slurm itself, or rather of commands that stand in for it: arrays, time limits, lost jobs."""

import json
import os
import random
import re
import signal
import threading
import time

import _fake_slurm
import pytest
from _slurm_studies import make_study, records, shared, start_driver, starts, wait_for

from trainonce import cli
from trainonce.study import layout
from trainonce.study.executors.slurm import engines, executor, verdict
from trainonce.study.runner import StoppedError


@pytest.fixture(autouse=True)
def slurm(tmp_path, monkeypatch):
    """The commands of Slurm, quick to notice what has become of a job."""
    for name in ("bin", "slurm"):
        (tmp_path / name).mkdir()
    _fake_slurm.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path / "slurm"))
    monkeypatch.setattr(engines, "FRESH_SECONDS", 0.2)
    monkeypatch.setattr(engines.SlurmEngine, "interval", 0.5)
    monkeypatch.setattr(engines.SlurmEngine, "look", 0.0)
    monkeypatch.setattr(engines.SlurmEngine, "grace", 1.0)
    monkeypatch.setattr(executor, "AGAIN_SECONDS", 1.0)
    yield tmp_path / "slurm"
    for job, state in _fake_slurm.states().items():
        if state in ("PENDING", "RUNNING"):
            _fake_slurm.wish(job, "cancel")


def run(folder, made, **options):
    made.run(executor="slurm", options=options, show=False)
    return records(folder)


def scripts(slurm):
    return [path.read_text() for path in sorted(slurm.glob("number-*"))]


def test_trials_that_are_ready_together_are_one_array_with_what_was_asked_for(tmp_path, slurm, monkeypatch):
    for name, value in (("SLURM_JOB_ID", "77"), ("SLURM_MEM_PER_NODE", "100"), ("SBATCH_QOS", "low")):
        monkeypatch.setenv(name, value)  # of a driver that is a job itself
    asked = {"partition": "long", "time": "2:00:00", "gres": "license:1", "cpus": 2, "mem": "4G", "account": "us"}
    made = make_study(tmp_path, seeds=3)
    found = run(tmp_path, made, **asked, sbatch="qos=high exclusive")
    assert [r.status for r in found] == ["done"] * 3
    (script,) = scripts(slurm)
    lines = set(re.findall(r"#SBATCH --(.*)", script))
    wanted = {"partition=long", "time=120", "gres=license:1", "cpus-per-task=2", "mem=4G", "account=us", "qos=high"}
    assert wanted | {"exclusive", "requeue", "array=0-2%3", "signal=USR2@90", "job-name=trainonce-plodding"} <= lines
    assert "--cpus-per-task=2 " in re.search("^srun .*", script, re.MULTILINE)[0]
    environment = json.loads((slurm / "environment-1").read_text())
    assert not {"SLURM_JOB_ID", "SLURM_MEM_PER_NODE"} & environment.keys()
    assert environment["SBATCH_QOS"] == "low"
    assert not shared(tmp_path).exists()


def test_a_job_that_ran_out_of_time_goes_on_in_another_turn(tmp_path, slurm, monkeypatch):
    monkeypatch.setenv("FAKE_MINUTE", "15")  # of which a third is left when the job is told
    made = make_study(tmp_path, seeds=1, steps=120, pause=0.1, save_every=5)
    (record,) = run(tmp_path, made, time="1")
    assert record.status == "done"
    froms = [step for _, step, _, _ in starts(tmp_path)]
    assert len(froms) >= 2
    assert froms == sorted(froms)
    assert froms[0] == 0
    assert froms[1] > 0
    assert len(scripts(slurm)) == 1  # the same job, requeued


def test_a_job_that_ran_out_of_time_without_a_checkpoint_fails_in_one_sentence(tmp_path):
    (record,) = run(tmp_path, make_study(tmp_path, seeds=1, steps=1000, pause=0.1), time="1")
    assert (record.status, record.error["type"]) == ("failed", "JobTimedOut")
    assert re.fullmatch(
        r"Slurm job 1 ran out of its 1 minutes before it wrote a checkpoint: give it more with --time, or let the task "
        r"call trial\.save\.",
        record.error["message"],
    )
    assert len(starts(tmp_path)) == 1


def open_engine(folder):
    return engines.open_engine(folder / "jobs", {}, "name", 16)


def test_the_queue_says_which_jobs_have_ended_and_why_others_wait(tmp_path, slurm):
    states = {"1_0": "PENDING", "1_1": "RUNNING", "2": "TIMEOUT", "3": "COMPLETED"}
    for job, state in states.items():
        _fake_slurm.write_state(job, state)
    (slurm / "reason").write_text("JobHeldUser")
    engine = open_engine(tmp_path)
    assert engine.ended(states) == {"2": "TIMEOUT", "3": "COMPLETED"}
    assert engine.waits_for(states) == {"1_0": "JobHeldUser"}
    engine.cancel(["1_1"])
    assert _fake_slurm.take_wish("1_1") == "cancel"


def test_jobs_that_the_queue_has_forgotten_are_in_the_accounts(tmp_path, slurm):
    states = {"1_0": "RUNNING", "1_1": "OUT_OF_MEMORY", "2": "CANCELLED"}
    for job, state in states.items():
        _fake_slurm.write_state(job, state)
    (slurm / "forgotten").touch()
    known = {"1_1": "OUT_OF_MEMORY", "2": "CANCELLED", "9": "LOST"}
    assert open_engine(tmp_path).ended([*states, "9"]) == known


def test_nothing_is_known_of_jobs_while_slurm_does_not_answer(tmp_path):
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    engine = open_engine(tmp_path)
    assert engine.ended(["1"]) == {}
    assert engine.waits_for(["1"]) == {}


def driver_then(tmp_path, what, wish, **asked):
    """Start a study, and wish something for its one job once it trains."""

    def act():
        wait_for(lambda: what(starts(tmp_path)), 120)
        _fake_slurm.wish("1", wish)

    thread = threading.Thread(target=act)
    thread.start()
    found = run(tmp_path, make_study(tmp_path, seeds=1, pause=0.1, **asked))
    thread.join()
    return found


@pytest.mark.parametrize("state", ["NODE_FAIL", "LOST"])
def test_a_job_that_slurm_lost_is_submitted_again(tmp_path, slurm, state):
    (record,) = driver_then(tmp_path, len, state, steps=60, save_every=1)
    assert record.status == "done"
    assert [number.name for number in sorted(slurm.glob("number-*"))] == ["number-1", "number-2"]
    assert len(starts(tmp_path)) == 2


def test_a_job_that_slurm_requeued_goes_on(tmp_path, slurm):
    (record,) = driver_then(tmp_path, len, "requeue", steps=60, save_every=1)
    assert record.status == "done"
    assert len(scripts(slurm)) == 1
    assert len(starts(tmp_path)) == 2


@pytest.mark.parametrize(
    ("wish", "kind", "sentence"),
    [
        ("cancel", "JobCancelled", "Slurm job 1 was cancelled. The same command runs the trial again."),
        ("OUT_OF_MEMORY", "JobOutOfMemory", "Slurm job 1 needed more memory than it had: ask for more with --mem."),
    ],
)
def test_a_job_that_was_ended_on_purpose_is_a_failure_in_one_sentence(tmp_path, wish, kind, sentence):
    (record,) = driver_then(tmp_path, len, wish, steps=300)
    assert (record.status, record.error["type"], record.error["message"]) == ("failed", kind, sentence)


def test_a_job_that_is_lost_again_and_again_ends_as_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(verdict, "RETRIES", 0)
    (record,) = driver_then(tmp_path, len, "NODE_FAIL", steps=300)
    assert record.error["message"] == (
        "Slurm job 1 ended without a result: its node failed (NODE_FAIL). 1 jobs of this trial ended like that."
    )


def test_what_sbatch_refuses_is_one_sentence(tmp_path):
    with pytest.raises(StoppedError, match=r"^Slurm refused a job: invalid partition specified: nowhere; .*: no\.$"):
        run(tmp_path, make_study(tmp_path), partition="nowhere")
    assert records(tmp_path) == []
    assert not shared(tmp_path).exists()


def test_a_controller_that_is_busy_is_asked_again(tmp_path, slurm):
    (slurm / "refuse").write_text("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    timer = threading.Timer(3, (slurm / "refuse").unlink)
    timer.start()
    assert [r.status for r in run(tmp_path, make_study(tmp_path, seeds=1))] == ["done"]


def test_a_folder_that_the_nodes_do_not_see_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.SlurmEngine, "output", lambda self, job: tmp_path / "nowhere")
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(StoppedError, match=r"^Slurm job 1 ended \(FAILED\) before it could .* share with --out\.$"):
        run(tmp_path, make_study(tmp_path, seeds=1))


def test_a_job_whose_python_cannot_start_says_why(tmp_path):
    said = "ModuleNotFoundError: No module named submitit"
    script = f'echo "{said}" > "$(echo $3 | sed "s/%j/1/;s/%t/0/")"'
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\n{script}\nexit 1\n")
    (record,) = run(tmp_path, make_study(tmp_path, seeds=1))
    assert record.error["message"] == (
        "Slurm job 1 ended (FAILED) before the training began: ModuleNotFoundError: No module named submitit."
    )


def test_jobs_in_the_queue_are_taken_over_when_the_driver_was_killed(tmp_path, slurm):
    (slurm / "full").touch()
    driver = start_driver(tmp_path, cluster="slurm")
    wait_for(lambda: len(list(shared(tmp_path).glob("*/*/job.json"))) == 2, 120)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    again = start_driver(tmp_path, cluster="slurm")
    (slurm / "full").unlink()
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert len(scripts(slurm)) == 1
    assert len(starts(tmp_path)) == 2
    assert [r.status for r in records(tmp_path)] == ["done", "done"]


def test_a_driver_that_was_killed_before_it_knew_its_job_leaves_it_alone(tmp_path, slurm):
    """The job is in the queue, its number nowhere: whoever is first at the folder has the trial."""
    (slurm / "full").touch()
    driver = start_driver(tmp_path, cluster="slurm", seeds=1)
    (note,) = wait_for(lambda: list(shared(tmp_path).glob("*/*/job.json")), 120)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    note.unlink()
    again = start_driver(tmp_path, cluster="slurm", seeds=1)
    wait_for(lambda: len(scripts(slurm)) == 2, 120)
    (slurm / "full").unlink()
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert len(starts(tmp_path)) == 1
    # The job that came second finds the trial taken, or, if the study has ended by then, no folder at all.
    wait_for(lambda: sorted(_fake_slurm.states().values()) in (["COMPLETED"] * 2, ["COMPLETED", "FAILED"]))


def test_ctrl_c_cancels_jobs_in_the_queue(tmp_path, slurm):
    (slurm / "full").touch()
    driver = start_driver(tmp_path, cluster="slurm")
    wait_for(lambda: len(list(shared(tmp_path).glob("*/*/job.json"))) == 2, 120)
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, output
    assert set(_fake_slurm.states().values()) == {"CANCELLED"}
    assert not shared(tmp_path).exists()


def test_a_machine_without_slurm_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    asked = [*("compare", "digits", "--out", str(tmp_path / "out"), "--no-report", "--executor", "slurm")]
    assert cli.main(asked) == 1
    said = capsys.readouterr().err.strip()
    assert "needs the command sbatch, which this machine does not have: start the study on a login node" in said
    assert said.endswith("or try it here with --cluster local.")
    assert "Traceback" not in said
    assert not (tmp_path / "out" / layout.SLURM).exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_killed_at_20_random_moments_loses_nothing_and_trains_nothing_twice(tmp_path):
    rng, asked = random.Random(7), {"seeds": 40, "cluster": "slurm", "pause": 0.3, "steps": 20}
    for _ in range(20):
        driver = start_driver(tmp_path, "--max-concurrent", 3, **asked)
        time.sleep(rng.uniform(3, 14))
        driver.kill()
        driver.communicate()
    last = start_driver(tmp_path, "--max-concurrent", 3, **asked)
    output, _ = last.communicate(timeout=400)
    assert last.returncode == 0, output
    assert sorted((r.seed, r.status) for r in records(tmp_path)) == [(seed, "done") for seed in range(40)]
    assert sorted(seed for _, _, _, seed in starts(tmp_path)) == list(range(40))
