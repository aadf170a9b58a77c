"""The driver of a study on Ray, with streams of messages in the place of a cluster."""

import collections
import os
import types

import _tasks
import pytest
from _runs import study

from trainonce.errors import StoppedError
from trainonce.study.checkpoint import read_spent
from trainonce.study.executors import ray as executor
from trainonce.study.executors import ray_cluster
from trainonce.study.executors.base import Event
from trainonce.study.executors.ray_cluster import TOKEN, describe, refusal
from trainonce.study.executors.tools import Tools
from trainonce.study.runner import Schedule


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__("ray::train()\nTraceback ...")
        self.cause = cause


class FakeRay:
    """What the executor uses of Ray. Each submission takes the next of ``streams``: messages, errors among them."""

    exceptions = types.SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RuntimeEnvSetupError=type("RuntimeEnvSetupError", (RayError,), {})
    )

    def __init__(self):
        self.streams, self.connected, self.resources = collections.deque(), False, {"CPU": 8.0}
        self.broken = {}

    def is_initialized(self):
        return self.connected

    def init(self, **given):
        self.connected = True

    def shutdown(self):
        self.connected = False

    def nodes(self):
        self._break("nodes")
        return [{"Alive": True, "Resources": self.resources}]

    def remote(self, **options):
        self._break("remote")
        return lambda function: types.SimpleNamespace(remote=self._submit)

    def _submit(self, given):
        self._break("submit")
        return self.streams.popleft()

    def get(self, reference):
        if isinstance(reference, Exception):
            raise reference
        return reference

    def wait(self, streams, *, timeout, num_returns, fetch_local):
        self._break("wait")
        return [stream for stream in streams if stream.messages][:num_returns], []

    def cancel(self, stream, *, force=False):
        pass

    def _break(self, name):
        if name in self.broken:
            raise self.broken[name]


class Stream:
    def __init__(self, *messages):
        self.messages = collections.deque(messages)

    def __next__(self):
        return self.messages.popleft()


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(executor, "require", lambda *_: fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in ray_cluster.SETTINGS:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return fake


class Driver:
    """An executor with the jobs of a small study."""

    def __init__(self, path, seeds=1, task=_tasks.line, **options):
        self.made = study(path, task, plans=["uniform"], seeds=seeds)
        tools = Tools.choose(self.made.task, executor="ray", options=options)
        self.executor = executor.Ray(self.made.task, self.made.store, tools, [])
        schedule = Schedule(self.made.task, self.made.items(), [])
        self.jobs = [schedule.next()[0] for _ in range(seeds)]
        for job in self.jobs:
            self.executor.start(job)
        self.key = self.jobs[0].key
        self.folder = self.made.store.folder(self.key)

    def events(self, calls=20):
        found = []
        for _ in range(calls):
            found += [] if self.executor.is_idle else [event for _, event in self.executor.events()]
        return found


def beat(step):
    return Event("beat", (step, 10, ""))


# What fails


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RayTaskError(OSError("[Errno 28] No space left on device: '/tmp/x', on node7")), "OSError: [Errno 28] No"),
        (RayTaskError(RayError("The object was lost.")), "RayError: The object was lost."),
        (RayError("The worker died unexpectedly.\nCheck logs."), "The worker died unexpectedly."),
    ],
)
def test_a_worker_whose_machine_fails_has_died(error, text, tmp_path, ray):
    ray.streams.extend(Stream(None, error) for _ in range(4))
    (event,) = Driver(tmp_path).events()
    assert (event.kind, event.content.error["type"]) == ("end", "WorkerDied")
    assert f"died 4 times, the last time because: {text}" in event.content.error["message"]
    assert "\n" not in event.content.error["message"]
    assert not ray.streams


def test_a_trial_that_lives_on_somewhere_is_not_started_again(tmp_path, ray):
    """Its lock is held when its last death is to be recorded: the runner asks for it again until it is free."""
    ray.streams.extend(Stream(None, RayError("The worker died.")) for _ in range(4))
    driver = Driver(tmp_path)
    with driver.made.store.claim(driver.key):
        assert driver.events() == [Event("taken")]
        driver.executor.start(driver.jobs[0])
        assert driver.events() == [Event("taken")]
    driver.executor.start(driver.jobs[0])
    (event,) = driver.events()
    assert (event.kind, event.content.error["type"]) == ("end", "WorkerDied")
    assert len(driver.made.store.read_all()) == 1


