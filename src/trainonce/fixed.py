"""Coefficients that nothing moves: given ones, and those that another run had, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.history import History
from trainonce.text import is_number
from trainonce.weighting import LossWeighting, NonFinite

if TYPE_CHECKING:
    import os

__all__ = ["FixedLoss", "Replay"]


class FixedLoss(LossWeighting):
    """A weighted sum with given weights, for grids and baselines, under the interface of every rule.

    :param weights: A weight of at least 0 for each term, base first. They are kept as they are written.
    :param scale: Multiplies the returned loss.
    :param nonfinite: As in :class:`trainonce.LossWeighting`.

    >>> criterion = FixedLoss({"ce": 1.0, "invariance": 10.0, "extra": 0.0})
    >>> criterion.coefficients()
    tensor([ 1., 10.,  0.])
    """

    weights: Tensor

    def __init__(self, weights: Mapping[str, float], *, scale: float = 1.0, nonfinite: NonFinite = "propagate") -> None:
        if not isinstance(weights, Mapping):
            raise TypeError(f"FixedLoss needs a dict of weights by term, base first; got {type(weights).__name__}.")
        super().__init__(weights, scale=scale, nonfinite=nonfinite)
        self.add_state("weights", check_weights(self.kind, weights), saved=False)  # a setting: the constructor's

    def weigh(self) -> Tensor:
        return self.weights.clone()  # DistributedDataParallel writes into the buffer before backward


class Replay(LossWeighting):
    """The coefficients of an earlier run, one row per optimizer step, whatever the losses are.

    As a control it shows whether the weights themselves help, or that they respond to the losses. Attach it like any
    rule: it advances one row at each optimizer step that is not skipped, and keeps the last row after the end.

    :param history: A :class:`History`, or the path of its file.
    :param nonfinite: As in :class:`trainonce.LossWeighting`.

    >>> import trainonce
    >>> w, history = torch.nn.Parameter(torch.ones(1)), trainonce.History()
    >>> criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), torch.optim.SGD([w], lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion, history=history)
    >>> for _ in range(3):
    ...     criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    ...     _ = optimizer.step()
    >>> print(Replay(history))
    Replay(
      term  coefficient  ratio
      a             0.5      1 (base)
      b             0.5      1
    )
    """

    rows: Tensor
    row: Tensor
    position: Tensor

    def __init__(self, history: History | str | os.PathLike[str], *, nonfinite: NonFinite = "propagate") -> None:
        with torch.device("cpu"):  # from_pretrained makes models on the meta device
            recorded = history if isinstance(history, History) else History.load(history)
            rows, steps = recorded.coefficients(), recorded.columns()["step"]
        missing = next((i for i, step in enumerate(steps, start=1) if step != i), None)
        if missing is not None:
            raise ValueError(
                f"The history lacks step {missing}, so the coefficients would be replayed at the wrong steps. Replay a "
                "complete one; a killed run is complete if history.flush() was called before its checkpoint was saved."
            )
        if not len(rows):
            raise ValueError("The history has no step to replay.")
        if not rows.isfinite().all():
            raise ValueError("Replay needs finite coefficients; the recorded run had NaN or infinite ones.")
        super().__init__(recorded.terms, nonfinite=nonfinite)
        self.add_state("rows", rows, per=None, saved=False)
        self.add_state("row", rows[0])
        self.add_state("position", torch.zeros(1, dtype=torch.int64, device="cpu"), per=None)
        if not torch.equal(rows.float().to(rows.dtype), rows):
            self.double()  # recorded in float64

    def weigh(self) -> Tensor:
        return self.row.clone()  # each step writes into the buffer

    @torch.no_grad()
    def after_step(self, skipped: Tensor | None) -> None:
        if self.frozen:
            return
        step = 1 if skipped is None else (skipped == 0).to(self.position.device)
        self.position.add_(step).clamp_(max=len(self.rows) - 1)
        self.row.copy_(self.rows.index_select(0, self.position)[0])


def check_weights(owner: str, weights: Mapping[str, float], *, base_above: bool = False) -> list[float]:
    """Return the weights as floats, or raise an error that names the rule they break."""
    for i, (term, value) in enumerate(weights.items()):
        above = base_above and i == 0
        if not is_number(value) or not 0 <= value < math.inf or (value == 0 and above):
            rule = "a weight above 0 for the base" if above else "weights of at least 0"
            raise ValueError(f"{owner} needs {rule}; got {value!r} for {term!r}.")
    values = [float(value) for value in weights.values()]
    if not any(values):
        raise ValueError(f"{owner} needs at least one weight above 0; all are 0.")
    return values
