"""A trial that kept its network, found again in the folder of its study: to evaluate it and to predict with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.study import layout
from trainonce.study.summary import Summary, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from trainonce.study.record import Record
    from trainonce.study.task import Task

#: How a seed is chosen by the metric of the selecting split.
CHOICES = ("median", "worst", "best")
KEEP = "Networks are kept with --set keep_model=yes, where the task has that setting."


@dataclasses.dataclass(frozen=True)
class KeptTrial:
    """What a task's ``evaluate`` function receives.

    :param dir: The trial's folder, with its network.
    :param seed: Of its training.
    :param device: Where to evaluate.
    :param pictures: The folder to write pictures of predictions to; None: none are asked for.
    :param export: The folder to write predictions to, as files; None: none are asked for.
    :param progress: Shows how far it is: ``progress(done, total, what)``.
    """

    dir: Path
    seed: int
    device: torch.device
    pictures: Path | None = None
    export: Path | None = None
    progress: Callable[[int, int, str], None] = lambda done, total, what: None

    @property
    def network(self) -> Path:
        """The file of the network."""
        return self.dir / layout.NETWORK


class NoKeptTrialError(InputError):
    """The folder holds no trial that was asked for, or several; the text is one sentence."""


def study_of(folder: Path) -> tuple[Summary, str | None]:
    """Read the study in a folder, or the study and the key of the trial whose folder it is."""
    if (folder / layout.MANIFEST).is_file():
        return Summary.read(folder), None
    path = folder.resolve()
    if path.parent.name == layout.TRIALS and (path.parents[1] / layout.MANIFEST).is_file():
        return Summary.read(path.parents[1]), path.name
    rule = "the folder of a study (--out of trainonce run or compare), or of one of its trials"
    raise NoKeptTrialError(f"Give {rule}; {folder} has no {layout.MANIFEST}.")


def of_key(summary: Summary, key: str) -> Record:
    """Return the record of a trial by its key, if it was trained under the settings that the study holds."""
    found = [record for record in summary.records if record.key == key]
    if not found or found[-1].status == "failed":
        raise NoKeptTrialError(f"The trial {key} of {summary.path} has no result: it failed or has not ended.")
    if not any(key in keys_of(plan, summary.task.identity) for plan in summary.plans):
        raise NoKeptTrialError(
            f"The trial {key} is of no plan of {summary.path} as it is now: its settings were others, or its plan was "
            "dropped. Train it again, or put the settings and the plan back."
        )
    return found[-1]


def choose(summary: Summary, plan: str | None, seed: int | None, choice: str | None) -> Record:
    """Return the record of one trial of a study that kept its network.

    :param plan: The plan's name; of several points the one that the study reports. None where only one plan kept any.
    :param seed: Of the training.
    :param choice: One of :data:`CHOICES`, among the seeds, by the selecting split; the median of an even number is the
        worse of the two in the middle.
    """
    is_kept = _is_kept(summary)
    kept = {row.plan: row.chosen.records for row in summary.rows if any(map(is_kept, row.chosen.records.values()))}
    if not kept:
        raise NoKeptTrialError(f"No trial of {summary.path} has kept its network, {layout.NETWORK}. {KEEP}")
    if plan is None and len(kept) > 1:
        raise NoKeptTrialError(f"Several plans of {summary.path} kept networks: choose one with --plan: {_list(kept)}.")
    name = next(iter(kept)) if plan is None else plan
    if name not in kept:
        raise NoKeptTrialError(f"No plan {name!r} of {summary.path} has kept a network; these have: {_list(kept)}.")
    records = kept[name]
    if choice is not None:
        worst_first = sorted(records, key=lambda s: summary.task.sign * records[s].metrics[summary.task.select_key])
        seed = worst_first[{"worst": 0, "median": (len(worst_first) - 1) // 2, "best": -1}[choice]]
    seeds = [s for s, record in records.items() if is_kept(record)]
    if seed is None and len(seeds) > 1:
        raise NoKeptTrialError(
            f"The plan {name!r} has kept networks of the seeds {_list(seeds)}: choose one with --seed, or by the "
            f"{summary.task.select} {summary.task.metric} with --choose {'|'.join(CHOICES)}."
        )
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        which = f"The {choice} seed of the plan {name!r} is {seed}, which" if choice else f"Seed {seed} of {name!r}"
        raise NoKeptTrialError(f"{which} has kept no network; the seeds with one are {_list(seeds)}. {KEEP}")
    return records[seed]


def settings_of(summary: Summary, task: Task) -> dict[str, Any]:
    """Return the settings that a study was trained under, with the types that the task's own have."""

    def typed(value: Any, default: Any) -> Any:
        return tuple(value) if isinstance(default, tuple) and isinstance(value, list) else value

    return {name: typed(value, task.settings.get(name)) for name, value in summary.task.settings.items()}


def folder_of(summary: Summary, record: Record) -> Path:
    """Return the folder of a trial."""
    assert summary.path is not None
    return Path(summary.path) / layout.TRIALS / record.key


def _is_kept(summary: Summary) -> Callable[[Record], bool]:
    return lambda record: (folder_of(summary, record) / layout.NETWORK).is_file()


def _list(values: Any) -> str:
    return ", ".join(map(str, values))
