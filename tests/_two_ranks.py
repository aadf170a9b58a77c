"""Two gloo processes that stay up and run functions, so that many tests share the seconds it takes to start them."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

WORLD = 2
LIMIT = 60.0  # seconds a call may take before both ranks are killed
GRACE = 3.0  # seconds the other rank gets once one has failed: it may wait in a collective that never completes


class RankError(RuntimeError):
    """A function failed, hung or died on a rank; the message holds the traceback of each."""


class TwoRanks:
    """``pair(function, *args)`` runs a module-level function on both ranks and returns its two results, rank 0 first.

    Arguments and results are pickled: plain numbers, lists and dicts. Warnings are errors on the ranks. After a failure
    the processes are killed and the next call starts new ones, since one rank may be left inside a collective.
    """

    def __init__(self) -> None:
        self._processes: list[Any] = []
        self._pipes: list[Any] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __call__(
        self, function: Callable[..., Any], *args: object, limit: float = LIMIT, **kwargs: object
    ) -> list[Any]:
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = self._collect(time.monotonic() + limit)
        failed = {rank: text for rank, (ok, text) in answers.items() if not ok}
        if failed or len(answers) < WORLD:
            self.kill()
            missing = {r: "no answer: hung or died, killed" for r in range(WORLD) if r not in answers}
            report = "\n".join(f"rank {rank}: {text}" for rank, text in sorted((failed | missing).items()))
            raise RankError(f"{function.__name__} failed.\n{report}")
        return [answers[rank][1] for rank in range(WORLD)]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            for pipe in self._pipes:
                pipe.send(None)
        for process in self._processes:
            process.join(GRACE)
        self.kill()

    def _start(self) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        rendezvous = Path(self._folder.name, "rendezvous").as_uri()
        for rank in range(WORLD):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, rendezvous, there), daemon=True)
            process.start()
            there.close()  # or the end of the process would go unnoticed
            self._pipes.append(here)
            self._processes.append(process)

    def _collect(self, deadline: float) -> dict[int, tuple[bool, Any]]:
        answers: dict[int, tuple[bool, Any]] = {}
        waiting = dict(zip(self._pipes, range(WORLD), strict=True))
        while waiting and (left := deadline - time.monotonic()) > 0:
            for pipe in multiprocessing.connection.wait(list(waiting), timeout=left):
                rank = waiting.pop(pipe)
                try:
                    answers[rank] = pipe.recv()
                except (EOFError, OSError):
                    answers[rank] = (False, "the process ended")
                if not answers[rank][0]:
                    deadline = min(deadline, time.monotonic() + GRACE)
        return answers

    def _forget(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._processes, self._pipes, self._folder = [], [], None


def _serve(rank: int, rendezvous: str, pipe: Any) -> None:
    torch.set_num_threads(1)
    patience = timedelta(seconds=LIMIT)  # of a collective whose other side was killed
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD, timeout=patience)
    with contextlib.suppress(EOFError):  # the parent is gone
        while (task := pipe.recv()) is not None:
            pipe.send(_answer(*task))
    dist.destroy_process_group()


def _answer(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(0)
        try:
            return True, function(*args)
        except BaseException:  # some of torch.distributed's errors are no Exception
            return False, traceback.format_exc()
