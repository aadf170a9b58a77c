"""Gradient units under FSDP2: at shared features, since there are no whole parameters to measure at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from _rank_problem import NEEDS_RANKS, whole
from torch import Tensor, nn

import trainonce
from tests.units._rank_problem import LR, STEPS, UNITS, batch
from tests.units._task import TERMS, Heads
from trainonce import GradientUnits

if TYPE_CHECKING:
    from _two_ranks import TwoRanks

pytestmark = NEEDS_RANKS


class Net(nn.Module):
    """A trunk and heads; the criterion, inside or not, measures at the trunk's output."""

    def __init__(self, *, inside: bool, in_forward: bool, share: bool = True, units: Any = UNITS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads = Heads(torch.float64)
        criterion = trainonce.CompositeLoss(TERMS, units=units).double()
        self._beside = [criterion]
        if inside:
            self.criterion = criterion
        self.in_forward, self.share = in_forward, share

    def forward(self, x: Tensor, absent: str = "") -> Any:
        features = self.heads.trunk(x)
        a, b = self.heads.fit(features), self.heads.twice(features)
        losses = {"fit": (a - x[:, :1]).square().mean(), "twice": b.square().mean(), "flat": a.var()}
        if absent:
            losses[absent] = None
        return self.loss(losses, features) if self.in_forward else (losses, features)

    def loss(self, losses: dict[str, Tensor], features: Tensor) -> Tensor:
        if self.share:
            self._beside[0].share(features)
        return self._beside[0](losses)


def make(placement: str, **options: Any) -> Net:
    """``whole``: not sharded, gradients are averaged by hand."""
    from torch.distributed.fsdp import fully_shard

    kind, _, called = placement.partition("-")
    share, units = options.pop("share", True), options.pop("units", UNITS)
    net = Net(
        inside=kind in ("sharded", "ignored", "layers"), in_forward=called == "in_forward", share=share, units=units
    )
    if kind == "whole":
        return net
    if kind == "ignored":
        options["ignored_params"] = trainonce.keep_out(net)
    if kind == "layers":
        fully_shard(net.heads.trunk, **options)
        fully_shard(net.heads.fit, **options)
    fully_shard(net, **options)
    return net


def run(net: Net, steps: int = STEPS, absent: str = "", micro: int = 1) -> tuple[list[list[float]], list[float]]:
    """Units after each step, and the heads at the end."""
    optimizer = torch.optim.SGD(net.heads.parameters(), lr=LR, momentum=0.9)
    trainonce.attach(optimizer, net._beside[0])
    found = []
    sharded = hasattr(net, "set_requires_gradient_sync")
    for step in range(steps):
        for part in range(micro):
            if sharded:
                net.set_requires_gradient_sync(part == micro - 1)
            out = net(batch(step, dist.get_rank(), part), absent if dist.get_rank() else "")
            ((out if net.in_forward else net.loss(*out)) / micro).backward()
        if not sharded:
            for parameter in net.heads.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
        optimizer.step()
        optimizer.zero_grad()
        found.append(net._beside[0].units.tolist() + net._beside[0].weights.tolist())
    return found, flat(net)


def flat(net: Net) -> list[float]:
    return [v for p in net.heads.parameters() for v in whole(p.detach()).flatten().tolist()]


def train(placement: str, options: dict[str, Any], more: dict[str, Any]) -> tuple[list[list[float]], list[float]]:
    return run(make(placement, **options), **more)


def assert_close(found: list[Any], expected: list[Any]) -> None:
    assert found[0] == found[1]
    for got, wanted in zip(found[0], expected[0], strict=True):
        pair = [torch.tensor(v, dtype=torch.float64) for v in (got, wanted)]
        torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-12)


PLACEMENTS = [
    f"{kind}-{called}"
    for kind in ("beside", "sharded", "ignored", "layers")
    for called in ("in_forward", "after_forward")
]


@pytest.mark.parametrize("options", [{}, {"reshard_after_forward": True}, {"reshard_after_forward": False}], ids=str)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_shared_features(ranks: TwoRanks, placement: str, options: dict[str, Any]) -> None:
    """Training goes on as without shards: the extra backward passes leave nothing behind."""
    expected = ranks(train, f"whole-{placement.partition('-')[2]}", {}, {})
    assert_close(ranks(train, placement, options, {}), expected)


@pytest.mark.parametrize("more", [{"micro": 2}, {"absent": "flat"}], ids=str)
@pytest.mark.parametrize("placement", ["sharded-after_forward", "layers-in_forward", "layers-after_forward"])
def test_accumulation_and_a_term_absent_on_one_rank(ranks: TwoRanks, placement: str, more: dict[str, Any]) -> None:
    expected = ranks(train, f"whole-{placement.partition('-')[2]}", {}, more)
    assert_close(ranks(train, placement, {"reshard_after_forward": True}, more), expected)


def snapshot(net: Net) -> list[Any]:
    """Where FSDP2 is, for each group of parameters."""
    found = []
    for module in (net, net.heads.trunk, net.heads.fit):
        state = module._get_fsdp_state()
        found += [str(state._training_state), state._state_ctx.post_backward_final_callback_queued]
        found += [state._state_ctx.iter_forward_root is not None, len(state._modules_to_run_forward)]
        for group in state._fsdp_param_groups:
            kept = [p.unsharded_param.grad is not None for p in group.fsdp_params]
            found += [str(group._training_state), group.is_unsharded, group.reduce_grads, group.reshard_after_backward]
            found += kept
    return found


