"""Check that the functions of two seeds do the same: a stack calls those of its first seed for all of them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.study.stacked import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainonce.study.stacked.stackable import Stackable, Tensors


def check(first: Stackable, other: Stackable, terms_of: Callable[..., Tensor], data: Tensors, drawn: Tensors) -> None:
    """Raise if a function of another seed finds something else for the first seed's parameters and data.

    Metrics that are no tensors are found, too: before the training, and not behind it.

    :param terms_of: The losses as one tensor, from the parts, a model, data and what was drawn.
    :param data: That of the first seed, where the models shall run.
    :param drawn: What the first seed draws, or the like, also there.
    """
    like = next((value for value in (*drawn.values(), *data.values())), torch.empty(0))
    model, same = (copy.deepcopy(parts.model).to(like.device).eval() for parts in (first, other))
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, value in (*same.named_parameters(), *same.named_buffers()):
            value.copy_(own[name])
    found = (terms_of(parts, at, data, drawn).detach() for parts, at in ((first, model), (other, same)))
    _compare("losses", *({"": value} for value in found))
    with torch.no_grad():
        _compare("metrics", first.metrics(model, data), other.metrics(same, data))
        if first.report is not None and other.report is not None:
            _compare("report", first.report(model, data), other.report(same, data))
        if first.validation is not None and other.validation is not None:
            _compare(
                "validation", {"": first.validation(model, data, drawn)}, {"": other.validation(same, data, drawn)}
            )


def _compare(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    if any(not isinstance(value, Tensor) or value.dim() for value in one.values() if name != "losses"):
        raise reasons.NotStackableError(f"{name!r} must give tensors without dimensions")
    if any(not torch.allclose(one[key], other[key], rtol=1e-4, equal_nan=True) for key in one):
        raise reasons.NotStackableError(
            f"{name!r} depends on the seed; what belongs to a seed must be in data, in what is drawn, or in the "
            "model's parameters and buffers"
        )
