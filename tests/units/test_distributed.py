"""Gradient units on two ranks: the same on both, and those of the mean over the ranks of the squared norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from _rank_problem import NEEDS_RANKS, warnings_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from tests.units._rank_problem import (
    LR,
    PLACEMENTS,
    STEPS,
    Model,
    Placed,
    Result,
    Row,
    Setting,
    assert_same,
    batch,
    beside,
    by_hand,
    flat,
    held_out_batch,
    new_criterion,
    place,
    row,
    train,
    train_placed,
    train_step,
)
from tests.units._task import TERMS
from trainonce import GradientUnits

if TYPE_CHECKING:
    from _two_ranks import TwoRanks

pytestmark = NEEDS_RANKS


@pytest.mark.parametrize("micro", [1, 2], ids=["plain", "accumulation"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_units_are_those_computed_by_hand(ranks: TwoRanks, placement: str, micro: int) -> None:
    """Under no_sync, too: the ranks talk about norms whenever they measure."""
    setting = Setting(micro=micro)
    assert_same(ranks(train_placed, placement, setting), by_hand(setting))


WITHOUT_RECURSION = [name for name in PLACEMENTS if not name.startswith("in_forward")]


@pytest.mark.parametrize(
    ("placement", "through"),
    [*((name, "module") for name in PLACEMENTS), *((name, "wrapper") for name in WITHOUT_RECURSION)],
)
def test_held_out(ranks: TwoRanks, placement: str, through: str) -> None:
    setting = Setting(held_out=through)
    expected = by_hand(setting)
    assert max(map(abs, expected.rows[-1].exponents)) > 0.1
    assert_same(ranks(train_placed, placement, setting), expected)


class Chatty(Model):
    """Returns more than losses, in any order."""

    def forward(self, x: Tensor) -> Any:
        losses = super().forward(x)
        return {"note": "text", "nothing": None, "size": 3.0, "count": torch.tensor(2), **losses, "x": x}


def find_last() -> list[bool]:
    model, criterion = Chatty(), new_criterion(units=GradientUnits(shared="last"))
    wrapper = DistributedDataParallel(model, find_unused_parameters=True)
    criterion({term: loss for term, loss in wrapper(batch(0, 0)).items() if term in TERMS})
    last = model.heads.trunk[2]
    return [any(p is place for place in criterion.meter._place) for p in (last.weight, last.bias)] + [
        len(criterion.meter._place) == 2
    ]


def test_what_ddp_passes_the_outputs_through_is_looked_past(ranks: TwoRanks) -> None:
    """With find_unused_parameters every loss seems to come from all outputs."""
    assert ranks(find_last) == [[True] * 3] * 2


# What DDP notices of it


def count_reductions(placement: str) -> int:
    """How often DDP reduced its one bucket."""
    placed, calls = place(placement), []

    def reduce(state, bucket):  # DDP checks annotations, and not as text
        calls.append(1)
        work = dist.all_reduce(bucket.buffer() / 2, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    placed.wrapper.register_comm_hook(None, reduce)
    train(placed, Setting(held_out="module", steps=3))
    return len(calls)


@pytest.mark.parametrize("placement", ["beside", "beside-find_unused", "beside-static_graph", "in_forward"])
def test_ddp_reduces_once_a_step(ranks: TwoRanks, placement: str) -> None:
    assert ranks(count_reductions, placement) == [3, 3]


class Normed(Model):
    """Batch norm has buffers that DDP broadcasts in forward, and that the graph keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.heads.trunk.append(nn.BatchNorm1d(8).double())


def train_with_batch_norm(options: dict[str, bool]) -> list[Row]:
    model, criterion = Normed(), new_criterion()
    wrapper = DistributedDataParallel(model, **options)
    placed = Placed(lambda x: criterion(wrapper(x)), criterion, wrapper, model)
    return train(placed, Setting(held_out="wrapper")).rows


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}], ids=str)
def test_held_out_through_ddp_leaves_the_graph_of_the_training_alone(ranks: TwoRanks, options: dict[str, bool]) -> None:
    found = ranks(train_with_batch_norm, options)
    assert found[0] == found[1]
    assert max(map(abs, found[0][-1].exponents)) > 0.1


def train_held_out_with_one_head() -> list[Row]:
    """The held-out loss uses fewer parameters than the training: DDP must not look for unused ones in it."""
    placed = beside(find_unused_parameters=True)
    optimizer = torch.optim.SGD(placed.model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, placed.criterion)
    rows = []
    for step in range(3):
        x = held_out_batch(step, dist.get_rank())

        def one_head(x: Tensor = x) -> Tensor:
            heads = placed.model.heads
            with mock.patch.object(placed.model, "forward", lambda x: heads.fit(heads.trunk(x)).square().mean()):
                return placed.wrapper(x)

        placed.criterion.held_out(one_head)
        placed.total(batch(step, dist.get_rank())).backward()
        optimizer.step()
        optimizer.zero_grad()
        rows.append(row(placed.criterion))
    return rows


