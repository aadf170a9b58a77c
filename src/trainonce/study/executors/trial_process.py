"""A trial in a process of its own on a worker: the worker stays, and the trial gives back all memory when it ends.

The worker itself loads neither torch nor the task: both are loaded once, in the server that its processes are forked
from. So what belongs to the trial passes through it as bytes.
"""

from __future__ import annotations

import contextlib
import glob
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.study.executors import trial_files
from trainonce.study.executors.exits import describe_exit
from trainonce.study.executors.parent_watch import end_with_parent
from trainonce.study.executors.trial_files import Began, Died, Outgoing, Packed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection

    from trainonce.study.executors.base import Event
    from trainonce.study.executors.trial_files import Message, Piece

POLL = 0.2  # seconds between two looks at the checkpoint
PAUSE = 10.0  # seconds between two checkpoints that are sent, at least
SHARE = 20  # and at least so many times what sending the last one has taken


class Given(NamedTuple):
    """What a worker is given for a trial.

    ``assignment`` is pickled. ``preload`` names modules to load once. The files of the task were in ``origin``, and are
    in ``place`` on this machine. ``environment``: variables to set for the trial.
    """

    key: str
    assignment: bytes
    preload: tuple[str, ...] = ()
    origin: str | None = None
    place: str | None = None
    environment: Mapping[str, str] = {}


def run(given: Given, files: Iterable[Piece]) -> Iterator[Message]:
    """Train in a process of its own, and yield what the driver must know: progress, files, how it has ended.

    An error of this machine, such as a full disk, is an OSError that names it.

    :param files: For the trial, as :func:`~trainonce.study.executors.trial_files.pieces_for` makes them.
    """
    yield Began()
    folder, process = None, None
    try:
        folder = _make_folder()
        for piece in files:
            trial_files.write(folder, piece)
        outgoing = Outgoing(given.key, folder)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = _start(given, folder, theirs)
        theirs.close()
        last = yield from _follow(process, ours, outgoing)
        yield from outgoing.everything(last)
    except OSError as error:
        raise OSError(f"{error}, on {socket.gethostname()}") from None
    finally:
        if process is not None and process.is_alive():
            process.kill()
            process.join()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder() -> Path:
    """A folder for a trial, named after this machine and worker; those of workers that were killed are removed."""
    start = f"trainonce-{socket.gethostname()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{glob.escape(start)}*"):
        number = path.name.removeprefix(start).partition("-")[0]
        if number.isdecimal() and not _is_alive(int(number)):
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{start}{os.getpid()}-"))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _start(given: Given, folder: Path, pipe: Connection) -> Any:
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainonce.study.executors.assignment", *given.preload])
    process = context.Process(target=main, args=(given, str(folder), pipe), name=f"trial {given.key}", daemon=False)
    engine, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        process.start()  # without loading the script of this process, which is the engine's
    finally:
        sys.modules["__main__"] = engine
    return process


def _follow(process: Any, pipe: Connection, outgoing: Outgoing) -> Generator[Message, None, Packed | Died]:
    """Yield progress and checkpoints until the trial has ended; returns what it ends with."""
    after = 0.0
    while True:
        ready = pipe.poll(POLL)
        alive = process.is_alive()
        try:
            message = Packed(*pipe.recv()) if ready or pipe.poll() else None
        except (EOFError, OSError):
            message, alive = None, False
        if message is None and not alive:
            process.join()
            return Died(describe_exit(process.exitcode))
        if message is not None and message.last:
            process.join(5)
            return message
        if message is not None:
            yield message
        if outgoing.is_due and time.monotonic() > after:
            start = time.monotonic()
            yield from outgoing.checkpoint()
            after = time.monotonic() + max(PAUSE, SHARE * (time.monotonic() - start))


def main(given: Given, folder: str, pipe: Connection) -> None:
    """The life of a trial's process."""
    from trainonce.study.executors.assignment import train_over_ranks  # here: the worker itself must not load torch
    from trainonce.study.executors.worker_process import redirect_output

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(last=lambda: shutil.rmtree(folder, ignore_errors=True))
    redirect_output(Path(folder, trial_files.log_path(given.key)))
    os.environ.update(given.environment)
    assignment = pickle.loads(given.assignment)
    if given.origin is not None and given.place is not None:
        os.chdir(given.place)
        sys.path.insert(0, given.place)
        assignment = assignment.move(Path(given.origin), Path(given.place))

    def send(event: Event | None) -> None:
        with contextlib.suppress(OSError):
            pipe.send((pickle.dumps(event), event is None or event.kind != "beat"))

    source = assignment.job.source
    other = None if source is None else Path(folder, trial_files.trial_path(source))
    send(train_over_ranks(assignment, Path(folder, trial_files.trial_path(given.key)), other, send))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads or processes the task has left behind
