"""The exponents among a module's parameters: keep them out of wrappers, leave them out of clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from trainonce.composite import CompositeLoss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["exponents_of", "keep_out", "model_parameters"]


def keep_out(module: nn.Module) -> set[nn.Parameter]:
    """Have a wrapper leave the exponents of every criterion inside ``module`` alone; call it before wrapping.

    For DistributedDataParallel that is all; FSDP2 takes the returned set:
    ``fully_shard(model, ignored_params=trainonce.keep_out(model))``. :func:`trainonce.attach` then averages the
    exponents' gradient itself, so the criterion may be called anywhere, also outside the wrapped module's forward.

    >>> from torch import nn
    >>> from trainonce import CompositeLoss
    >>> model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(["a", "b"])})
    >>> len(keep_out(model))
    1
    """
    kept = {id(p) for p in exponents_of(module)}
    names = {name for name, p in module.named_parameters() if id(p) in kept}
    names |= set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))  # what was kept out before stays out
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(module, names)  # type: ignore[no-untyped-call]
    return set(exponents_of(module))


def model_parameters(module: nn.Module) -> list[nn.Parameter]:
    """All parameters of ``module`` but the exponents: what to clip by a global norm.

    >>> from torch import nn
    >>> from trainonce import CompositeLoss
    >>> model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(["a", "b"])})
    >>> len(list(model.parameters())), len(model_parameters(model))
    (3, 2)
    """
    kept = {id(p) for p in exponents_of(module)}
    return [p for p in module.parameters() if id(p) not in kept]


def exponents_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """The exponents of every criterion inside ``module``."""
    for child in module.modules():
        if isinstance(child, CompositeLoss):
            yield child.exponents
