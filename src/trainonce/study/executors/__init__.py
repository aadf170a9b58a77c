"""Where the trials of a study run: one file for each executor, all behind the protocol :class:`Executor`."""

from typing import TYPE_CHECKING

from trainonce import lazy as _lazy

if TYPE_CHECKING:
    from trainonce.study.executors.base import Event as Event
    from trainonce.study.executors.base import Executor as Executor
    from trainonce.study.executors.base import Job as Job
else:
    __getattr__, __dir__ = _lazy.exports(__name__, dict.fromkeys(("Event", "Executor", "Job"), "base"))

__all__ = ["Event", "Executor", "Job"]
