"""A trial: one training, as the task's function sees it."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

import trainonce
from trainonce import random_states
from trainonce.study import layout, torchrun
from trainonce.study.checkpoint import Checkpoint, kinds, read_checkpoint, read_spent, write_checkpoint, write_spent
from trainonce.text import is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from trainonce.study.rules import Rule
    from trainonce.study.task import Task
    from trainonce.weighting import LossWeighting, NonFinite

BEAT = 0.2  # seconds between two signs of life


class Trial:
    """What a task's function receives: its criterion, its seed, its device, its folder, and where to report.

    ``seed`` is also torch's, Python's and numpy's when the function starts. ``dir`` is a folder of the trial's own,
    for pictures, models and the like; it is emptied before a trial is run again, unless :meth:`save` has left a
    checkpoint there.
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
        pruner: Callable[[Sequence[tuple[int, float]]], bool] | None = None,
        notify: Callable[[int, int | None, str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.device = torch.device(device)
        self.dir = dir
        self.reports: list[tuple[int, dict[str, float]]] = []
        self.pruned = False
        self.history: trainonce.History | None = None
        self.steps = 0  # of the optimizer
        self.total = task.steps
        self._task, self._rule, self._source = task, rule, source
        self._pruner, self._notify = pruner, notify
        self._criterion: LossWeighting | None = None
        self._shown: tuple[int, int | None] | None = None
        self._note, self._notified = "", 0.0
        self._restored: Checkpoint | None = None
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
        if self._restored is None:  # there is no checkpoint, or it cannot be used, or nobody asked for it
            self.wasted = read_spent(self.dir)
            for name in (layout.HISTORY, layout.CHECKPOINT):
                (self.dir / name).unlink(missing_ok=True)
        self.history = trainonce.History(self.dir / layout.HISTORY, step=self.steps or None)
        attachment = self._rule.attach(optimizer, self._criterion, self.history)
        trial = weakref.ref(self)

        def count(*_: Any) -> None:
            if (me := trial()) is not None:
                me.steps += 1
                me._beat()

        optimizer.register_step_post_hook(count)
        if self._restored is not None and self._restored.random:  # now that the model has drawn its first weights
            random_states.put_back(self._restored.random[torchrun.rank()], self.device)
        return attachment

    # Going on after an interruption

    def save(self, state: Mapping[str, Any], *, random: bool = True) -> None:
        """Save a checkpoint, replacing the last one, from which the trial continues if it is stopped or killed.

        Under torchrun every process calls it. The first checkpoint is loaded back at once, as are later ones with
        entries of other types: what could not be restored is an error, and the last checkpoint stays.

        :param state: What :meth:`restore` returns later: tensors, numbers, text, and dicts and lists of them, such as
            the ``state_dict()`` of the model, the criterion, the optimizer and the schedule. The trial itself keeps
            counted steps, reports and the history.
        :param random: Whether to keep the random states, too: torch's, on the CPU and on the trial's CUDA device,
            Python's, and numpy's global one, of every process. :meth:`attach` puts them back.
        """
        if self.history is None:
            raise RuntimeError("trial.save needs the optimizer attached first: call trial.attach(optimizer).")
        if not isinstance(state, Mapping):
            raise TypeError(f"trial.save needs a dict of what to keep, by name; got {type(state).__name__}.")
        if not self._rule.resumable:
            return
        states = torchrun.gather(random_states.collect(self.device)) if random else []
        if not torchrun.is_first():
            return
        state = dict(state)
        self.history.flush()
        content = Checkpoint(self._rule.to_json(), self.steps, self.reports, self.seconds, state, states)
        found = kinds(state)
        if write_checkpoint(self.dir, content, check=not self._loadable or not found <= self._loadable):
            self._loadable |= found
            self.kept, self._kept_seconds = self.fraction, content.seconds
            write_spent(self.dir, self.kept + self.wasted[0], self._kept_seconds + self.wasted[1])

    def restore(self) -> Mapping[str, Any] | None:
        """What :meth:`save` was last given if the trial was interrupted after it, else None; call before ``attach``.

        Random states that were saved are put back by :meth:`attach`: the model may draw its first weights before, and
        what is drawn after it continues as if the training had not been interrupted.
        """
        if self.history is not None:
            raise RuntimeError("trial.restore was called after trial.attach: restore first, then attach, then load.")
        found = torchrun.broadcast(read_checkpoint(self.dir) if torchrun.is_first() else None)
        if found is None or found.rule != self._rule.to_json():  # a search may have proposed other weights
            return None
        self._restored = found
        self.steps, self.reports = found.steps, [(step, dict(values)) for step, values in found.reports]
        self._spent = self._kept_seconds = found.seconds
        self.kept = self.fraction
        fraction, seconds = read_spent(self.dir)
        self.wasted = max(0.0, fraction - self.kept), max(0.0, seconds - found.seconds)
        return found.state

    @property
    def seconds(self) -> float:
        """How long the trial has taken, with what went before an interruption and was not lost."""
        return self._spent + time.monotonic() - self._began

    @property
    def lost(self) -> tuple[float, float]:
        """The part of a full training, and the seconds, that are lost if it ends now: since the last checkpoint."""
        return self.fraction - self.kept, self.seconds - self._kept_seconds

    # Reporting

    def report(self, step: int, **metrics: float) -> None:
        """Report metrics of the selecting split after ``step`` optimizer steps: ``trial.report(100, accuracy=91)``.

        A task with the setting ``epochs``, and none ``steps``, counts epochs.
        """
        metric = self._task.metric
        if metric not in metrics:
            raise ValueError(f"trial.report needs the task's metric, {metric!r}; got {quoted(metrics) or 'none'}.")
        if self.reports and step <= self.reports[-1][0]:
            raise ValueError(f"trial.report needs growing steps; got {step} after {self.reports[-1][0]}.")
        values = {name: as_float(f"trial.report's {name}", value) for name, value in metrics.items()}
        self.reports.append((int(step), values))
        self._note = f"{metric} {values[metric]:.4g}"
        self._beat()

    def should_prune(self) -> bool:
        """Whether the plan stops this trial, given the reports so far; if so, return None. Only searches prune."""
        if self._pruner is not None and self.reports and not self.pruned:
            self.pruned = self._pruner([(step, values[self._task.metric]) for step, values in self.reports])
        self.pruned = torchrun.broadcast(self.pruned)
        return self.pruned

    def progress(self, step: int, total: int | None = None, note: str = "") -> None:
        """Show how far the training is, in any unit. Optional: optimizer steps are counted automatically."""
        self._shown, self._note = (step, total), note or self._note
        self._beat()

    @property
    def fraction(self) -> float:
        """The part of a full training that was done; 1 where its length is not known."""
        reported = (self.reports[-1][0], self._task.epochs) if self.reports and self._task.epochs else (1, 1)
        done, total = (self.steps, self.total) if self.total else self._shown or reported
        return min(1.0, done / total) if total else 1.0

    def _beat(self) -> None:
        if self._notify is not None and time.monotonic() - self._notified > BEAT:
            self._notified = time.monotonic()
            self._notify(*(self._shown or (self.steps, self.total)), self._note)


def as_float(what: str, value: object) -> float:
    """A metric as a Python float; tensors of one element are fine."""
    if not is_number(value) and hasattr(value, "item"):
        with contextlib.suppress(ValueError, RuntimeError):  # of several elements
            value = value.item()
    if not is_number(value):
        raise TypeError(f"{what} must be a number; got {type(value).__name__}.")
    return float(value)  # type: ignore[arg-type]


def check_metrics(task: Task, returned: Any) -> tuple[dict[str, float], list[str]]:
    """The metrics a task's function returned, checked, and the names of those that count and are not finite."""
    if not isinstance(returned, dict) and not hasattr(returned, "keys"):
        raise TypeError(
            f"The task {task.name!r} must return a dict with {task.select_key!r} and {task.report_key!r}; it returned "
            f"{'nothing' if returned is None else type(returned).__name__}."
        )
    missing = [key for key in (task.select_key, task.report_key) if key not in returned]
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
            if key in (task.select_key, task.report_key):
                raise
            warnings.warn(f"{error} It is not kept; write what else you need to trial.dir.", stacklevel=2)
    return metrics, [key for key in (task.select_key, task.report_key) if not math.isfinite(metrics[key])]
