"""FSDP2: exponents in shards or ignored, before any forward, with foreach, clipping, narrow precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from _rank_problem import (
    HALF,
    NEEDS_RANKS,
    Net,
    Placed,
    Setting,
    backward_in_parts,
    batch,
    double,
    fsdp_inside,
    new_criterion,
    one_process,
    place,
    values,
    warnings_of,
    whole,
)
from torch import nn

import trainonce
from trainonce import functional

if TYPE_CHECKING:
    from _two_ranks import TwoRanks

pytestmark = NEEDS_RANKS


# FSDP2: before any forward, foreign groups, clipping, precision


def use_before_forward(auxiliary: int) -> dict[str, list[float]]:
    """The gradient of a call on the shards, then of one more in the root's forward on top of it."""
    placed = fsdp_inside(auxiliary, in_forward=True)
    found = {"weights": placed.criterion.coefficients().tolist()}
    losses = torch.arange(1.0, auxiliary + 2, dtype=torch.float64) * (1 + dist.get_rank())
    total = placed.criterion(losses.requires_grad_())
    total.backward()
    assert placed.criterion.exponents.grad is not None
    found |= {"total": [total.item()], "before": values(placed.criterion.exponents.grad)}
    placed.total(*batch(0, dist.get_rank() * HALF, HALF)).backward()
    return found | {"both": values(placed.criterion.exponents.grad)}


@pytest.mark.parametrize("auxiliary", [1, 3])
def test_fsdp_sharded_before_any_forward(ranks: TwoRanks, auxiliary: int) -> None:
    criterion = new_criterion(auxiliary)
    mu = criterion.exponents.detach()
    losses = torch.arange(1.0, auxiliary + 2, dtype=torch.float64)
    before = functional.composite_grad(mu, 1.5 * losses)  # the mean of the ranks' losses
    placed = one_process(auxiliary)
    placed.total(*batch(0, 0, 2 * HALF)).backward()
    assert placed.criterion.exponents.grad is not None
    for rank, found in enumerate(ranks(use_before_forward, auxiliary)):
        expected = {
            "weights": criterion.coefficients(),
            "total": functional.composite(mu, losses * (1 + rank)).reshape(1),
            "before": before,
            "both": before + placed.criterion.exponents.grad,
        }
        for name, value in expected.items():
            got = double(found[name])
            torch.testing.assert_close(got, value, rtol=0, atol=1e-12)


def shard_a_vector(auxiliary: int) -> tuple[list[int], list[int], str]:
    criterion = fsdp_inside(auxiliary, in_forward=True).criterion
    return list(criterion.exponents.shape), list(criterion.exponents.to_local().shape), repr(criterion)


def test_fsdp_shards_one_exponent_as_a_vector(ranks: TwoRanks) -> None:
    """A scalar parameter would be refused: fully_shard doesn't support scalar parameters."""
    found = ranks(shard_a_vector, 1)
    assert [shape for shape, _, _ in found] == [[1], [1]]
    assert [local for _, local, _ in found] == [[1], [0]]
    assert all("sharded: read .coefficients() on every rank" in text for _, _, text in found)


def clip(placed: Placed, parts: list[list[nn.Parameter]]) -> list[float]:
    """The norms, and what is left of the exponents' gradient."""
    norms = [whole(nn.utils.clip_grad_norm_(part, 0.05)).item() for part in parts]
    assert placed.criterion.exponents.grad is not None
    return [*norms, *values(placed.criterion.exponents.grad)]


def clip_placed(placement: str, apart: bool) -> list[float]:
    placed = place(placement, 3)
    trainonce.attach(torch.optim.SGD(placed.parameters, lr=0.1), placed.criterion)
    backward_in_parts(placed, 0, Setting())
    return clip(placed, parts_of(placed, apart))


def parts_of(placed: Placed, apart: bool) -> list[list[nn.Parameter]]:
    if not apart:
        return [placed.parameters]
    return [trainonce.model_parameters(placed.model), [placed.criterion.exponents]]


MIXED = {"fsdp-ignored-in_forward", "fsdp-ignored-after_forward"}


def clip_mixed(placement: str) -> tuple[str, list[float]]:
    try:
        clip_placed(placement, False)
    except RuntimeError as error:
        return str(error), clip_placed(placement, True)
    return "", []


@pytest.mark.parametrize("placement", sorted(MIXED))
def test_fsdp_ignored_is_clipped_apart(ranks: TwoRanks, placement: str) -> None:
    """Torch cannot take one norm over a plain and a sharded tensor; trainonce.model_parameters is the way out."""
    placed = one_process(3)
    placed.total(*batch(0, 0, 2 * HALF)).backward()
    expected = clip(placed, parts_of(placed, True))
    found = ranks(clip_mixed, placement)
    assert found[0] == found[1]
    assert "mixed torch.Tensor and DTensor" in found[0][0]
    assert found[0][1] == pytest.approx(expected, rel=0, abs=1e-12)


def narrow_policy(ignore: bool, in_forward: bool) -> tuple[list[str], str]:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    placed = fsdp_inside(1, in_forward=in_forward, ignore=ignore, mp_policy=policy)
    given = warnings_of(lambda: [placed.total(*batch(step, 0, HALF)).backward() for step in range(2)])
    return given, str(placed.criterion.exponents.dtype)


@pytest.mark.parametrize("in_forward", [True, False])
def test_fsdp_bfloat16_policy_warns(ranks: TwoRanks, in_forward: bool) -> None:
    assert ranks(narrow_policy, False, in_forward) == [(["LowPrecision"], "torch.float64")] * 2
    assert ranks(narrow_policy, True, in_forward) == [([], "torch.float64")] * 2


def shard_after_attach() -> str:
    from torch.distributed.fsdp import fully_shard

    net = Net(1, criterion=True, in_forward=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trainonce.attach(optimizer, net.criterion)
    fully_shard(net)
    net(*batch(0, 0, HALF)).backward()
    with pytest.raises(RuntimeError) as caught:
        optimizer.step()
    return str(caught.value)


def test_fsdp_after_attach_is_refused(ranks: TwoRanks) -> None:
    assert all("Attach afterwards" in text for text in ranks(shard_after_attach))


def shard_on_meta() -> list[float]:
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        net = Net(3, criterion=True, in_forward=True)
    fully_shard(net)
    net.to_empty(device="cpu")
    for p in net.parameters():
        nn.init.constant_(p, 7.0)  # what memory happened to hold
    net.criterion.reset_parameters()
    return values(net.criterion.exponents)


def test_fsdp_sharded_on_meta_is_reset(ranks: TwoRanks) -> None:
    expected = pytest.approx(values(new_criterion(3).exponents), rel=1e-6)
    assert ranks(shard_on_meta) == [expected, expected]


def put_shards_in_place() -> tuple[bool, list[float], list[float]]:
    """As Transformers' from_pretrained does it under tensor parallelism; then in float64."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    shards = nn.Parameter(distribute_tensor(torch.tensor([7.0, 8.0]), init_device_mesh("cpu", (2,)), [Shard(0)]))
    criterion = trainonce.CompositeLoss(["a", "b", "c"]).to("meta")
    criterion.exponents = shards
    found = values(criterion.exponents)
    return criterion.exponents is shards, found, values(criterion.double().exponents)


def test_shards_keep_their_values_in_place_of_the_meta_device_and_in_float64(ranks: TwoRanks) -> None:
    assert ranks(put_shards_in_place) == [(True, [7.0, 8.0], [7.0, 8.0])] * 2
