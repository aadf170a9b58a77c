"""The same command, given several times on one folder: each is a worker, none of their trials is lost or done twice."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time

import _tasks
import pytest
from _runs import records, starts

#: The command on a machine of another name.
THERE = """
import sys
from trainonce.cli import main
from trainonce.study.store import workers

workers.host = lambda: sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def command(tmp_path):
    """Start a worker, on a machine of some name; those that are left are killed with their trials."""
    running = []

    def start(host, task, *options, **settings):
        given = ["compare", f"{_tasks.__file__}:{task}", "--out", tmp_path / "out", "--device", "cpu", *options]
        for name, value in settings.items():
            given += ["--set", f"{name}={value}"]
        process = subprocess.Popen(
            [sys.executable, "-c", THERE, host, *map(str, given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def ended(out):
    return len(records(out)) if (out / "trials.jsonl").exists() else 0


def begun(notes):
    return notes.read_text().splitlines() if notes.exists() else []


def check_each_trained_once(out, notes, count, killed=0):
    """Nothing is lost, nothing is repeated but what a worker that ended early was training."""
    found = records(out)
    assert [record.status for record in found] == ["done"] * count
    assert len({record.key for record in found}) == count
    ends = {record.key: record.ended for record in found}
    times = starts(notes)
    assert not [key for key, begins in times.items() if max(begins) > ends[key]]
    assert sum(len(begins) - 1 for begins in times.values()) <= killed
    assert os.listdir(out / "workers") == []


@pytest.mark.parametrize("hosts", [["one", "other"], ["a", "a", "b", "c"]], ids=" ".join)
def test_workers_share_the_trials_and_each_shows_all_of_them(hosts, command, tmp_path):
    out, notes = tmp_path / "out", tmp_path / "notes"
    plans = ["--plans", "yoto", "grid:0.1,1", "replay", "--seeds", "3", "--workers", "1"]
    group = [command(host, "noted", *plans, notes=notes, pause=0.3) for host in hosts]
    for process in group:
        said, errors = process.communicate(timeout=200)
        assert process.returncode == 0, said + errors
        assert "18 trials" in said
        assert "report.html" in said
    check_each_trained_once(out, notes, 18)
    assert (out / "report.html").stat().st_size > 10_000


def test_two_of_four_workers_end_early_and_the_others_go_on(command, tmp_path):
    out, notes = tmp_path / "out", tmp_path / "notes"
    options = ["--plans", "yoto", "grid:0.1,1", "--seeds", "4", "--workers", "1", "--no-report"]
    group = [command(host, "noted", *options, notes=notes, pause=0.5) for host in "abcd"]
    wait_for(lambda: len(os.listdir(out / "workers")) == 4 if (out / "workers").exists() else False)
    wait_for(lambda: ended(out) >= 3)
    group[0].kill()
    wait_for(lambda: ended(out) >= 6)
    group[1].terminate()
    codes = []
    for process in group:
        process.communicate(timeout=200)
        codes.append(process.returncode)
    assert codes == [-signal.SIGKILL, 143, 0, 0]
    assert [name.split("-")[0] for name in os.listdir(out / "workers")] == ["a"]  # which the next one removes
    last = command("a", "noted", *options, notes=notes, pause=0.5)
    said, _ = last.communicate(timeout=200)
    assert "20 of 20 trials are already in" in said
    check_each_trained_once(out, notes, 20, killed=2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("whole_group", [False, True], ids=["the command alone", "all of its processes"])
def test_a_worker_that_is_asked_to_end_leaves_its_trials_to_the_next(whole_group, workers, command, tmp_path):
    out, notes, gate = tmp_path / "out", tmp_path / "notes", tmp_path / "gate"
    options = ["--plans", "uniform", "--seeds", "2", "--no-report", "--workers", str(workers)]
    first = command("one", "gated", *options, notes=notes, gate=gate)
    wait_for(lambda: len(begun(notes)) == max(1, workers))
    if whole_group:  # as job schedulers do
        os.killpg(first.pid, signal.SIGTERM)
    else:
        first.terminate()
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 143
    assert errors.strip() == "Ended by SIGTERM. Finished trials are kept: the next worker goes on from there."
    wait_for(lambda: not lives(first.pid))
    assert ended(out) == 0
    assert os.listdir(out / "workers") == []
    gate.touch()
    second = command("other", "gated", *options, notes=notes, gate=gate)
    said, errors = second.communicate(timeout=100)
    assert second.returncode == 0, errors
    assert "to go on from" in said
    assert [record.status for record in records(out)] == ["done"] * 2
    came = collections.Counter(line.split()[-1] for line in begun(notes))
    assert came == ({"new": 2, "saved": 2} if workers else {"new": 2, "saved": 1})


def lives(group):
    """Whether any process of a group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_without_waiting_a_worker_ends_when_nothing_is_left_to_take(command, tmp_path):
    out, notes, gate = tmp_path / "out", tmp_path / "notes", tmp_path / "gate"
    options = ["--plans", "uniform", "--seeds", "2", "--no-wait", "--workers", "2"]
    first = command("one", "gated", *options, notes=notes, gate=gate)
    wait_for(lambda: len(begun(notes)) == 2)
    second = command("other", "gated", *options, notes=notes, gate=gate)
    said, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert "Waiting" not in said
    assert said.endswith(
        "Nothing is left to take. Other workers are training 2 trials, and the last of them writes the page.\n"
    )
    assert not (out / "report.html").exists()
    gate.touch()
    said, _ = first.communicate(timeout=100)
    assert first.returncode == 0
    assert "Nothing is left to take" not in said
    assert "report.html" in said
    assert (out / "report.html").exists()


def test_of_several_that_do_not_wait_the_last_one_writes_the_page(command, tmp_path):
    out, notes = tmp_path / "out", tmp_path / "notes"
    options = ["--plans", "uniform", "base", "--seeds", "3", "--no-wait", "--workers", "1"]
    group = [command("one", "noted", *options, notes=notes, pause=0.5) for _ in range(3)]
    said = [process.communicate(timeout=200)[0] for process in group]
    assert [process.returncode for process in group] == [0, 0, 0]
    check_each_trained_once(out, notes, 6)
    assert [text for text in said if "report.html" in text]
    assert (out / "report.html").exists()
