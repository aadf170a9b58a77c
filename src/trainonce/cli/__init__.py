"""The command ``trainonce``: compare, run, evaluate, data, summary, report, clean, recipes, plans, explain."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING

from trainonce.cli import study_file
from trainonce.cli.arguments import build_parser, put_task_first
from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import load_task
from trainonce.cli.training import compare, run
from trainonce.errors import StoppedError, TerminatedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

__all__ = ["load_task", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    asked = build_parser().parse_args(put_task_first(sys.argv[1:] if arguments is None else arguments))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names may hold what the terminal's encoding does not
    command: Callable[[argparse.Namespace], int] = asked.command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
            if command is compare and study_file.is_study_file(asked.task):
                study_file.fill_in(asked)
            if command not in (compare, run):
                return command(asked)
            with _end_by_sigterm():
                return _run_together(command, asked)
    except BrokenPipeError:  # the reader of our output has gone
        return 1
    except (Problem, StoppedError, ImportError, ValueError, OSError) as error:
        print(_sentence(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Finished trials are kept: the same command goes on from there.", file=sys.stderr)
        return 130
    except TerminatedError:
        print("\nEnded by SIGTERM. Finished trials are kept: the next worker goes on from there.", file=sys.stderr)
        return 128 + signal.SIGTERM


@contextlib.contextmanager
def _end_by_sigterm() -> Iterator[None]:
    """Let the first SIGTERM to this process end the block by an exception, so that it takes its children along."""
    if "RANK" in os.environ or threading.current_thread() is not threading.main_thread():
        yield  # torchrun ends its processes itself
        return
    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a process that was forked from this one
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        signal.signal(number, signal.SIG_IGN)
        loop = sys.modules.get("trainonce.study.loop")  # a training in this process keeps its state first
        if loop is None or not loop.end_by_signal():
            raise TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_together(command: Callable[[argparse.Namespace], int], asked: argparse.Namespace) -> int:
    """The command; under torchrun its trials are trained by all processes together, and the first does the rest."""
    if "RANK" not in os.environ:  # torchrun sets it; without it there is no need for torch yet
        return command(asked)
    from trainonce.study import torchrun

    with torchrun.process_group(asked.device) as device:
        if device is None:
            return command(asked)
        if asked.executor not in (None, "in-process"):
            raise Problem(f"Under torchrun all processes train together: leave out --executor {asked.executor}.")
        if not torchrun.is_first():
            try:
                task = with_settings(load_task(asked.task), asked)
            except (Problem, ImportError, ValueError, OSError):
                task = None  # the first process meets the same error and reports it
            return torchrun.follow(task, device)
        asked.workers, asked.device = 0, device
        try:
            return command(asked)
        finally:
            torchrun.dismiss()


def _sentence(error: Exception) -> str:
    if isinstance(error, ImportError):
        return str(error)  # ends with the line to type
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if text.endswith((".", "?")) else f"{text}."
