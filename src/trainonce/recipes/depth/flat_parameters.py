"""Parameters laid end to end: few long ones in the place of hundreds, so that a step is few kernels and little Python.

Clipping, stepping and averaging touch every parameter; with a small network on a fast GPU they, and not the network,
are most of a step.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIGNED = 8  # values: pieces of such a length begin where fast kernels want them to


@dataclasses.dataclass(frozen=True, eq=False)
class Long:
    """A long parameter and its pieces.

    :param halved: Whether it may be converted as a whole to the narrow type that autocast asks for.
    """

    values: nn.Parameter
    shapes: Mapping[str, torch.Size]
    halved: bool

    def pieces(self) -> dict[str, Tensor]:
        """The parameters by name, as pieces: a gradient of theirs goes to the long one."""
        values: Tensor = self.values
        device = values.device.type
        if self.halved and torch.is_autocast_enabled(device):
            values = values.to(torch.get_autocast_dtype(device))
        pieces = _split(values, self.shapes)
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


def laid_end_to_end(parameters: Mapping[str, nn.Parameter], *, halved: bool) -> Long:
    """One long parameter with the values of others, which become windows of it and are not trained themselves."""
    named = sorted(parameters.items(), key=lambda item: item[1].numel() % ALIGNED != 0)
    values = nn.Parameter(torch.cat([parameter.detach().flatten() for _, parameter in named]))
    shapes = {name: parameter.shape for name, parameter in named}
    for (_, parameter), piece in zip(named, _split(values.detach(), shapes), strict=True):
        parameter.data = piece.view(parameter.shape)
        parameter.requires_grad_(False)
    return Long(values, shapes, halved)


def _split(values: Tensor, shapes: Mapping[str, torch.Size]) -> tuple[Tensor, ...]:
    return torch.split(values, [shape.numel() for shape in shapes.values()])


class Flat:
    """The parameters of a network, kind by kind laid end to end.

    :param kinds: For each kind the names of its parameters.
    :param halved: The kinds that may be converted as a whole, as in :class:`Long`.
    """

    def __init__(
        self, network: nn.Module, kinds: Mapping[Any, list[str]], halved: frozenset[Any] = frozenset()
    ) -> None:
        own = dict(network.named_parameters())
        self._long = {
            kind: laid_end_to_end({name: own[name] for name in names}, halved=kind in halved)
            for kind, names in kinds.items()
        }

    def parameters(self) -> dict[Any, nn.Parameter]:
        """The long parameters by kind."""
        return {kind: long.values for kind, long in self._long.items()}

    def pieces(self) -> dict[str, Tensor]:
        """The network's parameters by name, to call it with :func:`torch.func.functional_call`."""
        return {name: piece for long in self._long.values() for name, piece in long.pieces().items()}
