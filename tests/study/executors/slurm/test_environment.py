"""A driver that is a Slurm job itself."""

import os

from trainonce.study.executors.slurm.environment import hide_own_job

OWN = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "1000", "SLURM_CPU_BIND": "none", "SRUN_CPUS_PER_TASK": "1"}
KEPT = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "us", "HOME_OF_TEST": "here"}


def test_jobs_do_not_hear_of_the_job_that_submits_them(monkeypatch):
    for name, value in (OWN | KEPT).items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with hide_own_job():
        assert not OWN.keys() & os.environ.keys()
        assert KEPT.keys() <= os.environ.keys()
    assert dict(os.environ) == before


def test_on_a_login_node_nothing_is_hidden(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_HINT", "nomultithread")
    with hide_own_job():
        assert os.environ["SLURM_HINT"] == "nomultithread"
