"""How a trained vector moves at a pace of its own, whatever moves the model: Adam's direction, and a rate that falls.

A vector of exponents wants steps of one size: those of SGD would follow the size of the losses, and the model's rate
its depth. So the direction is Adam's, of about 1 in each entry, and the rate falls with the steps so far.
"""

from __future__ import annotations

from typing import Final, TypeVar

from torch import Tensor

#: A number on the host, or a tensor of them: a stack has its own on the device.
Number = TypeVar("Number", float, Tensor)

BETAS: Final = (0.9, 0.999)
EPS: Final = 1e-8
LATE: Final = 10  # the steps after which the rate begins to fall


def rate(travel: Number, step: Number) -> Number:
    r"""Return the rate of a step, counted from 0.

    .. math:: \alpha_t = \frac{\tau}{t + 10}

    So the vector can move by about :math:`\tau` for every factor e in the steps.

    >>> rate(0.2, 0), rate(0.2, 90)
    (0.02, 0.002)
    """
    return travel / (step + LATE)


def direction(gradient: Tensor, mean: Tensor, square: Tensor, step: Number) -> Tensor:
    """Return Adam's direction at a step, counted from 0, and update the running means in place.

    >>> direction(torch.tensor([5.0, -0.1]), torch.zeros(2), torch.zeros(2), 0)
    tensor([ 1., -1.])
    """
    first, second = BETAS
    mean.lerp_(gradient, 1 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    size = (square / (1 - second ** (step + 1))).sqrt_().add_(EPS)
    found: Tensor = mean / size.mul_(1 - first ** (step + 1))
    return found
