"""The mathematics of learned loss weights, as pure functions of the K auxiliary exponents.

Every function takes the exponents μ₁ … μ_K of the auxiliary terms in the last dimension (any leading dimensions are
batch dimensions); the base term's exponent is the constant μ₀ = 0 and is never passed. Nothing here keeps state, reads
a value back to the host or depends on anything but torch, so all of it works under ``torch.func.vmap``,
``torch.compile`` and CUDA graphs.

>>> import torch
>>> from trainonce import functional as F
>>> mu = torch.tensor([-2.0, 0.0])
>>> F.weights(mu)
tensor([0.4683, 0.0634, 0.4683])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

__all__ = ["composite", "composite_grad", "ratios", "regularizer", "regularizer_grad", "weights"]

NEGENTROPY: Final = "negentropy"
SOFTPLUS: Final = "softplus"
REGULARIZER_PARTS: Final = (NEGENTROPY, SOFTPLUS)


def weights(exponents: Tensor) -> Tensor:
    r"""The weights of all K + 1 terms, base first.

    .. math:: \lambda = \mathrm{softmax}(0, \mu_1, \dots, \mu_K)

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.

    >>> weights(torch.tensor([0.0]))
    tensor([0.5000, 0.5000])
    """
    return weights_with(exponents.new_zeros((*exponents.shape[:-1], 1)), exponents)


def weights_with(zero: Tensor, exponents: Tensor) -> Tensor:
    """:func:`weights` for callers who keep the base's exponent, ``zero`` of shape ``(..., 1)``."""
    return torch.softmax(torch.cat((zero, exponents), dim=-1), dim=-1)


def ratios(coefficients: Tensor) -> Tensor:
    """Return each coefficient relative to the base's, which comes first; infinite or 0 where the base has 0.

    >>> ratios(torch.tensor([0.5, 0.1, 0.0])), ratios(torch.tensor([0.0, 0.1, 0.0]))
    (tensor([1.0000, 0.2000, 0.0000]), tensor([1., inf, 0.]))
    """
    base, rest = coefficients[..., :1], coefficients[..., 1:]
    return torch.cat((torch.ones_like(base), torch.where(rest == 0, 0, rest / base)), dim=-1)


