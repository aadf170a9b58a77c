"""One trial from start to record, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import math
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

import trainonce
from trainonce.errors import InputError
from trainonce.study import torchrun
from trainonce.study.executors.parent_watch import end_with_parent
from trainonce.study.store import Record, Status, Store
from trainonce.study.task import Task
from trainonce.study.trial import CHECKPOINT, Trial, finished, seed_everything
from trainonce.study.weightings import Fixed, Weighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from trainonce.study.search import Search

#: What a worker may say of a trial: how far it is; that it ended; that another process has it or has done it; that the
#: study cannot go on, and why.
News = tuple[Literal["beat", "end", "taken", "there", "stop"], Any]

#: In the record of a search's trial that failed before it had weights.
UNKNOWN = Fixed(())


@dataclasses.dataclass(frozen=True)
class Where:
    """Where another process finds a task: the file or the module, and the name in it."""

    file: str | None
    module: str
    name: str

    @classmethod
    def of(cls, task: Task) -> Where | None:
        """None if no other process can find it: it was made in a notebook, in a function, or by hand."""
        function = task.function
        module = sys.modules.get(function.__module__)
        found = vars(module).items() if module else ()
        names = [key for key, value in found if isinstance(value, Task) and value.function is function]
        if not names:
            return None
        name = names[0]
        file = getattr(module, "__file__", None)
        if function.__module__ == "__main__" or getattr(module, "__trainonce_file__", False):
            return cls(file, function.__module__, name) if file and os.path.isfile(file) else None
        return cls(None, function.__module__, name)

    def load(self) -> Task:
        module = load_file(Path(self.file)) if self.file else importlib.import_module(self.module)
        task = getattr(module, self.name)
        assert isinstance(task, Task)
        return task


def load_file(path: Path) -> Any:
    """The module in a file, which may import its neighbours as if it were run."""
    path = path.absolute()  # workers may be started from another directory
    name = f"trainonce_task_{path.stem}"
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__trainonce_file__ = True  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@dataclasses.dataclass(frozen=True)
class Job:
    """A trial to run. Of a search, ``point`` is None and ``done`` holds its earlier trials."""

    key: str
    seed: int
    weighting: Weighting | None
    source: str | None = None  # the key of the trial that the point needs
    search: Search | None = None
    number: int = 0  # within the search
    done: Sequence[Record] = ()
    since: float = 0.0  # when the study was started: a failure recorded later is not tried again


def run(
    task: Task, job: Job, store: Store, device: str, tell: Callable[[int, int | None, str], None] | None = None
) -> News:
    """Run the trial unless somebody else has it, record it, and say how it went."""
    with store.claim(job.key) as mine:
        if not mine:
            return "taken", None
        there = store.read().get(job.key)
        if there is not None and (there.status != "failed" or there.ended > job.since):
            return "there", there
        try:
            record = attempt(task, job, store, device, tell)
        except InputError as error:
            return "stop", str(error)
        try:
            store.append(record)
        except OSError as error:
            return "stop", f"{error.strerror}."
        if record.status == "failed" and torchrun.world_size() > 1:
            return (
                "stop",
                f"The trial failed, and with it those of the other processes: {(record.error or {})['message']}",
            )
        return "end", record


def attempt(
    task: Task, job: Job, store: Store, device: str, tell: Callable[[int, int | None, str], None] | None
) -> Record:
    """Train once and describe what came out, also when the task raises."""
    folder, start = store.folder(job.key), time.time()
    if not (folder / CHECKPOINT).is_file():
        shutil.rmtree(folder, ignore_errors=True)
    weighting, trial, metrics, error = job.weighting, None, dict[str, float](), None
    status: Status = "failed"
    said: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pruner = None
        if job.search is not None:
            known = (task.terms, task.direction, job.done, task.select_key)
            weighting = job.search.propose(*known, job.seed, job.number)
            pruner = job.search.pruner(*known)
        assert weighting is not None
        source = None if job.source is None else store.folder(job.source)
        trial = Trial(task, weighting, job.seed, dir=folder, device=device, source=source, pruner=pruner, tell=tell)
        torchrun.announce(weighting, job.seed, None if source is None else str(source))
        seed_everything(job.seed)
        with _collected(said):
            returned = task(trial)
            torchrun.end_trial()
            if pruner is not None and not trial.reports:
                said.append(f"The task {task.name!r} makes no trial.report, so no training could be stopped early.")
            if trial.pruned:
                status = "pruned"
            else:
                metrics, not_finite = finished(task, returned)
                status = "diverged" if not_finite else "done"
            if trial.history is None:
                raise RuntimeError(
                    f"The task {task.name!r} never called trial.attach(optimizer): the plan had no say in its weights."
                )
            trial.history.flush()
    except (Exception, SystemExit) as caught:
        status = "failed"
        if isinstance(caught, InputError):
            torchrun.end_trial()
            raise
        traceback.print_exc()
        error = {"type": type(caught).__name__, "message": str(caught), "traceback": traceback.format_exc()}
    finally:
        if trial is not None and trial.history is not None:
            with contextlib.suppress(Exception):  # of a device that failed nothing can be read
                trial.history.flush()  # now: later it could write between the rows of a trial that goes on
    if status != "failed":
        (folder / CHECKPOINT).unlink(missing_ok=True)
    fraction, seconds = _cost(trial, status, start)
    weights: list[float] = []
    if trial is not None and trial._criterion is not None:
        try:
            weights = trial._criterion.weights.tolist()
        except RuntimeError:
            if status != "failed":  # of a device that failed nothing can be read
                raise
    if not all(map(math.isfinite, weights)):
        said.append("The weights were not finite at the end: some loss was not, or its gradient.")
    return Record(
        key=job.key,
        task=task.name,
        weighting=weighting if weighting is not None else UNKNOWN,
        seed=job.seed,
        status=status,
        metrics=metrics,
        reports=[] if trial is None else trial.reports,
        weights=weights,
        seconds=round(seconds, 3),
        fraction=round(fraction, 4),
        ended=time.time(),
        device=device_name(device),
        versions={"trainonce": trainonce.__version__, "torch": str(torch.__version__)},
        warnings=said,
        error=error,
    )


def _cost(trial: Trial | None, status: Status, start: float) -> tuple[float, float]:
    """What the trial cost, in full trainings and in seconds. Of a failed one what is lost: it goes on from the rest."""
    if trial is None:
        return 0.0, time.time() - start
    if status == "failed":
        return trial.lost
    return trial.fraction if status == "pruned" else 1.0, trial.seconds


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else str(device)


def answers(device: str) -> bool:
    """Whether the device still works in this process: after some errors a GPU does not, whatever is asked of it."""
    try:
        torch.zeros((), device=device).item()
    except torch.OutOfMemoryError:
        return True
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def _collected(said: list[str]) -> Iterator[None]:
    """Keep what is warned of, each text once, and show it as usual."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def keep(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = f"{category.__name__}: {message}"
            if text not in said:
                said.append(text)
            show(message, category, *where, **more)

        warnings.showwarning = keep
        yield


# In a process of its own


def main(
    where: Where,
    settings: dict[str, Any],
    identity: str,
    job: Job,
    path: str,
    device: str,
    threads: int,
    pipe: Connection,
) -> None:
    """The whole life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone answers it
    end_with_parent()  # a trial whose study was killed would go on unseen, and keep its device
    torch.set_num_threads(threads)
    store = Store(path)

    def send(news: News) -> None:
        with contextlib.suppress(OSError):
            pipe.send(news)

    _redirect_output(store.log(job.key))
    task = where.load().using(**settings)
    if task.identity != identity:
        send(("stop", f"The file of the task {task.name!r} was changed while the study was running. Start it again."))
    else:
        send(run(task, job, store, device, tell=lambda step, total, note: send(("beat", (step, total, note)))))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads or processes the task has left behind


def _redirect_output(path: Path) -> None:
    """What the task prints goes to its log and not into the study's display."""
    path.parent.mkdir(exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
