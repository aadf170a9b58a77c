"""The mathematics of gradient units, as pure functions of measured norms.

Every function takes the norms in pairs, shape ``(..., K, 2)``: for each auxiliary term the norm of the base's gradient
and that of the term's own, both at the parameters that the two share. NaN stands for a pair that was not
measured yet. Leading dimensions are batch dimensions; nothing is read back to the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainonce import functional

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["drift", "ratios", "running", "usable"]


def usable(measured: Tensor) -> Tensor:
    """Which pairs of norms say something, shape ``(..., K)``: both are finite and above 0."""
    return ((measured > 0) & measured.isfinite()).all(-1)


def running(before: Tensor, measured: Tensor, keep: float) -> Tensor:
    r"""The running root mean square of the norms.

    .. math:: n \leftarrow \sqrt{k n^2 + (1 - k) |g|^2}

    The first measurement counts in full; one that is not :func:`usable` changes nothing.

    >>> running(torch.tensor([[3.0, 1.0]]), torch.tensor([[3.0, 7.0]]), keep=0.5)
    tensor([[3., 5.]])
    """
    mean = torch.sqrt(keep * before.square() + (1 - keep) * measured.square())
    after = torch.where(before.isnan(), measured, mean)
    return torch.where(usable(measured).unsqueeze(-1), after, before)


def ratios(norms: Tensor, peaks: Tensor, blend: float | Tensor, limit: float | Tensor) -> Tensor:
    r"""What each auxiliary loss is multiplied by to act as strongly as the base, shape ``(..., K)``.

    .. math:: \frac{u_0}{u_i} = \frac{p_0}{p_i} \cdot
        \mathrm{clip}\!\left(\Bigl(\frac{n_0 / p_0}{n_i / p_i}\Bigr)^{b}, \frac{1}{c}, c\right)

    :math:`n` are the running norms, :math:`p` their peaks, :math:`b` the blend and :math:`c` the limit. A blend of 0
    gives the ratio of the peaks, 1 that of the running norms. A pair that was not measured has the ratio 1.

    >>> ratios(torch.tensor([[1.0, 0.1]]), torch.tensor([[1.0, 0.4]]), blend=0.5, limit=10.0)
    tensor([5.])
    """
    base, own = peaks.unbind(-1)
    faded = (norms / peaks).unbind(-1)  # how much of its peak each has left
    correction = ((faded[0] / faded[1]) ** blend).clamp(1 / limit, limit)  # type: ignore[arg-type]
    return torch.nan_to_num(base / own * correction, nan=1.0)


def drift(exponents: Tensor, cosines: Tensor, rate: float | Tensor, asked: float | Tensor = 0.0) -> Tensor:
    r"""The auxiliary exponents after a measurement with a held-out gradient.

    .. math:: \mu_i + r \Bigl(c_i - \sum_{j=0}^{K} \lambda_j c_j\Bigr), \quad \lambda = \mathrm{softmax}(0, \mu + a)

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.
    :param cosines: Of all terms' gradients with the held-out one, base first, shape ``(..., K + 1)``.
    :param rate: :math:`r`.
    :param asked: :math:`a`, what halving adds to the exponents.

    >>> drift(torch.tensor([0.0]), torch.tensor([0.5, -0.5]), 0.1)
    tensor([-0.0500])
    """
    mean = (functional.weights(exponents + asked) * cosines).sum(-1, keepdim=True)
    return exponents + rate * (cosines[..., 1:] - mean)
