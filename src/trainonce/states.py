"""The state of a training, kept and put back: for trainings that go back, or that several weights share."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trainonce import random_states

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainonce.composite import CompositeLoss

State = Any


class Part(Protocol):
    """What has a state: a model, an optimizer, a scheduler."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


class States:
    """Keeps and puts back the states of all parts of a training, the criterion's and the random ones among them."""

    def __init__(self, parts: Iterable[Part | torch.Generator], criterion: CompositeLoss) -> None:
        checked = _checked(parts, criterion)
        self._parts = [*(part for part in checked if part is not criterion), criterion]
        self._criterion = criterion

    def save(self) -> State:
        return [_state_of(part) for part in self._parts], random_states.collect(self._device)

    def load(self, saved: State) -> None:
        states, random = saved
        for part, state in zip(self._parts, states, strict=True):
            if isinstance(part, torch.Generator):
                part.set_state(state)
            else:
                part.load_state_dict(copy.deepcopy(state))
        random_states.put_back(random, self._device)

    @property
    def _device(self) -> torch.device:
        return self._criterion.exponents.device


def _checked(parts: object, criterion: CompositeLoss) -> list[Part | torch.Generator]:
    """The parts as a list, or an error that says what is missing or cannot be put back."""
    if isinstance(parts, torch.nn.Module) or not isinstance(parts, Iterable):
        raise TypeError(f"Halving takes a list of parts, such as [model, optimizer]; got {type(parts).__name__}.")
    found: list[Any] = list(parts)
    for part in found:
        if not isinstance(part, torch.Generator) and not hasattr(part, "load_state_dict"):
            raise TypeError(f"Halving takes parts with a state_dict, or generators; got {type(part).__name__}.")
    attachment = criterion.attachment
    if attachment is None:
        raise ValueError(
            "Halving needs a criterion that is attached: call trainonce.attach(optimizer, criterion) first."
        )
    if not any(part is attachment.optimizer for part in found):
        raise ValueError("The parts of Halving lack the optimizer: it would not go back with the model. Add it.")
    trained = {id(p) for p in attachment.model_parameters()}
    known = {id(p) for part in found if isinstance(part, torch.nn.Module) for p in part.parameters()}
    plain = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.Generator)
    if not trained <= known and all(isinstance(part, plain) for part in found):
        raise ValueError("The parts of Halving lack a model that the optimizer trains: it would not go back. Add it.")
    return found


def _state_of(part: Part | torch.Generator) -> Any:
    return part.get_state() if isinstance(part, torch.Generator) else copy.deepcopy(part.state_dict())
