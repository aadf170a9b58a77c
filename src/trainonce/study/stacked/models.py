"""S seeds times P rules of a model as one: parameters and buffers ``(S, P, ...)``, data and draws ``(S, ...)``."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainonce.study.stacked import reasons
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainonce.study.stacked.stackable import Tensors

MASK = "mask"


class MaskedDropout(nn.Module):
    """Dropout whose random part is given: a buffer for each call of a step, the same for all rules of a seed."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.calls = p, 0
        self.seen: list[tuple[MaskedDropout, Tensor]] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        name, self.calls = f"{MASK}{self.calls}", self.calls + 1
        if self.seen is not None:
            self.register_buffer(name, ones := torch.ones_like(x))
            self.seen.append((self, ones))
        mask: Tensor | None = getattr(self, name, None)
        if mask is None or mask.shape != x.shape:  # it may still be of a shape that is expanded to that of x
            raise reasons.NotStackableError("what passes a dropout does not have the same size in all steps")
        return x * mask


class _Whole(nn.Module):
    """Calls a function with the model, so that all of the model has the parameters it is called with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.model, *args)


class Random(NamedTuple):
    """A dropout's part of the random numbers of a step: the name of its mask, ones in the layout of it, its rate.

    In which order random numbers fill a tensor depends on its strides.
    """

    name: str
    ones: Tensor
    p: float


class StackedModel:
    """The models of all seeds, repeated for each rule."""

    def __init__(self, models: Sequence[nn.Module], points: int, device: torch.device, dtype: torch.dtype | None):
        self._device, self._dtype = device, dtype
        self.points = points
        self.template = _Whole(_with_masks(copy.deepcopy(models[0]))).to(device)
        self._modes = {module: module.training for module in self.template.modules()}
        made = [_Whole(model) for model in models]
        trained = {name for name, p in made[0].named_parameters() if p.requires_grad}
        values = [dict(m.named_parameters()) | dict(m.named_buffers()) for m in made]
        stacked = {name: self._repeat(value) for name, value in _together(values, "the model").items()}
        self.parameters = {n: value.requires_grad_() for n, value in stacked.items() if n in trained}
        self.buffers = {name: value for name, value in stacked.items() if name not in trained}
        self.masks: dict[str, Tensor] = {}

    def to(self, value: Tensor) -> Tensor:
        """On the device and, if a precision was asked for, in it."""
        return value.to(self._device, self._dtype if value.is_floating_point() else None)

    def stack(self, parts: Sequence[Tensors], where: str) -> dict[str, Tensor]:
        """Tensors of each seed as one; ``where`` they are from is for the reason if they cannot be."""
        return {name: self.to(value) for name, value in _together(parts, where).items()}

    def _repeat(self, value: Tensor) -> Tensor:
        one = self.to(value).unsqueeze(1)
        return one.repeat(1, self.points, *(1,) * (one.dim() - 2))

    def call(
        self, function: Callable[..., Any], *more: Mapping[str, Tensor], train: bool, points: slice = slice(None)
    ) -> Any:
        """A function of a model and of tensors of its seed, for all models at once."""
        self._set_mode(train)

        def alone(own: dict[str, Tensor], of_seed: dict[str, Tensor], *args: Any) -> Any:
            for module in self.template.modules():
                if isinstance(module, MaskedDropout):
                    module.calls = 0
            return functional_call(self.template, own | of_seed, (function, *args))

        own = {name: value[:, points] for name, value in (self.parameters | self.buffers).items()}
        inner = vmap(alone, in_dims=(0, None, *(None for _ in more)))
        return vmap(inner, in_dims=(0, 0, *(0 for _ in more)))(own, self.masks, *more)

    def _set_mode(self, train: bool) -> None:
        """Modules that the task made in eval mode, such as frozen ones, stay in it."""
        for module, training in self._modes.items():
            module.training = train and training

    def look(self, function: Callable[..., Any], *more: Mapping[str, Tensor]) -> tuple[Any, list[Random]]:
        """What the function gives for the first model alone, and the dropouts it passes, in their order.

        The result has a graph that ends at the parameters of ``template``.
        """
        own = {name: value[0, 0].detach() for name, value in (self.parameters | self.buffers).items()}
        with torch.no_grad():
            for name, value in (*self.template.named_parameters(), *self.template.named_buffers()):
                value.copy_(own[name])
        dropouts = {m: name for name, m in self.template.named_modules() if isinstance(m, MaskedDropout)}
        seen: list[tuple[MaskedDropout, Tensor]] = []
        for module in dropouts:
            module.calls, module.seen = 0, seen
        self._set_mode(True)
        before = _state(self.template)
        found = self.template(function, *more)
        if changed := sorted(name for name, value in _state(self.template).items() if not _same(before, name, value)):
            raise reasons.NotStackableError(
                f"the model assigns {quoted(changed)} in a step; what it keeps must be buffers that change in place"
            )
        for module in dropouts:
            module.seen = None
        order: dict[MaskedDropout, int] = {}
        random = []
        for module, ones in seen:
            call = order[module] = order.get(module, -1) + 1
            random.append(Random(f"{dropouts[module]}.{MASK}{call}", ones.cpu(), module.p))
        return found, random


def _state(model: nn.Module) -> dict[str, Any]:
    """What each module has as attributes and buffers, but for dropouts that were replaced."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        if not isinstance(module, MaskedDropout):
            own = {key: value for key, value in vars(module).items() if key not in _OF_MODULES} | module._buffers
            found |= {f"{name}.{key}".removeprefix("model.").lstrip("."): value for key, value in own.items()}
    return found


_OF_MODULES = frozenset(vars(nn.Module()))


def _same(before: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether an attribute is the one it was, or a plain value equal to it."""
    if name not in before:
        return False
    return before[name] is value or (isinstance(value, (int, float, str, tuple)) and before[name] == value)


def _with_masks(model: nn.Module) -> nn.Module:
    """The model with its dropouts replaced, also where one of them is in several places."""
    if type(model) is nn.Dropout:
        return _masked(model)
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if type(child) is nn.Dropout:
                setattr(module, name, _masked(child))
    return model


def _masked(dropout: nn.Dropout) -> nn.Module:
    return MaskedDropout(dropout.p).train(dropout.training)


def _together(parts: Sequence[Mapping[str, Tensor]], where: str) -> dict[str, Tensor]:
    """The tensors of all seeds as one, by name."""
    found: dict[str, Tensor] = {}
    for name in parts[0]:
        values = [part.get(name) for part in parts]
        if why := reasons.of_tensors(where, name, values):
            raise reasons.NotStackableError(why)
        found[name] = torch.stack([value.detach() for value in values if value is not None])
    return found
