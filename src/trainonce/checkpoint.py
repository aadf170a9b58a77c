"""Term names inside a ``state_dict``, as one uint8 tensor.

A tensor is the only form that safetensors, ``torch.load(weights_only=True)`` and ``torch.distributed.checkpoint`` all
accept. Its bytes are JSON: the format's version, the kind of criterion, the term names in order, whether it was frozen.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce import distributed
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSION = 1


def encode(kind: str, terms: tuple[str, ...], frozen: bool) -> Tensor:
    """The description of a criterion as a tensor of bytes."""
    # 0 or 1 and not false or true: a sharded checkpoint is read into a tensor of the same length.
    text = json.dumps({"version": VERSION, "kind": kind, "terms": terms, "frozen": int(frozen)})
    return torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")


def decode(saved: Tensor) -> dict[str, Any]:
    """The saved description, or a ValueError that names what is wrong with it."""
    try:
        found: dict[str, Any] = json.loads(bytes(saved.tolist()).decode())
        version, _ = int(found["version"]), (found["kind"], set(found["terms"]), found["frozen"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("The saved description of the loss terms cannot be read: the checkpoint is damaged.") from None
    if version > VERSION:
        raise ValueError(
            f"The loss weights were saved in format {version}; this trainonce reads up to {VERSION}. Update trainonce."
        )
    return found


def order(found: dict[str, Any], kind: str, terms: tuple[str, ...]) -> list[int] | None:
    """Where each of ``terms`` stood when saved (None: in the same place), or a ValueError listing both sides."""
    if found["kind"] != kind:
        raise ValueError(f"The checkpoint holds a {found['kind']}; this criterion is a {kind}. Build the same kind.")
    saved = tuple(found["terms"])
    if set(saved) != set(terms):
        raise ValueError(
            f"The checkpoint's loss terms are {quoted(saved)}; this criterion's are {quoted(terms)}. "
            f"Missing from the checkpoint: {quoted(t for t in terms if t not in saved) or 'none'}; "
            f"not in this criterion: {quoted(t for t in saved if t not in terms) or 'none'}."
        )
    if saved[0] != terms[0]:
        raise ValueError(
            f"The checkpoint's base term is {saved[0]!r}; this criterion's is {terms[0]!r}. Exponents are relative to "
            "the base: put the same term first."
        )
    return None if saved == terms else [saved.index(term) for term in terms]


def read_frozen(saved: Tensor, kind: str, terms: tuple[str, ...]) -> bool:
    """Whether the criterion was frozen, or a ValueError if its terms are others or in another order."""
    found = decode(saved)
    if order(found, kind, terms) is not None:  # Transformers loads tensors as they come
        raise ValueError(
            f"The checkpoint's loss terms are {quoted(found['terms'])}, in this order; this criterion's are "
            f"{quoted(terms)}. Give them in the checkpoint's order, or load with load_state_dict, which sorts."
        )
    return bool(found["frozen"])


def prepare(
    state: dict[str, Any],
    prefix: str,
    kind: str,
    terms: tuple[str, ...],
    by_term: Mapping[str, Callable[[list[int]], list[int]]],
) -> None:
    """Bring a state that is about to be loaded into the order of ``terms``, and to float32 at least.

    ``by_term``: the tensors that have an entry per term, each with how the terms' order indexes it. A ValueError says
    what does not fit.
    """
    found = decode(state[prefix + "_extra_state"])
    moved = order(found, kind, terms)
    for key, reorder in by_term.items():
        saved = state.get(prefix + key)
        if not isinstance(saved, Tensor):
            continue
        if moved is not None:
            saved = distributed.shard_like(distributed.unshard(saved)[reorder(moved)], saved)
        state[prefix + key] = saved.float() if saved.dtype.itemsize < 4 else saved
    state[prefix + "_extra_state"] = encode(kind, terms, found["frozen"])
