"""Gradient balance on two ranks: the same on both, that of one process with all their batches, whatever wraps it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from _rank_problem import NEEDS_RANKS, warnings_of, whole
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from tests.balance._task import TERMS, Heads, by_hand
from trainonce import BalancedLoss

if TYPE_CHECKING:
    from _two_ranks import TwoRanks

pytestmark = NEEDS_RANKS

STEPS, LR, EVERY, TRAVEL = 12, 0.05, 0.2, 20.0


def batch(step: int, rank: int, part: int = 0) -> Tensor:
    """The second rank's samples are larger: the ranks disagree."""
    generator = torch.Generator().manual_seed(100 * step + 10 * part + rank)
    return torch.randn(8, 4, generator=generator, dtype=torch.float64) * (1 + 2 * rank)


class Model(nn.Module):
    """The heads, and the criterion where it is inside; ``features``: it measures at the trunk's output."""

    def __init__(self, criterion: Any, *, inside: bool, in_forward: bool, features: bool = False) -> None:
        super().__init__()
        self.heads = Heads(torch.float64)
        self.kept = [criterion]
        if inside:
            self.criterion = criterion
        self.in_forward, self.features = in_forward, features

    def forward(self, x: Tensor, lacks: tuple[str, ...] = ()) -> Any:
        if self.features:
            z = self.heads.trunk(x)
            a, b = self.heads.fit(z), self.heads.twice(z)
            found = {"fit": (a - x[:, :1]).square().mean(), "twice": b.square().mean(), "flat": a.var()}
        else:
            z, found = None, self.heads(x)
        losses = {term: None if term in lacks else loss for term, loss in found.items()}
        return self.total(losses, z) if self.in_forward else (losses, z)

    def total(self, losses: Any, z: Any) -> Tensor:
        return self.kept[0](losses) if z is None else self.kept[0](losses, at=z)


def ddp(*, inside: bool = False, in_forward: bool = False, keep_out: bool = False, **options: Any) -> Any:
    criterion = BalancedLoss(TERMS, every=EVERY, steps=STEPS, travel=TRAVEL).double()
    model = Model(criterion, inside=inside, in_forward=in_forward)
    if keep_out:
        trainonce.keep_out(model)
    return model, DistributedDataParallel(model, **options)


PLACEMENTS: dict[str, dict[str, bool]] = {
    "beside": {},
    "beside-find_unused": {"find_unused_parameters": True},
    "beside-static_graph": {"static_graph": True},
    "beside-bucket_view": {"gradient_as_bucket_view": True},
    "in_forward": {"inside": True, "in_forward": True},
    "in_forward-find_unused": {"inside": True, "in_forward": True, "find_unused_parameters": True},
    "in_forward-kept_out": {"inside": True, "in_forward": True, "keep_out": True},
    "after_forward": {"inside": True},
    "after_forward-find_unused": {"inside": True, "find_unused_parameters": True},
}


