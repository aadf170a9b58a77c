"""The same exponents on two ranks, whatever wraps the model, and the same as one process on the global batch."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from _rank_problem import (
    HALF,
    NEEDS_RANKS,
    PLACEMENTS,
    SETTINGS,
    STEPS,
    TERMS,
    Net,
    Placed,
    Result,
    Setting,
    assert_same,
    backward_in_parts,
    batch,
    ddp_inside,
    ddp_outside,
    double,
    flat,
    new_criterion,
    one_process,
    place,
    train,
    train_placed,
    values,
    warnings_of,
    whole,
)
from _two_ranks import RankError, TwoRanks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce import functional

pytestmark = NEEDS_RANKS


# One exponent on two ranks leaves one of them an empty shard; the settings do not change that.
@pytest.mark.parametrize(("auxiliary", "setting"), [(1, "decay-momentum"), (3, "accumulation-no_sync")])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_equals_one_process(ranks: TwoRanks, placement: str, auxiliary: int, setting: str) -> None:
    expected = train(one_process(auxiliary), SETTINGS[setting])
    start = double(values(new_criterion(auxiliary).exponents))
    assert (double(expected.exponents[-1]) - start).abs().min() > 1e-2  # each has a way to go wrong
    assert_same(ranks(train_placed, placement, auxiliary, SETTINGS[setting]), expected)


def train_with_late_ranks(setting: Setting) -> Result:
    """As if the process group were made between attach and the first call: attach sees a single rank."""
    attach = trainonce.attach

    def early(*args: Any, **options: Any) -> trainonce.Attachment:
        with mock.patch.object(trainonce.distributed, "is_distributed", return_value=False):
            return attach(*args, **options)

    placed = place("ddp-outside", 3)
    with mock.patch.object(trainonce, "attach", early):
        return train(placed, setting)


def test_ranks_that_come_up_after_attach(ranks: TwoRanks) -> None:
    assert_same(ranks(train_with_late_ranks, Setting()), train(one_process(3), Setting()))


# Proof that the tests above can fail: without the averaging the ranks drift apart


def train_without_all_reduce(placement: str, auxiliary: int, setting: Setting) -> Result:
    """The wrappers reduce in C++ or through other functions: this takes away ours alone."""
    with mock.patch.object(dist, "all_reduce", return_value=None):
        return train_placed(placement, auxiliary, setting)


@pytest.mark.parametrize("placement", ["ddp-outside", "ddp-inside-in_forward-kept_out", "fsdp-ignored-after_forward"])
@pytest.mark.parametrize("mutation", ["sync=False", "no all_reduce"])
def test_diverges_without_averaging(ranks: TwoRanks, placement: str, mutation: str) -> None:
    if mutation == "sync=False":
        found = ranks(train_placed, placement, 3, Setting(sync=False))
    else:
        found = ranks(train_without_all_reduce, placement, 3, Setting())
    last = [double(result.exponents[-1]) for result in found]
    assert (last[0] - last[1]).abs().max() > 0.02
    with pytest.raises(AssertionError):
        assert_same(found, train(one_process(3), Setting()))


@pytest.mark.parametrize("placement", ["ddp-own", "ddp-inside-in_forward", "ddp-inside-after_forward"])
def test_sync_off_leaves_the_averaging_to_the_wrapper(ranks: TwoRanks, placement: str) -> None:
    expected = train(one_process(3), SETTINGS["decay-momentum"])
    assert_same(ranks(train_placed, placement, 3, Setting(sync=False)), expected)


# The placement that DDP cannot serve


def call_outside_a_searching_wrapper(keep_out_of: str) -> tuple[str, str]:
    net = Net(1, criterion=True)
    outer = nn.Sequential(net)  # so that the module and the wrapped module differ
    if keep_out_of:
        trainonce.keep_out({"criterion": net.criterion, "model": outer}[keep_out_of])
    model = DistributedDataParallel(outer, find_unused_parameters=True)
    trainonce.attach(torch.optim.SGD(model.parameters(), lr=0.1), net.criterion)
    outer.forward = net.forward  # Sequential takes one argument
    try:
        net.criterion(model(*batch(0, 0, HALF))).backward()
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("keep_out_of", ["", "criterion"])  # the wrapper reads the list of the module it wraps alone
def test_ddp_inside_after_forward_find_unused_is_refused(ranks: TwoRanks, keep_out_of: str) -> None:
    for kind, text in ranks(call_outside_a_searching_wrapper, keep_out_of):
        assert kind == "RuntimeError"
        assert "trainonce.keep_out(model)" in text
        assert "mark a variable ready" not in text


def test_ddp_inside_after_forward_find_unused_after_keep_out(ranks: TwoRanks) -> None:
    assert ranks(call_outside_a_searching_wrapper, "model") == [("", "")] * 2


# A term absent on one rank only


class Heads(nn.Module):
    """A term that is absent is ``None``; with a head for each term, it leaves parameters unused on its rank."""

    def __init__(self, terms: int, *, shared: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        heads = [nn.Linear(3, 1) for _ in range(terms)]
        self.heads = nn.ModuleList(heads[:1] * terms if shared else heads)
        self.criterion = new_criterion(terms - 1)
        self.in_forward = False
        self.double()

    def forward(self, x: Tensor, absent: int | None) -> Any:
        names = self.criterion.terms
        losses = [None if i == absent else head(x).square().mean() + i for i, head in enumerate(self.heads)]
        table = dict(zip(names, losses, strict=True))
        return self.criterion(table) if self.in_forward else table


def train_with_absent(terms: int, absent: int, wrapper: str) -> tuple[list[float], list[float], list[list[float]]]:
    """Rank 1 never has the term. The first gradient, rank 0's and rank 1's losses, and the exponents of each step."""
    net = Heads(terms, shared=wrapper == "fsdp-sharded")  # FSDP2 needs the same gradients on every rank
    net.in_forward = wrapper == "ddp-in_forward"
    model: nn.Module = net
    if wrapper == "ddp-outside":
        trainonce.keep_out(net)
    if wrapper.startswith("ddp"):
        model = DistributedDataParallel(net, find_unused_parameters=True)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainonce.attach(optimizer, net.criterion)
    first, path = [], []
    for step in range(STEPS):
        x, _ = batch(step, dist.get_rank() * HALF, HALF)
        total = model(x, absent if dist.get_rank() == 1 else None)
        total = total if net.in_forward else net.criterion(total)
        total.backward()
        if step == 0:
            assert net.criterion.exponents.grad is not None
            first = values(net.criterion.exponents.grad)
            losses = net.criterion._call.last.losses.tolist()
        optimizer.step()
        optimizer.zero_grad()
        path.append(values(net.criterion.exponents))
    return first, losses, path


@pytest.mark.parametrize("wrapper", ["ddp-outside", "ddp-in_forward", "fsdp-sharded"])
@pytest.mark.parametrize(("terms", "absent"), [(2, 1), (3, 1), (3, 2), (2, 0), (3, 0)])
def test_absent_on_one_rank(ranks: TwoRanks, terms: int, absent: int, wrapper: str) -> None:
    found = ranks(train_with_absent, terms, absent, wrapper)
    assert found[0][2] == found[1][2]
    assert found[0][2][0] != found[0][2][-1]
    mu = new_criterion(terms - 1).exponents.detach()
    there = functional.composite_grad(mu, double(found[0][1]))
    # By hand on the rank without it: λ (l - mean of the present), and nothing for the absent one.
    weights = functional.weights(mu)
    present = [i for i in range(terms) if i != absent]
    losses = double(found[1][1])
    mean = (weights[present] * losses).sum() / weights[present].sum()
    missing = torch.zeros(terms, dtype=torch.float64)
    missing[present] = weights[present] * (losses - mean)
    expected = (there + missing[1:]) / 2
    for first, _, _ in found:
        torch.testing.assert_close(double(first), expected, rtol=0, atol=1e-12)


# Freezing, infinities, ranks that differ


def train_and_freeze(placement: str) -> tuple[list[list[float]], list[float]]:
    placed = place(placement, 3)
    return freeze_midway(placed), flat(placed)


def freeze_midway(placed: Placed) -> list[list[float]]:
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
    trainonce.attach(optimizer, placed.criterion)
    path = []
    for step in range(9):
        if step == 3:
            placed.criterion.freeze()
        if step == 6:
            placed.criterion.unfreeze()
        if dist.is_initialized():
            backward_in_parts(placed, step, Setting())
        else:
            placed.total(*batch(step, 0, 2 * HALF)).backward()
        optimizer.step()
        optimizer.zero_grad()
        path.append(values(placed.criterion.exponents))
    return path


@pytest.mark.parametrize(
    "placement",
    ["ddp-outside", "ddp-own", "ddp-inside-in_forward", "ddp-inside-after_forward", "fsdp-sharded-in_forward"],
)
def test_freeze_after_wrapping(ranks: TwoRanks, placement: str) -> None:
    placed = one_process(3)
    path, model = double(freeze_midway(placed)), double(flat(placed))
    found = ranks(train_and_freeze, placement)
    assert found[0] == found[1]
    exponents = found[0][0]
    assert exponents[2] == exponents[5]
    assert exponents[1] != exponents[2]
    assert exponents[5] != exponents[6] != exponents[7]
    torch.testing.assert_close(double(exponents), path, rtol=0, atol=1e-12)
    torch.testing.assert_close(double(found[0][1]), model, rtol=0, atol=1e-12)


def train_unevenly() -> list[float]:
    placed = ddp_inside(3, in_forward=True)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1)
    trainonce.attach(optimizer, placed.criterion, sync=False)
    with placed.model.join():
        for step in range(2 + dist.get_rank()):
            backward_in_parts(placed, step, Setting())
            optimizer.step()
            optimizer.zero_grad()
    return values(placed.criterion.exponents)


def test_ddp_join_needs_sync_off(ranks: TwoRanks) -> None:
    """A rank that has run out of batches takes part in DDP's collectives only; DDP gives it the model at the end."""
    found = ranks(train_unevenly)
    assert found[0] == found[1]
    assert found[0] != values(new_criterion(3).exponents)


