"""Schedulers that others build, and the parameter group of a rule that must be in the optimizer before."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@contextlib.contextmanager
def before_each(act: Callable[[Optimizer], None]) -> Iterator[None]:
    """Run ``act`` on an optimizer before any scheduler built meanwhile reads it, perhaps more than once.

    A scheduler counts the groups in the first lines of its own ``__init__``, before the one it inherits. So that of
    every class is replaced, for as long as the context lasts.

    >>> import torch
    >>> optimizer, seen = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), []
    >>> with before_each(seen.append):
    ...     scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    >>> seen[0] is optimizer
    True
    """
    kinds: list[type[LRScheduler]] = [LRScheduler]
    for kind in kinds:
        kinds += kind.__subclasses__()
    own: dict[Any, Any] = {kind: vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)}

    def act_first(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def replacement(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
            optimizer = kwargs.get("optimizer", args[0] if args else None)
            if isinstance(optimizer, Optimizer):
                act(optimizer)
            init(self, *args, **kwargs)

        return replacement

    try:
        for kind, init in own.items():
            kind.__init__ = act_first(init)
        yield
    finally:
        for kind, init in own.items():
            kind.__init__ = init


def refuse_foreign(schedulers: Iterable[object], optimizer: Optimizer) -> None:
    """Refuse schedulers of other packages: they were built unseen, and would not schedule a group that comes late."""
    for scheduler in schedulers:
        if (
            not isinstance(scheduler, (LRScheduler, Optimizer))
            and getattr(scheduler, "optimizer", optimizer) is optimizer
        ):
            raise RuntimeError(
                f"{type(scheduler).__name__} is not a torch scheduler and was built before what the rule trains was in "
                "the optimizer. Call trainonce.attach in configure_optimizers, before building it."
            )
