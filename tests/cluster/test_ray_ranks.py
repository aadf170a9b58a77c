"""A trial over several processes of a Ray cluster, here two with gloo."""

import os
import signal
from pathlib import Path
from typing import NamedTuple

import _rank_tasks
import pytest
from _cluster_studies import Meanwhile, records, wait_for

from trainonce import cli
from trainonce.study import Study

TASK = _rank_tasks.__file__


def study(out, plans=("yoto", "replay"), seeds=2, **settings):
    made = Study(_rank_tasks.shared.using(**settings).over(2), out, seeds=seeds)
    for plan in plans:
        made.add(plan)
    return made


def test_two_processes_train_a_trial_together(tmp_path, shared_cluster, capsys):
    made = study(tmp_path)
    made.run(executor="ray", options={"address": shared_cluster.address}, show=False)
    found = records(tmp_path)
    assert [r.status for r in found] == ["done"] * 4, [r.error for r in found]
    assert {(r.metrics["sum of ranks"], r.metrics["processes"]) for r in found} == {(3.0, 2.0)}
    assert {r.key for r in found} == {key for item in made.items() for key in item.keys}
    given = ["run", f"{TASK}:shared", "--executor", "ray", "--address", shared_cluster.address, "--ranks", "2"]
    assert cli.main([*given, "--out", str(tmp_path)]) == 0  # the same trial: it is there already
    assert len(records(tmp_path)) == 4
    assert "processes                2" in capsys.readouterr().out


@pytest.mark.parametrize("trouble", ["first", "follower", "exit"])
def test_a_process_that_fails_is_a_failed_trial(trouble, tmp_path, shared_cluster):
    options = {"address": shared_cluster.address}
    study(tmp_path, ["uniform"], seeds=1, trouble=trouble).run(executor="ray", options=options, show=False)
    (record,) = records(tmp_path)
    assert record.status == "failed"
    said = {
        "first": "the first one's divisor was 0",
        "follower": "Another process of the trial: The trial's process died (exit code 1). ZeroDiv",
        "exit": "The trial's process died (exit code 3).",
    }
    assert said[trouble] in record.error["message"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_dies_starts_all_again_from_the_checkpoint(rank, tmp_path, shared_cluster):
    notes = tmp_path / "notes"
    made = study(tmp_path / "out", ["uniform"], seeds=1, steps=30, pause=0.1, save_every=5, notes=str(notes))

    def kill():
        wait_for(lambda: any(made.store.path.glob("trials/*/checkpoint.pt")))
        (worker,) = [start.worker for start in starts(notes) if start.rank == rank]
        os.kill(worker, signal.SIGKILL)

    with Meanwhile(kill):
        made.run(executor="ray", options={"address": shared_cluster.address}, show=False)
    (record,) = records(made.store.path)
    assert (record.status, record.metrics["sum of ranks"]) == ("done", 3.0), record.error
    found = starts(notes)
    assert sorted(start.rank for start in found) == [0, 0, 1, 1]
    first, second = ({start.done for start in some} for some in (found[:2], found[2:]))
    assert first == {0}
    assert len(second) == 1
    assert min(second) >= 5
    rows = (made.store.folder(record.key) / "history.jsonl").read_text().splitlines()
    assert len(rows) == 1 + 30


class Start(NamedTuple):
    """What a process noted when it started."""

    rank: int
    done: int
    worker: int


def starts(notes):
    return [Start(*map(int, line.split())) for line in Path(notes).read_text().splitlines()]


def test_without_ray_it_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"over 2 processes needs the executor 'ray'; without it, start .* torchrun\."):
        study(tmp_path).run(workers=1, show=False)
