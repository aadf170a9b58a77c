"""Which executor, how many workers, which devices."""

import queue
import threading

import _tasks
import pytest
import torch
from _runs import records, study

from trainonce.study import Study, task
from trainonce.study.executors import run_trial, tools
from trainonce.study.executors.tools import EXECUTORS, Tools


def test_tasks_that_are_in_no_file_train_in_this_process(tmp_path):
    local = task(terms=_tasks.TERMS, metric="error", direction="minimize")(lambda trial: _tasks.train(trial, 2))
    made = Study(local, tmp_path, seeds=1).add("uniform")
    with pytest.raises(ValueError, match=r"is not in a file.*, with 0 workers\."):
        made.run(workers=2, show=False)
    assert made.run(device="cpu", show=False).rows[0].chosen.report


def test_tasks_that_are_in_no_file_can_be_stacked():
    local = task(terms=_tasks.TERMS, metric="error", direction="minimize")(lambda trial: None)
    assert Tools.choose(local, device="cpu", executor="stacked").workers == 0


def test_devices_that_are_not_there_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="There is no device 'gpu'"):
        study(tmp_path).run(device="gpu", show=False)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="finds no CUDA device here"):
            study(tmp_path).run(device="cuda", show=False)


def test_wrong_numbers_of_workers_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="how many trainings run at a time, 0 for in this process; got -1"):
        study(tmp_path).run(workers=-1)


@pytest.mark.parametrize(
    ("asked", "executor", "workers"),
    [
        ({"workers": 0}, "in-process", 0),
        ({"workers": 3}, "processes", 3),
        ({"executor": "in-process"}, "in-process", 0),
        ({"executor": "processes", "workers": 1}, "processes", 1),
        ({"executor": "stacked", "workers": 0}, "stacked", 0),
    ],
)
def test_an_executor_is_chosen_by_name_or_by_the_number_of_workers(asked, executor, workers):
    tools = Tools.choose(_tasks.line, device="cpu", **asked)
    assert (tools.executor, tools.workers) == (executor, workers)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"executor": "process"}, r"There is no executor 'process'; .*Did you mean 'processes'\?"),
        ({"executor": "in-process", "workers": 2}, r"trains in this process: use workers=0; got 2\."),
        ({"executor": "processes", "workers": 0}, r"needs at least 1 worker; got 0\."),
    ],
)
def test_executors_that_do_not_fit_are_one_sentence(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        Tools.choose(_tasks.line, device="cpu", **asked)


def test_an_executor_of_another_kind_needs_only_the_protocol(tmp_path, monkeypatch):
    """Two trials at a time, each run in a thread."""

    class Threads:
        def __init__(self, task, store, tools, preload):
            self.task, self.store, self.tools = task, store, tools
            self.running, self.events_of, self.stopped = set(), queue.Queue(), False
            made.append(self)

        @property
        def has_room(self):
            return len(self.running) < self.tools.workers

        @property
        def is_idle(self):
            return not self.running

        def start(self, job):
            self.running.add(job.key)
            threading.Thread(target=self.run, args=(job,)).start()

        def run(self, job):
            self.events_of.put((job.key, run_trial.run(self.task, job, self.store, "cpu")))

        def events(self):
            key, event = self.events_of.get(timeout=60)
            self.running.discard(key)
            yield key, event

        def stop(self):
            self.stopped = True

    made = []
    monkeypatch.setitem(EXECUTORS, "threads", Threads)
    study(tmp_path, plans=["uniform"], seeds=3).run(executor="threads", workers=2, show=False)
    assert [r.status for r in records(tmp_path)] == ["done"] * 3
    assert [executor.stopped for executor in made] == [True]


@pytest.mark.parametrize(
    ("workers", "asked", "threads"), [(1, "", 8), (4, "", 2), (16, "", 1), (1, "3", 3), (4, "3", 2), (1, "0", 1)]
)
def test_threads_are_a_part_of_the_cores_and_not_more_than_asked_for(monkeypatch, workers, asked, threads):
    monkeypatch.setattr(tools, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert Tools("processes", workers, ("cpu",)).threads == threads