def composite(exponents: Tensor, losses: Tensor) -> Tensor:
    r"""The composite loss, a convex combination of the terms.

    .. math:: L_e = \sum_{i=0}^{K} \lambda_i l_i

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.
    :param losses: The losses :math:`l`, base first, shape ``(..., K + 1)``.

    >>> composite(torch.tensor([0.0]), torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return weighted_sum(weights(exponents), losses)


def weighted_sum(w: Tensor, losses: Tensor) -> Tensor:
    """``(w * losses).sum(-1)``, by the cheapest operator that keeps the wider of the two dtypes."""
    if w.dim() == 1 and losses.dim() == 1 and w.dtype == losses.dtype:
        return torch.dot(w, losses)
    return (w * losses).sum(-1)


def sum_of_present(w: Tensor, losses: Tensor, indices: Tensor) -> Tensor:
    """The sum over the terms that are there, with the weights they have among all.

    Left at that, the exponents would compare each loss with a total that is too small by what is missing, and fall. So
    the missing part counts as the mean of the present losses: it adds nothing to the value, and nothing to the gradient
    of an absent term's exponent, but makes the gradient of the others ``λ_i (l_i - mean)``.
    """
    there = w.index_select(0, indices)
    total = weighted_sum(there, losses)
    if not w.requires_grad:
        return total
    share = there.sum()
    mean = (total / share.clamp_min(torch.finfo(share.dtype).tiny)).detach()
    return total - mean * (share - share.detach())


def composite_grad(exponents: Tensor, losses: Tensor) -> Tensor:
    r"""The gradient of the composite loss with respect to the auxiliary exponents, in closed form.

    .. math:: \frac{\partial L_e}{\partial \mu_i} = \lambda_i (l_i - L_e), \quad i = 1, \dots, K

    This is the paper's double sum over pairs of losses, collected into one pass of O(K).

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.
    :param losses: The losses :math:`l`, base first, shape ``(..., K + 1)``.

    >>> composite_grad(torch.tensor([0.0]), torch.tensor([1.0, 3.0]))
    tensor([0.5000])
    """
    lam = weights(exponents)
    total = weighted_sum(lam, losses)
    return lam[..., 1:] * (losses[..., 1:] - total.unsqueeze(-1))


def regularizer(exponents: Tensor, parts: Collection[str] = REGULARIZER_PARTS) -> Tensor:
    r"""The regularizer on the exponents, without its strength :math:`\rho`.

    .. math:: R(\mu) = \sum_{i=0}^{K} \lambda_i \log \lambda_i + \sum_{i=1}^{K} \log(1 + e^{\mu_i})

    The first sum is the negentropy of the weights, the second the softplus of the learned exponents. Its minimum is not
    the uniform distribution: the softplus favours the base term (for K = 1 it lies at :math:`\mu = -1.2785`).

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.
    :param parts: Which of ``"negentropy"`` and ``"softplus"`` to sum; the paper has both.

    >>> regularizer(torch.tensor([0.0]))
    tensor(0.)
    """
    check_parts(parts)
    value = exponents.new_zeros(exponents.shape[:-1])
    if NEGENTROPY in parts:
        zero = exponents.new_zeros((*exponents.shape[:-1], 1))
        log_lam = torch.log_softmax(torch.cat((zero, exponents), dim=-1), dim=-1)
        value = value + (log_lam.exp() * log_lam).sum(-1)
    if SOFTPLUS in parts:
        # logaddexp and not softplus: torch's softplus switches to the identity above 20.
        value = value + torch.logaddexp(exponents, torch.zeros_like(exponents)).sum(-1)
    return value


def regularizer_grad(exponents: Tensor, parts: Collection[str] = REGULARIZER_PARTS) -> Tensor:
    r"""The gradient of :func:`regularizer` with respect to the auxiliary exponents, in closed form.

    .. math::
        \frac{\partial R}{\partial \mu_i} =
            \lambda_i \Bigl(\mu_i - \sum_{j=0}^{K} \lambda_j \mu_j\Bigr) + \sigma(\mu_i), \quad i = 1, \dots, K

    :param exponents: The auxiliary exponents :math:`\mu`, shape ``(..., K)``.
    :param parts: Which of ``"negentropy"`` and ``"softplus"`` to sum; the paper has both.

    >>> regularizer_grad(torch.tensor([0.0, -1.0]))
    tensor([0.5656, 0.1377])
    """
    check_parts(parts)
    return regularizer_grad_with(exponents.new_zeros((*exponents.shape[:-1], 1)), exponents, parts)


def regularizer_grad_with(zero: Tensor, exponents: Tensor, parts: Collection[str]) -> Tensor:
    """:func:`regularizer_grad` for callers who keep the base's exponent and have checked the parts."""
    softplus = torch.sigmoid(exponents) if SOFTPLUS in parts else torch.zeros_like(exponents)
    if NEGENTROPY not in parts:
        return softplus
    if exponents.shape[-1] == 1:  # λ₁ = σ(μ), so the sum is λ₁ λ₀ μ = λ₁ μ - λ₁² μ: half the operators
        lam = softplus if SOFTPLUS in parts else torch.sigmoid(exponents)
        pulled = lam * exponents
        return torch.addcmul(softplus + pulled, pulled, lam, value=-1)
    lam = weights_with(zero, exponents).narrow(-1, 1, exponents.shape[-1])
    # The base contributes λ₀ · 0 to the mean.
    mean = torch.dot(lam, exponents) if lam.dim() == 1 else (lam * exponents).sum(-1, keepdim=True)
    return torch.addcmul(softplus, lam, exponents - mean)


def check_parts(parts: Collection[str]) -> None:
    unknown = [part for part in parts if part not in REGULARIZER_PARTS]
    if unknown or isinstance(parts, str):
        found = repr(parts) if isinstance(parts, str) else ", ".join(map(repr, unknown))
        raise ValueError(f"The regularizer takes a list of any of 'negentropy', 'softplus'; got {found}.")
