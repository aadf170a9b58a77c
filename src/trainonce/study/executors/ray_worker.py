"""What a Ray worker does: it is a worker like any other, of one trial at a time, in the folder that all nodes see."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trainonce
from trainonce.extras import require
from trainonce.study import layout
from trainonce.study.executors import worker_process
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.deaths import describe_other
from trainonce.study.executors.processes import Processes
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainonce.study.executors.sent_task import SentTask
    from trainonce.study.executors.tools import Tools

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # Ray sets them for each task


class Given(NamedTuple):
    """What a worker is given for a trial.

    ``tools`` are those of one process. ``place`` is where the study was started, ``modules`` the folder from which its
    task is imported, ``joined`` the file of a worker that has joined the study, ``environment`` what to set for the
    trial.
    """

    sent: SentTask
    job: Job
    path: str
    tools: Tools
    threads: int
    preload: tuple[str, ...]
    place: str
    modules: str | None
    joined: str
    environment: Mapping[str, str] = {}
    version: str = trainonce.__version__


class Meeting(NamedTuple):
    """Where the first process of a trial can be reached by the others."""

    host: str
    port: int

    @property
    def environment(self) -> dict[str, str]:
        return {"MASTER_ADDR": self.host, "MASTER_PORT": str(self.port)}


def train(given: Given) -> Iterator[Event | Meeting | None]:
    """Train a trial in a process of its own. Ray sends what this yields: first None, then what the driver must know."""
    yield None
    if (wrong := _what_is_wrong(given)) is not None:
        yield Event("stop", wrong)
        return
    if "RANK" in given.environment:
        meeting = _meeting()
        yield meeting
        given = given._replace(environment={**given.environment, **meeting.environment})
    store = Store(given.path)
    try:
        with store.join(_say_nothing), _prepared(given):
            yield from _train(given, store)
    except OSError as error:
        yield Event("stop", f"{str(error.strerror or error).rstrip('.')}.")


def _train(given: Given, store: Store) -> Iterator[Event]:
    executor = Processes(given.sent, store, given.tools, given.preload, _environment(given))
    try:
        executor.start(given.job)
        while not executor.is_idle:
            for _, event in executor.events():
                yield event
    finally:
        executor.stop()


def follow(given: Given) -> str:
    """Train beside the first process of a trial; what went wrong, in a sentence, or nothing."""
    if (wrong := _what_is_wrong(given)) is not None:
        return wrong
    with _prepared(given):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["trainonce.study.executors.worker_process", *given.preload])
        ours, theirs = context.Pipe(duplex=False)
        device = given.tools.devices[0]
        there = worker_process.Given(given.sent, given.job, given.path, device, given.threads, _environment(given))
        process = context.Process(target=worker_process.main, args=(there, theirs), name=worker_process.NAME)
        process.start()
        theirs.close()
    try:
        process.join()
    finally:
        process.kill()
        ours.close()
    if process.exitcode == 0:
        there.log.unlink()
        return ""
    return describe_other(process.exitcode, there.log)


def _what_is_wrong(given: Given) -> str | None:
    """Why this machine cannot work on the study, in a sentence."""
    host, path = socket.gethostname(), Path(given.path)
    if given.version != trainonce.__version__:
        return (
            f"The worker on {host} has trainonce {trainonce.__version__}, the study has {given.version}: install the "
            "same on all machines."
        )
    if not (path / layout.WORKERS / given.joined).exists():
        return (
            f"The worker on {host} does not see the study in {path}: on a Ray cluster it must be in a folder that all "
            "nodes see. Choose one with --out."
        )
    return None


@contextlib.contextmanager
def _prepared(given: Given) -> Iterator[None]:
    """Let processes start as the study's own do: in its directory, and without the script of this one, Ray's."""
    with contextlib.suppress(OSError):  # the machine need not have it
        os.chdir(given.place)
    if given.modules is not None and given.modules not in sys.path:
        sys.path.insert(0, given.modules)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    engine, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = engine


def _environment(given: Given) -> dict[str, str]:
    """What to set for the trial, with the devices that Ray has set aside."""
    return {**{name: os.environ[name] for name in VISIBLE if name in os.environ}, **given.environment}


def _meeting() -> Meeting:
    """This machine's address, and a port that is free now."""
    host = require("ray", "Ray", "ray").util.get_node_ip_address()
    with socket.socket() as listener:
        listener.bind(("", 0))
        return Meeting(host, listener.getsockname()[1])


def _say_nothing(_: str) -> None: ...
