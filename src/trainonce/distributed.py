"""The same loss weights on every rank, whatever wraps the model.

Where a criterion that trains exponents lies inside a DistributedDataParallel or FSDP2-sharded module and is called in
its forward, the wrapper averages their gradient. Everywhere else (beside the model, ignored by the wrapper) nobody
would, and the ranks would drift apart unnoticed. So :func:`trainonce.attach` registers :class:`AverageGradient`: as
soon as a backward pass has accumulated the gradient, it is averaged over the ranks. That is before clipping and before
GradScaler looks for infinities, so every rank takes the same decision; averaging twice changes nothing, so it is right
under accumulation and beside a wrapper that averages too. Only under ``DistributedDataParallel.join`` it must be off
(``attach(..., sync=False)``, the criterion called in forward): a rank without data joins DDP's own collectives alone.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from trainonce.weighting import LossWeighting

    Group = dist.ProcessGroup | None

Module = TypeVar("Module")


class AverageGradient:
    """A post-accumulate-grad hook: the mean over the ranks of a parameter's gradient."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __call__(self, parameter: Tensor) -> None:
        if parameter.grad is not None and is_distributed(self.group):
            average_(parameter.grad, self.group)


def has_ranks() -> bool:
    """Whether there is a process group, be it of one rank."""
    return dist.is_available() and dist.is_initialized()


def is_distributed(group: Group = None) -> bool:
    """Whether several ranks train together."""
    return has_ranks() and dist.get_world_size(group) > 1


def on_any_rank(flag: bool) -> bool:
    """Whether the flag is set on some rank. A collective call that waits."""
    if not is_distributed():
        return flag
    flags: list[bool] = [flag] * dist.get_world_size()
    dist.all_gather_object(flags, flag)
    return any(flags)


def average_(tensor: Tensor, group: Group = None) -> None:
    """Replace ``tensor`` by its mean over the ranks. Gloo has no mean, so sum and divide."""
    dist.all_reduce(tensor, group=group)
    tensor.div_(dist.get_world_size(group))


def rank_difference(tensor: Tensor, group: Group = None) -> Tensor:
    """How far the ranks differ, elementwise: maximum minus minimum. A collective call."""
    both = torch.stack((tensor, -tensor))
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
    return both.sum(0)


def broadcast_(tensor: Tensor, group: Group = None) -> None:
    """Replace ``tensor`` by the first rank's values."""
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast(tensor, src=first, group=group)


def share_state(criterion: LossWeighting, group: Group) -> None:
    """Give all ranks the first one's state: a checkpoint may have been loaded on that one alone."""
    for name in criterion._states:
        own = getattr(criterion, name).detach()
        if not is_sharded(own):
            broadcast_(own, group)
    if criterion._counts:
        saved = criterion.get_extra_state().to(_device_of(criterion))
        broadcast_(saved, group)
        criterion.set_extra_state(saved)


def _device_of(criterion: LossWeighting) -> torch.device:
    return criterion._device() or torch.device("cpu")


def check_placement(criterion: LossWeighting) -> None:
    """Refuse the one placement that DistributedDataParallel answers with an unclear error in backward.

    A parameter that DDP manages, used outside its forward while it looks for unused parameters, is marked ready twice.
    Run once, at the first training call with several ranks.
    """
    if criterion.trainable is None:
        return
    own = getattr(criterion, criterion.trainable)
    active = DistributedDataParallel._active_ddp_module
    for wrapper in instances(DistributedDataParallel):
        if wrapper is active or not getattr(wrapper, "find_unused_parameters", False):  # absent: its __init__ failed
            continue
        names = [name for name, p in wrapper.module.named_parameters() if p is own]
        if any(name not in wrapper.parameters_to_ignore for name in names):
            raise RuntimeError(
                f"This {criterion.kind} lies inside a DistributedDataParallel module that looks for unused parameters, "
                "but is called outside that module's forward: DDP would fail in backward with 'marked ready twice'. "
                "Call trainonce.keep_out(model) before wrapping the model, or call the criterion inside forward."
            )


def instances(kind: type[Module]) -> list[Module]:
    """Every module of a class alive; by what refers to the class, as a walk over all objects takes 0.2 s."""
    kinds: list[type] = [kind]
    for each in kinds:
        kinds += each.__subclasses__()
    return [found for found in gc.get_referrers(*kinds) if isinstance(found, kind)]


# FSDP2: an exponent vector sharded with the rest of the module is a DTensor.


def is_sharded(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    if type(tensor) is nn.Parameter or not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def unshard(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one (a collective call); its gradient is averaged over the ranks on the way back."""
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    sharded = cast("DTensor", tensor)
    return sharded.full_tensor(grad_placements=[Partial("avg")] * sharded.device_mesh.ndim)


def shard_like(full: Tensor, tensor: Tensor) -> Tensor:
    """``full``, which every rank holds, sharded as ``tensor`` is. No communication."""
    if not is_sharded(tensor):
        return full
    from torch.distributed.tensor import DTensor, Replicate

    like = cast("DTensor", tensor)
    everywhere = [Replicate()] * like.device_mesh.ndim
    return DTensor.from_local(full, like.device_mesh, everywhere, run_check=False).redistribute(
        placements=like.placements
    )
