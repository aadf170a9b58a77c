"""submitit's executors behind one small interface: Slurm itself, or processes of this machine to try it out."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trainonce.extras import require
from trainonce.study.executors.slurm.environment import hide_own_job
from trainonce.study.executors.slurm.parameters import local_parameters, slurm_parameters
from trainonce.study.executors.slurm.patience import is_passing
from trainonce.study.executors.slurm.verdict import ENDED, LOST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from trainonce.study.executors.slurm.worker import Work

FRESH_SECONDS = 2.0  # during which an answer of squeue is used again
CLOSE_SECONDS = 5.0  # that the controller of a local job may take to end
TURNS = 1000  # how often a job whose time is over may be requeued; without progress it is not


class SubmissionError(Exception):
    """A job could not be submitted; the text is a sentence.

    ``passing``: whether a later attempt may succeed.
    """

    def __init__(self, sentence: str, *, passing: bool) -> None:
        super().__init__(sentence)
        self.passing = passing


class Engine(Protocol):
    """Jobs: submitted, watched, cancelled."""

    name: str
    interval: float  # seconds between two looks at the jobs
    look: float  # seconds between two looks at their folders
    grace: float  # seconds until what a job has written is seen everywhere

    def submit(self, works: Sequence[Work]) -> list[str]:
        """Submit jobs, several as one array, and return their ids."""
        ...

    def ended(self, jobs: Collection[str]) -> Mapping[str, str]:
        """The states of those jobs that have ended."""
        ...

    def waits_for(self, jobs: Collection[str]) -> Mapping[str, str]:
        """Why those jobs wait that do, in the engine's words."""
        ...

    def cancel(self, jobs: Collection[str]) -> None:
        """Ask for the end of jobs, and do not wait for it."""
        ...

    def output(self, job: str) -> Path:
        """What a job printed before and beside the trial's own output."""
        ...

    def close(self) -> None:
        """Leave the jobs, which all have ended or are no longer wanted."""
        ...


def open_engine(folder: Path, options: Mapping[str, Any], name: str, concurrent: int) -> Engine:
    """The engine that the option ``cluster`` names; its files go to the folder."""
    cluster = options.get("cluster", "slurm")
    parameters = slurm_parameters(options, name, concurrent)
    if cluster == "slurm":
        _check_commands()
        with _quiet():
            return SlurmEngine(folder, parameters)
    if cluster == "local":
        parameters = local_parameters(options, concurrent, os.environ.get("CUDA_VISIBLE_DEVICES"))
    with _quiet():
        return LocalEngine(folder, parameters) if cluster == "local" else DebugEngine(folder)


def _check_commands() -> None:
    for command in ("sbatch", "srun", "squeue", "scancel"):
        if shutil.which(command) is None:
            raise ValueError(
                f"The executor 'slurm' needs the command {command}, which this machine does not have: start the study "
                "on a login node of the cluster, or try it here with --cluster local."
            )


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """The package, without its log in the study's display."""
    submitit = require("submitit", "submitit", "slurm")
    logger = logging.getLogger("submitit")
    before, logger.disabled = logger.disabled, True
    try:
        yield submitit
    finally:
        logger.disabled = before


class SlurmEngine:
    """Jobs of Slurm."""

    name = "slurm"
    interval = 15.0
    look = 5.0
    grace = 20.0

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        slurm = require("submitit.slurm.slurm", "submitit", "slurm")
        self._executor = slurm.SlurmExecutor(folder, max_num_timeout=TURNS)
        self._executor.update_parameters(**parameters)
        self._accounts = slurm.SlurmInfoWatcher(delay_s=0)
        self._queue: tuple[float, dict[str, Entry] | None] = -float("inf"), None
        self._folder = folder

    def submit(self, works: Sequence[Work]) -> list[str]:
        self._queue = -float("inf"), None
        with _quiet() as submitit, hide_own_job():
            try:
                return [job.job_id for job in self._executor.submit_array(list(works))]
            except submitit.core.utils.FailedJobError as error:
                text = "; ".join(line.removeprefix("sbatch: error: ") for line in str(error).splitlines())
                passing = any(word in text for word in PASSING)
                raise SubmissionError(f"Slurm refused a job: {text.rstrip('.')}.", passing=passing) from None
            except (OSError, submitit.core.utils.FailedSubmissionError) as error:
                passing = isinstance(error, OSError) and is_passing(error)
                raise SubmissionError(f"A job could not be submitted: {error}.", passing=passing) from None

    def ended(self, jobs: Collection[str]) -> dict[str, str]:
        known = self._read_queue()
        if known is None:
            return {}  # Slurm does not answer: nothing is known of any job
        found = {job: known[job].state for job in jobs if job in known and known[job].state in ENDED}
        for job in jobs:
            if job not in known:  # it ended minutes ago, or never was
                with _quiet():
                    state = self._accounts.get_state(job, mode="force").split()[0]
                found[job] = state if state in ENDED else LOST
        return found

    def waits_for(self, jobs: Collection[str]) -> dict[str, str]:
        known = self._read_queue() or {}
        return {job: known[job].reason for job in jobs if job in known and known[job].state == "PENDING"}

    def _read_queue(self) -> dict[str, Entry] | None:
        if time.monotonic() - self._queue[0] > FRESH_SECONDS:
            self._queue = time.monotonic(), read_queue()
        return self._queue[1]

    def cancel(self, jobs: Collection[str]) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", *jobs], capture_output=True, timeout=60)

    def output(self, job: str) -> Path:
        return self._folder / f"{job}_0_log.out"

    def close(self) -> None:
        pass