def test_a_held_out_loss_may_use_fewer_parameters(ranks: TwoRanks) -> None:
    found = ranks(train_held_out_with_one_head)
    assert found[0] == found[1]


# Batches that lack something, or have NaN, on one rank


def call_with(own: list[dict[str, str]], steps: int = 1, held_out: bool = False) -> list[list[float]]:
    """Norms and peaks after each step; ``own``: what each rank makes of a term, "absent" or "nan"."""
    model, criterion = Model(), new_criterion()
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    found = []
    for step in range(steps):
        rank = dist.get_rank()
        change = own[rank]
        if held_out:
            criterion.held_out(lambda step=step, rank=rank: model(held_out_batch(step, rank))["fit"])
        losses: dict[str, Tensor | None] = model(batch(step, rank))
        for term, kind in change.items():
            losses[term] = None if kind == "absent" else losses[term] * torch.nan
        criterion(losses).backward()
        optimizer.step()
        drift = criterion.meter.drift
        parts = [criterion.meter.norms, drift.products, drift.squares, drift.square, criterion.exponents]
        found.append([v for part in parts for v in part.flatten().tolist()])
    return found


def squares_at(step: int, rank: int, *, head: bool = False) -> dict[str, float]:
    """The squared norms at what all terms share; with the head's weights, at what the first and the last do."""
    heads = Model().heads
    losses = heads(batch(step, rank))
    places = [*heads.trunk.parameters(), *([heads.fit.weight] if head else [])]
    found = {}
    for term, loss in losses.items():
        gradients = torch.autograd.grad(loss, places, retain_graph=True, allow_unused=True)
        found[term] = sum(float(g.square().sum()) for g in gradients if g is not None)
    return found


def same(found: list[Any]) -> Any:
    """What both ranks found, to the last digit; NaN is equal to NaN."""
    assert str(found[0]) == str(found[1])
    return found[0]


@pytest.mark.parametrize("kind", ["absent", "nan"])
@pytest.mark.parametrize("term", ["twice", "flat"])
def test_a_term_that_one_rank_lacks(ranks: TwoRanks, term: str, kind: str) -> None:
    """The other terms are averaged over both ranks, this one is the other rank's."""
    (norms,) = same(ranks(call_with, [{}, {term: kind}]))
    whole = squares_at(0, 0)
    rest = squares_at(0, 1, head=(term, kind) == ("twice", "absent"))
    for i, each in enumerate(TERMS[1:]):
        pair = [[whole["fit"], whole[each]]] + ([] if each == term else [[rest["fit"], rest[each]]])
        expected = [(sum(column) / len(pair)) ** 0.5 for column in zip(*pair, strict=True)]
        assert norms[2 * i : 2 * i + 2] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("missing", [["fit"], ["twice", "flat"], TERMS], ids=["base", "auxiliary", "all"])
def test_a_rank_that_can_measure_nothing_leaves_it_to_the_other(ranks: TwoRanks, missing: list[str]) -> None:
    found = same(ranks(call_with, [{}, dict.fromkeys(missing, "absent")], 4))
    whole = squares_at(0, 0)
    expected = [v**0.5 for t in TERMS[1:] for v in (whole["fit"], whole[t])]
    assert found[0][:4] == pytest.approx(expected, rel=1e-9)
    assert found[3][:4] != found[0][:4]


def warnings_without(missing: list[list[str]]) -> list[str]:
    return warnings_of(call_with, [dict.fromkeys(each, "absent") for each in missing], 2)


def test_a_rank_warns_only_of_terms_that_no_rank_has_with_the_base(ranks: TwoRanks) -> None:
    assert ranks(warnings_without, [["fit"], ["fit"]]) == [["ApartFromBase"]] * 2
    assert ranks(warnings_without, [["fit"], []]) == [[], []]


def call_frozen() -> list[list[float]]:
    """Frozen from the start: rank 1 never has the last term, rank 0 from its fourth step on."""
    model, criterion = Model(), new_criterion()
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    criterion.freeze()
    found = []
    for step in range(6):
        losses = model(batch(step, dist.get_rank()))
        criterion(losses if dist.get_rank() == 0 and step > 2 else losses | {"flat": None}).backward()
        optimizer.step()
        found.append(criterion.weights.tolist() + criterion.units.tolist())
    return found


