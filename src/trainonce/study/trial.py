"""A trial: one training, as the task's function sees it."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

import trainonce
from trainonce.errors import InputError
from trainonce.study import layout, torchrun
from trainonce.study.checkpoint import Checkpoint, kinds, read_checkpoint, read_spent, write_checkpoint, write_spent
from trainonce.study.loop import Batches, Loop, check_complete, named
from trainonce.text import is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from trainonce.study.loop import Parts
    from trainonce.study.rules import Rule
    from trainonce.study.task import Task
    from trainonce.weighting import LossWeighting, NonFinite

BEAT = 0.2  # seconds between two signs of life


class Trial:
    """What a task's function receives: its criterion, its seed, its device, its folder, and where to report.

    ``seed`` is also torch's, Python's and numpy's when the function starts. ``dir`` is a folder of the trial's own,
    for pictures, models and the like; it is emptied before a trial is run again, unless :meth:`loop` has left a
    checkpoint there. ``until`` is the part of the training after which this run of the trial pauses; 1 is the end.
    """

    def __init__(
        self,
        task: Task,
        rule: Rule,
        seed: int,
        *,
        dir: Path,  # noqa: A002 the name that users know from other tools
        device: torch.device | str = "cpu",
        source: Path | None = None,
        until: float = 1.0,
        notify: Callable[[int, int | None, str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.device = torch.device(device)
        self.dir = dir
        self.reports: list[tuple[int, dict[str, float]]] = []
        self.history: trainonce.History | None = None
        self.steps = 0  # of the optimizer
        self.total = task.steps
        self.until = until
        self._task, self._rule, self._source = task, rule, source
        self._notify = notify
        self._criterion: LossWeighting | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._loop: Loop | None = None
        self._note, self._notified = "", 0.0
        self._restored: Checkpoint | None = None
        self._looked = False  # whether for a checkpoint
        self._spent, self._began = 0.0, time.monotonic()
        self.kept, self._kept_seconds = 0.0, 0.0  # what the last checkpoint holds
        self.wasted = (0.0, 0.0)  # what earlier runs cost that no checkpoint holds and no record counts
        self._loadable: set[type] = set()  # of entries that a checkpoint was seen to hold

    def criterion(
        self,
        terms: Sequence[str] | None = None,
        *,
        validation: Callable[[], Tensor] | None = None,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> LossWeighting:
        """Make the criterion to train with, on the trial's device. The plan decides which rule it is.

        :param terms: The task's terms, if you want to repeat them here.
        :param validation: A function that returns a loss on data that is not trained on, with its graph, as in
            :class:`trainonce.BalancedLoss`; it aligns a balance. Rules without alignment ignore it.
        :param scale: As in :class:`trainonce.LossWeighting`.
        :param nonfinite: As in :class:`trainonce.LossWeighting`.
        """
        if terms is not None and tuple(terms) != self._task.terms:
            raise ValueError(
                f"The task {self._task.name!r} was declared with the terms {quoted(self._task.terms)}; its function "
                f"asks for {quoted(terms)}. Use the same in both places."
            )
        if self._criterion is not None:
            raise RuntimeError("trial.criterion was called twice. A trial has one criterion: keep it and pass it on.")
        with torch.random.fork_rng(devices=[]):  # the model starts the same whatever the criterion draws
            made = self._rule.build(
                self._task.terms,
                scale=scale,
                nonfinite=nonfinite,
                validation=validation,
                steps=self.total,
                source=self._source,
            )
        self._criterion = made.to(self.device)
        return self._criterion

    @property
    def measures(self) -> bool:
        """Whether the criterion may run backward through the losses itself, besides the loop's own pass.

        Gradient balance does. A CUDA graph of the losses cannot be run backward twice, for one.
        """
        return self._rule.measures

    @property
    def not_aligned(self) -> str:
        """Why no validation loss moved the balance, in a sentence; nothing where one did, or none should."""
        made = self._criterion
        if made is None or not self._rule.aligns:
            return ""
        if getattr(made, "validation", None) is None:
            return (
                f"The task {self._task.name!r} passes no validation loss to trial.criterion(validation=...), so the "
                "balance was not aligned."
            )
        if bool(made.square.isnan().all()):  # type: ignore[operator]
            return "The balance was not aligned: no batch had all terms at a step that measures."
        return ""

    def attach(self, optimizer: torch.optim.Optimizer) -> trainonce.Attachment:
        """Put the criterion into the optimizer as the plan says, and record the run; before schedulers and wrappers."""
        if self._criterion is None:
            raise RuntimeError("trial.attach needs the criterion first: call trial.criterion().")
        if self.restored() is None:  # there is no checkpoint, or it cannot be used
            self.wasted = read_spent(self.dir)
            for name in (layout.HISTORY, layout.CHECKPOINT):
                (self.dir / name).unlink(missing_ok=True)
        self.history = trainonce.History(self.dir / layout.HISTORY, step=self.steps or None)
        attachment = self._rule.attach(optimizer, self._criterion, self.history)
        trial = weakref.ref(self)

        def count(*_: Any) -> None:
            if (me := trial()) is not None:
                me._check_paused()
                me.steps += 1
                me._beat()

        optimizer.register_step_post_hook(count)
        self._optimizer = optimizer
        return attachment

    # Going on after a pause or an interruption

    def loop(self, parts: Parts, *, steps: int | None = None) -> Loop:
        """Iterate over the steps of the training that are left, from where it was paused, stopped or killed.

        The state of all parts is put back before the first step, and kept at a pause, every few minutes and on SIGTERM.
        At a pause the loop ends early, :attr:`paused` is true, and the function returns its metrics as always.

        :param parts: A list of all that the training changes and that is not the trial's own: the model, schedules,
            averages, loaders made by :meth:`batches`, and generators of random numbers of torch, numpy or Python. Each
            has ``state_dict`` and ``load_state_dict``, or is a generator. The criterion, the attached optimizer, the
            history and the global random states are always kept.
        :param steps: How many steps a training has, by default the task's setting of that name.

        >>> for step in trial.loop([model, schedule, rng]):  # doctest: +SKIP
        ...     criterion(losses(model)).backward()
        """
        criterion, optimizer = self._attached()
        content = named(parts)
        total = self._task.steps if steps is None else steps
        if total is None or total < 1:
            raise ValueError(
                f"trial.loop needs the number of steps, at least 1; the task {self._task.name!r} has no setting "
                f"'steps', and got {steps!r}. Give it: trial.loop([model, ...], steps=1000)."
            )
        given = {id(part) for part in content.values()}
        for name, own in {"optimizer": optimizer, "criterion": criterion}.items():
            if id(own) not in given:
                content[f"trial.{name}"] = own
        check_complete(content.values(), optimizer, criterion.parameters())
        return self._begin(content, total)

    def follow(self, trainer: Any, steps: int) -> Loop:
        """Begin the loop of a trainer that makes the steps itself, for the callbacks in :mod:`trainonce.integrations`.

        :param trainer: Its ``state_dict`` writes the trainer's own checkpoint, with model, optimizer and schedules.
        """
        criterion, _ = self._attached()
        return self._begin({"trainer": trainer, "trial.criterion": criterion}, steps)

    def _attached(self) -> tuple[LossWeighting, torch.optim.Optimizer]:
        """Return what is attached, or raise where no loop can begin."""
        if self.history is None or self._optimizer is None or self._criterion is None:
            raise RuntimeError("trial.loop needs the optimizer attached first: call trial.attach(optimizer).")
        if self._loop is not None:
            raise RuntimeError("trial.loop was called twice. A training has one loop.")
        return self._criterion, self._optimizer

    def _begin(self, content: dict[str, Any], total: int) -> Loop:
        self.total = total
        restored, self._restored = self._restored, None
        self._loop = Loop(self, content, total, self.until, restored, self._save)
        return self._loop

    def batches(self, loader: Any) -> Batches:
        """Return the batches of a ``DataLoader``, epoch after epoch, for a loop that can go on within an epoch.

        Their order depends on the trial's seed and the epoch. Name them among the parts of :meth:`loop`, and take one
        with ``next(batches)``.
        """
        return Batches(loader, self.seed)

    @property
    def paused(self) -> bool:
        """Whether the loop has ended before the training: what only its end needs can be left out."""
        return self._loop is not None and self._loop.paused

    def _check_paused(self) -> None:
        """Raise at a step that no pause could follow."""
        if self.until < 1 and self._loop is None:
            raise InputError(
                f"The plan pauses its trainings, and the task {self._task.name!r} trains without trial.loop, so it "
                "cannot. Write the loop as: for step in trial.loop([model, schedule]). A Trainer of "
                "Lightning or Hugging Face needs the TrialCallback(trial) of trainonce.integrations as a callback."
            )
        if self.paused:
            raise RuntimeError("The optimizer made a step after trial.loop had paused the training. Return instead.")

    def _save(self, iteration: int, state: Mapping[str, Any], random: Sequence[Mapping[str, Any]]) -> None:
        """Write a checkpoint; the first, and those with entries of other types, are loaded back before they count."""
        if not torchrun.is_first():
            return
        assert self.history is not None
        assert self.total is not None
        self.history.flush()
        seconds, rule = self.seconds, self._rule.to_json()
        content = Checkpoint(rule, self.steps, iteration, self.total, self.reports, seconds, state, random)
        found = kinds(state)
        if write_checkpoint(self.dir, content, check=not self._loadable or not found <= self._loadable):
            self._loadable |= found
            self.kept, self._kept_seconds = self.fraction, seconds
            self.note_spent()

    def note_spent(self) -> None:
        """Note what the trial has cost up to its last checkpoint, and what its evaluation at a pause has taken."""
        seconds = self.seconds if self.paused else self._kept_seconds
        write_spent(self.dir, self.kept + self.wasted[0], seconds + self.wasted[1])

    def restored(self) -> Checkpoint | None:
        """Look for a checkpoint of an earlier run of the trial, once, and take the counts that it holds."""
        if self._looked:
            return self._restored
        self._looked = True
        found = torchrun.broadcast(read_checkpoint(self.dir) if torchrun.is_first() else None)
        if found is None or found.rule != self._rule.to_json():  # a search may have proposed other weights
            return None
        self._restored = found
        self.steps, self.reports = found.steps, [(step, dict(values)) for step, values in found.reports]
        self._spent = self._kept_seconds = found.seconds
        fraction, seconds = read_spent(self.dir)
        self.kept = found.iteration / found.total
        self.wasted = max(0.0, fraction - self.kept), max(0.0, seconds - found.seconds)
        return found

    @property
    def seconds(self) -> float:
        """How long the trial has taken, with what went before an interruption and was not lost."""
        return self._spent + time.monotonic() - self._began

    @property
    def lost(self) -> tuple[float, float]:
        """The part of a full training, and the seconds, that are lost if it ends now: since the last checkpoint."""
        return max(0.0, self.fraction - self.kept), self.seconds - self._kept_seconds

    # Reporting

    def report(self, step: int, **metrics: float) -> None:
        """Report metrics of the selecting split after ``step`` steps, for the curves: ``trial.report(100, acc=91)``."""
        metric = self._task.metric
        if metric not in metrics:
            raise ValueError(f"trial.report needs the task's metric, {metric!r}; got {quoted(metrics) or 'none'}.")
        if self.reports and step <= self.reports[-1][0]:
            raise ValueError(f"trial.report needs growing steps; got {step} after {self.reports[-1][0]}.")
        values = {name: as_float(f"trial.report's {name}", value) for name, value in metrics.items()}
        self.reports.append((int(step), values))
        self._note = f"{metric} {values[metric]:.4g}"
        self._beat()

    @property
    def fraction(self) -> float:
        """The part of a full training that was done; 1 where its length is not known."""
        done, total = self._progress()
        return min(1.0, done / total) if total else 1.0

    def _progress(self) -> tuple[int, int | None]:
        if self._loop is not None:
            return self._loop.done, self._loop.total
        if self.reports and self._task.epochs and not self.total:
            return self.reports[-1][0], self._task.epochs
        return self.steps, self.total

    def _beat(self) -> None:
        if self._notify is not None and time.monotonic() - self._notified > BEAT:
            self._notified = time.monotonic()
            self._notify(*self._progress(), self._note)


def as_float(what: str, value: object) -> float:
    """A metric as a Python float; tensors of one element are fine."""
    if not is_number(value) and hasattr(value, "item"):
        with contextlib.suppress(ValueError, RuntimeError):  # of several elements
            value = value.item()
    if not is_number(value):
        raise TypeError(f"{what} must be a number; got {type(value).__name__}.")
    return float(value)  # type: ignore[arg-type]


def check_metrics(task: Task, returned: Any, *, paused: bool = False) -> tuple[dict[str, float], list[str]]:
    """The metrics a task's function returned, checked, and the names of those that count and are not finite.

    :param paused: Whether the training is not at its end: then the metric that selects is enough.
    """
    wanted = [task.select_key] if paused else [task.select_key, task.report_key]
    if not isinstance(returned, dict) and not hasattr(returned, "keys"):
        raise TypeError(
            f"The task {task.name!r} must return a dict with {task.select_key!r} and {task.report_key!r}; it returned "
            f"{'nothing' if returned is None else type(returned).__name__}."
        )
    missing = [key for key in wanted if key not in returned]
    if missing:
        raise ValueError(
            f"The task {task.name!r} must return {task.select_key!r} and {task.report_key!r}; it returned "
            f"{quoted(list(returned)) or 'an empty dict'}. Missing: {quoted(missing)}."
        )
    metrics = {}
    for key, value in returned.items():
        try:
            metrics[str(key)] = as_float(f"The metric {key!r}", value)
        except TypeError as error:
            if key in wanted:
                raise
            warnings.warn(f"{error} It is not kept; write what else you need to trial.dir.", stacklevel=2)
    return metrics, [key for key in wanted if not math.isfinite(metrics[key])]
