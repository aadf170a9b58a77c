"""The arithmetic of gradient balance, as pure functions.

Every function takes the norms in pairs, shape ``(..., K, 2)``: for each auxiliary term the norm of the base's gradient
and that of the term's own, both at the parameters that the two share. NaN stands for a pair that was not
measured yet. Leading dimensions are batch dimensions; nothing is read back to the host.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from trainonce import functional

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "align",
    "coefficients",
    "cosines",
    "running",
    "running_products",
    "strength_ratios",
    "travelled",
    "usable",
]

KEEP: Final = 0.5  # of the running mean of the squared norm at each measurement
LIMIT: Final = 10.0  # how far a ratio may move away from that of the peaks, as a factor
RISE: Final = 10  # the steps over which a term that starts from nothing comes in: its first gradients say little
FOLLOW: Final = 0.75
EVERY: Final = 0.05  # the share of the steps so far after which the next measurement comes
KEEP_PRODUCTS: Final = 0.9  # of the running means of products with the validation gradient
TRAVEL: Final = 4.0  # of the alignment in a training whose length is known
TRAVEL_PER_FOLD: Final = 0.3  # for every factor e in the steps, where it is not


def usable(measured: Tensor) -> Tensor:
    """Tell which pairs of norms say something, shape ``(..., K)``: both are finite and above 0."""
    return ((measured > 0) & measured.isfinite()).all(-1)


def running(before: Tensor, measured: Tensor, keep: float = KEEP) -> Tensor:
    r"""Return the running root mean square of the norms.

    .. math:: n \leftarrow \sqrt{k n^2 + (1 - k) |g|^2}

    The first measurement counts in full; one that is not :func:`usable` changes nothing.

    >>> running(torch.tensor([[3.0, 1.0]]), torch.tensor([[3.0, 7.0]]), keep=0.5)
    tensor([[3., 5.]])
    """
    mean = torch.sqrt(keep * before.square() + (1 - keep) * measured.square())
    after = torch.where(before.isnan(), measured, mean)
    return torch.where(usable(measured).unsqueeze(-1), after, before)


def strength_ratios(
    norms: Tensor, peaks: Tensor, follow: float | Tensor = FOLLOW, limit: float | Tensor = LIMIT
) -> Tensor:
    r"""Return what each auxiliary loss is multiplied by to act as strongly as the base, shape ``(..., K)``.

    .. math:: r_i = \frac{p_0}{p_i} \cdot
        \mathrm{clip}\!\left(\Bigl(\frac{n_0 / p_0}{n_i / p_i}\Bigr)^{b}, \frac{1}{c}, c\right)

    :math:`n` are the running norms, :math:`p` their peaks, :math:`b` is ``follow`` and :math:`c` the limit. With 0 it
    is the ratio of the peaks, with 1 that of the running norms. The peak cannot run away when a term is satisfied and
    its gradient vanishes; the running norm follows terms that change in strength. A pair that was not measured has the
    ratio 1.

    >>> strength_ratios(torch.tensor([[1.0, 0.1]]), torch.tensor([[1.0, 0.4]]), follow=0.5)
    tensor([5.])
    """
    base, own = peaks.unbind(-1)
    faded = (norms / peaks).unbind(-1)  # how much of its peak each has left
    correction = ((faded[0] / faded[1]) ** follow).clamp(1 / limit, limit)  # type: ignore[arg-type]
    return torch.nan_to_num(base / own * correction, nan=1.0)


def risen(step: int, since: int, rise: int = RISE) -> float:
    """Return how much of its coefficient a term has that was first measured at step ``since``.

    >>> [risen(step, since=3) for step in (3, 8, 13, 20)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.0, (step - since) / rise)


def next_measurement(step: int, every: float = EVERY) -> int:
    """Return the step of the measurement that follows one at ``step``.

    >>> next_measurement(0), next_measurement(100)
    (1, 105)
    """
    return step + max(1, math.ceil(every * step))


