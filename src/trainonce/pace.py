"""How a trained vector moves at a pace of its own, whatever moves the model: Adam's direction, and a rate that falls.

A vector of exponents wants steps of one size: those of SGD would follow the size of the losses, and the model's rate
its depth. So the direction is Adam's, of about 1 in each entry, and the rate falls with the steps so far.
"""

from __future__ import annotations

import math
from typing import Any, Final, overload

import torch
from torch import Tensor

BETAS: Final = (0.9, 0.999)
EPS: Final = 1e-8
LATE: Final = 10  # the steps after which the rate begins to fall


@overload
def rate(travel: float, step: float) -> float: ...
@overload
def rate(travel: float | Tensor, step: Tensor) -> Tensor: ...
def rate(travel: Any, step: Any) -> Any:
    r"""Return the rate of a step, counted from 0.

    .. math:: \alpha_t = \frac{\tau}{t + 10}

    So the vector can move by about :math:`\tau` for every factor e in the steps.

    >>> rate(0.2, 0), rate(0.2, 90)
    (0.02, 0.002)
    """
    return travel / (step + LATE)


def direction(gradient: Tensor, mean: Tensor, square: Tensor, step: float | Tensor) -> Tensor:
    """Return Adam's direction at a step, counted from 0, and update the running means in place.

    >>> direction(torch.tensor([5.0, -0.1]), torch.zeros(2), torch.zeros(2), 0)
    tensor([ 1., -1.])
    """
    first, second = BETAS
    mean.lerp_(gradient, 1 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    size = (square / _filled(second, step)).sqrt_().add_(EPS)
    found: Tensor = mean / size.mul_(_filled(first, step))
    return found


def _filled(beta: float, step: float | Tensor) -> float | Tensor:
    """Return what part of a running mean that began at 0 is filled, ``1 - beta ** (step + 1)``, exact in float32."""
    if isinstance(step, Tensor):
        return -torch.expm1((step + 1) * math.log(beta))
    return float(1 - beta ** (step + 1))