def train(placement: str, held: str, micro: int = 1) -> tuple[list[list[float]], list[float], int]:
    """The coefficients of each step, the model, and how often DDP reduced; ``held``: what computes the validation."""
    model, wrapper = ddp(**PLACEMENTS[placement])
    criterion, rank, calls = model.kept[0], dist.get_rank(), []
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, criterion)

    def reduce(state, bucket):  # DDP checks annotations, and not as text
        calls.append(1)
        work = dist.all_reduce(bucket.buffer() / 2, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    wrapper.register_comm_hook(None, reduce)
    path = []
    for step in range(STEPS):
        if held:
            through = model.heads if held == "module" else lambda x: wrapper(x)[0]
            criterion.validation = lambda step=step, through=through: through(batch(step + 1000, rank))["fit"]
        for part in range(micro):
            syncs = part == micro - 1 or (step == 0 and wrapper.static_graph)
            with contextlib.nullcontext() if syncs else wrapper.no_sync():
                out = wrapper(batch(step, rank, part))
                ((out if model.in_forward else model.total(*out)) / micro).backward()
            if part == 0:
                path.append(criterion.coefficients().tolist())
        optimizer.step()
        optimizer.zero_grad()
    return path, [v for p in model.heads.parameters() for v in p.detach().flatten().tolist()], len(calls)


CASES = [
    *((placement, "", 1) for placement in PLACEMENTS),
    *((placement, "module", 1) for placement in PLACEMENTS),
    *((placement, "wrapper", 1) for placement in PLACEMENTS if not placement.startswith("in_forward")),
    *((placement, "", 2) for placement in ("beside", "in_forward", "after_forward-find_unused")),
]


@pytest.mark.parametrize(("placement", "held", "micro"), CASES)
def test_it_is_what_is_computed_by_hand(ranks: TwoRanks, placement: str, held: str, micro: int) -> None:
    """And DDP notices nothing of the measurements: it reduces once a step."""
    found = ranks(train, placement, held, micro)
    assert found[0] == found[1]  # identical, not close
    assert found[0][2] == STEPS + ("static" in placement) * (micro - 1)
    if micro > 1:
        return  # a measurement sees the first micro-batch
    data = [[batch(step, rank) for rank in range(2)] for step in range(STEPS)]
    beside = [[batch(step + 1000, rank) for rank in range(2)] for step in range(STEPS)] if held else None
    path, model = by_hand(data, beside, every=EVERY, steps=STEPS, travel=TRAVEL, lr=LR)
    torch.testing.assert_close(torch.tensor(found[0][0]), torch.tensor(path), rtol=1e-9, atol=1e-12)
    expected = [v for p in model.parameters() for v in p.detach().flatten().tolist()]
    torch.testing.assert_close(torch.tensor(found[0][1]), torch.tensor(expected), rtol=1e-9, atol=1e-12)


# Batches that lack something on one rank


def call_with(own: list[tuple[str, ...]], steps: int = 1, frozen: bool = False) -> tuple[list[list[float]], list[int]]:
    model, _ = ddp()
    criterion = model.kept[0]
    if frozen:
        criterion.freeze()
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    found = []
    for step in range(steps):
        criterion(model(batch(step, dist.get_rank()), own[dist.get_rank()])[0]).backward()
        optimizer.step()
        found.append([*criterion.coefficients().tolist(), *criterion.norms.flatten().tolist()])
    return found, criterion.since


def norms_of(parts: list[tuple[int, tuple[str, ...]]]) -> dict[str, float]:
    """The norm of the mean over the ranks that have a term; ``parts``: the ranks, and what each lacks."""
    heads, sums = Heads(torch.float64), {}
    for rank, lacks in parts:
        for term, loss in heads(batch(0, rank)).items():
            if term not in lacks:
                grads = torch.autograd.grad(loss, list(heads.trunk.parameters()), retain_graph=True)
                sums.setdefault(term, []).append(torch.cat([g.flatten() for g in grads]))
    return {term: (sum(each) / len(each)).norm().item() for term, each in sums.items()}


@pytest.mark.parametrize(
    ("first", "second"),
    [((), ("twice",)), ((), ("flat",)), (("twice",), ("flat",)), ((), ("fit",)), ((), ("twice", "flat")), ((), TERMS)],
    ids=str,
)
def test_terms_that_one_rank_lacks(ranks: TwoRanks, first: Any, second: Any) -> None:
    """Each gradient is averaged over the ranks that have the term, at what all measure at."""
    found = ranks(call_with, [first, tuple(second)], 4)
    assert str(found[0]) == str(found[1])
    norms = norms_of([(0, first), (1, tuple(second))])
    expected = [v for term in TERMS[1:] for v in (norms["fit"], norms[term])]
    assert found[0][0][0][3:] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_term_that_no_rank_has(ranks: TwoRanks, frozen: bool) -> None:
    found = ranks(call_with, [("flat",), ("flat", "twice")], 3, frozen)
    assert str(found[0]) == str(found[1])
    assert found[0][1][0] != -1
    assert found[0][1][1] == -1
    assert all(row[2] == 1 for row in found[0][0])


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
    heads, criterion, found = Heads(torch.float64), BalancedLoss(TERMS).double(), []
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    for step in range(3):
        y = SumOverRanks.apply(heads.trunk(batch(step, dist.get_rank())))
        losses = {"fit": y.square().mean(), "twice": y.mean(), "flat": y.var()}
        criterion(losses | ({"twice": None} if dist.get_rank() else {})).backward()
        optimizer.step()
        found.append(criterion.coefficients().tolist())
    return found


def test_ranks_make_the_same_backward_passes(ranks: TwoRanks) -> None:
    first, second = ranks(train_with_talk_in_backward)
    assert first == second


def validate_on(rank: int) -> list[float]:
    """Only one rank has validation data, and batch norm has buffers that DDP broadcasts in forward."""
    model, _ = ddp()
    model.heads.trunk.append(nn.BatchNorm1d(8).double())
    wrapper, criterion = DistributedDataParallel(model), model.kept[0]
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, criterion)
    if dist.get_rank() == rank:
        criterion.validation = lambda: wrapper(batch(1000, rank))[0]["fit"]
    for step in range(4):
        criterion(wrapper(batch(step, dist.get_rank()))[0]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return criterion.alignment.tolist()


def test_validation_data_on_one_rank_move_both(ranks: TwoRanks) -> None:
    first, second = ranks(validate_on, 1)
    assert first == second
    assert max(map(abs, first)) > 0


def start_apart(late: bool) -> tuple[list[list[float]], list[str]]:
    """Rank 0 alone has loaded a state; ``late``: the process group is made after attach."""
    heads, criterion, found = Heads(torch.float64), BalancedLoss(TERMS).double(), []
    if dist.get_rank() == 0:
        criterion.norms.fill_(3.0), criterion.peaks.fill_(5.0)
        criterion.step, criterion.next, criterion.since = 50, 53, [4, 9]
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.0)
    with (
        mock.patch.object(trainonce.distributed, "is_distributed", return_value=False)
        if late
        else contextlib.nullcontext()
    ):
        given = warnings_of(lambda: trainonce.attach(optimizer, criterion))
    for step in range(5):
        criterion(heads(batch(step, dist.get_rank()))).backward()
        optimizer.step()
        found.append([*criterion.coefficients().tolist(), criterion.step, criterion.next, *criterion.since])
    return found, given


