"""The loop of a training that goes on where it stopped: what it keeps, when it pauses, and batches in a fixed order."""

from __future__ import annotations

import functools
import itertools
import math
import random
import signal
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from trainonce import random_states
from trainonce.errors import InputError, TerminatedError
from trainonce.study import layout, torchrun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from trainonce.study.checkpoint import Checkpoint
    from trainonce.study.trial import Trial

EVERY = 120.0  # seconds between two snapshots
CPU = torch.device("cpu")
SHARE = 0.02  # of the time that snapshots may take
LINGER = 10  # seconds for which the processes of a loader outlive SIGTERM
TOGETHER = 100  # steps after which several processes look at the clock together

Parts = Sequence[Any] | Mapping[str, Any]


class Loop(Iterator[int]):
    """The steps that are left of a training, counted from 0; made by :meth:`trainonce.study.Trial.loop`.

    ``start`` is the first of them: 0, or where the training stopped.
    """

    def __init__(
        self,
        trial: Trial,
        parts: dict[str, Any],
        total: int,
        until: float,
        found: Checkpoint | None,
        write: Callable[[int, Mapping[str, Any], Sequence[Mapping[str, Any]]], None],
    ) -> None:
        self.total = total
        self.stop = total if until >= 1 else min(total, max(1, math.ceil(total * until - 1e-9)))
        self.paused = False
        self._trial, self._parts, self._write = trial, parts, write
        if found is not None:
            _load(parts, found.state, trial.dir)
            if found.random:
                random_states.put_back(found.random[torchrun.rank()], trial.device)
        self.start = self._step = 0 if found is None else found.iteration
        self._kept = self.start  # the step of the last snapshot
        self._optimizer_steps = -1  # when a step was last handed out
        self._next = time.monotonic() + EVERY
        self._given = False  # whether a step was handed out that is not done yet
        self._leaves = False  # whether this process was asked to end
        self.is_over = False
        global _running, _asked
        _running, _asked = weakref.ref(self), False

    @property
    def done(self) -> int:
        """How many steps are done."""
        return self._step

    def __next__(self) -> int:
        if self._given:
            self._step, self._given = self._step + 1, False
        if not self.is_over and self.is_due():
            self.snapshot()
        self.leave_if_asked()
        if self.is_over:
            self._close()
            raise StopIteration
        self._optimizer_steps = self._trial.steps
        self._given = True
        return self._step

    def end_step(self) -> bool:
        """Count a step that somebody else made, and return whether a snapshot is due."""
        self._step += 1
        return self.is_due()

    def is_due(self) -> bool:
        """Return whether a snapshot is due, and note whether the loop is over: at its end, at a pause, on SIGTERM."""
        whole = self._trial.steps != self._optimizer_steps  # else it is between two steps of the optimizer
        self.is_over = self._step >= self.total or (self._step >= self.stop and whole)
        self.paused = self.is_over and self._step < self.total
        if self.paused:
            return True
        if not whole and not self.is_over:
            return False
        due, self._leaves = self._look()
        self.is_over |= self._leaves
        return due or self._leaves

    @property
    def is_behind(self) -> bool:
        """Whether a pause has come whose snapshot is not taken yet."""
        return self.paused and self._step != self._kept

    def snapshot(self) -> None:
        """Keep the state of all parts, unless that of this step is kept already."""
        if self._step == self._kept:
            return
        began = time.monotonic()
        state = {name: _state_of(part) for name, part in self._parts.items()}
        self._write(self._step, state, torchrun.gather(random_states.collect(self._trial.device)))
        self._kept = self._step
        now = time.monotonic()
        self._next = now + max(EVERY, (now - began) / SHARE)

    def leave_if_asked(self) -> None:
        """Raise if this process was asked to end: what is due was kept."""
        if self._leaves:
            self._leaves = False
            self._close()
            raise TerminatedError

    def _close(self) -> None:
        """End the processes of loaders now: left to Python's collector, each may take seconds."""
        for part in self._parts.values():
            if isinstance(part, Batches):
                part.close()

    def _look(self) -> tuple[bool, bool]:
        """Return whether it is time for a snapshot, and whether this process was asked to end."""
        if torchrun.world_size() == 1:
            return time.monotonic() > self._next, _asked
        if self._step % TOGETHER:
            return False, False
        return torchrun.broadcast((time.monotonic() > self._next, _asked))


# SIGTERM


_running: weakref.ref[Loop] | None = None
_asked = False  # whether this process was asked to end


def is_asked_to_end() -> bool:
    """Whether :func:`end_by_signal` was called for the loop of this process."""
    return _asked


def end_by_signal() -> bool:
    """Let the loop of this process end after the step it is in, with a snapshot; False where there is none.

    Then it raises :class:`trainonce.errors.TerminatedError`.
    """
    global _asked
    loop = None if _running is None else _running()
    _asked = loop is not None and (not loop.is_over or loop.is_behind)
    return _asked


# The parts


def named(parts: Parts) -> dict[str, Any]:
    """Return the parts of a loop by name; those of a list are numbered."""
    if isinstance(parts, (str, bytes)) or not isinstance(parts, (Sequence, Mapping)):
        raise TypeError(
            "trial.loop takes a list of what the training consists of, as in trial.loop([model, schedule]); got "
            f"{type(parts).__name__}."
        )
    found = dict(parts) if isinstance(parts, Mapping) else {str(i): part for i, part in enumerate(parts)}
    for part in found.values():
        plain = isinstance(part, Tensor | torch.Generator | random.Random) or _is_numpy(part)
        if not plain and not _has_state(part):
            raise TypeError(
                "trial.loop keeps what has state_dict and load_state_dict, tensors, and generators of torch, numpy and "
                f"Python; got {type(part).__name__}."
            )
    return found


