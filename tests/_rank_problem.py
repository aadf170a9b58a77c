"""One small problem, trained by one process or by two, in every place that a criterion can have."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


NEEDS_RANKS = [
    pytest.mark.dist,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]

TERMS = ("fit", "far", "size", "bend")
STEPS = 5
HALF = 4  # samples a rank sees in a step


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
    return trainonce.CompositeLoss(terms, init=start, decay=1.0, lr="model").double()


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
    placed.criterion.decay, placed.criterion.lr = setting.decay, 0.3
    trainonce.attach(optimizer, placed.criterion, sync=setting.sync)
    exponents, weights = [], []
    for step in range(steps):
        if alone:
            placed.total(*batch(step, 0, 2 * HALF)).backward()
        else:
            backward_in_parts(placed, step, setting)
        optimizer.step()
        optimizer.zero_grad()
        exponents.append(values(placed.criterion.exponents))
        weights.append(placed.criterion.coefficients().tolist())
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


def warnings_of(function: Callable[..., object], *args: object) -> list[str]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        function(*args)
    return [w.category.__name__ for w in given]
