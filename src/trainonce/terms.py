"""Reading the losses a training loop hands over: by keyword, by dict, in a sequence or as one stacked tensor.

The common case is a handful of attribute look-ups and one ``torch.stack``. Only when something is wrong does
:func:`_explain` look closer, so that the error can name the rule, what was found and the fix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from trainonce.text import check_line, is_positive, names_error, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

Losses: TypeAlias = Mapping[str, Tensor | None] | Sequence[Tensor | None] | Tensor


class Present(NamedTuple):
    """Which terms a batch has, when some are absent."""

    indices: Tensor  # of those that are there
    mask: Tensor  # for every term, whether it is there


class Values(NamedTuple):
    """The losses of one call: those that are there, and which they are (None: all)."""

    losses: Tensor
    present: Present | None

    def pad(self) -> Tensor:
        """The losses of all terms, NaN where one is absent."""
        if self.present is None:
            return self.losses
        full = self.losses.new_full(self.present.mask.shape, math.nan)
        return full.index_copy(0, self.present.indices, self.losses)


def mark_present(where: tuple[int, ...], count: int, device: torch.device) -> Present:
    """Which of ``count`` terms are there, made on the host and sent without waiting for the device."""
    there = set(where)
    indices = torch.tensor(where, dtype=torch.int64, device="cpu").to(device, non_blocking=True)
    mask = torch.tensor([i in there for i in range(count)], device="cpu").to(device, non_blocking=True)
    return Present(indices, mask)


def check_names(terms: Iterable[str], owner: str) -> tuple[str, ...]:
    """The term names as a tuple, or an error that says which rule they break."""
    if isinstance(terms, str):
        raise TypeError(
            f"{owner} needs a list of term names, the base first; got the single string {terms!r}. "
            f"Write [{terms!r}, ...]."
        )
    names = tuple(terms)
    for name in names:
        if not isinstance(name, str) or not name or name != name.strip():
            raise TypeError(
                f"{owner} needs term names that are non-empty strings without surrounding space; got {name!r}."
            )
        check_line("A term's name", name)
    if len(names) < 2:
        raise ValueError(
            f"{owner} weighs two or more terms; got {len(names)} ({quoted(names) or 'none'}). "
            "With a single loss there is nothing to weigh: call backward on it."
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{owner} needs distinct term names; {quoted(repeated)} appears more than once.")
    return names


def starting_exponents(terms: tuple[str, ...], init: float | Mapping[str, float]) -> tuple[float, ...]:
    """The exponents that ``init`` asks for, or an error that names the rule."""
    auxiliary = terms[1:]
    if isinstance(init, Mapping):
        if set(init) != set(auxiliary):
            raise names_error("init, as a dict with one value for each auxiliary term,", auxiliary, list(init))
        table = dict(init)
    else:
        table = dict.fromkeys(auxiliary, init)
    for term, value in table.items():
        if not is_positive(value):
            raise ValueError(
                f"init is the starting ratio of a term's weight to the base weight and must be a positive number; "
                f"got {value!r} for {term!r}. To start from almost nothing use a small one, such as 1e-3."
            )
    return tuple(math.log(table[term]) for term in auxiliary)


def collect(
    terms: tuple[str, ...], losses: Losses | None, named: Mapping[str, Tensor | None]
) -> tuple[Tensor | list[Tensor], tuple[int, ...] | None]:
    """The losses that are there, in the order of ``terms``, and which they are (None: all).

    A stacked tensor stays as it is; ``None`` marks a term absent from the batch. What carries a gradient is a
    floating-point tensor; :func:`stack` checks shapes and devices.
    """
    tracking = torch.is_grad_enabled()
    if isinstance(losses, Tensor):
        if named or losses.shape != (len(terms),) or not _is_usable(losses, 1, tracking):
            raise _explain_stacked(terms, losses, named)
        return losses, None
    values = _in_order(terms, losses, named)
    if tracking:
        for value in values:
            if not isinstance(value, Tensor) or not value.requires_grad:
                break
        else:
            return cast("list[Tensor]", values), None
    given = [value for value in values if value is not None]
    if not all(isinstance(value, Tensor) and _is_usable(value, 0, tracking) for value in given):
        raise _explain(terms, values) or AssertionError("unreachable")
    if len(given) == len(terms):
        return given, None
    table = named if losses is None else losses
    if isinstance(table, Mapping) and any(name not in table for name in terms):
        raise names_error("CompositeLoss", terms, list(table))
    return given, tuple(i for i, value in enumerate(values) if value is not None)


def stack(terms: tuple[str, ...], given: Tensor | list[Tensor], where: tuple[int, ...] | None) -> Tensor:
    """The losses of :func:`collect` as one vector."""
    if isinstance(given, Tensor):
        return given
    try:
        losses = torch.stack(given)
    except RuntimeError as error:
        raise _explain(terms, _by_term(terms, given, where)) or error from None
    if losses.dim() != 1 or not losses.is_floating_point():
        raise _explain(terms, _by_term(terms, given, where)) or AssertionError("unreachable")
    return losses


def keep_finite(
    terms: tuple[str, ...], given: Tensor | list[Tensor], where: tuple[int, ...] | None
) -> tuple[Tensor | list[Tensor], tuple[int, ...] | None, list[str]]:
    """Those of the losses that are finite, which they are, and the names of the others; reads back from the device.

    The others are left out before they enter the graph. Multiplying by zero later would not do: zero times the infinite
    slope of a bad loss is NaN in the model.
    """
    apart = list(given.unbind()) if isinstance(given, Tensor) else given
    if not apart:
        return given, where, []
    finite = torch.isfinite(stack(terms, [loss.detach() for loss in apart], where)).tolist()
    if all(finite):
        return given, where, []
    index = range(len(terms)) if where is None else where
    kept = [loss for loss, ok in zip(apart, finite, strict=True) if ok]
    bad = [terms[i] for i, ok in zip(index, finite, strict=True) if not ok]
    return kept, tuple(i for i, ok in zip(index, finite, strict=True) if ok), bad


def _in_order(terms: tuple[str, ...], losses: Losses | None, named: Mapping[str, Tensor | None]) -> list[Tensor | None]:
    if losses is None:
        table = named
    elif named:
        raise TypeError(
            "CompositeLoss takes the losses one way at a time; got a positional argument and the keywords "
            f"{quoted(named)}. Pass all by keyword, or one dict."
        )
    elif isinstance(losses, Mapping):
        table = losses
    elif isinstance(losses, Sequence) and not isinstance(losses, str):
        if len(losses) != len(terms):
            raise ValueError(
                f"CompositeLoss expects {len(terms)} losses in the order {quoted(terms)}; got {len(losses)}."
            )
        return list(losses)
    else:
        raise TypeError(
            f"CompositeLoss takes keywords, a dict, a list or a stacked tensor; got {type(losses).__name__}."
        )
    if len(table) != len(terms):
        raise names_error("CompositeLoss", terms, list(table))
    return [table.get(name) for name in terms]


def _by_term(terms: tuple[str, ...], given: list[Tensor], where: tuple[int, ...] | None) -> list[Tensor | None]:
    there = dict(zip(range(len(terms)) if where is None else where, given, strict=True))
    return [there.get(i) for i in range(len(terms))]


def _is_usable(value: Tensor, dim: int, tracking: bool) -> bool:
    return value.dim() == dim and value.is_floating_point() and (value.requires_grad or not tracking)


def _explain(terms: tuple[str, ...], values: list[Tensor | None]) -> Exception | None:
    """What is wrong with the losses of a call; None if nothing of what a user can get wrong."""
    for name, value in zip(terms, values, strict=True):
        if value is None:
            continue
        if not isinstance(value, Tensor):
            return TypeError(
                f"The loss {name!r} must be a tensor that carries a gradient; got {type(value).__name__} {value!r}. "
                "If the term is absent from this batch, pass None."
            )
        if value.dim() != 0:
            return ValueError(
                f"The loss {name!r} must be a scalar; got shape {tuple(value.shape)}. Reduce it first, e.g. .mean()."
            )
        if not value.is_floating_point():
            return TypeError(f"The loss {name!r} must be a floating-point tensor; got {value.dtype}.")
        if torch.is_grad_enabled() and not value.requires_grad:
            return ValueError(_no_gradient(f"The loss {name!r}"))
    if len({value.device for value in values if value is not None}) <= 1:
        return None
    devices = [f"{n!r} on {v.device}" for n, v in zip(terms, values, strict=True) if v is not None]
    return ValueError(
        f"The losses must be on one device; got {', '.join(devices)}. Move them with .to(device) before the call."
    )


def _explain_stacked(terms: tuple[str, ...], losses: Tensor, named: Mapping[str, object]) -> Exception:
    if named:
        return TypeError("CompositeLoss takes a stacked tensor alone, without keywords.")
    if losses.shape != (len(terms),):
        return ValueError(
            f"A stacked tensor of losses must have shape ({len(terms)},), one scalar for each of "
            f"{quoted(terms)}; got {tuple(losses.shape)}."
        )
    if not losses.is_floating_point():
        return TypeError(f"The stacked losses must be floating-point; got {losses.dtype}.")
    return ValueError(_no_gradient("The stacked tensor of losses"))


def _no_gradient(what: str) -> str:
    return (
        f"{what} carries no gradient although gradients are on: it cannot train the model. Remove a .detach(), "
        ".item() or torch.tensor(...) around it; pass None if the term is absent from this batch; or evaluate under "
        "torch.no_grad()."
    )
