"""Controls: weights of another run, held or replayed."""

import pytest
import torch
from torch import nn

import trainonce
from trainonce.study import layout
from trainonce.study.weightings import Final, Learned


def test_final_weights_are_those_after_the_last_step_also_where_it_had_no_call(tmp_path):
    w, criterion = nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    history = trainonce.History(tmp_path / layout.HISTORY)
    trainonce.attach(optimizer, criterion, decay=1.0, history=history)
    for step in range(8):
        optimizer.zero_grad(set_to_none=False)
        if step < 3:
            criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
        optimizer.step()
    history.flush()
    held = Final(Learned()).criterion(("a", "b"), 1.0, "propagate", tmp_path)
    assert held.as_dict() == pytest.approx(criterion.as_dict(), rel=1e-6)
