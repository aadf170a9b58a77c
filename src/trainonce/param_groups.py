"""A parameter group of its own for what a rule trains, in any torch optimizer that can hold one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from torch import nn

NAME = "loss_weights"
#: The key of a group whose vector has a pace of its own; a state that is loaded brings it along.
PACE = "pace"

# Why each cannot train a vector with a dense gradient.
_CANNOT = {
    "LBFGS": "it takes a single parameter group and several evaluations a step",
    "SparseAdam": "it takes sparse gradients only",
    "Muon": "it takes matrices only",
}


def check_optimizer(optimizer: object, name: str | None, trained: nn.Parameter | None) -> None:
    """Refuse what is no optimizer, and what cannot hold the vector that is to be trained, with what to do instead."""
    inner = getattr(optimizer, "optimizer", None)
    if isinstance(inner, Optimizer):
        raise TypeError(
            f"attach needs the torch optimizer itself; got the wrapper {type(optimizer).__name__} around "
            f"{type(inner).__name__}. Call trainonce.attach before the optimizer is wrapped or prepared."
        )
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"attach needs a torch.optim.Optimizer; got {type(optimizer).__name__}.")
    if trained is None:
        return
    kind = cannot_train(optimizer)
    if kind is not None:
        raise TypeError(
            f"{kind} cannot train the {name}: {_CANNOT[kind]}. Call criterion.freeze() first, to go on with the "
            "weights as they are; or give them an optimizer of their own, for example "
            "torch.optim.AdamW(criterion.parameters(), lr=..., weight_decay=0), attach the criterion to that one and "
            "step both."
        )
    placed = any(_holds_only(group, trained) for group in optimizer.param_groups)
    if not placed and hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        raise RuntimeError(
            "A learning-rate scheduler was built on this optimizer before attach: it would never schedule the "
            f"group of the {name}. Call trainonce.attach first, then build the scheduler."
        )


def cannot_train(optimizer: object) -> str | None:
    """Return the name of the torch optimizer if it cannot hold a vector, else None."""
    names = (kind.__name__ for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim"))
    return next((name for name in names if name in _CANNOT), None)


def own_group(optimizer: Optimizer, parameter: nn.Parameter, name: str, lr: float | Tensor | None = None) -> int:
    """Give a vector that a rule trains a group of its own, without weight decay, and return the group's index.

    A group from an earlier attach is used again (a copied or resumed optimizer); a parameter that came in with
    ``model.parameters()`` is taken out of the model's group.
    """
    groups = optimizer.param_groups
    found = next((i for i, group in enumerate(groups) if _holds_only(group, parameter)), None)
    new = _new_group(optimizer, parameter, name, lr) if found is None else None  # raises before anything is changed
    _take_out(optimizer, parameter)
    if new is not None:
        optimizer.add_param_group(new)
        _start_adagrad(optimizer, parameter)
    elif lr is not None:
        groups[found]["lr"] = _copy_rate(lr)  # type: ignore[index]
    return len(groups) - 1 if found is None else found


def made_by_hand(optimizer: Optimizer, parameter: nn.Parameter) -> bool:
    """Whether the parameter has a group of its own with a rate that counts, as the user made it."""
    return any(PACE not in group for group in optimizer.param_groups if _holds_only(group, parameter))


def take_pace(group: dict[str, Any], travel: float) -> None:
    """Mark a group as that of a vector with a pace of its own, which the optimizer does not move.

    Many-tensor variants may write into the gradient, which is read after the step.
    """
    group[PACE] = travel
    if "foreach" in group and not group.get("fused"):
        group["foreach"] = False


def index_of(optimizer: Optimizer, exponents: nn.Parameter, likely: int) -> int:
    """Return the index of the vector's group; loading a state replaces the dicts, so it is looked up, not kept."""
    groups = optimizer.param_groups
    if likely < len(groups) and groups[likely]["params"][0] is exponents:
        return likely
    return next(i for i, group in enumerate(groups) if any(p is exponents for p in group["params"]))