@pytest.mark.parametrize("late", [False, True])
def test_all_ranks_get_the_state_of_the_first(ranks: TwoRanks, late: bool) -> None:
    first, second = ranks(start_apart, late)
    assert first == second
    assert first[0][0][3:] == [51, 53, 4, 9]
    assert first[0][-1][3:] == [55, 56, 4, 9]


def train_apart(sync: bool) -> list[list[float]]:
    heads, criterion, found = Heads(torch.float64), BalancedLoss(TERMS).double(), []
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion, sync=sync)
    for step in range(1 + 2 * (not sync) * dist.get_rank() + 2):  # apart they may even call unevenly often
        criterion(heads(batch(step, dist.get_rank()))).backward()
        optimizer.step()
        found.append(criterion.coefficients().tolist())
    return found


def test_sync_off_leaves_each_rank_to_itself(ranks: TwoRanks) -> None:
    first, second = ranks(train_apart, False)
    assert first != second[:3]
    assert len(second) == 5


# FSDP2: there are no whole parameters to measure at, but features


def shard(placement: str, **options: Any) -> Model:
    """``whole``: not sharded, gradients are averaged by hand."""
    from torch.distributed.fsdp import fully_shard

    kind, _, called = placement.partition("-")
    criterion = BalancedLoss(TERMS, every=EVERY).double()
    model = Model(criterion, inside=kind not in ("whole", "beside"), in_forward=called == "in_forward", features=True)
    if kind == "whole":
        return model
    if kind == "ignored":
        options["ignored_params"] = trainonce.keep_out(model)
    if kind == "layers":
        fully_shard(model.heads.trunk, **options)
        fully_shard(model.heads.fit, **options)
    fully_shard(model, **options)
    return model


