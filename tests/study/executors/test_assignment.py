"""Trials where the store is not: an executor for the tests with all that a cluster's has, but the cluster."""

import concurrent.futures
import pickle
import shutil
import tempfile
from pathlib import Path

import _tasks
import pytest
from _runs import keys_of, records, study

import trainonce
from trainonce.study import runner
from trainonce.study.executors.assignment import Assignment, train
from trainonce.study.executors.driver_store import DriverStore
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.task_location import TaskLocation
from trainonce.study.executors.tools import EXECUTORS
from trainonce.study.store import Store


class Elsewhere:
    """One trial at a time, in a folder of its own; the driver alone knows the store."""

    def __init__(self, task, store, tools, preload):
        self.driver, self.store, self.device = DriverStore(task, store), store, tools.devices[0]
        self.sent = SentTask.of(task, TaskLocation.of(task))
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.running = None

    @property
    def has_room(self):
        return self.running is None

    @property
    def is_idle(self):
        return self.running is None

    def start(self, job):
        if (event := self.driver.take(job)) is not None:
            self.running = job, event
            return
        folder = Path(tempfile.mkdtemp())
        if job.source is not None:
            shutil.copytree(self.store.folder(job.source), folder / "source")
        given = pickle.dumps(Assignment(self.sent, job, self.device, threads=1))
        self.running = job, self.pool.submit(self.work, given, folder)

    @staticmethod
    def work(given, folder):
        event = train(pickle.loads(given), folder / "trial", folder / "source")
        return pickle.dumps(event), folder / "trial"

    def events(self):
        (job, running), self.running = self.running, None
        if not isinstance(running, concurrent.futures.Future):
            yield job.key, running
            return
        try:
            sent, folder = running.result()
        except ConnectionError:
            yield job.key, self.driver.record_death(job, "WorkerDied", "The line was cut.", 0.5, self.device)
            return
        event = pickle.loads(sent)
        if event.kind == "end":
            shutil.copytree(folder, self.store.folder(job.key), dirs_exist_ok=True)
            event = self.driver.record(event.content)
        yield job.key, event

    def stop(self):
        self.pool.shutdown()
        self.driver.close()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    monkeypatch.setitem(EXECUTORS, "elsewhere", Elsewhere)


def test_trials_elsewhere_find_the_same_numbers_and_send_their_files(tmp_path):
    plans = ["yoto", "replay", "sha(trials=3)"]  # which need another trial's history, and earlier records
    here, there = (study(tmp_path / name, plans=plans, steps=27) for name in ("here", "there"))
    here.run(workers=0, show=False)
    there.run(executor="elsewhere", workers=1, show=False)
    found = [
        {r.key: (r.status, r.metrics, r.coefficients, r.reports) for r in records(s.store.path)} for s in (here, there)
    ]
    assert found[0] == found[1]
    assert found[0].keys() == keys_of(here)
    for key in keys_of(here):
        timed = {"checkpoint.pt", "spent.json"}  # they hold seconds
        names = [
            {p.name: p.name in timed or p.read_bytes() for p in s.store.folder(key).iterdir()} for s in (here, there)
        ]
        assert names[0] == names[1]


def test_a_trial_that_another_driver_has_is_left_to_it(tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1)
    (key,) = keys_of(made)
    driver, (item,) = DriverStore(made.task, Store(tmp_path)), made.items()
    job = runner.Schedule(made.task, [item], []).next()[0]
    assert driver.take(job) is None
    assert DriverStore(made.task, Store(tmp_path)).take(job).kind == "taken"
    driver.release(key)
    made.run(workers=0, show=False)
    assert DriverStore(made.task, Store(tmp_path)).take(job).kind == "there"


def test_a_worker_that_dies_is_a_failed_trial(tmp_path, monkeypatch):
    def cut(given, folder):
        raise ConnectionError

    monkeypatch.setattr(Elsewhere, "work", staticmethod(cut))
    study(tmp_path, plans=["uniform"], seeds=1).run(executor="elsewhere", workers=1, show=False)
    (record,) = records(tmp_path)
    assert (record.status, record.error["type"], record.fraction) == ("failed", "WorkerDied", 0.5)
    monkeypatch.undo()
    study(tmp_path, plans=["uniform"], seeds=1).run(workers=0, show=False)
    assert [r.status for r in records(tmp_path)] == ["failed", "done"]


def test_a_task_that_cannot_be_loaded_there_stops_the_study_in_one_sentence(tmp_path, monkeypatch):
    def absent(self):
        raise ModuleNotFoundError("No module named 'timm'")

    monkeypatch.setattr(TaskLocation, "load", absent)
    with pytest.raises(runner.StoppedError, match=r"'line' cannot be loaded on \S+: ModuleNotFoundError: No module"):
        study(tmp_path, plans=["uniform"]).run(executor="elsewhere", workers=1, show=False)
    assert records(tmp_path) == []


def test_another_version_on_the_worker_is_one_sentence(tmp_path, monkeypatch):
    job = runner.Schedule(_tasks.line, study(tmp_path, plans=["uniform"], seeds=1).items(), []).next()[0]
    sent = SentTask.of(_tasks.line, TaskLocation.of(_tasks.line))
    event = train(Assignment(sent, job, "cpu", 1, version="0.0.1"), tmp_path / "trial")
    assert event.kind == "stop"
    assert f"has trainonce {trainonce.__version__}, the study has 0.0.1: install the same" in event.content


def test_the_files_of_a_task_may_lie_elsewhere_on_the_worker(tmp_path):
    from trainonce.study.executors.task_location import load_file

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "far_task.py").write_text(Path(_tasks.__file__).read_text())
    task = load_file(mine / "far_task.py").line
    sent = SentTask.of(task, TaskLocation.of(task))
    mine.rename(tmp_path / "there")
    moved = sent.move(mine, tmp_path / "there")
    assert moved.load().identity == task.identity
