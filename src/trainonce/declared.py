"""Declared: what a rule keeps per term, declared once; start, precision, copies and checkpoints follow from it.

A checkpoint names the terms: beside the declared tensors it holds one uint8 tensor, the only form that safetensors,
``torch.load(weights_only=True)`` and ``torch.distributed.checkpoint`` all accept. Its bytes are JSON: the format's
version, the rule, the term names in order, whether the rule was frozen, and the counts at a fixed width.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from trainonce import distributed, health
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

Per = Literal["term", "auxiliary"] | None

VERSION = 2
EXTRA = "_extra_state"


class State(NamedTuple):
    """A declaration: the values at the start, as wide as they come, and what the first dimension is."""

    start: Tensor
    per: Per
    saved: bool = True


class Count(NamedTuple):
    """The declaration of host integers."""

    start: int | list[int]
    per: Per


class Declared(nn.Module):
    """A module whose tensors and counts are declared with their start and with what they are kept per.

    It follows that they are reset, stay float32 or wider, begin at their start on the meta device and under
    Transformers' ``from_pretrained``, and are saved by the names of the terms.
    """

    terms: tuple[str, ...]
    pace_mean: Tensor
    pace_square: Tensor
    pace_step: int
    pace_skipped: Tensor
    _loading = False  # whether load_state_dict is at work, which may put tensors in place of others, too

    def __init__(self, terms: tuple[str, ...]) -> None:
        super().__init__()
        self.terms = terms
        self.kind = type(self).__name__  # kept: fully_shard changes the class
        self.trainable: str | None = None
        self.pace: float | None = None
        self._states: dict[str, State] = {}
        self._counts: dict[str, Count] = {}
        self._frozen = False

    # Declaring

    def add_state(self, name: str, default: object, *, per: Per = "term", saved: bool = True) -> None:
        """Declare a buffer with an entry per term, per auxiliary term, or (None) of any shape.

        :param default: Its values at the start: a number for all entries, or a tensor or list of all of them. Numbers
            with a point are kept in float32 or wider; a tensor of integers stays one.
        :param saved: Whether it is in checkpoints.
        """
        self._check_free(name)
        self._states[name] = state = State(self._start(name, default, per), per, saved)
        self.register_buffer(name, self._empty(state.start), persistent=saved)
        self._reset(name)

    def add_trainable(
        self,
        name: str,
        default: object,
        *,
        per: Per = "term",
        lr: float | Tensor | None = None,
        pace: float | None = None,
    ) -> None:
        """Declare the vector that is trained with the model.

        :func:`trainonce.attach` gives it a parameter group of its own, without weight decay, and averages its gradient
        over the ranks.

        :param default: As in :meth:`add_state`.
        :param lr: Its learning rate in the model's optimizer; by default the model's.
        :param pace: Instead of that, how far it may move for every factor e in the steps: in Adam's direction, whatever
            the model's optimizer is (:mod:`trainonce.pace`).
        """
        if self.trainable is not None:
            raise ValueError(f"A rule trains one vector; {self.kind} declares {self.trainable!r} and {name!r}.")
        self._check_free(name)
        self.trainable, self.lr, self.pace = name, lr, pace
        self._states[name] = state = State(self._start(name, default, per), per)
        self.register_parameter(name, nn.Parameter(self._empty(state.start)))
        self._reset(name)
        if pace is not None:
            for moment in ("pace_mean", "pace_square"):
                self.add_state(moment, torch.zeros_like(state.start), per=per)
            self.add_count("pace_step", 0)
            self.add_state("pace_skipped", 0.0, per=None)  # of these steps, those that only the device knows about

    def add_count(self, name: str, default: int | Sequence[int], *, per: Per = None) -> None:
        """Declare an integer on the host, or with ``per`` a list of them; it becomes an attribute of this name."""
        self._check_free(name)
        size = self._size(per)
        given = default if isinstance(default, (list, tuple)) else [default]
        if not all(isinstance(one, int) for one in given):
            raise TypeError(f"{self.kind}.{name} counts on the host, in whole numbers; got {default!r}.")
        if isinstance(default, int):
            start: int | list[int] = default if size is None else [default] * size
        else:
            start = list(default)
        self._counts[name] = Count(start, per)
        setattr(self, name, start if isinstance(start, int) else list(start))

    def _check_free(self, name: str) -> None:
        if hasattr(self, name):
            raise ValueError(f"{self.kind} has an attribute {name!r} already, so it cannot declare one of this name.")

    def _size(self, per: Per) -> int | None:
        sizes = {"term": len(self.terms), "auxiliary": len(self.terms) - 1, None: None}
        if per not in sizes:
            raise ValueError(f"{self.kind} declares per={per!r}; there are 'term', 'auxiliary' and None.")
        return sizes[per]

    def _start(self, name: str, default: object, per: Per) -> Tensor:
        dtype = default.dtype if isinstance(default, Tensor) else torch.float64
        start = torch.as_tensor(default, dtype=dtype, device="cpu")
        if start.is_floating_point():
            start = start.double()
        size = self._size(per)
        if size is not None and start.dim() == 0:
            start = start.expand(size)
        if size is not None and (start.dim() == 0 or len(start) != size):
            raise ValueError(f"{self.kind}.{name} needs {size} values, one per {per}; got shape {tuple(start.shape)}.")
        return start.clone()

    @staticmethod
    def _empty(start: Tensor) -> Tensor:
        wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        return torch.empty(start.shape, dtype=wide if start.is_floating_point() else start.dtype)

    # Starting

    def reset_parameters(self) -> None:
        """Set everything to its start; needed once after meta-device initialisation and ``to_empty``."""
        for name in self._states:
            self._reset(name)
        for name, count in self._counts.items():
            setattr(self, name, count.start if isinstance(count.start, int) else list(count.start))

    @torch.no_grad()
    def _reset(self, name: str) -> None:
        own: Tensor = getattr(self, name)
        if not own.is_meta:
            own.copy_(distributed.shard_like(self._states[name].start.to(own), own))

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        before = self._parameters.get(name)
        if param is not None and not distributed.is_sharded(param) and self._replaces_meta(name, before, param):
            values = self._materialise(name, before, param).detach()
            param = nn.Parameter(values, requires_grad=before.requires_grad)  # type: ignore[union-attr]
        super().register_parameter(name, param)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and name in self.__dict__.get("_buffers", ()):
            before = self._buffers[name]
            if self._replaces_meta(name, before, value):
                value = self._materialise(name, before, value)
        super().__setattr__(name, value)

    def _replaces_meta(self, name: str, before: Tensor | None, value: Tensor) -> bool:
        """Whether a tensor takes the place of one on the meta device, outside of load_state_dict."""
        return (
            before is not None and before.is_meta and not value.is_meta and not self._loading and name in self._states
        )

    def _materialise(self, name: str, before: Tensor | None, value: Tensor) -> Tensor:
        """Return the tensor if it is a file's, else the start: ``from_pretrained`` leaves memory as it finds it.

        Numbers with a point are float32 or wider.
        """
        assert before is not None
        dtype = torch.promote_types(before.dtype, torch.float32) if before.is_floating_point() else before.dtype
        source = value if getattr(value, "_is_hf_initialized", False) else self._states[name].start
        return source.to(device=value.device, dtype=dtype, copy=True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move as any module, but ``.half()`` and the like leave declared numbers float32: bfloat16 ones never move."""
        before = {name: getattr(self, name).detach() for name in self._states}
        super()._apply(_at_least_float32(fn), recurse)  # type: ignore[no-untyped-call]
        for name, narrow in before.items():
            widened = narrow.dtype == torch.float32 and getattr(self, name).dtype == torch.float64
            if widened and not narrow.is_meta and not distributed.is_sharded(narrow):
                start = self._states[name].start
                if torch.equal(narrow.cpu(), start.float()):
                    self._reset(name)  # exactly, not rounded to float32 on the way
        return self

    # Checkpoints

    def get_extra_state(self) -> Tensor:
        counts = {name: _widen(getattr(self, name)) for name in self._counts}
        # 0 or 1 and not false or true, and numbers of one width: a sharded checkpoint is read into a tensor of the
        # same length.
        found = {"version": VERSION, "rule": self.kind, "terms": self.terms, "frozen": int(self._frozen)}
        return torch.tensor(list(json.dumps(found | {"counts": counts}).encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, saved: Tensor) -> None:
        found = _decode(saved)
        if self._order(found) is not None:  # Transformers loads tensors as they come
            raise ValueError(
                f"The checkpoint's loss terms are {quoted(found['terms'])}, in this order; this criterion's are "
                f"{quoted(self.terms)}. Give them in the checkpoint's order, or load with load_state_dict, which sorts."
            )
        for name in self._counts:
            if name in found["counts"]:
                value = found["counts"][name]
                setattr(self, name, int(value) if isinstance(value, str) else [int(one) for one in value])
        self._set_frozen(bool(found["frozen"]))

    def _set_frozen(self, frozen: bool) -> None:
        self._frozen = frozen

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        error_msgs: list[str] = rest[-1]
        own = [name for name, state in self._states.items() if state.saved]
        if not any(prefix + key in state_dict for key in (*own, EXTRA)):
            if not prefix:
                error_msgs.append(f"The state holds nothing of a {self.kind}: is it another module's?")
                return
            health.warn(self, health.NoSavedState, where=f"{self.kind} {prefix.rstrip('.')!r}")
            return
        if prefix + EXTRA not in state_dict:
            health.warn(self, health.NoSavedNames, terms=quoted(self.terms))
            state_dict[prefix + EXTRA] = self.get_extra_state()
        saved_pace = prefix + "pace_mean" in state_dict
        if self.trainable and prefix + self.trainable in state_dict and saved_pace != (self.pace is not None):
            kinds = "at a learning rate (lr=)", "at a pace of their own (travel=)"
            error_msgs.append(
                f"In the checkpoint the {self.trainable} move {kinds[saved_pace]}, in this {self.kind} "
                f"{kinds[not saved_pace]}: build it as it was saved."
            )
            return
        try:
            self._sort_by_term(state_dict, prefix)
        except ValueError as error:
            error_msgs.append(str(error))
            return
        self._loading = True
        try:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        finally:
            self._loading = False
        self._start_unsaved()

    def _start_unsaved(self) -> None:
        """Begin what is in no file at its start, where ``load_state_dict(assign=True)`` replaced the meta device."""
        device = next((t.device for name in self._states if not (t := getattr(self, name)).is_meta), None)
        for name, state in self._states.items():
            if device is not None and not state.saved and getattr(self, name).is_meta:
                setattr(self, name, torch.empty_like(getattr(self, name), device=device))

    def _sort_by_term(self, state: dict[str, Any], prefix: str) -> None:
        """Bring a state that is about to be loaded into the order of the terms, and to float32 at least."""
        found = _decode(state[prefix + EXTRA])
        order = self._order(found)
        index = {"term": order, "auxiliary": None if order is None else [i - 1 for i in order[1:]], None: None}
        for name, declared in self._states.items():
            saved = state.get(prefix + name)
            if not isinstance(saved, Tensor):
                continue
            moved = index[declared.per]
            if moved is not None:
                saved = distributed.shard_like(distributed.unshard(saved)[moved], saved)
            state[prefix + name] = saved.float() if saved.is_floating_point() and saved.dtype.itemsize < 4 else saved
        counts = found["counts"]
        for name, count in self._counts.items():
            moved = index[count.per]
            if moved is not None and name in counts:
                counts[name] = [counts[name][i] for i in moved]
        text = json.dumps(found | {"terms": self.terms, "counts": counts})
        state[prefix + EXTRA] = torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")

    def _order(self, found: dict[str, Any]) -> list[int] | None:
        """Where each term stood when saved (None: in the same place), or a ValueError listing both sides."""
        if found["rule"] != self.kind:
            raise ValueError(
                f"The checkpoint holds a {found['rule']}; this criterion is a {self.kind}. Build the same kind."
            )
        saved = tuple(found["terms"])
        if set(saved) != set(self.terms):
            raise ValueError(
                f"The checkpoint's loss terms are {quoted(saved)}; this criterion's are {quoted(self.terms)}. "
                f"Missing from the checkpoint: {quoted(t for t in self.terms if t not in saved) or 'none'}; "
                f"not in this criterion: {quoted(t for t in saved if t not in self.terms) or 'none'}."
            )
        kinds = [state.per for state in self._states.values()] + [count.per for count in self._counts.values()]
        if saved[0] != self.terms[0] and "auxiliary" in kinds:
            raise ValueError(
                f"The checkpoint's base term is {saved[0]!r}; this criterion's is {self.terms[0]!r}. What is saved is "
                "relative to the base: put the same term first."
            )
        return None if saved == self.terms else [saved.index(term) for term in self.terms]


def _decode(saved: Tensor) -> dict[str, Any]:
    """Return the saved description, or raise a ValueError that names what is wrong with it."""
    try:
        found: dict[str, Any] = json.loads(bytes(saved.tolist()).decode())
        version, _ = int(found["version"]), (found["rule"], set(found["terms"]), found["frozen"], dict(found["counts"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("The saved description of the loss terms cannot be read: the checkpoint is damaged.") from None
    if version > VERSION:
        raise ValueError(
            f"The criterion was saved in format {version}; this trainonce reads up to {VERSION}. Update trainonce."
        )
    return found


def _widen(value: int | list[int]) -> str | list[str]:
    return f"{value:+020d}" if isinstance(value, int) else [f"{one:+020d}" for one in value]


def _at_least_float32(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Wrap a change of tensors, as ``nn.Module._apply`` takes it, so that it makes none narrower than float32."""

    def keep_precision(tensor: Tensor) -> Tensor:
        moved = change(tensor)
        too_narrow = tensor.is_floating_point() and moved.dtype.itemsize < 4
        return tensor.to(device=moved.device) if too_narrow else moved

    return keep_precision
