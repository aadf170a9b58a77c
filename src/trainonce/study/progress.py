"""How a running study is shown: a live line per trial on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.study import layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from trainonce.study.record import Record
    from trainonce.study.runner import Listener
    from trainonce.study.schedule import Item
    from trainonce.study.store import Store
    from trainonce.study.task import Task


def listener(task: Task, everything: Sequence[Item], store: Store) -> Listener:
    """The display that suits where the output goes: live on a terminal, else plain lines."""
    keys = {key for item in everything for key in item.keys}
    there = {record.key for record in store.read_all() if record.key in keys and record.status != "failed"}
    if there:
        print(f"{len(there)} of {len(keys)} trials are already in {store.shown}.", flush=True)
    begun = sum((store.folder(key) / layout.CHECKPOINT).is_file() for key in keys - there)
    if begun:
        what = "1 trial has a checkpoint" if begun == 1 else f"{begun} trials have checkpoints"
        print(f"{what} to go on from.", flush=True)
    make = Live if sys.stdout.isatty() else Lines
    return make(task, len(keys), there)


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


class Silent:
    """Shows nothing; the others build on it. What ``left`` seconds remain is 0 after the last trial, or not known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def on_start(self, key: str, label: str, seed: int) -> None: ...

    def on_progress(self, key: str, step: int, total: int | None, note: str) -> None: ...

    def on_end(self, record: Record, label: str, left: float) -> None: ...

    def on_skip(self, label: str, seed: int, why: str) -> None: ...

    def on_wait(self, count: int) -> None: ...

    def on_note(self, text: str) -> None: ...


class Lines(Silent):
    """A line for each trial that ended. One that had paused before is counted already."""

    def __init__(self, task: Task, total: int, there: set[str]) -> None:
        self._task, self._total, self._there, self._skipped = task, total, there, 0
        self._start, self._waited = time.monotonic(), False

    def on_end(self, record: Record, label: str, left: float) -> None:
        self._there.add(record.key)
        count = f"{len(self._there) + self._skipped:{len(str(self._total))}}/{self._total}"
        rest = "" if math.isnan(left) else f"  ({duration(left)} left)" if left else "  (all done)"
        elapsed = duration(time.monotonic() - self._start)
        print(
            f"{elapsed:>6}  {count}  {label:<28} seed {record.seed}  {describe_end(record, self._task)}{rest}",
            flush=True,
        )

    def on_skip(self, label: str, seed: int, why: str) -> None:
        self._skipped += 1
        print(_describe_skip(label, seed, why), flush=True)

    def on_wait(self, count: int) -> None:
        if not self._waited:
            self._waited = True
            print(f"Waiting for {count} trial{'s' * (count != 1)} that other workers are training.", flush=True)

    def on_note(self, text: str) -> None:
        print(textwrap.fill(text, 100), flush=True)


def _describe_skip(label: str, seed: int, why: str) -> str:
    return f"{label}  seed {seed}  left out: {why}"


def describe_end(record: Record, task: Task) -> str:
    """How a trial ended, in a few words."""
    if record.status in ("done", "paused"):
        at = "" if record.status == "done" else f"at {record.until:.0%}: "
        return f"{at}{task.select} {task.metric} {record.metrics[task.select_key]:.4g}"
    if record.status == "failed" and record.error is not None:
        return f"FAILED: {record.error['type']}: {record.error['message'].partition(chr(10))[0][:200]}"
    return record.status


class Live(Silent):
    """A bar for the study and one for each running trial; failures stay on the screen."""

    def __init__(self, task: Task, total: int, there: set[str]) -> None:
        rich = require("rich.progress", "rich", "study")
        self._task, self._bars = task, dict[str, Any]()
        columns = (
            rich.TextColumn("{task.description:<40}", markup=False),
            rich.BarColumn(bar_width=24),
            rich.TextColumn("{task.fields[note]}", markup=False),
        )
        self._progress = rich.Progress(*columns, transient=True)
        self._total, self._there, self._skipped = total, there, 0
        self._all = self._progress.add_task("study", total=total, completed=len(there), note=self._count)

    @property
    def _done(self) -> int:
        return len(self._there) + self._skipped

    @property
    def _count(self) -> str:
        return f"{self._done}/{self._total} trials"

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_start(self, key: str, label: str, seed: int) -> None:
        self._bars[key] = self._progress.add_task(f"  {label}  seed {seed}"[:40], total=None, note="")

    def on_progress(self, key: str, step: int, total: int | None, note: str) -> None:
        self._progress.update(self._bars[key], completed=step, total=total, note=note)

    def on_end(self, record: Record, label: str, left: float) -> None:
        if record.key in self._bars:
            self._progress.remove_task(self._bars.pop(record.key))
        self._there.add(record.key)
        note = self._count if math.isnan(left) else f"{self._count}, {duration(left)} left"
        self._progress.update(self._all, completed=self._done, note=note)
        if record.status in ("failed", "diverged"):
            self._progress.console.print(
                f"{label}  seed {record.seed}  {describe_end(record, self._task)}", markup=False
            )

    def on_skip(self, label: str, seed: int, why: str) -> None:
        self._skipped += 1
        self._progress.update(self._all, completed=self._done, note=self._count)
        self._progress.console.print(_describe_skip(label, seed, why), markup=False)

    def on_wait(self, count: int) -> None:
        self._progress.update(self._all, note=f"{self._done}/{self._total}, {count} in another process")

    def on_note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)
