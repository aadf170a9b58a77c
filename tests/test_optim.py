"""SGDW as printed."""

import pytest
import torch

from trainonce import SGDW


def reference(steps, lr_at, momentum, decay, grad_at):
    w, m = 1.0, 0.0
    for t in range(steps):
        m = momentum * m + lr_at(t) * grad_at(t)
        w = w - m - lr_at(t) * decay * w
    return w


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_against_the_printed_rule(foreach, tensor_lr):
    lr_at, grad_at = lambda t: 0.1 / (1 + t), lambda t: (-1.3) ** (t % 5)
    w = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    lr = torch.tensor(0.1, dtype=torch.float64) if tensor_lr else 0.1
    optimizer = SGDW([w], lr=lr, momentum=0.9, weight_decay=0.3, foreach=foreach)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    for t in range(50):
        w.grad = torch.full_like(w, grad_at(t))
        optimizer.step()
        scheduler.step()
    expected = reference(50, lr_at, 0.9, 0.3, grad_at)
    torch.testing.assert_close(w.data, torch.full_like(w, expected), rtol=1e-12, atol=1e-14)


def test_the_learning_rate_is_inside_the_buffer():
    """It differs from torch's SGD as soon as the rate changes, and not before."""
    ours, theirs = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    a, b = SGDW([ours], lr=0.1, momentum=0.9), torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    for _ in range(3):
        ours.grad, theirs.grad = torch.ones(1), torch.ones(1)
        a.step(), b.step()
    torch.testing.assert_close(ours, theirs)
    a.param_groups[0]["lr"] = b.param_groups[0]["lr"] = 0.01
    a.step(), b.step()
    assert abs(ours.item() - theirs.item()) > 0.1


def test_closure_missing_gradients_and_no_momentum():
    used, unused = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = SGDW([used, unused], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (used**2).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 1.0
    assert used.item() == 0.0
    assert unused.item() == 1.0
    assert not optimizer.state[used]


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"lr": -1}, "lr"), ({"lr": 0.1, "momentum": 1.0}, "momentum"), ({"lr": 0.1, "weight_decay": -1}, "weight_decay")],
)
def test_bad_settings(settings, word):
    with pytest.raises(ValueError, match=f"{word} must be"):
        SGDW([torch.nn.Parameter(torch.ones(1))], **settings)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = SGDW(table.parameters(), lr=0.1)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam"):
        optimizer.step()


def test_state_round_trip_is_exact():
    def run(steps, state=None):
        w = torch.nn.Parameter(torch.ones(2) if state is None else state[0].clone())
        optimizer = SGDW([w], lr=0.1, momentum=0.9, weight_decay=0.1)
        if state is not None:
            optimizer.load_state_dict(state[1])
        for _ in range(steps):
            w.grad = w.detach().sin()
            optimizer.step()
        return w.detach().clone(), optimizer.state_dict()

    assert torch.equal(run(10)[0], run(4, run(6))[0])
