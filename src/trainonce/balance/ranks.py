"""What the ranks tell each other, so that all measure at the same calls and find the same balance.

Whether a call measures is decided from counts on the host, which are the same on all ranks. A measurement begins with
which terms each of them has: so all take part in it, whatever their batches lack. That is the one thing that is read
back from the device, once a measurement, and only if there are several ranks. Then every gradient is averaged over the
ranks that have the term, as that of one process with all their batches would be, before its norm is taken. At tensors
named in the call, of which each rank has its own samples' rows, it is the squared norms that are averaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.balance.measure import Gradients

    Group = torch.distributed.ProcessGroup | None


class Seen(NamedTuple):
    """What the ranks have for a measurement, all of them together, and where each measures."""

    where: tuple[int, ...]  # the terms that some rank has
    compares: bool  # whether some rank has a validation loss
    places: list[Tensor]  # of this rank
    sizes: list[int]  # the entries of a gradient at each place
    apart: bool = False  # whether the places are each rank's own features, of which only squares can be averaged


def look(own: Seen, terms: int, learned: Sequence[Tensor], group: Group, device: torch.device) -> Seen:
    """Return what some rank has, and as places those parameters that all ranks with losses measure at.

    A rank whose batch lacks a term finds more parameters that the others share. ``learned``: those of the optimizer, in
    the same order on all ranks.
    """
    mine = {id(place) for place in own.places}
    outside = bool(mine - {id(parameter) for parameter in learned})
    flags = [int(i in own.where) for i in range(terms)]
    flags += [int(own.compares), int(own.apart), int(outside), int(bool(mine))]
    left_out = [int(bool(mine) and id(parameter) not in mine) for parameter in learned]
    sent = torch.tensor([*flags, *left_out], dtype=torch.int32).to(device)
    torch.distributed.all_reduce(sent, op=torch.distributed.ReduceOp.MAX, group=group)
    found = sent.tolist()
    compares, apart, outside, some = map(bool, found[terms : terms + 4])
    places, sizes = own.places, own.sizes
    if outside:  # no optimizer says which parameters they are
        all_sizes: list[list[int]] = [[]] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(all_sizes, sizes, group=group)
        sizes = max(all_sizes, key=len)
        if any((other and len(other) != len(sizes)) or (other and other != sizes and not apart) for other in all_sizes):
            raise RuntimeError(
                "The ranks would measure a balance at different tensors, as their batches have different terms. Name "
                "the parameters to measure at: BalancedLoss(..., at=...)."
            )
    else:
        places = [p for p, gone in zip(learned, found[terms + 4 :], strict=True) if some and not gone]
        sizes = [place.numel() for place in places]
    return Seen(tuple(i for i, there in enumerate(found[:terms]) if there), compares, places, sizes, apart)


def average_squares(squares: Tensor, there: Tensor, group: Group) -> Tensor:
    """Return the mean of squared norms, shape ``(losses, places)``, over the ranks that have the loss."""
    sent = torch.cat((squares, there.unsqueeze(1)), dim=1)
    torch.distributed.all_reduce(sent, group=group)
    return sent[:, :-1] / sent[:, -1:]


def average(gradients: Gradients | None, sizes: Sequence[int], group: Group, like: Tensor) -> Gradients:
    """Return the mean of a gradient over the ranks that have its loss; None stands for a rank that lacks it."""
    sent = like.new_zeros(sum(sizes) + 1)
    if gradients is not None:
        sent[-1].fill_(1.0)
        for part, one in zip(torch.split(sent, [*sizes, 1]), gradients, strict=False):
            if one is not None:
                part.copy_(one.to_dense().flatten())
    torch.distributed.all_reduce(sent, group=group)
    return torch.split(sent[:-1] / sent[-1], list(sizes))
