"""Why jobs wait, in Slurm's words, and which of these reasons do not pass by themselves."""

from __future__ import annotations

#: Reasons that somebody has to do something about, and what.
STUCK = {
    "AccountNotAllowed": "choose another --account or --partition",
    "BadConstraints": "no node has what it asks for",
    "DependencyNeverSatisfied": "what it depends on has failed",
    "InvalidAccount": "choose another --account",
    "InvalidQOS": "choose another qos with --sbatch",
    "JobHeldAdmin": "ask the cluster's administrators",
    "JobHeldUser": "release it with scontrol release",
    "JobHoldMaxRequeue": "it was requeued too often; release it with scontrol release",
    "PartitionDown": "choose another --partition",
    "PartitionInactive": "choose another --partition",
    "PartitionNodeLimit": "choose another --partition",
    "PartitionTimeLimit": "ask for less with --time, or choose another --partition",
    "QOSNotAllowed": "choose another qos with --sbatch",
}
LIMIT = "it asks for more than a job may have: ask for less, or choose another --partition, --account or qos"


def advice(reason: str) -> str | None:
    """What to do about a reason that does not pass by itself; None for one that does, such as a full cluster.

    >>> advice("PartitionTimeLimit"), advice("Priority")
    ('ask for less with --time, or choose another --partition', None)
    """
    return STUCK.get(reason, LIMIT if "PerJob" in reason else None)


def say(job: str, reason: str) -> str | None:
    """The same as a sentence about a job."""
    what = advice(reason)
    return None if what is None else f"Slurm job {job} waits, and will not start by itself ({reason}): {what}."
