"""The executor with jobs that the tests themselves are: nothing is submitted, and nothing trains."""

import errno

import _tasks
from _records import record

from trainonce.study import layout
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.slurm import executor
from trainonce.study.executors.slurm.attempt import TRIAL, Attempt
from trainonce.study.executors.tools import Tools
from trainonce.study.store import Store

KEY = record().key


class Engine:
    """Jobs that end when a test says so."""

    name = "slurm"
    interval = grace = look = 0.0

    def __init__(self, folder, first):
        self.folder, self.first, self.submitted, self.cancelled = folder, first, [], []
        self.states, self.reasons = {}, {}

    def submit(self, works):
        start = self.first + len(self.submitted)
        self.submitted += works
        return [str(start + i) for i in range(len(works))]

    def ended(self, jobs):
        return {job: self.states[job] for job in jobs if job in self.states}

    def waits_for(self, jobs):
        return {job: self.reasons[job] for job in jobs if job in self.reasons}

    def cancel(self, jobs):
        self.cancelled += jobs
        self.states |= dict.fromkeys(jobs, "CANCELLED")

    def output(self, job):
        return self.folder / f"{job}_0_log.out"

    def close(self):
        pass


class Driver:
    """A study's executor on a folder, with one trial; ``attempt`` is what its job shares with it.

    ``first`` is the number of its first job.
    """

    def __init__(self, path, monkeypatch, task=_tasks.line, first=1):
        self.path, self.key, self.store = path, KEY, Store(path)
        self.engine = Engine(path, first)
        monkeypatch.setattr(executor, "open_engine", lambda *_: self.engine)
        monkeypatch.setattr(executor, "POLL", 0.0)
        tools = Tools.choose(task, executor="slurm", options={})
        self.executor = executor.Slurm(task, self.store, tools, [])

    def start(self):
        self.executor.start(Job(self.key, 0, None, since=self.store.position))
        return self.turn()

    def turn(self):
        return list(self.executor.events())

    @property
    def attempt(self):
        return Attempt.last(self.path / layout.SLURM, self.key)

    def save(self, text=""):
        """Write a checkpoint as the job does."""
        trial = self.attempt.folder / TRIAL
        trial.mkdir(exist_ok=True)
        path = trial / layout.CHECKPOINT
        path.write_text(text)
        return path

    def finish(self):
        """End the job with a record."""
        self.attempt.write_end(Event("end", record(0)))


def fail(number, times=10**9, then=None):
    """A function that raises an error of the file system so many times."""
    left = [times]

    def act(*given, **more):
        if left[0] > 0:
            left[0] -= 1
            raise OSError(number, errno.errorcode[number])
        return then(*given, **more)

    return act
