"""The same exponents on two ranks, whatever wraps the model, and the same as one process on the global batch."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from _two_ranks import RankError, TwoRanks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]

TERMS = ("fit", "far", "size", "bend")
STEPS = 5
HALF = 4  # samples a rank sees in a step


@pytest.fixture(scope="module")
def ranks() -> Iterator[TwoRanks]:
    with TwoRanks() as pair:
        yield pair


# One small problem, trained by one process or by two


def losses_of(output: Tensor, target: Tensor, terms: int) -> dict[str, Tensor]:
    """Means over the samples, so that the mean over equal halves is the loss of the whole batch."""
    error = output - target
    found = (error.square().mean(), error.abs().mean(), output.square().mean(), error.pow(4).mean() + 1)
    return dict(zip(TERMS[:terms], found, strict=False))


def batch(step: int, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Samples ``first`` to ``first + count`` of a step's global batch. The second half is larger: ranks disagree."""
    x = torch.randn(2 * HALF, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    x[HALF:] *= 1.5
    y = x.sum(1, keepdim=True).sin()
    return x[first : first + count], y[first : first + count]


class Net(nn.Module):
    def __init__(self, auxiliary: int, *, criterion: bool | nn.Module, in_forward: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.terms = auxiliary + 1
        self.in_forward = in_forward
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        if criterion:
            self.criterion = new_criterion(auxiliary) if criterion is True else criterion
        self.double()

    def forward(self, x: Tensor, y: Tensor) -> Any:
        losses = losses_of(self.body(x), y, self.terms)
        return self.criterion(losses) if self.in_forward else losses


def new_criterion(auxiliary: int) -> trainonce.CompositeLoss:
    terms = TERMS[: auxiliary + 1]
    start = {term: 0.5 / i for i, term in enumerate(terms[1:], start=1)}
    return trainonce.CompositeLoss(terms, init=start).double()


class Placed(NamedTuple):
    """A model and a criterion as a user would put them together."""

    total: Callable[[Tensor, Tensor], Tensor]
    criterion: trainonce.CompositeLoss
    model: nn.Module
    own: nn.Module | None = None  # the criterion's own wrapper

    @property
    def parameters(self) -> list[nn.Parameter]:
        everything = [*self.model.parameters(), *self.criterion.parameters()]
        return list(dict.fromkeys(everything))


def one_process(auxiliary: int) -> Placed:
    net, criterion = Net(auxiliary, criterion=False), new_criterion(auxiliary)
    return Placed(lambda x, y: criterion(net(x, y)), criterion, net)


def ddp_outside(auxiliary: int) -> Placed:
    model, criterion = DistributedDataParallel(Net(auxiliary, criterion=False)), new_criterion(auxiliary)
    return Placed(lambda x, y: criterion(model(x, y)), criterion, model)


def ddp_own(auxiliary: int) -> Placed:
    placed = ddp_outside(auxiliary)
    own = DistributedDataParallel(placed.criterion)
    return placed._replace(total=lambda x, y: own(placed.model(x, y)), own=own)


def ddp_inside(auxiliary: int, *, in_forward: bool, keep_out: bool = False, **options: bool) -> Placed:
    net = Net(auxiliary, criterion=True, in_forward=in_forward)
    if keep_out:
        trainonce.keep_out(net)
    model = DistributedDataParallel(net, **options)
    return Placed(model if in_forward else lambda x, y: net.criterion(model(x, y)), net.criterion, model)


def fsdp_inside(auxiliary: int, *, in_forward: bool, ignore: bool = False, **options: object) -> Placed:
    from torch.distributed.fsdp import fully_shard

    net = Net(auxiliary, criterion=True, in_forward=in_forward)
    if ignore:
        options["ignored_params"] = trainonce.keep_out(net)
    fully_shard(net, **options)
    return Placed(net if in_forward else lambda x, y: net.criterion(net(x, y)), net.criterion, net)


def fsdp_own(auxiliary: int) -> Placed:
    from torch.distributed.fsdp import fully_shard

    net, criterion = Net(auxiliary, criterion=False), new_criterion(auxiliary)
    fully_shard(net)
    own = fully_shard(criterion)
    return Placed(lambda x, y: criterion(net(x, y)), criterion, net, own)


# The ids follow the rows of the measured matrix of ways to place learned weights.
PLACEMENTS: dict[str, tuple[Callable[..., Placed], dict[str, Any]]] = {
    "ddp-outside": (ddp_outside, {}),
    "ddp-own": (ddp_own, {}),
    "ddp-inside-in_forward": (ddp_inside, {"in_forward": True}),
    "ddp-inside-in_forward-find_unused": (ddp_inside, {"in_forward": True, "find_unused_parameters": True}),
    "ddp-inside-in_forward-static_graph": (ddp_inside, {"in_forward": True, "static_graph": True}),
    "ddp-inside-in_forward-bucket_view": (ddp_inside, {"in_forward": True, "gradient_as_bucket_view": True}),
    "ddp-inside-in_forward-kept_out": (ddp_inside, {"in_forward": True, "keep_out": True}),
    "ddp-inside-after_forward": (ddp_inside, {"in_forward": False}),
    "ddp-inside-after_forward-find_unused-kept_out": (
        ddp_inside,
        {"in_forward": False, "find_unused_parameters": True, "keep_out": True},
    ),
    "fsdp-sharded-in_forward": (fsdp_inside, {"in_forward": True}),
    "fsdp-sharded-after_forward": (fsdp_inside, {"in_forward": False}),
    "fsdp-sharded-after_forward-resharded": (fsdp_inside, {"in_forward": False, "reshard_after_forward": True}),
    "fsdp-own": (fsdp_own, {}),
    "fsdp-ignored-in_forward": (fsdp_inside, {"in_forward": True, "ignore": True}),
    "fsdp-ignored-after_forward": (fsdp_inside, {"in_forward": False, "ignore": True}),
}


def place(placement: str, auxiliary: int) -> Placed:
    build, options = PLACEMENTS[placement]
    return build(auxiliary, **options)


class Setting(NamedTuple):
    decay: float = 1.5
    momentum: float = 0.9
    micro: int = 1  # micro-batches a step
    no_sync: bool = False
    sync: bool = True
    coupled: bool = False


SETTINGS = {
    "plain": Setting(decay=0.0, momentum=0.0),
    "decay-momentum": Setting(),
    "accumulation": Setting(micro=2),
    "accumulation-no_sync": Setting(micro=2, no_sync=True),
}


class Result(NamedTuple):
    exponents: list[list[float]]  # after each step
    weights: list[list[float]]
    model: list[float]  # at the end


def train(placed: Placed, setting: Setting, steps: int = STEPS) -> Result:
    """On a rank its half of every batch, alone the whole at once: accumulation must not matter."""
    alone = not dist.is_initialized()
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=setting.momentum)
    trainonce.attach(
        optimizer, placed.criterion, decay=setting.decay, coupled=setting.coupled, sync=setting.sync, lr=0.3
    )
    exponents, weights = [], []
    for step in range(steps):
        if alone:
            placed.total(*batch(step, 0, 2 * HALF)).backward()
        else:
            backward_in_parts(placed, step, setting)
        optimizer.step()
        optimizer.zero_grad()
        exponents.append(values(placed.criterion.exponents))
        weights.append(placed.criterion.weights.tolist())
    return Result(exponents, weights, flat(placed))


def backward_in_parts(placed: Placed, step: int, setting: Setting) -> None:
    count = HALF // setting.micro
    for part in range(setting.micro):
        last = part == setting.micro - 1
        with without_sync(placed, setting.no_sync and not last and not is_first_of_static(placed, step)):
            total = placed.total(*batch(step, dist.get_rank() * HALF + part * count, count))
            (total / setting.micro).backward()


def is_first_of_static(placed: Placed, step: int) -> bool:
    """DDP cannot learn a static graph under no_sync, whatever the model."""
    return step == 0 and getattr(placed.model, "static_graph", False)


@contextlib.contextmanager
def without_sync(placed: Placed, wanted: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for wrapper in filter(None, (placed.model, placed.own)):
            if isinstance(wrapper, DistributedDataParallel):
                if wanted:
                    stack.enter_context(wrapper.no_sync())
            else:
                wrapper.set_requires_gradient_sync(not wanted)
        yield


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def values(tensor: Tensor) -> list[float]:
    found: list[float] = whole(tensor.detach()).tolist()
    return found


def flat(placed: Placed) -> list[float]:
    own = placed.criterion.exponents
    return [v for p in placed.model.parameters() if p is not own for v in whole(p.detach()).flatten().tolist()]


def double(numbers: list[Any]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def assert_same(found: list[Result], expected: Result) -> None:
    assert found[0].exponents == found[1].exponents  # identical, not close
    assert found[0].weights == found[1].weights
    for name in Result._fields:
        pair = double(getattr(found[0], name)), double(getattr(expected, name))
        torch.testing.assert_close(*pair, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def train_placed(placement: str, auxiliary: int, setting: Setting) -> Result:
    return train(place(placement, auxiliary), setting)


# One exponent on two ranks leaves one of them an empty shard; the settings do not change that.
@pytest.mark.parametrize(("auxiliary", "setting"), [(1, "decay-momentum"), *((3, setting) for setting in SETTINGS)])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_equals_one_process(ranks: TwoRanks, placement: str, auxiliary: int, setting: str) -> None:
    expected = train(one_process(auxiliary), SETTINGS[setting])
    start = double(values(new_criterion(auxiliary).exponents))
    assert (double(expected.exponents[-1]) - start).abs().min() > 1e-2  # each has a way to go wrong
    assert_same(ranks(train_placed, placement, auxiliary, SETTINGS[setting]), expected)


@pytest.mark.parametrize("placement", ["ddp-outside", "ddp-inside-in_forward", "fsdp-sharded-in_forward"])
def test_coupled_decay_equals_one_process(ranks: TwoRanks, placement: str) -> None:
    setting = Setting(coupled=True)
    assert_same(ranks(train_placed, placement, 3, setting), train(one_process(3), setting))


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
    trainonce.attach(torch.optim.SGD(model.parameters(), lr=0.1), net.criterion, decay=1.0)
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


def two_ignored() -> set[str]:
    net = Net(1, criterion=True)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["body.0.weight"])
    trainonce.keep_out(net)
    trainonce.keep_out(net)
    return set(DistributedDataParallel(net).parameters_to_ignore)


def test_keep_out_adds_to_what_is_ignored_already(ranks: TwoRanks) -> None:
    assert ranks(two_ignored) == [{"body.0.weight", "criterion.exponents"}] * 2


# FSDP2: before any forward, foreign groups, clipping, precision


def use_before_forward(auxiliary: int) -> dict[str, list[float]]:
    """The gradient of a call on the shards, then of one more in the root's forward on top of it."""
    placed = fsdp_inside(auxiliary, in_forward=True)
    found = {"weights": placed.criterion.weights.tolist()}
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
            "weights": criterion.weights,
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
    assert all("sharded: read .weights on every rank" in text for _, _, text in found)


def step_with_foreach(placement: str) -> tuple[list[str | None], list[float]]:
    placed = place(placement, 3)
    optimizer = torch.optim.AdamW(placed.parameters, lr=0.1, foreach=True)  # the exponents among the model's
    trainonce.attach(optimizer, placed.criterion, decay=1.0)
    backward_in_parts(placed, 0, Setting())
    optimizer.step()
    return [group.get("name") for group in optimizer.param_groups], values(placed.criterion.exponents)


@pytest.mark.parametrize("placement", ["fsdp-ignored-in_forward", "fsdp-sharded-in_forward"])
def test_fsdp_ignored_foreach_has_a_group_of_its_own(ranks: TwoRanks, placement: str) -> None:
    """In one group foreach would meet 'mixed torch.Tensor and DTensor'."""
    placed = one_process(3)
    optimizer = torch.optim.AdamW(placed.parameters, lr=0.1, foreach=True)
    trainonce.attach(optimizer, placed.criterion, decay=1.0)
    placed.total(*batch(0, 0, 2 * HALF)).backward()
    optimizer.step()
    found = ranks(step_with_foreach, placement)
    assert found[0] == found[1]
    assert found[0][0] == [None, "loss_weights"]
    assert found[0][1] == pytest.approx(values(placed.criterion.exponents), rel=0, abs=1e-12)


def clip(placed: Placed, parts: list[list[nn.Parameter]]) -> list[float]:
    """The norms, and what is left of the exponents' gradient."""
    norms = [whole(nn.utils.clip_grad_norm_(part, 0.05)).item() for part in parts]
    assert placed.criterion.exponents.grad is not None
    return [*norms, *values(placed.criterion.exponents.grad)]


def clip_placed(placement: str, apart: bool) -> list[float]:
    placed = place(placement, 3)
    trainonce.attach(torch.optim.SGD(placed.parameters, lr=0.1), placed.criterion, decay=1.0)
    backward_in_parts(placed, 0, Setting())
    return clip(placed, parts_of(placed, apart))


def parts_of(placed: Placed, apart: bool) -> list[list[nn.Parameter]]:
    if not apart:
        return [placed.parameters]
    return [trainonce.model_parameters(placed.model), [placed.criterion.exponents]]


MIXED = {"fsdp-ignored-in_forward", "fsdp-ignored-after_forward"}


@pytest.mark.parametrize("apart", [False, True], ids=["together", "apart"])
@pytest.mark.parametrize("placement", sorted(set(PLACEMENTS) - MIXED - {"fsdp-own"}))
def test_clips_alike_on_every_rank(ranks: TwoRanks, placement: str, apart: bool) -> None:
    placed = one_process(3)
    placed.total(*batch(0, 0, 2 * HALF)).backward()
    expected = clip(placed, parts_of(placed, apart))
    found = ranks(clip_placed, placement, apart)
    assert found[0] == found[1]
    assert found[0] == pytest.approx(expected, rel=0, abs=1e-12)


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


def warnings_of(function: Callable[..., object], *args: object) -> list[str]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        function(*args)
    return [w.category.__name__ for w in given]


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
    trainonce.attach(optimizer, net.criterion, decay=1.0)
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
    trainonce.attach(optimizer, net.criterion, decay=1.0)
    first, path = [], []
    for step in range(STEPS):
        x, _ = batch(step, dist.get_rank() * HALF, HALF)
        total = model(x, absent if dist.get_rank() == 1 else None)
        total = total if net.in_forward else net.criterion(total)
        total.backward()
        if step == 0:
            assert net.criterion.exponents.grad is not None
            first = values(net.criterion.exponents.grad)
            losses = net.criterion._last_call.losses.tolist()
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
    trainonce.attach(optimizer, placed.criterion, decay=1.0)
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


def freeze_before_attach() -> list[float]:
    placed = ddp_inside(3, in_forward=True)
    placed.criterion.freeze()
    for step in range(3):
        backward_in_parts(placed, step, Setting())
    return values(placed.criterion.exponents)


def test_freeze_after_wrapping_without_attach(ranks: TwoRanks) -> None:
    """DDP waits for the gradient of every parameter that needed one when it was built."""
    assert ranks(freeze_before_attach) == [values(new_criterion(3).exponents)] * 2


def train_unevenly() -> list[float]:
    placed = ddp_inside(3, in_forward=True)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1)
    trainonce.attach(optimizer, placed.criterion, decay=1.0, sync=False)
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
    trainonce.attach(optimizer, placed.criterion, decay=1.0)
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
    given = warnings_of(lambda: trainonce.attach(optimizer, criterion, decay=1.0))
    return given, values(criterion.exponents)


def test_ranks_that_start_differently_are_made_equal(ranks: TwoRanks) -> None:
    first = trainonce.CompositeLoss(TERMS, init=0.1).double()
    assert ranks(start_differently) == [(["RanksDiffer"], values(first.exponents))] * 2


def drift(planted: int, steps: int) -> dict[int, list[str]]:
    """The warnings after each step; rank 1's exponents are moved before step ``planted``."""
    placed = ddp_outside(1)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.01)
    trainonce.attach(optimizer, placed.criterion, decay=1.0)
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


def test_ranks_that_agree_are_not_warned(ranks: TwoRanks) -> None:
    assert ranks(drift, 0, 11) == [{}, {}]


# History and checkpoints


def record(placement: str, path: str) -> tuple[dict[str, list[float]], list[list[float]]]:
    placed = place(placement, 3)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
    history = trainonce.History(path, block=2)
    trainonce.attach(optimizer, placed.criterion, decay=1.0, history=history)
    exponents = []
    for step in range(STEPS):
        exponents.append(values(placed.criterion.exponents))
        backward_in_parts(placed, step, Setting(micro=2))
        optimizer.step()
        optimizer.zero_grad()
    history.flush()
    return history.columns(), exponents


@pytest.mark.parametrize("placement", ["ddp-outside", "ddp-inside-in_forward", "fsdp-sharded-in_forward"])
def test_history_is_written_by_the_first_rank(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    path = tmp_path / "run" / "history.jsonl"
    found = ranks(record, placement, str(path))
    assert [p.name for p in path.parent.iterdir()] == ["history.jsonl"]
    assert len(path.read_text().splitlines()) == 1 + STEPS
    written = trainonce.History.load(path).columns()
    assert written == found[0][0]
    assert written["step"] == [1, 2, 3, 4, 5]
    for i, term in enumerate(TERMS[1:]):
        assert written[f"exponent/{term}"] == [row[i] for row in found[0][1]]
    shared = [name for name in written if not name.startswith("loss/")]  # a rank's losses are its own
    assert {name: found[0][0][name] for name in shared} == {name: found[1][0][name] for name in shared}
    assert found[0][0]["loss/fit"] != found[1][0]["loss/fit"]


def save_and_load(placement: str, folder: str) -> dict[str, Any]:
    """Through files, into a model that starts elsewhere; then both go on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    runs = []
    for _ in range(2):
        placed = place(placement, 3)
        optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
        trainonce.attach(optimizer, placed.criterion, decay=1.0, lr=0.3)
        runs.append((placed, optimizer))

    def go(placed: Placed, optimizer: torch.optim.Optimizer, start: int, stop: int) -> list[float]:
        for step in range(start, stop):
            backward_in_parts(placed, step, Setting())
            optimizer.step()
            optimizer.zero_grad()
        return values(placed.criterion.exponents)

    saved = go(*runs[0], 0, 3)
    model, optimizer = states.get_state_dict(runs[0][0].model, runs[0][1])
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    model, optimizer = states.get_state_dict(runs[1][0].model, runs[1][1])
    dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    states.set_state_dict(runs[1][0].model, runs[1][1], model_state_dict=model, optim_state_dict=optimizer)
    loaded = values(runs[1][0].criterion.exponents)
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = states.get_model_state_dict(runs[1][0].model, options=options)
    return {
        "saved": saved,
        "loaded": loaded,
        "on": [go(*run, 3, 6) for run in runs],
        "full": {key: value.tolist() for key, value in full.items() if "criterion" in key},
    }


@pytest.mark.parametrize("placement", ["fsdp-sharded-in_forward", "fsdp-ignored-in_forward", "ddp-inside-in_forward"])
def test_checkpoint_round_trip_keeps_names_and_values(ranks: TwoRanks, placement: str, tmp_path: Any) -> None:
    found = ranks(save_and_load, placement, str(tmp_path))
    assert found[0]["saved"] == found[1]["saved"] == found[0]["loaded"] == found[1]["loaded"]
    assert found[0]["on"][0] == found[0]["on"][1] == found[1]["on"][0] == found[1]["on"][1]
    assert found[0]["saved"] != found[0]["on"][0]
    full = found[0]["full"]
    assert set(full) == {"criterion.exponents", "criterion._extra_state"}
    # One process reads it, in another order of the terms.
    other = trainonce.CompositeLoss(["fit", "bend", "far", "size"]).double()
    names = torch.tensor(full["criterion._extra_state"], dtype=torch.uint8)
    numbers = double(full["criterion.exponents"])
    other.load_state_dict({"exponents": numbers, "_extra_state": names})
    assert values(other.exponents) == [full["criterion.exponents"][i] for i in (2, 0, 1)]


def save_frozen(folder: str) -> bool:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    old, new = fsdp_inside(3, in_forward=True), fsdp_inside(3, in_forward=True)
    old.criterion.freeze()
    dcp.save(states.get_model_state_dict(old.model), checkpoint_id=folder)
    state = states.get_model_state_dict(new.model)
    dcp.load(state, checkpoint_id=folder)
    states.set_model_state_dict(new.model, state)
    return new.criterion.frozen


def test_checkpoint_of_a_frozen_criterion(ranks: TwoRanks, tmp_path: Any) -> None:
    """The place that is read into must have the size of what was saved, frozen or not."""
    assert ranks(save_frozen, str(tmp_path)) == [True, True]


def load_reordered() -> list[float]:
    from torch.distributed.checkpoint import state_dict as states
    from torch.distributed.fsdp import fully_shard

    saved = states.get_model_state_dict(fsdp_inside(3, in_forward=True).model)
    net = Net(3, criterion=False)
    net.criterion = trainonce.CompositeLoss(["fit", "bend", "far", "size"]).double()
    states.set_model_state_dict(fully_shard(net), saved)
    return values(net.criterion.exponents)


def test_sharded_checkpoint_maps_reordered_names(ranks: TwoRanks) -> None:
    start = values(new_criterion(3).exponents)
    assert ranks(load_reordered) == [[start[i] for i in (2, 0, 1)]] * 2


def save_own_shards() -> dict[str, list[float]]:
    from torch.distributed.checkpoint import state_dict as states

    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = states.get_model_state_dict(fsdp_own(3).criterion, options=options)
    return {key: value.tolist() for key, value in full.items()}


def test_checkpoint_of_a_criterion_sharded_by_itself(ranks: TwoRanks) -> None:
    """fully_shard puts another class in its place; the checkpoint must not tell."""
    full = ranks(save_own_shards)[0]
    criterion = trainonce.CompositeLoss(TERMS).double()
    names = torch.tensor(full["_extra_state"], dtype=torch.uint8)
    numbers = double(full["exponents"])
    criterion.load_state_dict({"exponents": numbers, "_extra_state": names})
    assert values(criterion.exponents) == values(new_criterion(3).exponents)


def record_on_first_rank(placement: str) -> tuple[list[float], int]:
    placed = place(placement, 3)
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1)
    history = trainonce.History() if dist.get_rank() == 0 else None
    trainonce.attach(optimizer, placed.criterion, decay=1.0, history=history)
    for step in range(3):
        backward_in_parts(placed, step, Setting())
        optimizer.step()
        optimizer.zero_grad()
    return values(placed.criterion.exponents), 0 if history is None else len(history)


@pytest.mark.parametrize("placement", ["ddp-outside", "fsdp-sharded-in_forward"])
def test_history_on_the_first_rank_alone(ranks: TwoRanks, placement: str) -> None:
    """No collective may depend on whether a rank records."""
    found = ranks(record_on_first_rank, placement)
    assert found[0][0] == found[1][0]
    assert [rows for _, rows in found] == [3, 0]


def save_before_the_first_step() -> tuple[int, list[float]]:
    """torch.distributed.checkpoint makes the optimizer's state by a step with zero gradients and a rate of 0."""
    from torch.distributed.checkpoint import state_dict as states

    placed, history = fsdp_inside(3, in_forward=True), trainonce.History()
    optimizer = torch.optim.SGD(placed.parameters, lr=0.1, momentum=0.9)
    trainonce.attach(optimizer, placed.criterion, decay=1.0, history=history)
    states.get_optimizer_state_dict(placed.model, optimizer)
    return len(history), values(placed.criterion.exponents)


def test_checkpointing_is_no_step(ranks: TwoRanks) -> None:
    assert ranks(save_before_the_first_step) == [(0, values(new_criterion(3).exponents))] * 2


def save_a_replay_before_the_first_step() -> list[float]:
    from torch.distributed.checkpoint import state_dict as states

    net = Net(3, criterion=unlearned("replay"), in_forward=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    trainonce.attach(optimizer, net.criterion, decay=1.0)
    states.get_optimizer_state_dict(net, optimizer)
    return net.criterion.weights.tolist()


def test_checkpointing_does_not_move_a_replay(ranks: TwoRanks) -> None:
    assert ranks(save_a_replay_before_the_first_step) == [ROWS[0]] * 2


# Weights that are not learned, in the same places

ROWS = [[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]


def unlearned(kind: str) -> trainonce.FixedLoss:
    if kind == "fixed":
        return trainonce.FixedLoss(dict(zip(TERMS, ROWS[0], strict=True))).double()
    return trainonce.ReplayLoss(TERMS, torch.tensor(ROWS, dtype=torch.float64)).double()


def use_unlearned(kind: str, wrapper: str) -> list[list[float]]:
    net = Net(3, criterion=unlearned(kind), in_forward=True)
    model: nn.Module = net
    if wrapper == "ddp":
        model = DistributedDataParallel(net)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(net, ignored_params=trainonce.keep_out(net) if wrapper == "fsdp-ignored" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainonce.attach(optimizer, net.criterion, decay=1.0, history=trainonce.History())
    weights = []
    for step in range(4):
        weights.append(net.criterion.weights.tolist())
        model(*batch(step, dist.get_rank() * HALF, HALF)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights


@pytest.mark.parametrize(
    ("kind", "wrapper"),
    [
        ("fixed", "ddp"),
        ("fixed", "fsdp-sharded"),
        ("fixed", "fsdp-ignored"),
        ("replay", "ddp"),
        ("replay", "fsdp-sharded"),
        ("replay", "fsdp-ignored"),
    ],
)
def test_weights_that_are_not_learned(ranks: TwoRanks, kind: str, wrapper: str) -> None:
    expected = [ROWS[0]] * 4 if kind == "fixed" else [*ROWS, ROWS[-1]]
    assert ranks(use_unlearned, kind, wrapper) == [expected, expected]


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
