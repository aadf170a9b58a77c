"""Ray clusters for the tests: nodes on this machine, small, without a dashboard."""

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import functools

import pytest
import ray
from _cluster_studies import make_study
from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


def start_cluster(**more):
    return Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, **more})


def stop_cluster(cluster):
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def shared_cluster():
    """Two nodes with a core each."""
    cluster = start_cluster()
    cluster.add_node(**NODE)
    yield cluster
    stop_cluster(cluster)


@pytest.fixture
def cluster():
    """The same for one test, which may break it."""
    made = start_cluster()
    made.add_node(**NODE)
    yield made
    stop_cluster(made)


@pytest.fixture
def gpu_cluster():
    """One node that says it has two GPUs, whatever it has."""
    made = start_cluster(num_cpus=4, num_gpus=2)
    yield made
    stop_cluster(made)


@pytest.fixture
def steady(tmp_path):
    """Make a study of the task ``steady`` in a folder of the test."""
    return functools.partial(make_study, tmp_path / "out", tmp_path / "notes")