def test_frozen_weights_are_the_same_on_all_ranks(ranks: TwoRanks) -> None:
    """Those of the first call of each term on any rank."""
    found = same(ranks(call_frozen))
    assert [row[2] > 0 for row in found] == [False] * 3 + [True] * 3
    assert found[0][1] > 0
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4] == found[5]
    assert found[0][4] == found[3][4]


def share_nothing(lacks: bool) -> list[list[float]]:
    """A term on parameters of its own, which rank 1 lacks in the first step; then rank 0 does."""
    model, criterion, own = Model(), new_criterion(), nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.SGD([*model.parameters(), own], lr=0.0)
    trainonce.attach(optimizer, criterion)
    found = []
    for step in range(4):
        losses = model(batch(step, dist.get_rank())) | {"flat": own.square().sum()}
        if lacks and dist.get_rank() == 1 - min(step, 1):
            losses = dict.fromkeys(losses) if step else losses | {"flat": None}
        criterion(losses).backward()
        optimizer.step()
        found.append([*criterion.meter.raw.tolist(), *criterion.weights.tolist()])
    return found


@pytest.mark.parametrize("lacks", [False, True])
def test_a_term_that_shares_nothing_has_the_same_weight_on_all_ranks(ranks: TwoRanks, lacks: bool) -> None:
    found = same(ranks(share_nothing, lacks))
    assert [row[:2] for row in found] == [[0, 1]] * 4
    assert found[-1][-1] > 0


@pytest.mark.parametrize("kind", ["absent", "nan"])
def test_held_out_takes_the_ranks_that_have_all_terms(ranks: TwoRanks, kind: str) -> None:
    lacking = same(ranks(call_with, [{}, {"flat": kind}], 1, True))[0][4:]
    model = Model()
    beside = torch.autograd.grad(model(held_out_batch(0, 0))["fit"], list(model.heads.trunk.parameters()))
    square = sum(float(g.square().sum()) for g in beside)
    assert lacking[3:6] == pytest.approx([squares_at(0, 0)[t] for t in TERMS], rel=1e-9)
    assert lacking[6] == pytest.approx(square, rel=1e-9)


def hold_out_on(rank: int) -> list[float]:
    """Only one rank has held-out data; DDP would broadcast buffers to a rank that does not wait for them."""
    inner, criterion = Normed(), new_criterion()
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    for step in range(4):
        if dist.get_rank() == rank:
            criterion.held_out(lambda step=step: model(held_out_batch(step, rank))["fit"])
        criterion(model(batch(step, dist.get_rank()))).backward()
        optimizer.step()
    return criterion.exponents.tolist()


def test_held_out_on_one_rank_moves_both(ranks: TwoRanks) -> None:
    found = ranks(hold_out_on, 1)
    assert found[0] == found[1]
    assert max(map(abs, found[0])) > 0


def first_later(micro: bool) -> list[list[int]]:
    """A term that rank 1 alone has from step 7 on, when not every step measures; with micro, in the second part."""
    model, criterion = Model(), new_criterion()
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    found = []
    for step in range(12):
        for part in range(1 + micro):
            losses: dict[str, Tensor | None] = model(batch(step, dist.get_rank()))
            if dist.get_rank() == 0 or step < 7 or part < micro:
                losses["flat"] = None
            criterion(losses).backward()
        optimizer.step()
        found.append([*criterion.meter.since, criterion.meter.next])
    return found


@pytest.mark.parametrize("micro", [False, True])
def test_a_term_that_comes_later_is_measured_at_the_next_step_that_measures(ranks: TwoRanks, micro: bool) -> None:
    found = same(ranks(first_later, micro))
    assert [since for _, since, _ in found] == [-1] * 8 + [8] * 4  # steps 6 and 8 measure
    assert found[7][2] == 8


