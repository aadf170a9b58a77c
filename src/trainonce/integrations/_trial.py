"""A trial whose steps a Trainer makes: when it stops, and its own checkpoint, which that of the trial names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.study import layout, torchrun
from trainonce.study.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainonce.study.checkpoint import Checkpoint
    from trainonce.study.loop import Loop
    from trainonce.study.trial import Trial


class Follower:
    """Counts the steps of a Trainer for a trial. It is also the part of the trial's loop that stands for the Trainer.

    ``checkpoint`` is where the Trainer has to go on, or None where the trial begins, and ``start`` the step there.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.loop: Loop | None = None
        self._folder = trial.dir / layout.TRAINER
        self._save: Callable[[Path], object] | None = None
        found = trial.restored()
        self.start = 0 if found is None else found.iteration
        path = None if found is None else self._folder / _name(found)
        self.checkpoint = None if path is None else str(path)
        if path is not None and not path.exists():
            raise RuntimeError(
                f"The trial would go on from {path}, which is not there. Delete {trial.dir / layout.CHECKPOINT} to "
                "train it anew."
            )

    def begin(self, total: float, goes_on: bool, call: str) -> bool:
        """Begin with a Trainer that is about to make its first step, and return whether it has none to make.

        :param total: The steps of the whole training; what is not above 0 or not finite stands for an unknown number.
        :param goes_on: Whether it has loaded the checkpoint.
        :param call: How it would.
        """
        if self.checkpoint is not None and not goes_on:
            raise InputError(
                f"The trial was trained for {self.start} steps before, and its Trainer would begin anew. Call {call}, "
                "which goes on from the trial's checkpoint, and trains from the start where there is none."
            )
        known, processes = 0 < total < float("inf"), torchrun.world_size()
        if known and processes == 1:
            self.loop = self.trial.follow(self, int(total))
            self.loop.is_due()
            self.loop.leave_if_asked()
            return self.loop.is_over
        if self.trial.until < 1:
            raise InputError(
                "The plan pauses its trainings, which a Trainer can where its length is known, such as by max_steps, "
                f"and one process trains; found {processes} and {'a' if known else 'no'} known length."
            )
        return False

    def end_step(self) -> bool:
        """Count a step, and return whether :meth:`keep` is due."""
        assert self.loop is not None
        due = self.loop.end_step()
        if not due:
            self.loop.leave_if_asked()
        return due

    def keep(self, save: Callable[[Path], object]) -> None:
        """Keep a snapshot that is due, and leave if this process was asked to.

        :param save: Writes the Trainer's checkpoint to a path.
        """
        assert self.loop is not None
        self._save = save
        self.loop.snapshot()
        self._clean()
        self.loop.leave_if_asked()

    def state_dict(self) -> dict[str, str]:
        assert self.loop is not None
        assert self._save is not None
        self._folder.mkdir(exist_ok=True)
        name = f"{self.loop.done}.ckpt"
        self._save(self._folder / name)
        return {"name": name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the Trainer has loaded its checkpoint itself."""

    def _clean(self) -> None:
        """Remove all checkpoints of the Trainer but the one that the trial's names."""
        found = read_checkpoint(self.trial.dir)
        named = None if found is None else _name(found)
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path.name != named:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _name(found: Checkpoint) -> str:
    name: str = found.state.get("trainer", {}).get("name", "")  # none where a loop has left it
    return name
