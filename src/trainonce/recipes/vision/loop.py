"""The training loop that the vision recipes share: resume, step, evaluate, save a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trainonce.study import Trial

B = TypeVar("B")


class LoopSettings(Protocol):
    """The settings of a recipe that the loop reads."""

    @property
    def steps(self) -> int: ...

    @property
    def evaluations(self) -> int: ...

    @property
    def keep_every(self) -> int: ...


def load_states(parts: Mapping[str, Any], saved: Mapping[str, Any] | None) -> int:
    """Load a checkpoint into the parts it was saved from, and return the number of steps that are done.

    :param parts: What has a ``state_dict``, by its name in the checkpoint.
    :param saved: What :meth:`~trainonce.study.Trial.restore` returned: None where training starts anew.
    """
    if saved is None:
        return 0
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return int(saved["step"])


def run_steps(
    trial: Trial,
    settings: LoopSettings,
    parts: Mapping[str, Any],
    batches: Iterable[tuple[int, B]],
    train_step: Callable[[int, B], None],
    validate: Callable[[], Mapping[str, float]],
) -> bool:
    """Train on every batch, report the validation metrics and save checkpoints in between.

    :param parts: As in :func:`load_states`.
    :param batches: Each with the number of its step, from 1.
    :param train_step: One optimizer step.
    :param validate: The metrics to report to the trial.
    :return: Whether training ran to its end; False where the trial was pruned.
    """
    every = max(1, settings.steps // settings.evaluations) if settings.evaluations else settings.steps + 1
    for step, batch in batches:
        train_step(step, batch)
        if step % every == 0 and step < settings.steps:
            trial.report(step, **validate())
            if trial.should_prune():
                return False
        if settings.keep_every and step % settings.keep_every == 0 and step < settings.steps:
            trial.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}})
    return True