class Scaled(NamedTuple):
    finite: bool  # of the exponents' gradient, before the step
    model_finite: bool
    moved: bool
    scale: float
    exponents: list[float]


def infinite_on_rank_one(placement: str, fused: bool) -> list[Scaled]:
    """A good step, one with an infinite loss on rank 1 whose gradient to the model is finite, and a good one."""
    placed = place(placement, 1)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, fused=fused)
    trainonce.attach(optimizer, placed.criterion)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    rows = []
    for step in range(3):
        before = values(placed.criterion.exponents)
        losses = placed.model(*batch(step, dist.get_rank() * HALF, HALF))
        if step == 1 and dist.get_rank() == 1:
            losses["far"] = losses["far"] + torch.inf
        scaler.scale(placed.criterion(losses)).backward()
        finite = bool(whole(placed.criterion.exponents.grad).isfinite().all())
        model = [p for p in placed.parameters if p is not placed.criterion.exponents and p.grad is not None]
        model_finite = all(bool(whole(p.grad).isfinite().all()) for p in model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        now = values(placed.criterion.exponents)
        rows.append(Scaled(finite, model_finite, now != before, scaler.get_scale(), now))
    return rows


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("placement", ["ddp-outside", "ddp-inside-after_forward"])
def test_infinity_on_one_rank_is_seen_by_all(ranks: TwoRanks, placement: str, fused: bool) -> None:
    found = ranks(infinite_on_rank_one, placement, fused)
    assert found[0] == found[1]
    assert [row.finite for row in found[0]] == [True, False, True]
    assert [row.model_finite for row in found[0]] == [True, True, True]  # the exponents alone must tell
    assert [row.moved for row in found[0]] == [True, False, True]
    assert [row.scale for row in found[0]] == [8.0, 4.0, 4.0]


def start_differently() -> tuple[list[str], list[float]]:
    criterion = trainonce.CompositeLoss(TERMS, init=0.1 * (1 + dist.get_rank())).double()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    given = warnings_of(lambda: trainonce.attach(optimizer, criterion))
    return given, values(criterion.exponents)


def test_ranks_that_start_differently_are_made_equal(ranks: TwoRanks) -> None:
    first = trainonce.CompositeLoss(TERMS, init=0.1).double()
    assert ranks(start_differently) == [(["RanksDiffer"], values(first.exponents))] * 2


def drift(planted: int, steps: int) -> dict[int, list[str]]:
    """The warnings after each step; rank 1's exponents are moved before step ``planted``."""
    placed = ddp_outside(1)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.01)
    trainonce.attach(optimizer, placed.criterion)
    given = {}
    for step in range(1, steps + 1):
        if step == planted and dist.get_rank() == 1:
            placed.criterion.exponents.data.add_(1e-6)
        backward_in_parts(placed, step, Setting())
        found = warnings_of(optimizer.step)
        optimizer.zero_grad()
        if found:
            given[step] = found
    return given


@pytest.mark.parametrize(("planted", "seen"), [(1, 1), (2, 10), (11, 100)])
def test_ranks_that_differ_are_seen_at_the_next_sample(ranks: TwoRanks, planted: int, seen: int) -> None:
    assert ranks(drift, planted, seen + 1) == [{seen: ["RanksDiffer"]}] * 2


# The pair itself; last, since it costs a new start


def wait_for_a_rank_that_failed() -> None:
    if dist.get_rank() == 1:
        raise ValueError("planted")
    dist.barrier()


def rank_and_world() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def test_a_failure_on_one_rank_is_reported_and_not_waited_for(ranks: TwoRanks) -> None:
    with pytest.raises(RankError, match="ValueError: planted"):
        ranks(wait_for_a_rank_that_failed)
    assert ranks(rank_and_world) == [(0, 2), (1, 2)]
