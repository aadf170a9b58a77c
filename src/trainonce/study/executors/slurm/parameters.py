"""What Slurm is asked for: the options of the executor as submitit's parameters. Needs neither torch nor submitit."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MINUTES = 60  # of a job, unless --time says more
SIGNAL_SECONDS = 90  # before the time is over a job is told so

#: Options of sbatch that are set another way, and how.
RESERVED = {
    "account": "use --account",
    "array": "trials that are ready together are one array already",
    "clusters": "the jobs of another cluster cannot be watched",
    "cpus-per-gpu": "use --cpus",
    "cpus-per-task": "use --cpus",
    "gpus": "use --gpus",
    "gpus-per-node": "use --gpus",
    "gpus-per-socket": "use --gpus",
    "gpus-per-task": "use --gpus",
    "gres": "use --gres",
    "job-name": "jobs are named after the task",
    "mem": "use --mem",
    "open-mode": "what a training prints goes to the study's folder",
    "output": "what a training prints goes to the study's folder",
    "error": "what a training prints goes to the study's folder",
    "nodes": "a training is one task on one node",
    "ntasks": "a training is one task on one node",
    "ntasks-per-node": "a training is one task on one node",
    "parsable": "the executor reads what sbatch prints",
    "partition": "use --partition",
    "quiet": "the executor reads what sbatch prints",
    "signal": "it tells a training that its time is over",
    "test-only": "nothing would be submitted",
    "time": "use --time",
    "tres-per-task": "use --cpus or --gpus",
    "wait": "the driver waits for its jobs itself",
    "wrap": "the executor writes the script",
}


def minutes_of(text: Any) -> int | None:
    """The minutes of a time as sbatch takes it, rounded up; None if it is none.

    >>> [minutes_of(text) for text in ("90", "30:30", "12:00:00", "2-12", "1-00:30:00", "soon")]
    [90, 31, 720, 3600, 1470, None]
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", str(text).strip())
    if found is None or isinstance(text, bool):
        return None
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        hours += 24 * int(days)
    else:
        hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    return math.ceil(60 * hours + minutes + seconds / 60) or None


def read_sbatch(text: str) -> dict[str, Any] | None:
    """Further options of sbatch by name, from text such as ``qos=high exclusive``; None if it cannot be read.

    >>> read_sbatch("qos=high --exclude=n[1-2] exclusive")
    {'qos': 'high', 'exclude': 'n[1-2]', 'exclusive': True}
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z-]+", name) or (equals and not value):
            return None
        found[name] = value if equals else True
    return found


def wants_gpu(options: Mapping[str, Any]) -> bool:
    """Whether the options ask for a GPU, or a part of one."""
    asked = re.split(r"[,:/]", str(options.get("gres", "")))
    return bool(options.get("gpus")) or bool({"gpu", "shard", "mps"} & set(asked))


def time_of(options: Mapping[str, Any]) -> int:
    """How many minutes a job may take."""
    return minutes_of(options.get("time", MINUTES)) or MINUTES


def whole(options: Mapping[str, Any], name: str, least: int) -> int:
    """An option that Slurm takes in whole numbers alone."""
    value = options.get(name, least)
    if value != int(value) or value < least:
        raise ValueError(f"The executor 'slurm' takes {name!r} as a whole number of at least {least}; got {value}.")
    return int(value)


def slurm_parameters(options: Mapping[str, Any], name: str, concurrent: int) -> dict[str, Any]:
    """The parameters of submitit's executor for Slurm.

    :param name: Of the jobs.
    :param concurrent: How many jobs of an array may run at a time.
    """
    more = read_sbatch(options.get("sbatch", "")) or {}
    for given in more:
        if given in RESERVED:
            raise ValueError(f"The option 'sbatch' must not hold {given!r}: {RESERVED[given]}.")
    minutes, gpus, cpus = time_of(options), whole(options, "gpus", 0), whole(options, "cpus", 1)
    requeue = {} if "no-requeue" in more else {"requeue": True}  # after a lost node, and when the time was over
    return {
        "job_name": name,
        "time": minutes,
        "cpus_per_task": cpus,
        "srun_args": [f"--cpus-per-task={cpus}"],  # which srun does not take from sbatch since Slurm 22.05
        "signal_delay_s": min(SIGNAL_SECONDS, 20 * minutes),
        "array_parallelism": concurrent,
        "stderr_to_stdout": True,
        "additional_parameters": requeue | more,
        **({"gpus_per_node": gpus} if gpus else {}),
        **{key: options[key] for key in ("partition", "account", "gres", "mem") if key in options},
    }


def local_parameters(options: Mapping[str, Any], concurrent: int, visible: str | None) -> dict[str, Any]:
    """The same for processes on this machine, one of which may have GPUs: submitit gives all of them the same.

    :param visible: What ``CUDA_VISIBLE_DEVICES`` says.
    """
    minutes, gpus = time_of(options), whole(options, "gpus", 0)
    if wants_gpu(options) and not gpus:
        raise ValueError(
            f"The option 'gres' asks for {options['gres']!r}, which --cluster local does not give: use --gpus."
        )
    if gpus and concurrent > 1:
        raise ValueError(
            f"With --cluster local and --gpus {gpus} all trainings would have the same GPUs, {concurrent} at a time: "
            "use --max-concurrent 1, or --executor processes, which gives each training a GPU of its own."
        )
    ids = [int(word) for word in (visible or "").split(",") if word.strip().isdecimal()]
    return {
        "timeout_min": minutes,
        "gpus_per_node": gpus,
        **({"visible_gpus": ids} if len(ids) >= gpus > 0 else {}),
        "signal_delay_s": min(SIGNAL_SECONDS, 20 * minutes),
        "stderr_to_stdout": True,
    }
