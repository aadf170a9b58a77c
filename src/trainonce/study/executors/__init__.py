"""Where the trials of a study run: one file for each executor, all behind the protocol :class:`Executor`."""

from trainonce.study.executors.base import Event as Event
from trainonce.study.executors.base import Executor as Executor
from trainonce.study.executors.base import Job as Job

__all__ = ["Event", "Executor", "Job"]
