"""The arithmetic of gradient units, as pure functions of tensors; any leading dimensions are batch dimensions.

n_i is the root of a running mean of the squared norm of term i's gradient, peak_i the largest n_i so far. The ratio of
a term's weight to the base's is

    w_i / w_0 = exp(mu_i) (peak_0 / peak_i) clip(((n_0 / peak_0) (peak_i / n_i))^p, 1/c, c)

p = 0 are peak units, p = 1 without a cap c are running units. None of it depends on the scale of a loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

NOT_MEASURED = -1.0  # a mean of squares before the first measurement


def next_step(step: int, share: float = 0.01) -> int:
    """The step of the next measurement: after ``share`` of the steps so far, at least 1."""
    return step + max(1, -int(-share * step // 1))


def due_steps(steps: int, share: float = 0.01) -> list[int]:
    """All steps of a run that measure, counted from 0."""
    found, step = [], 0
    while step < steps:
        found.append(step)
        step = next_step(step, share)
    return found


def running_mean(mean: Tensor, value: Tensor, factor: Tensor | float) -> Tensor:
    """``factor`` of the mean and the rest of the value; the first value as it is."""
    return torch.where(mean == NOT_MEASURED, value, factor * mean + (1 - factor) * value)


def log_ratios(norms: Tensor, peaks: Tensor, blend: Tensor | float, cap: Tensor | float) -> Tensor:
    """log(w_i / w_0) of all terms at mu = 0, base first: shape ``(..., K + 1)``.

    A term without any gradient so far has no unit: it is given the base's weight, so that a layer of its own can learn.

    :param norms: n, shape ``(..., K + 1)``.
    :param peaks: peak, likewise.
    :param blend: p; a tensor has the shape ``(..., 1)``.
    :param cap: c, which may be infinite.
    """
    none = peaks == 0
    peak = torch.where(none, 1, peaks)
    # A norm below the precision of its peak is as good as zero; without a floor an uncapped weight would be infinite.
    fall = torch.where(none, 1, norms / peak).clamp_min(torch.finfo(norms.dtype).eps).log()
    limit = cap.log() if isinstance(cap, Tensor) else torch.tensor(cap, dtype=norms.dtype).log().to(norms.device)
    correction = (blend * (fall[..., :1] - fall)).clamp(-limit, limit)
    ratio = peak[..., :1].log() - peak.log() + correction
    return torch.where(none | none[..., :1], 0, ratio)


def normalise(log_ratio: Tensor, warm: Tensor | float, base: Tensor | bool) -> Tensor:
    """The weights: they sum to 1, or the base's is constant at 1 / (K + 1).

    :param log_ratio: log(w_i / w_0), base first.
    :param warm: What the auxiliary terms are multiplied with before, from 0 to 1; a tensor has the shape ``(..., 1)``.
    :param base: Whether the base's weight is the constant; a tensor has the shape ``(..., 1)``.
    """
    count = log_ratio.shape[-1]
    auxiliary = torch.ones(count, dtype=torch.bool, device=log_ratio.device)
    auxiliary[:1].zero_()
    # Divided by the largest, so that a very large ratio does not become infinite in the sum.
    scaled = (log_ratio - log_ratio.amax(-1, keepdim=True)).exp() * torch.where(auxiliary, warm, 1.0)
    held = log_ratio.exp() * torch.where(auxiliary, warm, 1.0) / count
    return torch.where(torch.as_tensor(base, device=log_ratio.device), held, scaled / scaled.sum(-1, keepdim=True))


def warm_factor(step: Tensor, warm: Tensor) -> Tensor:
    """From 0 at step 0 linearly to 1 at step ``warm``; 1 where ``warm`` is 0."""
    return torch.where(warm > 0, step / torch.where(warm > 0, warm, 1), 1).clamp_max(1)


def drift(mu: Tensor, cosines: Tensor, rate: Tensor | float) -> Tensor:
    """The exponents of the auxiliary terms after one measurement with a held-out gradient.

    mu_i += rate (c_i - sum_j lambda_j c_j) with lambda = softmax(0, mu), the sum over all terms.

    :param mu: Of the auxiliary terms, shape ``(..., K)``.
    :param cosines: c, of all terms with the held-out gradient, shape ``(..., K + 1)``.
    :param rate: travel times what has passed of the clock since the last measurement.
    """
    weights = torch.softmax(torch.cat((torch.zeros_like(mu[..., :1]), mu), dim=-1), dim=-1)
    mean = (weights * cosines).sum(-1, keepdim=True)
    return mu + rate * (cosines[..., 1:] - mean)
