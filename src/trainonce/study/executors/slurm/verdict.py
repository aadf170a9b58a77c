"""What becomes of a trial whose job has ended without a result: another job, a failed record, or the study's end."""

from __future__ import annotations

import dataclasses
from typing import Literal

LOST = "LOST"  # what Slurm says nothing about
RETRIES = 3  # after jobs that ended through no fault of the trial

#: States of jobs that the cluster ended, and what happened.
CLUSTER = {
    "BOOT_FAIL": "its node did not start",
    "NODE_FAIL": "its node failed",
    "LAUNCH_FAILED": "Slurm could not start it",
    "PREEMPTED": "it was preempted",
    "REVOKED": "Slurm revoked it",
    LOST: "Slurm does not know it any more",
}
#: States of jobs that have ended; those in all others wait, run, or will.
ENDED = {*CLUSTER, "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"}


@dataclasses.dataclass(frozen=True)
class Death:
    """What is known of a job that has ended without a result.

    ``began``: it reached its folder; ``progressed``: it wrote a checkpoint; ``interrupted``: it was told that its time
    was over, and wanted another turn; ``printed``: the last line of its output; ``before``: how many jobs of the trial
    the cluster ended before.
    """

    job: str
    state: str
    minutes: int
    began: bool
    progressed: bool
    interrupted: bool
    printed: str = ""
    output: bool = True  # whether Slurm could write its output
    before: int = 0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``again``: another job goes on; ``failed``: a record with this type and sentence; ``stop``: the study ends."""

    what: Literal["again", "failed", "stop"]
    kind: str = ""
    sentence: str = ""
    counts: bool = False  # towards the retries


def judge(death: Death) -> Verdict:
    """What to do after a job has ended without a result."""
    job, state = f"Slurm job {death.job}", death.state
    if death.progressed and (death.interrupted or state in ("TIMEOUT", "DEADLINE")):
        return Verdict("again")
    if state in ("TIMEOUT", "DEADLINE") or (death.interrupted and state not in CLUSTER):
        return Verdict(
            "failed",
            "JobTimedOut",
            f"{job} ran out of its {death.minutes} minutes before it wrote a checkpoint: give it more with --time, or "
            "let the task call trial.save.",
        )
    if state == "CANCELLED":
        return Verdict("failed", "JobCancelled", f"{job} was cancelled. The same command runs the trial again.")
    if state == "OUT_OF_MEMORY":
        return Verdict("failed", "JobOutOfMemory", f"{job} needed more memory than it had: ask for more with --mem.")
    if state in CLUSTER and death.before < RETRIES:
        return Verdict("again", counts=True)
    if state in CLUSTER:
        times = f" {death.before + 1} jobs of this trial ended like that."
        return Verdict("failed", "JobLost", f"{job} ended without a result: {CLUSTER[state]} ({state}).{times}")
    if not death.began and not death.output:
        return Verdict(
            "stop",
            sentence=f"{job} ended ({state}) before it could write anything: the nodes must see the study's folder "
            "under the same path. Choose one on a file system that all of them share with --out.",
        )
    said = f": {death.printed}" if death.printed else ""
    if not death.began:
        return Verdict(
            "failed", "JobDied", f"{job} ended ({state}) before the training began{said}.".replace("..", ".")
        )
    return Verdict("failed", "JobDied", f"The process of {job} died ({state}). The same command runs the trial again.")
