"""What all tests share: the CPU limit that must precede torch, a fixed seed, repeatable random cases."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