def check_complete(parts: Iterable[Any], optimizer: torch.optim.Optimizer, own: Iterable[nn.Parameter]) -> None:
    """Raise if something that the training changes was forgotten: trained parameters, or a learning-rate schedule.

    :param own: Parameters that are kept in any case.
    """
    parts = list(parts)
    modules = [p for part in parts if isinstance(part, nn.Module) for p in part.parameters()]
    known = {id(part) for part in (*parts, *own, *modules)}
    memory = {
        p.untyped_storage().data_ptr() for p in modules if type(p) is nn.Parameter
    }  # of which others may be views
    trained = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
    lost = sum(type(p) is not nn.Parameter or p.untyped_storage().data_ptr() not in memory for p in trained)
    if lost:
        raise InputError(
            f"The optimizer trains {lost} parameters of a model that trial.loop was not given, so the training could "
            "not go on after a pause. Name all that it changes: trial.loop([model, schedule])."
        )
    scheduled = getattr(optimizer.step, "_wrapped_by_lr_sched", False)
    if scheduled and not any(_is_schedule(part, optimizer) for part in parts):
        raise InputError(
            "The optimizer has a learning-rate schedule that trial.loop was not given, so after a pause it would begin "
            "anew. Name it: trial.loop([model, schedule])."
        )


def _is_schedule(part: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Whether a part is a schedule of this optimizer, or may hold one."""
    return getattr(part, "optimizer", None) is optimizer or hasattr(part, "scheduler") or hasattr(part, "schedulers")


def _has_state(part: Any) -> bool:
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


def _is_numpy(part: Any) -> bool:
    return type(part).__module__.startswith("numpy.random") and hasattr(part, "bit_generator")


def _state_of(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.detach().clone()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, random.Random):
        return part.getstate()
    if _is_numpy(part):
        return _plain(part.bit_generator.state)
    return part.state_dict()


def _plain(state: Any) -> Any:
    """Return a numpy generator's state with lists for arrays, which a checkpoint can hold."""
    if isinstance(state, Mapping):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


def _load(parts: Mapping[str, Any], state: Mapping[str, Any], folder: Path) -> None:
    """Put the state of all parts back: of loaders first, since they draw from generators to find their place."""
    for name in sorted(parts, key=lambda name: not isinstance(parts[name], Batches)):
        try:
            _load_one(parts[name], state[name])
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise RuntimeError(
                f"The snapshot in {folder} does not fit the part {name!r} that trial.loop was given: {error}. Give the "
                f"same parts, as they were; or delete {folder / layout.CHECKPOINT} to train the trial anew."
            ) from error


def _load_one(part: Any, state: Any) -> None:
    if isinstance(part, Tensor):
        part.data.copy_(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif isinstance(part, random.Random):
        part.setstate(state)
    elif _is_numpy(part):
        part.bit_generator.state = state
    else:
        part.load_state_dict(state)


# Batches


class Batches(Iterator[Any]):
    """The batches of a loader, epoch after epoch, in an order that depends on seed and epoch alone.

    So a training that goes on within an epoch sees the rest of it. Made by :meth:`trainonce.study.Trial.batches`.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        if getattr(loader, "persistent_workers", False):
            raise ValueError(
                "trial.batches draws each epoch anew, which workers that stay do not: use persistent_workers=False."
            )
        if isinstance(getattr(loader, "dataset", None), IterableDataset) and not loader.num_workers:
            raise ValueError(
                "trial.batches cannot find its place in an IterableDataset that draws in this process: use a data set "
                "with an index, or num_workers of at least 1."
            )
        if getattr(loader, "num_workers", 0):
            loader.worker_init_fn = functools.partial(_outlive_sigterm, loader.worker_init_fn)
        self._loader, self._seed = loader, seed
        self.epoch, self._seen = 0, 0
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._begin()
        for batch in self._batches:
            self._seen += 1
            return batch
        if not self._seen:
            raise InputError("The loader of trial.batches has no batch.")
        self.epoch, self._seen, self._batches = self.epoch + 1, 0, None
        return next(self)

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return len(self._loader)

    def _begin(self) -> Iterator[Any]:
        """Return the epoch's batches. Their order is drawn with the first one, from random states of its own."""
        seed = random.Random(f"{self._seed}/{torchrun.rank()}/{self.epoch}").getrandbits(31)
        samplers = [getattr(self._loader, name, None) for name in ("sampler", "batch_sampler")]
        for drawing in (self._loader, *samplers, getattr(samplers[1], "sampler", None)):
            if hasattr(drawing, "set_epoch"):
                drawing.set_epoch(self.epoch)
            if isinstance(generator := getattr(drawing, "generator", None), torch.Generator):
                generator.manual_seed(seed)
        before = random_states.collect(CPU)
        random_states.seed_everything(seed)
        batches = iter(self._loader)
        first = list(itertools.islice(batches, 1))
        random_states.put_back(before, CPU)
        return itertools.chain(first, batches)

    def close(self) -> None:
        """End the processes of the loader."""
        self._batches = None

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.epoch, self._seen = state["epoch"], state["seen"]
        self._batches = self._begin()
        for _ in range(self._seen):
            next(self._batches)


def _outlive_sigterm(init: Callable[[int], None] | None, worker: int) -> None:
    """Let a loader's process live on for a while after SIGTERM, until the training has taken its snapshot."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends it
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(LINGER))
    if init is not None:
        init(worker)