#: What sbatch says of troubles that pass: a busy controller, too many jobs at the moment.
PASSING = ("timed out", "Unable to contact", "temporarily", "try again", "Slurm backup", "submit limit", "MaxSubmit")


class Entry(NamedTuple):
    """A job in the queue: its state, and why it waits."""

    state: str
    reason: str


def read_queue() -> dict[str, Entry] | None:
    """All jobs of this user that Slurm remembers, by their ids; None if it does not answer."""
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", f"--user={os.getuid()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    parts = [line.strip().split("|", 2) for line in done.stdout.splitlines()]
    return {part[0]: Entry(part[1], part[2]) for part in parts if len(part) == 3}


class LocalEngine:
    """Processes of this machine, each with a controller that requeues it."""

    name = "local"
    interval = 0.2
    look = 0.0
    grace = 1.0

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        local = require("submitit.local.local", "submitit", "slurm")
        self._executor = local.LocalExecutor(folder, max_num_timeout=TURNS)
        self._executor.update_parameters(**parameters)
        self._jobs: dict[str, Any] = {}
        self._folder = folder

    def submit(self, works: Sequence[Work]) -> list[str]:
        with _quiet(), _block_interrupt():
            jobs = self._executor.submit_array(list(works))
        self._jobs.update((job.job_id, job) for job in jobs)
        return [job.job_id for job in jobs]

    def ended(self, jobs: Collection[str]) -> dict[str, str]:
        return {job: "FAILED" for job in jobs if not self._runs(job)}

    def waits_for(self, jobs: Collection[str]) -> dict[str, str]:
        return {}

    def _runs(self, job: str) -> bool:
        if job in self._jobs:
            return not self._jobs[job].done()
        return job.isdecimal() and _is_controller(int(job))  # of a driver before this one

    def cancel(self, jobs: Collection[str]) -> None:
        for job in jobs:
            if self._runs(job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(job), signal.SIGTERM)

    def output(self, job: str) -> Path:
        return self._folder / f"{job}_0_log.out"

    def close(self) -> None:
        for job in self._jobs.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                job._process.wait(CLOSE_SECONDS)


@contextlib.contextmanager
def _block_interrupt() -> Iterator[None]:
    """Keep Ctrl-C, which a terminal sends to all, from processes that are started here: the driver answers it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_controller(process: int) -> bool:
    """Whether a process is the controller of a job, and not another that has its number now."""
    try:
        return b"submitit.local._local" in Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


class DebugEngine:
    """Jobs in this process, one after the other."""

    name = "debug"
    interval = look = 0.0
    grace = 0.0

    def __init__(self, folder: Path) -> None:
        debug = require("submitit.local.debug", "submitit", "slurm")
        self._executor, self._folder = debug.DebugExecutor(folder), folder
        self._waiting: dict[str, Any] = {}

    def submit(self, works: Sequence[Work]) -> list[str]:
        jobs = self._executor.submit_array(list(works))
        self._waiting.update((job.job_id, job) for job in jobs)
        return [job.job_id for job in jobs]

    def ended(self, jobs: Collection[str]) -> dict[str, str]:
        for job in list(self._waiting)[:1]:
            self._waiting.pop(job).results()
        return {job: "COMPLETED" for job in jobs if job not in self._waiting}

    def waits_for(self, jobs: Collection[str]) -> dict[str, str]:
        return {}

    def cancel(self, jobs: Collection[str]) -> None:
        for job in jobs:
            self._waiting.pop(job, None)

    def output(self, job: str) -> Path:
        return self._folder / f"{job}_0_log.out"

    def close(self) -> None:
        pass
