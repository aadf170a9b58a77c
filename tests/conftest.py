"""What all tests share: the CPU limit that must precede torch, a fixed seed, repeatable random cases, two ranks."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import hypothesis
import pytest
import torch
from _two_ranks import TwoRanks

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def ranks():
    """Two gloo processes that run functions of a test file, up for as long as its tests run."""
    with TwoRanks() as pair:
        yield pair