def _new_group(optimizer: Optimizer, parameter: nn.Parameter, name: str, lr: float | Tensor | None) -> dict[str, Any]:
    first = optimizer.param_groups[0]
    # The model's own settings, also where its group departs from the optimizer's defaults; never its weight decay.
    group: dict[str, Any] = {key: first[key] for key in optimizer.defaults if key in first}
    group["lr"] = _copy_rate(_rate_of_model(optimizer) if lr is None else lr)
    if "initial_lr" in first:  # a loaded state: the scheduler that comes next looks for it
        group["initial_lr"] = first["initial_lr"] if lr is None else lr
    if "weight_decay" in group:
        group["weight_decay"] = 0.0
    if group.get("foreach", True) is None and not group.get("fused"):
        _choose_variant(group, optimizer, parameter)
    group["name"] = _free_name(optimizer)
    named = "param_names" in first
    group["params"] = [(f"{group['name']}.{name}", parameter)] if named else [parameter]
    return group


def _rate_of_model(optimizer: Optimizer) -> float | Tensor:
    """Return the learning rate of all groups of the model, or raise where they differ."""
    of_model = [group for group in optimizer.param_groups if not str(group.get("name", "")).startswith(NAME)]
    rates: list[float | Tensor | None] = [group.get("lr") for group in of_model or optimizer.param_groups]
    if rates[0] is None:
        raise ValueError(f"{type(optimizer).__name__} has no learning rate: give the rule one, as lr=... of its own.")
    known = {as_number(rate) for rate in rates}
    if len(known) > 1:
        shown = ", ".join(f"{rate:g}" for rate in sorted(rate for rate in known if rate is not None))
        raise ValueError(
            f"The optimizer's groups have different learning rates ({shown}), so the one for the loss weights is yours "
            "to say: give the rule lr=..., such as CompositeLoss(terms, lr=1e-3)."
        )
    rate: float | Tensor = rates[0]
    return rate


def _copy_rate(rate: float | Tensor) -> float | Tensor:
    """A learning rate of the group's own: schedulers write into a tensor, and a shared one would follow both groups."""
    return rate.clone() if isinstance(rate, Tensor) else rate


def _choose_variant(group: dict[str, Any], optimizer: Optimizer, parameter: nn.Parameter) -> None:
    """Where the user left it open, the cheapest way to step one small vector: many-tensor operators gain nothing."""
    can_fuse = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
    if can_fuse and group["fused"] is None and type(parameter) is torch.nn.Parameter and parameter.is_cuda:
        group["fused"] = True
    else:
        group["foreach"] = False


def _start_adagrad(optimizer: Optimizer, parameter: nn.Parameter) -> None:
    """Before torch 2.13, Adagrad makes the state of the parameters it is built with and of no others."""
    if isinstance(optimizer, torch.optim.Adagrad) and not optimizer.state[parameter]:
        start = optimizer.param_groups[-1]["initial_accumulator_value"]
        optimizer.state[parameter] = {"step": torch.tensor(0.0), "sum": torch.full_like(parameter, start)}


def _take_out(optimizer: Optimizer, parameter: nn.Parameter) -> None:
    for group in optimizer.param_groups:
        at = [i for i, p in enumerate(group["params"]) if p is parameter]
        if at and len(group["params"]) > 1:
            del group["params"][at[0]]
            if "param_names" in group:
                del group["param_names"][at[0]]
        elif at:  # a group of its own already, made by the user or by an earlier attach
            group.setdefault("name", _free_name(optimizer))
            if "weight_decay" in group:
                group["weight_decay"] = 0.0


def _holds_only(group: dict[str, Any], parameter: nn.Parameter) -> bool:
    return len(group["params"]) == 1 and group["params"][0] is parameter


def _free_name(optimizer: Optimizer) -> str:
    taken = {group.get("name") for group in optimizer.param_groups}
    names = [NAME, *(f"{NAME}_{i}" for i in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def as_number(value: object) -> float | None:
    """A learning rate as a float, or None where reading it would make the host wait for the device."""
    if isinstance(value, Tensor):
        return float(value) if value.device == torch.device("cpu") else None
    return float(value) if isinstance(value, (int, float)) else None


def is_zero(rate: object) -> bool | Tensor:
    """Whether a learning rate is 0, as a tensor where reading it would make the host wait for the device."""
    if isinstance(rate, Tensor) and rate.device != torch.device("cpu"):
        return rate == 0
    return as_number(rate) == 0
