"""Study: a task, the plans to compare, the seeds, and the folder that remembers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from trainonce.study import cost, plans, progress, runner, schedule
from trainonce.study.executors.tools import Tools
from trainonce.study.executors.worker_process import is_worker
from trainonce.study.identity import NOTEBOOK, differences
from trainonce.study.store import Store
from trainonce.study.summary import Summary
from trainonce.study.task import Task
from trainonce.text import did_you_mean

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Self

    from trainonce.study.runner import Listener


class Study:
    """All trials of a comparison. Run again after any interruption, it runs only what is missing.

    :param task: Made by :func:`trainonce.study.task`.
    :param out: The folder of the store, created if it does not exist.
    :param seeds: How many seeds, counted from 0, or a list of them.
    """

    def __init__(self, task: Task, out: str | os.PathLike[str], *, seeds: int | Sequence[int] = 3) -> None:
        if not isinstance(task, Task):
            raise TypeError(f"Study needs a task, made with @trainonce.study.task(...); got {type(task).__name__}.")
        self.task = dataclasses.replace(task)  # whose identity is that of its code now, also in a notebook
        self.seeds = _seeds(seeds)
        self.margin = task.margin
        self.plans: list[plans.Plan] = []
        self.store = Store(out)
        self._known = self._read_plans()

    def _read_plans(self) -> list[dict[str, Any]]:
        """The plans that an earlier run of this study has put into its folder."""
        manifest = self.store.read_manifest()
        if manifest is None:
            return []
        check_task(manifest, self.task, self.store)
        self.changes = _changes(manifest["task"], self.task.info())
        if NOTEBOOK in self.changes:
            warnings.warn(
                f"The earlier trials in {self.store.shown} are kept, and not used: the task {self.task.name!r} is in a "
                "notebook, where it counts as a new one each time its cell is run. Give it a version, as in "
                "@task(..., version=1), and raise that when results change.",
                stacklevel=4,
            )
        return [] if self.changes else list(manifest["plans"])

    #: What has changed of the task since the folder's earlier trials, which are kept, and not used.
    changes: tuple[str, ...] = ()

    #: How many trials other processes were still training when the last ``run(wait=False)`` ended.
    elsewhere: int = 0

    def __repr__(self) -> str:
        keys, records = {key for item in self.items() for key in item.keys}, self.store.read()
        done = sum(key in records and records[key].status != "failed" for key in keys)
        return (
            f"<Study of {self.task.name} in {self.store.shown}: {len(self.plans)} plans, {len(self.seeds)} seeds, "
            f"{done} of {len(keys)} trials done>"
        )

    def add(self, plan: str, *values: Any, **settings: Any) -> Self:
        """Add a plan, as on the command line: ``study.add("grid(0.1,1,10)")``, or ``study.add("grid", 0.1, 1, 10)``."""
        made = plans.build(plan, values, settings, self.task) if values or settings else plans.parse(plan, self.task)
        plans.check_different([*self.plans, made])
        self.plans.append(made)
        return self

    def run(
        self,
        *,
        workers: int | None = None,
        device: str | None = None,
        show: bool = True,
        start: str = "forkserver",
        executor: str | None = None,
        options: Mapping[str, Any] | None = None,
        limit: int | None = cost.LIMIT,
        keep_going: bool = False,
        wait: bool = True,
    ) -> Summary:
        """Train what is missing or has failed, record it in the folder, and return the summary.

        ``trainonce.report.text(summary)`` says what was found, and ``trainonce.report.write(study)`` writes the page.

        Called in several processes, on one machine or on several that see the folder, they share the work: each takes
        trials that nobody has.

        :param workers: How many processes run at a time; 0 trains in this process. By default one per core, at most 8,
            or one per GPU.
        :param device: Such as ``"cpu"`` or ``"cuda:0"``. By default all GPUs, or the CPU if there is none.
        :param show: Whether to print progress.
        :param start: How processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.
        :param executor: What runs the trials: ``"in-process"``, ``"processes"``, ``"stacked"``, or ``"ray"``
            on a Ray cluster. By default ``workers`` decides between the first two.
        :param options: Of the executor on a Ray cluster, such as ``{"max_concurrent": 8, "gpus": 0.5}``.
        :param limit: Of how many trials a study is refused as a probable mistake, or if it takes more than a day by
            the task's ``seconds``; None for no limit.
        :param keep_going: Whether to go on after three trials that failed in the same way while none has succeeded.
        :param wait: Whether to wait for trials that other processes train, and to take over those of one that dies.
            Without it the run ends when nothing is left to take, ``elsewhere`` says how many trials others still
            train, and if there are any nothing is written: that is left to the last one.
        """
        if is_worker():
            raise RuntimeError(
                "The file of the task runs a study when it is loaded, and each trial loads it. Put the study under "
                'if __name__ == "__main__":'
            )
        if not self.plans:
            raise ValueError("The study has no plan: add some, such as study.add('yoto').add('grid').")
        tools = Tools.choose(self.task, workers, device, start, executor, options)
        if tools.executor == "in-process" and (edited := self.task.files_edited_since()):
            raise ValueError(
                f"{', '.join(edited)} was edited after it was loaded, and this process would train the code as it was. "
                "Start Python again; in a notebook, load it anew and run the cell of the task."
            )
        if limit is not None and (much := self._excess(tools.workers, limit)):
            raise ValueError(f"{much} With limit=None it runs all the same.")
        with self.store.join(print if show else _say_nothing):
            with self.store.lock_manifest():
                self._known = self._read_plans()  # another process may have added plans
                self.store.write_manifest(self._manifest())
            everything = self.items()
            listener: Listener = progress.listener(self.task, everything, self.store) if show else progress.Silent()
            with listener:  # type: ignore[attr-defined]
                self.elsewhere = runner.run(
                    self.task, self.store, everything, tools, listener, keep_going=keep_going, wait=wait
                )
        if self.elsewhere and show:
            print(_left_to_others(self.elsewhere))
        return self.summary()

    def _excess(self, workers: int, limit: int) -> str:
        return cost.excess(self.task, self.plans, self.seeds, self.store.read(), workers, limit)

    def items(self) -> list[schedule.Item]:
        """Everything this run of the study consists of."""
        return schedule.items(self.plans, self.seeds, self.task.identity)

    def summary(self) -> Summary:
        """The summary of the results so far."""
        return Summary(self._manifest(), self.store.read_all(), self.store.path)

    def _manifest(self) -> dict[str, Any]:
        return {"task": self.task.info() | {"margin": self.margin}, "plans": self._merge_plans()}

    def _merge_plans(self) -> list[dict[str, Any]]:
        """The plans of this run and of earlier ones, each with all seeds it was asked for."""
        merged = {plan["name"]: plan for plan in self._known}
        for plan in self.plans:
            before = merged.get(plan.name, {}).get("seeds", [])
            merged[plan.name] = _as_json(plan) | {"seeds": sorted({*before, *self.seeds})}
        return list(merged.values())


def _say_nothing(text: str) -> None: ...


def _left_to_others(count: int) -> str:
    trials = f"{count} trial{'s' if count != 1 else ''}"
    return f"Nothing is left to take. Other workers are training {trials}, and the last of them writes the page."


def check_task(manifest: Mapping[str, Any], task: Task, store: Store) -> None:
    """Raise if the folder holds a study of another task."""
    other = manifest["task"]["name"]
    if other != task.name:
        raise ValueError(
            f"The folder {store.path} holds a study of the task {other!r}, not of {task.name!r}. Choose another folder."
        )


def drop_plans(store: Store, names: Sequence[str]) -> None:
    """Take plans out of what a study is about. Their records stay: added again, they are not trained again."""
    with store.lock_manifest():
        manifest = store.read_manifest() or {"plans": []}
        store.write_manifest(manifest | {"plans": plans_without(manifest, names, store)})


def plans_without(manifest: Mapping[str, Any], names: Sequence[str], store: Store) -> list[dict[str, Any]]:
    """The plans that are left without some of them; raises if one of those is not there."""
    known = [plan["name"] for plan in manifest["plans"]]
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise ValueError(
                f"The study in {store.shown} has no plan {name!r}; it has: {there}.{did_you_mean(name, known)}"
            )
    return [plan for plan in manifest["plans"] if plan["name"] not in names]


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Which files and settings make it another task; if none does, something else, such as its metric."""
    if before["identity"] == now["identity"]:
        return ()
    files, settings = (differences(before.get(what, {}), now[what]) for what in ("files", "settings"))
    known = [*(files if before.get("files") else []), *(f"the setting {name}" for name in settings)]
    return tuple(known) or ("the task",)


def _as_json(plan: plans.Plan) -> dict[str, Any]:
    search = None if plan.search is None else dataclasses.asdict(plan.search)
    rules = [rule.to_json() for rule in plan.rules]
    axes = {} if plan.axes is None else {"axes": plan.axes}
    return {"name": plan.name, "kind": plan.kind, "rules": rules, "search": search, **axes}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or any(not isinstance(s, int) or s < 0 for s in chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds is how many, at least 1, or a list of different whole numbers from 0; got {seeds!r}.")
    return chosen
