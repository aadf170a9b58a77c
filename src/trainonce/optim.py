"""SGDW as in the paper; torch.optim.SGD has coupled weight decay only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import ParamsT

__all__ = ["SGDW"]


class SGDW(Optimizer):
    r"""Stochastic gradient descent with momentum and decoupled weight decay.

    .. math:: m_t = \beta m_{t-1} + \alpha_t g_t

    .. math:: w_t = w_{t-1} - m_t - \alpha_t \lambda w_{t-1}

    :math:`g_t` is the gradient at step :math:`t`, :math:`\alpha_t` the learning rate, :math:`\beta` the momentum and
    :math:`\lambda` the weight decay. With :func:`trainonce.attach` it is Algorithm 1 of the paper.

    :param params: Parameters, named parameters or parameter groups.
    :param lr: The learning rate :math:`\alpha`, a number or a tensor.
    :param momentum: :math:`\beta`.
    :param weight_decay: :math:`\lambda`, multiplied by the learning rate at every step.
    :param foreach: Update all parameters of a group with multi-tensor operators; by default on a GPU.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = SGDW([w], lr=0.1, momentum=0.9, weight_decay=0.5)
    >>> w.grad = torch.tensor([2.0])
    >>> _ = optimizer.step()
    >>> w.data
    tensor([0.7500])

    .. note:: The learning rate is inside the momentum buffer, as in the paper. ``torch.optim.SGD`` keeps it outside,
        which differs as soon as a schedule changes it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
    ) -> None:
        if not isinstance(lr, Tensor) and not lr >= 0:
            raise ValueError(f"lr must be at least 0; got {lr!r}.")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1); got {momentum!r}.")
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay must be at least 0; got {weight_decay!r}.")
        super().__init__(
            params,
            {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "foreach": foreach},
        )

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [_dense(p.grad) for p in params]
            buffers = [self._buffer(p) for p in params] if group["momentum"] else None
            foreach = group["foreach"]
            if foreach or (foreach is None and all(p.is_cuda for p in params)):
                _update_many(params, grads, buffers, group)
            else:
                for i, param in enumerate(params):
                    _update_one(param, grads[i], None if buffers is None else buffers[i], group)
        return loss

    def _buffer(self, param: Tensor) -> Tensor:
        state: dict[str, Any] = self.state[param]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(param)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def _update_one(param: Tensor, grad: Tensor, buffer: Tensor | None, group: dict[str, Any]) -> None:
    lr, decay = group["lr"], group["weight_decay"]
    scaled = grad * lr
    if buffer is not None:
        scaled = buffer.mul_(group["momentum"]).add_(scaled)
    if decay:
        param.mul_(1 - lr * decay)
    param.sub_(scaled)


def _update_many(
    params: list[Tensor], grads: list[Tensor], buffers: list[Tensor] | None, group: dict[str, Any]
) -> None:
    lr, decay = group["lr"], group["weight_decay"]
    scaled = list(torch._foreach_mul(grads, lr))
    if buffers is not None:
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, scaled)
        scaled = buffers
    if decay:
        torch._foreach_mul_(params, 1 - lr * decay)
    torch._foreach_sub_(params, scaled)


def _dense(grad: Tensor | None) -> Tensor:
    assert grad is not None
    if grad.is_sparse:
        raise RuntimeError("SGDW does not take sparse gradients; use torch.optim.SparseAdam for that parameter.")
    return grad
