"""A trial in a process of its own on a worker, without the cluster."""

import multiprocessing
import os
import pickle
import socket
import subprocess
import sys

import _tasks
import pytest
from _runs import study

from trainonce.study.executors import trial_process
from trainonce.study.executors.assignment import Assignment
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.task_location import TaskLocation
from trainonce.study.executors.trial_files import Batch, Began, Died, Incoming, Packed, Piece, pieces_for
from trainonce.study.executors.trial_process import Given
from trainonce.study.runner import Schedule


def job_of(made):
    return Schedule(made.task, made.items(), []).next()[0]


def given(made, job):
    sent = SentTask.of(made.task, TaskLocation.of(made.task))
    return Given(job.key, pickle.dumps(Assignment(sent, job, "cpu", 1)))


def test_a_worker_loads_no_torch():
    code = "import sys, trainonce.study.executors.ray_worker as w; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_files_come_with_the_record_and_all_arrive(tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1, pause=0.05)
    job = job_of(made)
    messages = list(trial_process.run(given(made, job), pieces_for(job, made.store)))
    began, *others, batch = messages
    assert isinstance(began, Began)
    assert isinstance(batch, Batch)
    assert set(batch.names) == {f"trials/{job.key}/history.jsonl", f"logs/{job.key}.txt"}
    event = pickle.loads(batch.last.content)
    assert (event.kind, event.content.status) == ("end", "done")
    assert any(isinstance(m, Packed) and pickle.loads(m.content).kind == "beat" for m in others)
    incoming = Incoming(made.store)
    for message in messages:
        if isinstance(message, Piece):
            incoming.write(job.key, message)
            assert not made.store.folder(job.key).exists()
    (made.store.folder(job.key)).mkdir(parents=True)
    (made.store.folder(job.key) / "old.txt").write_text("of an earlier run")
    assert [path.name for path in incoming.place(job.key, batch)] == ["old.txt"]
    assert {path.name for path in made.store.folder(job.key).iterdir()} == {"history.jsonl", "old.txt"}
    with pytest.raises(ValueError, match="A worker sends the files of its trial"):
        incoming.write(job.key, Piece("trials/other/history.jsonl", 0, b""))


def test_a_process_that_dies_says_how_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    left = tmp_path / "scratch" / f"trainonce-{socket.gethostname()}-{2**22 + 1}-x"  # of a worker that was killed
    left.mkdir(parents=True)
    made = study(tmp_path / "out", _tasks.troubled, plans=["uniform"], seeds=1, how="exit", seed=0)
    job = job_of(made)
    *_, batch = trial_process.run(given(made, job), [])
    assert batch.last == Died("The trial's process died (exit code 3).")
    assert not [name for name in os.listdir(tmp_path / "scratch") if name.startswith("trainonce-")]


def test_a_worker_that_is_told_to_stop_ends_the_trial(tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1, pause=1.0)
    messages = trial_process.run(given(made, job_of(made)), [])
    next(messages)
    assert pickle.loads(next(messages).content).kind == "beat"
    before = multiprocessing.active_children()
    messages.close()
    assert len(before) == 1
    assert not multiprocessing.active_children()


def test_an_error_of_the_machine_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    made = study(tmp_path / "out", plans=["uniform"], seeds=1)
    with pytest.raises(OSError, match=rf"No such file or directory.*, on {socket.gethostname()}$"):
        list(trial_process.run(given(made, job_of(made)), []))