class SumOverRanks(torch.autograd.Function):
    """Talks to the other ranks in backward, as SyncBatchNorm does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def train_with_talk_in_backward() -> list[list[float]]:
    model, criterion = Model(), new_criterion()
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    found = []
    for step in range(3):
        y = SumOverRanks.apply(model.heads.trunk(batch(step, dist.get_rank())))
        losses = {"fit": y.square().mean(), "twice": y.mean(), "flat": y.var()}
        if dist.get_rank() == 1:
            losses["twice"] = None
        criterion(losses).backward()
        optimizer.step()
        found.append(criterion.units.tolist())
    return found


def test_ranks_make_the_same_backward_passes(ranks: TwoRanks) -> None:
    same(ranks(train_with_talk_in_backward))


# Ranks that begin differently, or late


def train_late(setting: Setting) -> Result:
    """As if the process group were made between attach and the first call."""
    placed = place("alone")
    optimizer = torch.optim.SGD(placed.model.heads.parameters(), lr=LR)
    with mock.patch.object(trainonce.distributed, "is_distributed", return_value=False):
        trainonce.attach(optimizer, placed.criterion)
    return Result([train_step(placed, optimizer, step, setting) for step in range(setting.steps)], flat(placed.model))


def test_ranks_that_come_up_after_attach(ranks: TwoRanks) -> None:
    setting = Setting(held_out="module")
    assert_same(ranks(train_late, setting), by_hand(setting))


def resume_on_the_first_rank(path: str) -> tuple[list[str], list[Row], list[int]]:
    """The checkpoint is loaded where a user with DDP loads it: DDP gives the model to the other ranks, not this."""
    first = place("alone")
    train(first, Setting(held_out="module", steps=9))
    placed = beside()
    if dist.get_rank() == 0:
        torch.save(first.criterion.state_dict(), path)
        placed.criterion.load_state_dict(torch.load(path, weights_only=True))
    optimizer = torch.optim.SGD(placed.model.heads.parameters(), lr=LR)
    given = warnings_of(lambda: trainonce.attach(optimizer, placed.criterion))
    rows = [train_step(placed, optimizer, step, Setting(held_out="module")) for step in range(9, 14)]
    drift = placed.criterion.meter.drift
    return given, rows, [placed.criterion.meter.steps, placed.criterion.meter.next, drift.last]


def test_a_checkpoint_that_the_first_rank_alone_has_loaded(ranks: TwoRanks, tmp_path: Any) -> None:
    found = same(ranks(resume_on_the_first_rank, str(tmp_path / "criterion.pt")))
    assert found[0] == ["RanksDiffer"]
    assert found[2][0] == 14


def train_and_keep(path: str, resumed: bool) -> Result:
    setting = Setting(held_out="module")
    if not resumed:
        return train(place("beside"), setting)
    placed = place("beside")
    train(placed, setting._replace(steps=7))
    if dist.get_rank() == 0:
        torch.save([placed.model.state_dict(), placed.criterion.state_dict()], path)
    dist.barrier()
    again = place("beside")
    for part, saved in zip((again.model, again.criterion), torch.load(path, weights_only=True), strict=True):
        part.load_state_dict(saved)
    optimizer = torch.optim.SGD(again.model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, again.criterion)
    return Result([train_step(again, optimizer, step, setting) for step in range(7, STEPS)], flat(again.model))


def test_a_resumed_run_is_the_same_bit_for_bit(ranks: TwoRanks, tmp_path: Any) -> None:
    whole = same(ranks(train_and_keep, "", False))
    resumed = same(ranks(train_and_keep, str(tmp_path / "run.pt"), True))
    assert resumed.model == whole.model
    assert resumed.rows == whole.rows[7:]


def train_apart() -> tuple[list[list[float]], list[float]]:
    """One rank has fewer batches: DDP's join, where no other collective may run."""
    placed = place("in_forward")
    optimizer = torch.optim.SGD(placed.model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, placed.criterion, sync=False)
    units = []
    with placed.wrapper.join():
        for step in range(2 + dist.get_rank()):
            placed.total(batch(step, dist.get_rank())).backward()
            optimizer.step()
            optimizer.zero_grad()
            units.append(placed.criterion.units.tolist())
    return units, flat(placed.model)


def test_without_sync_each_rank_measures_its_own(ranks: TwoRanks) -> None:
    found = ranks(train_apart)
    assert [len(units) for units, _ in found] == [2, 3]
    assert found[0][0][0] != found[1][0][0]
    for rank, (units, _) in enumerate(found):
        squares = squares_at(0, rank)
        assert units[0] == pytest.approx([(squares[t] / squares["fit"]) ** 0.5 for t in TERMS], rel=1e-9)
    assert found[0][1] == found[1][1]  # the model, by DDP


def narrow(rank: int) -> tuple[float, list[float]]:
    """A gradient that overflows float16 on one rank only."""
    layer, criterion = nn.Linear(4, 4).half(), trainonce.CompositeLoss(["a", "b"], units="gradient")
    for _ in range(6):
        out = layer(torch.ones(2, 4).half()).float()
        size = 1e3 if dist.get_rank() == rank else 1.0
        criterion(a=size * out.mean(), b=2 * size * out.mean())
    return criterion.meter.scale.item(), criterion.units.tolist()


def test_the_scale_that_keeps_float16_finite_is_the_same_on_all_ranks(ranks: TwoRanks) -> None:
    scale, units = same(ranks(narrow, 1))
    assert scale < 2.0**15
    assert units == pytest.approx([1, 2], rel=0.01)
