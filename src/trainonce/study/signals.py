"""Ctrl-C and SIGTERM while a study runs: neither is lost, and neither takes effect while a process is being started."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def keep_signals() -> Iterator[Callable[[], None]]:
    """Give a function that raises what a signal during the block should have raised, where that was lost.

    A handler raises wherever the main thread is. In a finalizer, which may run at any time, Python prints what is
    raised and goes on: the study would, too.
    """
    received: list[tuple[Callable[..., Any], int]] = []

    def note(handler: Callable[..., Any]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            received.append((handler, number))
            handler(number, frame)
            received.pop()  # nothing was raised

        return handle

    def check() -> None:
        if received:
            handler, number = received.pop()
            handler(number, None)

    found = {number: signal.getsignal(number) for number in SIGNALS} if in_main_thread() else {}
    before = {number: handler for number, handler in found.items() if callable(handler)}
    for number, handler in before.items():
        signal.signal(number, note(handler))
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def postpone_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect only after the block.

    Interrupted between its connection to the fork server and its request, a start would leave the server with half a
    request, at which it dies with a traceback. The handlers are replaced rather than the signals blocked: one that the
    main thread blocks is delivered through any other thread, and Python still raises in the main one.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if None in before.values() or not in_main_thread():  # a handler that is not Python's cannot be put back
        yield
        return
    received: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
