"""FixedLoss and Replay: what is theirs alone."""

import math

import pytest
import torch
from _rules import Loop, paper, same
from torch import nn

import trainonce
from trainonce import FixedLoss, History, Replay, attach

TERMS = ("fit", "far", "size")


@pytest.mark.parametrize("weights", [(1, 10, 0), (0, 3, 1), (0, 0, 7), (0.25, 0.5, 0.25), (1e-8, 1, 1e8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fixed_is_the_plain_weighted_sum_exactly(weights, dtype):
    """The weights are kept as they are written."""
    criterion = FixedLoss(dict(zip(TERMS, weights, strict=True))).to(dtype)
    plain = torch.tensor(weights, dtype=dtype)
    assert torch.equal(criterion.coefficients(), plain)
    leaf = torch.tensor([1.7, 0.3, 2.9], dtype=dtype, requires_grad=True)
    total = criterion(leaf)
    assert torch.equal(total, torch.dot(plain, leaf))
    total.backward()
    assert torch.equal(leaf.grad, plain)


def test_an_absent_term_leaves_the_other_weights_alone():
    leaf = torch.ones((), requires_grad=True)
    assert FixedLoss({"a": 1, "b": 2, "c": 5})(a=leaf, b=None, c=3 * leaf).item() == 16


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (["a", "b"], TypeError, "needs a dict of weights by term, base first; got list"),
        ({"a": 1}, ValueError, "weighs two or more terms; got 1"),
        *(
            ({"a": 1, "b": b}, ValueError, "weights of at least 0; got .* for 'b'")
            for b in (-1, math.nan, math.inf, "2")
        ),
        ({"a": 0, "b": 0.0}, ValueError, "at least one weight above 0; all are 0"),
    ],
)
def test_fixed_errors(weights, error, words):
    with pytest.raises(error, match=f"FixedLoss .*{words}"):
        FixedLoss(weights)


def recorded(steps=8, **options):
    return Loop(paper, history=History(), **options).run(range(steps)).attachment.history


def test_the_last_row_holds():
    history = recorded(5)
    loop = Loop(lambda net, terms: Replay(history)).run(range(9))
    assert same(loop.seen, [*history.coefficients(), *[history.coefficients()[-1]] * 4])


@pytest.mark.parametrize("fused", [False, True])
def test_only_real_steps_with_a_call_move_a_replay(fused):
    history = recorded()
    loop = Loop(lambda net, terms: Replay(history), lambda p: torch.optim.SGD(p, lr=0.01, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    positions = []
    for t in range(6):
        loop.optimizer.zero_grad()
        scaler.scale(loop.criterion(loop.losses(t))).backward()
        if t in (1, 2):
            loop.net.head.weight.grad.fill_(math.inf)
        scaler.step(loop.optimizer)
        scaler.update()
        if t not in (1, 2):
            loop.optimizer.step()  # without a call
        positions.append(int(loop.criterion.position))
    assert positions == [1, 1, 1, 2, 3, 4]


def test_a_history_with_holes_is_not_replayed(tmp_path):
    history = recorded(5, terms=TERMS)
    late = History(step=10)
    Loop(paper, history=late).run(range(2))
    for bad, words in ((late, "lacks step 1"), (History(), "no step to replay")):
        with pytest.raises(ValueError, match=words):
            Replay(bad)
    with pytest.raises(FileNotFoundError, match="There is no history file"):
        Replay(tmp_path / "none.jsonl")
    history.extend(
        torch.full((1, len(history.names) + 1), math.nan, dtype=torch.float64).index_fill(
            1, torch.tensor([-1 % (len(history.names) + 1)]), 0
        )
    )
    with pytest.raises(ValueError, match="needs finite coefficients"):
        Replay(history)


def test_a_recorded_float64_is_replayed_as_such():
    w, history = nn.Parameter(torch.ones(1, dtype=torch.float64)), History()
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.37).double()
    optimizer = torch.optim.SGD([w], lr=0.1)
    attach(optimizer, criterion, history=history)
    for _ in range(2):
        criterion(a=w.square().sum(), b=w.abs().sum()).backward()
        optimizer.step()
    assert torch.equal(Replay(history).rows, history.coefficients())
    assert Replay(history).coefficients().dtype == torch.float64
