"""The marks of tests that need a GPU, and the device."""

import pytest
import torch

CUDA = torch.device("cuda")

MARKS = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:.*AccumulateGrad node's stream.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype.*:UserWarning"),
]