def train_shards(placement: str, options: dict[str, Any], lacks: tuple[str, ...] = (), micro: int = 1) -> Any:
    model = shard(placement, **options)
    sharded, criterion, found = placement[:5] != "whole", model.kept[0], []
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=LR, momentum=0.9)
    trainonce.attach(optimizer, criterion)
    for step in range(STEPS):
        for part in range(micro):
            if sharded:
                model.set_requires_gradient_sync(part == micro - 1)
            out = model(batch(step, dist.get_rank(), part), lacks if dist.get_rank() else ())
            ((out if model.in_forward else model.total(*out)) / micro).backward()
        for parameter in [] if sharded else model.heads.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        optimizer.step()
        optimizer.zero_grad()
        found.append(criterion.coefficients().tolist())
    return found, [v for p in model.heads.parameters() for v in whole(p.detach()).flatten().tolist()]


@pytest.mark.parametrize(
    ("placement", "options", "how"),
    [
        *(
            (f"{kind}-{called}", {}, {})
            for kind in ("beside", "sharded", "ignored", "layers")
            for called in ("in_forward", "after_forward")
        ),
        ("layers-after_forward", {"reshard_after_forward": True}, {"micro": 2}),
        ("layers-in_forward", {"reshard_after_forward": False}, {"micro": 2}),
        ("layers-after_forward", {"reshard_after_forward": True}, {"lacks": ("flat",)}),
        ("sharded-after_forward", {"reshard_after_forward": False}, {"lacks": ("flat",)}),
    ],
    ids=str,
)
def test_features_under_fsdp(ranks: TwoRanks, placement: str, options: Any, how: Any) -> None:
    """Training goes on as without shards: the extra backward passes leave nothing behind."""
    more = (how.get("lacks", ()), how.get("micro", 1))
    expected = ranks(train_shards, f"whole-{placement.partition('-')[2]}", {}, *more)
    found = ranks(train_shards, placement, options, *more)
    assert found[0] == found[1]
    for got, wanted in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=1e-9, atol=1e-12)


def refuse(at: str, held: bool) -> str:
    model = shard("layers-after_forward")
    model.features = held
    criterion = model.kept[0]
    if at == "module":
        criterion._places.at = model.heads.trunk
    elif not held:
        criterion._places.at = at
    else:
        criterion.validation = lambda: pytest.fail("evaluated")
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, criterion)
    out = model(batch(0, dist.get_rank()))
    for module in (model, model.heads.trunk, model.heads.fit):
        module.reshard()
    with pytest.raises(RuntimeError) as caught:
        model.total(*out)
    return str(caught.value)


@pytest.mark.parametrize("at", ["all", "last", "module"])
def test_sharded_parameters_cannot_be_measured_at(ranks: TwoRanks, at: str) -> None:
    for text in ranks(refuse, at, False):
        assert text.startswith("A balance cannot be measured at sharded parameters")
        assert "at=features" in text
    if at == "all":
        assert all("compared at parameters" in text for text in ranks(refuse, at, True))


def resume(placement: str, folder: str) -> list[Any]:
    """Through files, into a model that starts elsewhere; then both go on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    runs = []
    for _ in range(2):
        model = shard(placement)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
        trainonce.attach(optimizer, model.kept[0])
        runs.append((model, optimizer))

    def go(model: Any, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[Any]:
        for step in range(first, last):
            out = model(batch(step, dist.get_rank()))
            (out if model.in_forward else model.total(*out)).backward()
            optimizer.step()
            optimizer.zero_grad()
        own = model.kept[0]
        heads = [v for p in model.heads.parameters() for v in whole(p.detach()).flatten().tolist()]
        return [own.coefficients().tolist(), own.step, own.next, own.since, heads]

    go(*runs[0], 0, 7)
    model, optimizer = states.get_state_dict(*runs[0])
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    model, optimizer = states.get_state_dict(*runs[1])
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    states.set_state_dict(*runs[1], model_state_dict=model, optim_state_dict=optimizer)
    return [go(*each, 7, 14) for each in runs]


@pytest.mark.parametrize("placement", ["sharded-in_forward", "ignored-after_forward", "layers-in_forward"])
def test_a_sharded_checkpoint_resumes_bit_for_bit(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    first, second = ranks(resume, placement, str(tmp_path))
    assert first == second
    assert first[0] == first[1]
    assert first[0][1] == 14