def test_what_a_worker_that_died_had_trained_is_counted(tmp_path, ray):
    ray.streams.extend([Stream(None, beat(5), RayError("The worker died.")), Stream()])
    driver = Driver(tmp_path)
    driver.events()
    assert read_spent(driver.folder)[0] == 0.5


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RayTaskError(ModuleNotFoundError("No module named 'trainonce'")), "A worker has no trainonce, or not all it"),
        (RayTaskError(KeyError("x")), "A worker failed outside of the task: KeyError: 'x'."),
        (FakeRay.exceptions.RuntimeEnvSetupError("too large"), "Ray could not set up a worker: too large."),
    ],
)
def test_what_would_come_again_stops_the_study(error, text, tmp_path, ray):
    ray.streams.append(Stream(None, error))
    (event,) = Driver(tmp_path).events()
    assert event.kind == "stop"
    assert event.content.startswith(text)


def test_an_error_of_ray_itself_is_one_sentence(tmp_path, ray, monkeypatch):
    monkeypatch.setattr(executor, "CAPACITY_AGE", 0.0)
    full = RayError("The object store is full.\nTip: use less.")
    ray.streams.extend([Stream(), Stream()])
    driver = Driver(tmp_path / "one")
    ray.broken = {"wait": full, "nodes": full}
    assert driver.executor.has_room
    assert driver.events(1) == [Event("stop", "Ray does not answer any more: The object store is full.")]
    ray.broken, ray.connected = {"submit": full}, False
    driver = Driver(tmp_path / "two")
    assert driver.events(1) == [Event("stop", "Ray does not take a training: The object store is full.")]


# Streams


def test_one_busy_trial_does_not_keep_the_others_waiting(tmp_path, ray):
    ray.streams.extend([Stream(*map(beat, range(50))), Stream(beat(1)), Stream(beat(2))])
    events = Driver(tmp_path, seeds=3).events(1)
    assert [event.content[0] for event in events] == [0, 1, 2]


def test_what_is_waited_for_is_said_once(tmp_path, ray, monkeypatch):
    monkeypatch.setattr(executor, "PATIENCE", 0.0)
    monkeypatch.setattr(ray_cluster, "_check_answer", lambda address: None)
    stream = Stream()
    ray.streams.append(stream)
    driver = Driver(tmp_path, address="head:1", max_concurrent=8, gpus=1)
    (note,) = driver.events()
    assert note == Event(
        "note",
        "No training could start for 0 seconds: it asks for 1 CPUs and 1 GPUs, and no node of the Ray cluster has "
        "them. Waiting.",
    )
    stream.messages.append(None)
    assert driver.events() == []


# The connection


def test_ray_is_shut_down_after_an_error(tmp_path, ray):
    ray.resources = {}
    with pytest.raises(ValueError, match="asks for 1 CPUs and 0 GPUs, and no node"):
        Driver(tmp_path)
    assert not ray.connected
    ray.resources = {"CPU": 1.0}
    with pytest.raises(ValueError, match=r"for each of its 2 processes, and the Ray cluster has no room for them\."):
        Driver(tmp_path, task=_tasks.line.over(2))
    assert not ray.connected
    ray.broken = {"remote": ZeroDivisionError()}
    with pytest.raises(ZeroDivisionError):
        Driver(tmp_path)
    assert not ray.connected


def test_a_connection_that_is_there_already_stays(tmp_path, ray):
    ray.connected = True
    with pytest.raises(ValueError, match="Ray is connected already in this process"):
        Driver(tmp_path)
    assert ray.connected


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.59.1
    Python: 3.11.9
This process on 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.12.1
"""


VERSIONS = (
    "The Ray cluster at 'auto' has Ray 2.59.1 and Python 3.11.9, and this process Ray 2.60.0 and Python 3.12.1: "
    "install the same on all machines."
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError(MISMATCH), VERSIONS),
        (ValueError("Malformed address."), "Ray does not connect to 'auto': Malformed address."),
        (ConnectionError("No instance found"), "No Ray cluster answers at 'auto': No instance found. " + TOKEN),
    ],
)
def test_why_there_is_no_connection_is_one_sentence(error, sentence):
    found = refusal("auto", error)
    assert isinstance(found, StoppedError)
    assert str(found) == sentence


def test_a_line_that_announces_others_is_joined_with_them():
    assert describe(RuntimeError("Two things differ:\n  one\n  two\n")) == "Two things differ: one two."
    assert describe(RuntimeError()) == "RuntimeError."
