"""A trial over several processes of a Ray cluster: the first trains as ever, the others train beside it.

All of them are in one placement group, so they start together or not at all. The first one says where it can be
reached; then the others are started with the variables that torchrun would set.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainonce.study.executors import ray_worker

if TYPE_CHECKING:
    from trainonce.study.executors.ray_worker import Given, Meeting

SOON = 3.0  # seconds that the other processes have to return after the first
GRACE = 10.0  # seconds that the first process has to notice that another has failed


class Ranks:
    """The processes of one trial.

    :param ray: The module.
    :param wanted: What each process needs, by Ray's names.
    :param group: The placement group of a trial that has ended, whose workers are warm; by default a new one.
    """

    def __init__(self, ray: Any, size: int, wanted: dict[str, float], group: Any = None) -> None:
        self._ray, self._size, self._wanted = ray, size, wanted
        self.group = group or ray.util.placement_group([wanted] * size, strategy="PACK")
        self._others: list[Any] = []
        self._failure: tuple[float, str] | None = None

    def options(self, rank: int) -> dict[str, Any]:
        """Where Ray puts a process."""
        kind = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        return {"scheduling_strategy": kind(self.group, placement_group_bundle_index=rank)}

    def environment(self, rank: int) -> dict[str, str]:
        """What torchrun would set. Ray shows each process its own GPUs alone, so each is the first one there."""
        return {"WORLD_SIZE": str(self._size), "RANK": str(rank), "LOCAL_RANK": "0"}

    def start_others(self, given: Given, meeting: Meeting) -> None:
        amounts = {"num_cpus": self._wanted.get("CPU", 0), "num_gpus": self._wanted.get("GPU", 0)}
        remote = self._ray.remote(max_retries=0, max_calls=0, **amounts)(ray_worker.follow)
        for rank in range(1, self._size):
            there = given._replace(environment={**self.environment(rank), **meeting.environment})
            self._others.append(remote.options(**self.options(rank)).remote(there))

    def failure(self) -> str | Exception | None:
        """What went wrong in another process, a while after it did; an error if its worker has failed."""
        ended, self._others = (
            self._ray.wait(self._others, num_returns=len(self._others), timeout=0) if self._others else ([], [])
        )
        for reference in ended:
            try:
                text = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                return error  # type: ignore[no-any-return]
            if text and self._failure is None:
                self._failure = time.monotonic() + GRACE, text
        if self._failure is not None and time.monotonic() > self._failure[0]:
            return self._failure[1]
        return None

    def have_ended(self) -> bool:
        """Whether the others have returned, now that the first one has."""
        ended = self._ray.wait(self._others, num_returns=len(self._others), timeout=SOON)[0] if self._others else []
        return len(ended) == len(self._others)

    def stop(self) -> None:
        """End all processes, and their workers."""
        self._ray.util.remove_placement_group(self.group)
