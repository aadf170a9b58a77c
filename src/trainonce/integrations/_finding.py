"""Find the criterion of a module, also where torch does not look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from trainonce.text import quoted
from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    from collections.abc import Iterator


def find(module: nn.Module, wanted: str | LossWeighting | None) -> tuple[LossWeighting, str | None] | tuple[None, None]:
    """Return the wanted criterion and, if it is not registered as a part of the module, its name."""
    inside = {name: part for name, part in module.named_modules() if isinstance(part, LossWeighting)}
    known = {id(criterion) for criterion in inside.values()}
    outside = {name: part for name, part in _unregistered(module).items() if id(part) not in known}
    everything = inside | outside
    if isinstance(wanted, LossWeighting):
        name = next((name for name, part in everything.items() if part is wanted), "criterion")
        return wanted, None if name in inside else name
    if wanted is not None and wanted not in everything:
        raise ValueError(
            f"{type(module).__name__} has no criterion named {wanted!r}; it has {quoted(everything) or 'none'}."
        )
    if wanted is None and len(everything) > 1:
        raise ValueError(
            f"{type(module).__name__} holds {len(everything)} criteria, {quoted(everything)}, and LossWeights serves "
            f"one. Say which, criterion={next(iter(everything))!r}, and use one callback for each."
        )
    if not everything:
        return None, None
    name = next(iter(everything)) if wanted is None else wanted
    return everything[name], None if name in inside else name


_OF_TORCH = frozenset(vars(nn.Module())) | {"_hparams_initial"}  # the latter: Lightning's copies of the arguments


def _unregistered(module: nn.Module) -> dict[str, LossWeighting]:
    """Return criteria in lists, tuples, dicts and plain objects of a module: torch neither moves nor saves them."""
    found: dict[int, tuple[str, LossWeighting]] = {}
    for at, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in _OF_TORCH:
                for name, criterion in _criteria_in(f"{at}.{attribute}" if at else attribute, value):
                    found.setdefault(id(criterion), (name, criterion))
    return dict(found.values())


def _criteria_in(name: str, value: object) -> Iterator[tuple[str, LossWeighting]]:
    if isinstance(value, nn.Module):
        for at, part in value.named_modules():
            if isinstance(part, LossWeighting):
                yield f"{name}.{at}" if at else name, part
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _criteria_in(f"{name}[{key!r}]", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _criteria_in(f"{name}[{index}]", item)
    else:  # the attributes of an object, such as PINA's weighting
        for key, item in getattr(value, "__dict__", {}).items():
            if isinstance(item, LossWeighting):
                yield f"{name}.{key}", item
