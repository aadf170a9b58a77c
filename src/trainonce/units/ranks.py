"""Ranks: what the ranks tell each other, so that all measure at the same calls and find the same units."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce import distributed
from trainonce.units import rule
from trainonce.units.wrappers import Wrappers

if TYPE_CHECKING:
    from trainonce.units.meter import UnitMeter


class Seen(NamedTuple):
    """What the ranks have for a measurement, all of them together."""

    where: tuple[int, ...]  # the terms that some rank has
    compared: bool  # whether some rank has all terms and a held-out loss


class Ranks:
    """The ranks that measure together: those of a process group, or with ``together=False`` this one alone.

    Whether a call measures is decided from counts on the host. The ranks begin with the first one's counts, and a
    measurement begins with which terms each of them has: so all of them take part in it, whatever their batches lack.
    That is the one thing that is read back from the device, once a measurement, and only if there are several ranks.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None, together: bool = True) -> None:
        self.group = group
        self.together = together
        self._agreed = False
        self.wrappers = Wrappers()

    @property
    def are_several(self) -> bool:
        return self.together and distributed.is_distributed(self.group)

    def agree(self, meter: UnitMeter) -> None:
        """Give all ranks the first one's state of the meter; a second call does nothing.

        A checkpoint may have been loaded on the first rank alone, and the process group may be made late.
        """
        if self._agreed or not distributed.has_ranks():
            return
        self._agreed = True
        self.wrappers = Wrappers.find()
        if not self.are_several:
            return
        for buffer in meter.buffers():
            distributed.broadcast_(buffer, self.group)
        for part in filter(None, (meter, meter.drift)):
            counts = part.get_extra_state().to(meter.norms.device)
            distributed.broadcast_(counts, self.group)
            part.set_extra_state(counts)

    def look(self, where: tuple[int, ...] | None, terms: int, held_out: bool, device: torch.device) -> Seen:
        """Which terms some rank has. ``where``: this rank's, None for all of them."""
        own = range(terms) if where is None else where
        compared = held_out and where is None
        if not self.are_several:
            return Seen(tuple(own), compared)
        flags = torch.tensor([*(i in own for i in range(terms)), compared], dtype=torch.int32).to(device)
        torch.distributed.all_reduce(flags, op=torch.distributed.ReduceOp.MAX, group=self.group)
        *there, any_compared = flags.tolist()
        return Seen(tuple(i for i, found in enumerate(there) if found), bool(any_compared))

    def average(self, pairs: Tensor, shares: Tensor, finite: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The root mean square of the pairs of norms over the ranks.

        A rank whose batch lacks a term, or has NaN, does not count for that term. Beside them on how many ranks a term
        shares something with the base and on how many nothing, and whether all gradients are finite on all ranks.
        """
        if not self.are_several:
            return pairs, shares, finite
        there = rule.usable(pairs).unsqueeze(-1)
        squares = torch.where(there, pairs.square(), 0)
        sent = torch.cat((squares, there.to(pairs.dtype), shares, (~finite).to(pairs.dtype).expand(len(pairs), 1)), 1)
        torch.distributed.all_reduce(sent, group=self.group)
        return (sent[:, :2] / sent[:, 2:3]).sqrt(), sent[:, 3:5], (sent[:, 5] == 0).all()

    def mean(self, values: Tensor) -> Tensor:
        """The mean of the values over the ranks that have finite ones; NaN if none has."""
        if not self.are_several:
            return values
        there = values.isfinite().all()
        sent = torch.cat((torch.where(there, values, 0), there.to(values.dtype).reshape(1)))
        torch.distributed.all_reduce(sent, group=self.group)
        return sent[:-1] / sent[-1]
