"""Reading the losses a training loop hands over: by keyword, by dict, in a sequence or as one stacked tensor.

The common case is a handful of attribute look-ups and one ``torch.stack``. Only when something is wrong does
:func:`_explain` look closer, so that the error can name the rule, what was found and the fix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn

from trainonce.distributed import is_sharded
from trainonce.text import check_line, names_error, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

AT = "at"  # the keyword of a call that names tensors to measure at

Losses: TypeAlias = Mapping[str, Tensor | None] | Sequence[Tensor | None] | Tensor


class Present(NamedTuple):
    """Which terms a batch has, when some are absent."""

    indices: Tensor  # of those that are there
    mask: Tensor  # for every term, whether it is there


class Values(NamedTuple):
    """The detached losses of one call: those that are there, and which they are (None: all)."""

    losses: Tensor
    present: Present | None

    def pad(self) -> Tensor:
        """Return the losses of all terms, NaN where one is absent."""
        if self.present is None:
            return self.losses
        full = self.losses.new_full(self.present.mask.shape, math.nan)
        return full.index_copy(0, self.present.indices, self.losses)


class Batch(NamedTuple):
    """One call as a rule sees it: ``losses`` are those of the terms that are there, in a vector with its graph."""

    losses: Tensor
    #: Marks of the terms that are there, on the device; None: all of them.
    present: Present | None
    #: The same losses as they came, each with a graph of its own unless they came stacked.
    given: Tensor | list[Tensor]
    #: Which terms are there, on the host; None: all.
    where: tuple[int, ...] | None
    #: The tensors that the call named to measure at.
    at: tuple[Tensor, ...]

    def each(self) -> list[Tensor]:
        """Return the losses apart."""
        return list(self.given.unbind()) if isinstance(self.given, Tensor) else self.given


PATTERNS = 256  # of absent terms that are kept


class Patterns:
    """Marks of absent terms, each sent to the device once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Present] = {}

    def mark(self, where: tuple[int, ...], count: int, device: torch.device) -> Present:
        found = self._known.get(where)
        if found is None or found.indices.device != device:
            if len(self._known) >= PATTERNS:
                self._known.clear()
            with torch.inference_mode(False):  # also when first met in validation: training saves them for backward
                self._known[where] = found = mark_present(where, count, device)
        return found


def mark_present(where: tuple[int, ...], count: int, device: torch.device) -> Present:
    """Mark which of ``count`` terms are there, on the host, and send it without waiting for the device."""
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
        if name == AT:
            raise ValueError(
                f"{owner} cannot have a term named {AT!r}: a call takes tensors under it. Rename the term."
            )
    if len(names) < 2:
        raise ValueError(
            f"{owner} weighs two or more terms; got {len(names)} ({quoted(names) or 'none'}). "
            "With a single loss there is nothing to weigh: call backward on it."
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{owner} needs distinct term names; {quoted(repeated)} appears more than once.")
    return names


def values_by_term(
    what: str, terms: tuple[str, ...], given: float | Mapping[str, float], valid: Callable[[object], bool], rule: str
) -> list[float]:
    """Return one number for each term, from a number for all or a dict; or raise an error that names the rule."""
    if isinstance(given, Mapping):
        if set(given) != set(terms):
            raise names_error(f"{what}, as a dict with one value for each auxiliary term,", terms, list(given))
        table = dict(given)
    else:
        table = dict.fromkeys(terms, given)
    for term, value in table.items():
        if not valid(value):
            raise ValueError(f"{what} must be {rule}; got {value!r} for {term!r}.")
    return [float(table[term]) for term in terms]


def collect(
    owner: str, terms: tuple[str, ...], losses: Losses | None, named: Mapping[str, Tensor | None]
) -> tuple[Tensor | list[Tensor], tuple[int, ...] | None]:
    """Return the losses that are there, in the order of ``terms``, and which they are (None: all).

    A stacked tensor stays as it is; ``None`` marks a term absent from the batch. What carries a gradient is a
    floating-point tensor; :func:`stack` checks shapes and devices. Subclasses of Tensor are taken as plain tensors.
    """
    tracking = torch.is_grad_enabled()
    if isinstance(losses, Tensor):
        if named or losses.shape != (len(terms),) or not _is_usable(losses, 1, tracking):
            raise _explain_stacked(owner, terms, losses, named)
        return plain(losses), None
    values = _in_order(owner, terms, losses, named)
    if tracking:
        for value in values:
            if type(value) is not Tensor or not value.requires_grad:
                break
        else:
            return cast("list[Tensor]", values), None
    given = [plain(value) if isinstance(value, Tensor) else value for value in values if value is not None]
    if not all(isinstance(value, Tensor) and _is_usable(value, 0, tracking) for value in given):
        raise _explain(terms, values) or AssertionError("unreachable")
    if len(given) == len(terms):
        return given, None
    table = named if losses is None else losses
    if isinstance(table, Mapping) and any(name not in table for name in terms):
        raise names_error(owner, terms, list(table))
    return given, tuple(i for i, value in enumerate(values) if value is not None)


def plain(value: Tensor) -> Tensor:
    """Return a subclass's tensor as a plain one: what the subclass knows of its columns says nothing of a loss."""
    if type(value) in (Tensor, nn.Parameter) or is_sharded(value):
        return value
    return value.as_subclass(Tensor)


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


def _in_order(
    owner: str, terms: tuple[str, ...], losses: Losses | None, named: Mapping[str, Tensor | None]
) -> list[Tensor | None]:
    if losses is None:
        table = named
    elif named:
        raise TypeError(
            f"{owner} takes the losses one way at a time; got a positional argument and the keywords "
            f"{quoted(named)}. Pass all by keyword, or one dict."
        )
    elif isinstance(losses, Mapping):
        table = losses
    elif isinstance(losses, Sequence) and not isinstance(losses, str):
        if len(losses) != len(terms):
            raise ValueError(f"{owner} expects {len(terms)} losses in the order {quoted(terms)}; got {len(losses)}.")
        return list(losses)
    else:
        raise TypeError(f"{owner} takes keywords, a dict, a list or a stacked tensor; got {type(losses).__name__}.")
    if len(table) != len(terms):
        raise names_error(owner, terms, list(table))
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


def _explain_stacked(owner: str, terms: tuple[str, ...], losses: Tensor, named: Mapping[str, object]) -> Exception:
    if named:
        return TypeError(f"{owner} takes a stacked tensor alone, without keywords.")
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
