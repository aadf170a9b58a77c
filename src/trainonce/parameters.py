"""What rules train among a module's parameters: keep it out of wrappers, leave it out of clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["keep_out", "model_parameters", "trained_by_rules"]


def keep_out(module: nn.Module) -> set[nn.Parameter]:
    """Have a wrapper leave alone what every rule inside ``module`` trains; call it before wrapping.

    For DistributedDataParallel that is all; FSDP2 takes the returned set:
    ``fully_shard(model, ignored_params=trainonce.keep_out(model))``. :func:`trainonce.attach` then averages its
    gradient itself, so the criterion may be called anywhere, also outside the wrapped module's forward.

    >>> from torch import nn
    >>> from trainonce import CompositeLoss
    >>> model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(["a", "b"])})
    >>> len(keep_out(model))
    1
    """
    kept = {id(p) for p in trained_by_rules(module)}
    names = {name for name, p in module.named_parameters() if id(p) in kept}
    names |= set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))  # what was kept out before stays out
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(module, names)  # type: ignore[no-untyped-call]
    return set(trained_by_rules(module))


def model_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return all parameters of ``module`` but what rules train: what to clip by a global norm.

    >>> from torch import nn
    >>> from trainonce import CompositeLoss
    >>> model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(["a", "b"])})
    >>> len(list(model.parameters())), len(model_parameters(model))
    (3, 2)
    """
    kept = {id(p) for p in trained_by_rules(module)}
    return [p for p in module.parameters() if id(p) not in kept]


def trained_by_rules(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield what the rules inside ``module`` train."""
    for child in module.modules():
        if isinstance(child, LossWeighting) and child.trainable is not None:
            yield getattr(child, child.trainable)
