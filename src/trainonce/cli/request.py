"""What a command asks to be trained: the task, the plans, the seeds and the folder, checked before any is made."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import load_task
from trainonce.study import layout, plans

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from trainonce.study import Record, Study, Task

#: The plans of a comparison that names none.
PLANS = ("yoto", "balance", "uniform", "grid")


@dataclasses.dataclass(frozen=True)
class Request:
    """A study that is not open yet: nothing is written before :meth:`open`."""

    task: Task
    plans: list[plans.Plan]
    seeds: list[int]
    out: Path

    @property
    def records(self) -> Mapping[str, Record]:
        """What the folder holds already."""
        from trainonce.study.store import Store

        return Store(self.out, writable=False).read() if (self.out / layout.RECORDS).is_file() else {}

    @property
    def introduction(self) -> str:
        """What is trained, and what the task notes of it."""
        task = self.task
        notes = task.notes(task, self.plans, self.seeds) if task.notes is not None else ()
        filled = (textwrap.fill(f"Note: {note}", 100, break_on_hyphens=False) for note in notes)
        return "\n".join([f"{task.name}: {task.about}", *filled])

    def open(self, margin: float | None = None) -> Study:
        """The study, in its folder."""
        from trainonce.study import Study

        study = Study(self.task, self.out, seeds=self.seeds)
        study.margin = study.margin if margin is None else margin
        study.plans += self.plans
        return study

    @property
    def described_seeds(self) -> str:
        seeds = self.seeds
        together = seeds == list(range(seeds[0], seeds[-1] + 1))
        shown = f"{seeds[0]} to {seeds[-1]}" if together and len(seeds) > 1 else ", ".join(map(str, seeds))
        return f"seed{'s' * (len(seeds) > 1)} {shown}"


def read_request(asked: argparse.Namespace, given: Sequence[str] | None, seeds: list[int], suffix: str = "") -> Request:
    """The request of a command; what needs no task is checked first, since a task may take seconds to load.

    :param given: The plans as texts; None for those of a comparison that names none.
    """
    texts = [text for argument in (PLANS if given is None else given) for text in plans.separate(argument)]
    if not texts:
        raise Problem(f"There is no plan to compare: name some, such as --plans {' '.join(PLANS[:3])}.")
    plans.check_names(texts)
    task = with_settings(load_task(asked.task), asked).over(asked.ranks)
    made = [plans.parse(text, task) for text in texts]
    plans.check_different(made)
    return Request(task, made, seeds, folder(asked, task, suffix))


def folder(asked: argparse.Namespace, task: Task, suffix: str = "") -> Path:
    """The folder of the study."""
    return Path(asked.out or Path("out") / f"{layout.default_folder(task.name)}{suffix}")
