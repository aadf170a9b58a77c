"""What goes wrong on a cluster: nothing is lost, nothing is trained twice, each error is one sentence."""

import collections
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import _cluster_tasks
import pytest
from _cluster_studies import Meanwhile, records, wait_for

HERE = Path(__file__).parent


def starts(made):
    return _cluster_tasks.starts(made.task.settings["notes"])


def has_checkpoint(made):
    return any(made.store.path.glob("trials/*/checkpoint.pt"))


def check_once(made, count):
    """Each trial has one record, of success, and the history of every step."""
    found = records(made.store.path)
    assert collections.Counter(r.key for r in found) == {key: 1 for item in made.items() for key in item.keys}
    assert [r.status for r in found] == ["done"] * count
    for record in found:
        rows = (made.store.folder(record.key) / "history.jsonl").read_text().splitlines()
        assert len(rows) == 1 + made.task.steps


def test_a_worker_that_is_killed_goes_on_from_the_checkpoint(steady, shared_cluster):
    made = steady(seeds=1, steps=40, pause=0.1, save_every=5)

    def kill():
        wait_for(lambda: has_checkpoint(made))
        os.kill(starts(made)[0].worker, signal.SIGKILL)

    with Meanwhile(kill):
        made.run(executor="ray", options={"address": shared_cluster.address}, show=False)
    check_once(made, 1)
    assert [start.done >= 5 for start in starts(made)] == [False, True]
    (record,) = records(made.store.path)
    assert record.fraction >= 1.0


def test_a_node_that_is_removed_in_the_middle_of_a_trial_costs_what_came_after_the_checkpoint(steady, cluster):
    made = steady(seeds=2, steps=60, pause=0.1, save_every=5)
    node = next(iter(cluster.worker_nodes))

    def remove():
        wait_for(lambda: len(starts(made)) == 2 and len(list(made.store.path.glob("trials/*/checkpoint.pt"))) == 2)
        cluster.remove_node(node, allow_graceful=False)

    with Meanwhile(remove):
        made.run(executor="ray", options={"address": cluster.address}, show=False)
    check_once(made, 2)
    found = starts(made)
    assert len(found) == 3  # one of the two ran on the node that is gone
    assert found[2].done >= 5


def test_a_trial_that_kills_each_of_its_workers_is_a_failure_at_last(steady, shared_cluster):
    made = steady(seeds=2, trouble="kill worker", seed_of_trouble=1)
    made.run(executor="ray", options={"address": shared_cluster.address}, show=False)
    found = {record.seed: record for record in records(made.store.path)}
    assert [found[0].status, found[1].status] == ["done", "failed"]
    assert found[1].error["type"] == "WorkerDied"
    assert found[1].error["message"].startswith("The trial's worker died 4 times, the last time because: ")
    assert "\n" not in found[1].error["message"]
    assert sum(start.seed == 1 for start in starts(made)) == 4


DRIVER = """
import sys
sys.path.insert(0, {here!r})
from _cluster_studies import make_study
if __name__ == "__main__":
    made = make_study({out!r}, {notes!r}, ["uniform", "base", "yoto"], seeds={seeds}, steps=20, pause=0.02)
    made.run(executor="ray", options={{"address": {address!r}}}, show=False)
"""


def start_driver(made, cluster, seeds):
    given = {"out": str(made.store.path), "notes": made.task.settings["notes"], "seeds": seeds}
    code = DRIVER.format(here=str(HERE), address=cluster.address, **given)
    script = made.store.path.parent / "driver.py"
    script.write_text(code)
    return subprocess.Popen([sys.executable, str(script)])


def check_nothing_repeated(made):
    """No trial was started again after its record had been written."""
    found = records(made.store.path)
    assert collections.Counter(r.key for r in found) == {key: 1 for item in made.items() for key in item.keys}
    ended = {record.key: record.ended for record in found}
    assert not [start for start in starts(made) if start.when > ended[start.key]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_driver_that_is_killed_goes_on_from_the_store(kills, steady, shared_cluster):
    """At random moments: of its start for every second kill, and after its first record for the others."""
    seeds, rng, progress = 4 * kills, random.Random(kills), [0]
    made = steady(["uniform", "base", "yoto"], seeds=seeds, steps=20, pause=0.02)
    for number in range(kills):
        process = start_driver(made, shared_cluster, seeds)
        if number % 2 == 0:
            time.sleep(rng.uniform(0.5, 8.0))
        else:
            wait_for(lambda: len(records(made.store.path)) > progress[-1])
            time.sleep(rng.uniform(0.0, 3.0))
        assert process.poll() is None, "the study is too small: it ended before it was killed often enough"
        process.kill()
        process.wait()
        progress.append(len(records(made.store.path)))
    assert progress == sorted(progress)
    assert progress[-1] > 0
    assert start_driver(made, shared_cluster, seeds).wait(300) == 0
    check_once(made, 3 * seeds)
    check_nothing_repeated(made)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "Stopped. Finished trials are kept: the same command goes on from there."),
        (signal.SIGTERM, 143, "Ended by SIGTERM. Finished trials are kept: the next worker goes on from there."),
    ],
)
def test_ctrl_c_and_sigterm_end_the_trainings_which_keep_their_state(number, code, said, steady, shared_cluster):
    made = steady(seeds=2, steps=1000, pause=0.1)
    task = f"{_cluster_tasks.__file__}:steady"
    given = ["run", task, "--steps", "1000", "--set", "pause=0.1", "--set", f"notes={made.task.settings['notes']}"]
    given += ["--executor", "ray", "--address", shared_cluster.address, "--out", str(made.store.path)]
    command = [sys.executable, "-c", INTERRUPTIBLE, *given]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: starts(made))
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert error.strip() == said
    assert has_checkpoint(made)
    wait_for(lambda: not is_alive(starts(made)[0].worker), seconds=20)
    assert records(made.store.path) == []


INTERRUPTIBLE = """
import signal, sys
from trainonce import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts without it
sys.exit(cli.main(sys.argv[1:]))
"""


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_drivers_on_one_store_share_the_work(steady, shared_cluster):
    made = steady(["uniform", "base", "yoto"], seeds=6, steps=20, pause=0.02)
    pair = [start_driver(made, shared_cluster, 6) for _ in range(2)]
    assert [process.wait(200) for process in pair] == [0, 0]
    check_once(made, 18)
    assert len(starts(made)) == 18
