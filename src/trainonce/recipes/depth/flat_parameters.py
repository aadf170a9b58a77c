"""Flat parameters: a few long vectors in place of hundreds of tensors, so that a step is few kernels and little Python.

Clipping, the optimizer and the EMA visit every parameter; with a small network on a fast GPU they, and not the network,
take most of a step.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIGNED = 8  # values: pieces of a multiple of this length keep the next piece aligned for fast kernels


@dataclasses.dataclass(frozen=True, eq=False)
class FlatParameter:
    """One vector that holds the values of several parameters.

    :param halved: Whether it may be converted as a whole to the type that autocast asks for.
    """

    values: nn.Parameter
    shapes: Mapping[str, torch.Size]
    halved: bool

    def pieces(self) -> dict[str, Tensor]:
        """The parameters by name, as views of the vector, which gets their gradients."""
        values: Tensor = self.values
        device = values.device.type
        if self.halved and torch.is_autocast_enabled(device):
            values = values.to(torch.get_autocast_dtype(device))
        pieces = _split(values, self.shapes)
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


def flatten_parameters_(parameters: Mapping[str, nn.Parameter], *, halved: bool) -> FlatParameter:
    """One vector with the values of parameters, which become views of it and no longer require gradients."""
    named = sorted(parameters.items(), key=lambda item: item[1].numel() % ALIGNED != 0)
    values = nn.Parameter(torch.cat([parameter.detach().flatten() for _, parameter in named]))
    shapes = {name: parameter.shape for name, parameter in named}
    for (_, parameter), piece in zip(named, _split(values.detach(), shapes), strict=True):
        parameter.data = piece.view(parameter.shape)
        parameter.requires_grad_(False)
    return FlatParameter(values, shapes, halved)


def _split(values: Tensor, shapes: Mapping[str, torch.Size]) -> tuple[Tensor, ...]:
    return torch.split(values, [shape.numel() for shape in shapes.values()])


class FlatParameters:
    """The parameters of a network, as one vector for each kind.

    :param kinds: For each kind the names of its parameters.
    :param halved: The kinds that may be converted as a whole, as in :class:`FlatParameter`.
    """

    def __init__(
        self, network: nn.Module, kinds: Mapping[Any, list[str]], halved: frozenset[Any] = frozenset()
    ) -> None:
        own = dict(network.named_parameters())
        self._flat = {
            kind: flatten_parameters_({name: own[name] for name in names}, halved=kind in halved)
            for kind, names in kinds.items()
        }

    def parameters(self) -> dict[Any, nn.Parameter]:
        """The vectors by kind."""
        return {kind: flat.values for kind, flat in self._flat.items()}

    def pieces(self) -> dict[str, Tensor]:
        """The network's parameters by name, to call it with :func:`torch.func.functional_call`."""
        return {name: piece for flat in self._flat.values() for name, piece in flat.pieces().items()}