def coefficients(weights: Tensor, alignment: Tensor, factors: Tensor) -> Tensor:
    r"""Return the coefficients without the scale, base first, shape ``(..., K + 1)``.

    .. math:: c_0 = w_0, \qquad c_i = w_i \, e^{a_i} \, f_i

    :param weights: :math:`w`, shape ``(..., K + 1)``.
    :param alignment: :math:`a`, shape ``(..., K)``.
    :param factors: :math:`f`: :func:`strength_ratios`, and how far each term has come in.

    >>> coefficients(torch.tensor([1.0, 0.5]), torch.tensor([0.0]), torch.tensor([4.0]))
    tensor([1., 2.])
    """
    auxiliary = weights[..., 1:] * alignment.exp() * factors
    return torch.cat((weights[..., :1].expand(*auxiliary.shape[:-1], 1), auxiliary), dim=-1)


def running_products(before: Tensor, fresh: Tensor, keep: float | Tensor = KEEP_PRODUCTS) -> Tensor:
    """Return the running means of what is compared with the validation gradient, ``(..., 2 (K + 1) + 1)``.

    These are the products of all terms' gradients with it, the squares of theirs, and its own square. The first
    measurement counts in full; one that is not finite changes nothing.
    """
    after = torch.where(before.isnan(), fresh, keep * before + (1 - keep) * fresh)
    return torch.where(fresh.isfinite().all(-1, keepdim=True), after, before)


def cosines(compared: Tensor) -> Tensor:
    """Return the cosines between all terms' gradients and that of the validation loss, shape ``(..., K + 1)``.

    >>> cosines(torch.tensor([3.0, 0.0, 9.0, 0.0, 4.0]))
    tensor([0.5000, 0.0000])
    """
    count = compared.shape[-1] // 2
    products, squares, square = compared[..., :count], compared[..., count:-1], compared[..., -1:]
    return torch.nan_to_num(products / (squares * square).sqrt())


def align(alignment: Tensor, cosines: Tensor, rate: float | Tensor, strengths: float | Tensor = 0.0) -> Tensor:
    r"""Return the logarithms of the factors that alignment has added, after a measurement.

    .. math:: a_i + r \Bigl(c_i - \sum_{j=0}^{K} \lambda_j c_j\Bigr), \quad \lambda = \mathrm{softmax}(0, a + s)

    Terms whose gradients point the same way as that of the validation loss gain.

    :param alignment: :math:`a`, shape ``(..., K)``.
    :param cosines: Of all terms' gradients with that of the validation loss, base first, shape ``(..., K + 1)``.
    :param rate: :math:`r`, from :func:`travelled`.
    :param strengths: :math:`s`, the logarithm of how strong each term was beside the base at the start; 0 from nothing.

    >>> align(torch.tensor([0.0]), torch.tensor([0.5, -0.5]), 0.1)
    tensor([-0.0500])
    """
    mean = (functional.weights(alignment + strengths) * cosines).sum(-1, keepdim=True)
    return alignment + rate * (cosines[..., 1:] - mean)


def travelled(last: int, now: int, steps: int | None, travel: float | None) -> float:
    """Return how far alignment may move between two measurements, at the steps ``last`` and ``now``.

    :param steps: The length of the training, of which ``travel`` is for the whole; None where it is not known, and
        ``travel`` is for every factor e in the steps.
    :param travel: None for the default of either case.

    >>> travelled(0, 50, steps=100, travel=None), round(travelled(0, 50, steps=None, travel=None), 3)
    (2.0, 1.18)
    """
    if steps is None:
        return (TRAVEL_PER_FOLD if travel is None else travel) * math.log((now + 1) / (last + 1))
    passed = min(now, steps) - min(last, steps)  # a training that is longer than said moves no further
    return (TRAVEL if travel is None else travel) * passed / steps
