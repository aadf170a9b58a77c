"""Controls: weights of another run, held or replayed."""

import pytest
import torch
from torch import nn

import trainonce
from trainonce.study import layout
from trainonce.study.weightings import Final, Learned, Replay


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


def train_in_units(folder, dtype):
    w, criterion = nn.Parameter(torch.ones(1, dtype=dtype)), trainonce.CompositeLoss(["a", "b"], units="gradient")
    optimizer = torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion.to(dtype), history=folder / layout.HISTORY)
    for _ in range(15):
        optimizer.zero_grad()
        criterion(a=(w**2).sum(), b=100 * (w - 3).abs().sum()).backward()
        optimizer.step()
    criterion.attachment.history.flush()
    return criterion


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_controls_of_gradient_units_have_the_weights_and_their_sum(dtype, tmp_path):
    criterion = train_in_units(tmp_path, dtype)
    units = Learned(1.0, units="gradient")
    held = Final(units).criterion(("a", "b"), 2.0, "propagate", tmp_path)
    assert held.as_dict() == pytest.approx(criterion.as_dict(), rel=1e-5)
    assert held.total.item() == pytest.approx(criterion.total.item(), rel=1e-5)
    assert held.weights[1] < 0.1  # the exponents, which rest, would say 0.5
    replayed = Replay(units).criterion(("a", "b"), 2.0, "propagate", tmp_path)
    assert held.fixed.dtype == replayed.fixed.dtype == dtype
    assert replayed.as_dict() == {"a": 1.0, "b": 0.0}  # the term comes in
    w = nn.Parameter(torch.ones(1, dtype=dtype))
    optimizer = torch.optim.SGD([w], lr=0.0)
    trainonce.attach(optimizer, held)
    for _ in range(3):
        loss = held(a=w.sum(), b=2 * w.sum())
        optimizer.step()
    factors = (criterion.weights * criterion.total).tolist()
    assert loss.item() == pytest.approx(2.0 * (factors[0] + 2 * factors[1]), rel=1e-5)
    assert held.as_dict() == pytest.approx(criterion.as_dict(), rel=1e-5)


def test_a_control_of_a_run_without_a_step_is_one_sentence(tmp_path):
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(optimizer, criterion, history=tmp_path / layout.HISTORY)
    with pytest.raises(ValueError, match="at least one step"):
        Final(Learned(1.0, units="gradient")).criterion(("a", "b"), 1.0, "propagate", tmp_path)
