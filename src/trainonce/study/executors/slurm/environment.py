"""The environment that jobs are submitted with, where the driver is a job itself."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What Slurm and submitit say to a job about itself; sbatch would hand it on, and srun take it for its options.
OWN = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_", "SBATCH_CPU_BIND", "SBATCH_MEM_BIND")
#: What commands need to find the cluster. Other variables with SBATCH_ are the user's, such as SBATCH_ACCOUNT.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@contextlib.contextmanager
def hide_own_job() -> Iterator[None]:
    """Hide during the block what the environment says of the job that this process is in, if it is in one."""
    names = [name for name in os.environ if name.startswith(OWN) and name not in KEPT]
    hidden = {name: os.environ.pop(name) for name in names} if "SLURM_JOB_ID" in os.environ else {}
    try:
        yield
    finally:
        os.environ.update(hidden)