class Watched(Net):
    """Takes a snapshot before and after the criterion."""

    def loss(self, losses: dict[str, Tensor], features: Tensor) -> Tensor:
        before = snapshot(self)
        total = super().loss(losses, features)
        self.seen = [*getattr(self, "seen", []), before == snapshot(self)]
        return total


def watch(called: str, options: dict[str, Any]) -> list[bool]:
    """Every micro-batch measures, in the second with gradients that wait to be reduced."""
    from torch.distributed.fsdp import fully_shard

    net = Watched(inside=True, in_forward=called == "in_forward")
    for module in (net.heads.trunk, net.heads.fit, net):
        fully_shard(module, **options)
    for part in range(4):
        net.set_requires_gradient_sync(part % 2 == 1)
        net.criterion.meter.next = 0
        out = net(batch(0, dist.get_rank(), part))
        (out if net.in_forward else net.loss(*out)).backward()
    return net.seen


@pytest.mark.parametrize("options", [{"reshard_after_forward": True}, {"reshard_after_forward": False}], ids=str)
@pytest.mark.parametrize("called", ["in_forward", "after_forward"])
def test_a_measurement_leaves_fsdp_where_it_was(ranks: TwoRanks, called: str, options: dict[str, Any]) -> None:
    assert ranks(watch, called, options) == [[True] * 4] * 2


# What is refused


def refuse(placement: str, where: str) -> str:
    net = make(placement, share=False, units=GradientUnits(shared=where) if where in ("all", "last") else UNITS)
    if where == "module":
        object.__setattr__(net._beside[0].meter.settings, "shared", net.heads.trunk)
    optimizer = torch.optim.SGD(net.heads.parameters(), lr=LR)
    trainonce.attach(optimizer, net._beside[0])
    losses = net(batch(0, dist.get_rank()))
    for module in (net, net.heads.trunk, net.heads.fit):
        module.reshard()
    with pytest.raises(RuntimeError) as caught:
        net.loss(*losses)
    return str(caught.value)


@pytest.mark.parametrize("where", ["all", "last", "module"])
def test_sharded_parameters_cannot_be_measured_at(ranks: TwoRanks, where: str) -> None:
    for text in ranks(refuse, "layers-after_forward", where):
        assert text.startswith("Gradient units cannot be measured at sharded parameters")
        assert "criterion.share(features)" in text


def hold_out() -> str:
    net = make("sharded-after_forward")
    net._beside[0].held_out(lambda: pytest.fail("evaluated"))
    with pytest.raises(RuntimeError) as caught:
        net.loss(*net(batch(0, 0)))
    return str(caught.value)


def test_held_out_needs_parameters(ranks: TwoRanks) -> None:
    for text in ranks(hold_out):
        assert "held_out compares gradients at parameters" in text


# Records, checkpoints, precision


def record(path: str) -> list[float]:
    """On the first rank alone, of sharded exponents."""
    net = make("sharded-after_forward")
    criterion, optimizer = net._beside[0], torch.optim.SGD(net.parameters(), lr=LR)
    history = trainonce.History(path) if dist.get_rank() == 0 else None
    trainonce.attach(optimizer, criterion, history=history)
    for step in range(3):
        net.loss(*net(batch(step, dist.get_rank()))).backward()
        optimizer.step()
        optimizer.zero_grad()
    if history is not None:
        history.flush()
    return [*criterion.units.tolist()[1:], criterion.total.item()]


def test_history_on_the_first_rank_alone(ranks: TwoRanks, tmp_path: Any) -> None:
    found = ranks(record, str(tmp_path / "history.jsonl"))
    columns = trainonce.History.load(tmp_path / "history.jsonl").columns()
    assert found[0] == found[1]
    assert [columns["unit/twice"][-1], columns["unit/flat"][-1]] == pytest.approx(found[0][:2])
    assert len(columns["total"]) == 3


def resume(placement: str, folder: str) -> dict[str, Any]:
    """Through files, into a model that starts elsewhere; then both go on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    runs = []
    for _ in range(2):
        net = make(placement)
        optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
        trainonce.attach(optimizer, net._beside[0])
        runs.append((net, optimizer))

    def go(net: Net, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[Any]:
        for step in range(first, last):
            out = net(batch(step, dist.get_rank()))
            (out if net.in_forward else net.loss(*out)).backward()
            optimizer.step()
            optimizer.zero_grad()
        meter = net._beside[0].meter
        return [net._beside[0].units.tolist(), meter.steps, meter.next, meter.since, flat(net)]

    go(*runs[0], 0, 7)
    model, optimizer = states.get_state_dict(*runs[0])
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    model, optimizer = states.get_state_dict(*runs[1])
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    states.set_state_dict(*runs[1], model_state_dict=model, optim_state_dict=optimizer)
    return {"on": [go(*each, 7, 14) for each in runs]}


@pytest.mark.parametrize("placement", ["sharded-in_forward", "ignored-after_forward", "layers-in_forward"])
def test_a_sharded_checkpoint_resumes_bit_for_bit(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    found = ranks(resume, placement, str(tmp_path))
    assert found[0] == found[1]
    assert found[0]["on"][0] == found[0]["on"][1]
    assert found[0]["on"][0][1] == 14


def train_narrow(placement: str) -> list[list[float]]:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return run(make(placement, mp_policy=policy), steps=5)[0]


@pytest.mark.parametrize("placement", ["beside-after_forward", "ignored-in_forward"])
def test_a_bfloat16_policy(ranks: TwoRanks, placement: str) -> None:
    found = ranks(train_narrow, placement)
    assert found[0] == found[1]
    expected = ranks(train, "whole-after_forward", {}, {"steps": 5})[0][0]
    assert found[0][-1] == pytest.approx(expected[-1], rel=0.1)
