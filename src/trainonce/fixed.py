"""Weights that are not learned, under the interface of those that are: given ones, and a recorded schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainonce import distributed, health
from trainonce.composite import CompositeLoss, NonFinite, _parameter_dtype
from trainonce.health import watch
from trainonce.history import History
from trainonce.terms import check_names
from trainonce.text import is_number
from trainonce.units.buffers import materialise, replaces_meta

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from trainonce.terms import Present, Values

__all__ = ["FixedLoss", "ReplayLoss", "replay"]


class FixedLoss(CompositeLoss):
    """A weighted sum with given weights, for grids and baselines, under the interface of :class:`CompositeLoss`.

    :param weights: A weight of at least 0 for each term, base first. They are divided by their sum.
    :param scale: Multiplies the returned loss. Set it to the sum of the given weights to keep the loss you had.
    :param nonfinite: As in :class:`CompositeLoss`.

    >>> criterion = FixedLoss({"ce": 1.0, "invariance": 10.0, "extra": 0.0})
    >>> criterion.weights
    tensor([0.0909, 0.9091, 0.0000])
    """

    fixed: Tensor
    _kind = "FixedLoss"

    def __init__(
        self,
        weights: Mapping[str, float],
        *,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        nn.Module.__init__(self)
        if not isinstance(weights, Mapping):
            raise TypeError(f"FixedLoss needs a dict of weights by term, base first; got {type(weights).__name__}.")
        self.terms = check_names(weights, "FixedLoss")
        for term, value in weights.items():
            if not is_number(value) or not 0 <= value < math.inf:
                raise ValueError(f"FixedLoss needs weights of at least 0; got {value!r} for {term!r}.")
        total = math.fsum(weights.values())
        if total == 0:
            raise ValueError("FixedLoss needs at least one weight above 0; all are 0.")
        self._normalised = [value / total for value in weights.values()]
        self._setup(scale, nonfinite)
        self.meter = None
        dtype = _parameter_dtype()
        self.register_buffer("fixed", torch.empty(len(self.terms), dtype=dtype))
        self.exponents = nn.Parameter(torch.empty(len(self.terms) - 1, dtype=dtype), requires_grad=False)
        self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep the weights under Transformers' ``from_pretrained``, as CompositeLoss does the exponents."""
        before = self._buffers.get(name, self._parameters.get(name))
        replaced = replaces_meta(before, value) and not self._loading
        if replaced and name in self._buffers:
            value = materialise(value, before.dtype, self._starts()[name])  # type: ignore[union-attr]
        elif replaced and not distributed.is_sharded(value):
            value = nn.Parameter(value.detach().to(self.fixed.dtype), requires_grad=False)
        super().__setattr__(name, value)
        if replaced and not (self.fixed.is_meta or self.exponents.is_meta):
            with torch.no_grad():
                self._show()

    def _starts(self) -> dict[str, Tensor]:
        """What each buffer holds before the first step."""
        return {"fixed": torch.tensor(self._normalised, dtype=torch.float64, device="cpu")}

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for i, weight in enumerate(self._normalised):
                self.fixed[i].fill_(weight)
            self._show()

    def _show(self) -> None:
        """Let the exponents say what the weights are: minus infinity for 0, infinity where the base has 0."""
        ratios = torch.where(self.fixed[1:] > 0, self.fixed[1:] / self.fixed[0], 0)
        self.exponents.copy_(distributed.shard_like(ratios.log(), self.exponents))

    @property
    def learned(self) -> bool:
        return False

    @property
    def weights(self) -> Tensor:
        return self.fixed.clone()

    @property
    def total(self) -> Tensor:
        return self.fixed.new_ones(())

    def _live_weights(self, exponents: nn.Parameter, present: Present | None) -> Tensor:
        return self.fixed.clone()  # a schedule, or DistributedDataParallel, writes into the buffer before backward

    def _weights_at(self, exponents: Tensor) -> Tensor:
        return self.weights

    def _start_weights(self, device: torch.device) -> Tensor:
        return self.fixed.to(device)

    def _is_at_start(self, exponents: Tensor) -> bool:
        if self.fixed.is_meta:
            return False
        return bool(torch.equal(self.fixed.float().cpu(), torch.tensor(self._normalised, dtype=torch.float32)))

    def _saved_by_term(self) -> dict[str, Callable[[list[int]], list[int]]]:
        return super()._saved_by_term() | {"fixed": lambda order: order}


class ReplayLoss(FixedLoss):
    """A schedule of weights, one row per optimizer step, that does not depend on the losses.

    :func:`replay` makes one from the history of a run.

    :param terms: The names of the losses, base first.
    :param schedule: One row of weights per optimizer step, each with the sum 1, or with the :attr:`total` that a run in
        gradient units had. The last row is kept after the end.
    :param scale: As in :class:`CompositeLoss`.
    :param nonfinite: As in :class:`CompositeLoss`.
    """

    schedule: Tensor
    position: Tensor
    _kind = "ReplayLoss"

    def __init__(
        self, terms: tuple[str, ...], schedule: Tensor, *, scale: float = 1.0, nonfinite: NonFinite = "propagate"
    ) -> None:
        if schedule.dim() != 2 or schedule.shape[1] != len(terms) or not len(schedule):
            raise ValueError(
                f"A schedule needs one row of {len(terms)} weights for each step, and at least one step; "
                f"got shape {tuple(schedule.shape)}."
            )
        if schedule.is_meta:
            raise ValueError("A schedule on the meta device has no weights. Make it with torch.device('cpu').")
        if not schedule.isfinite().all():
            raise ValueError("A schedule needs finite weights; the recorded run had NaN or infinite ones.")
        super().__init__(dict(zip(terms, schedule[0].tolist(), strict=True)), scale=scale, nonfinite=nonfinite)
        self._totals = bool(((schedule.sum(1) - 1).abs() > 1e-4).any())  # sums of 1 are left as they were rounded
        if not torch.equal(schedule.float().to(schedule.dtype), schedule):
            self.double()  # recorded in float64
        self._rows = schedule.to(self.fixed.dtype).cpu()  # what reset_parameters restores after the meta device
        self.register_buffer("schedule", self._rows.to(self.fixed.device, copy=True), persistent=False)
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))
        self.reset_parameters()

    @property
    def weights(self) -> Tensor:
        return self.fixed / self.fixed.sum() if self._totals else self.fixed.clone()

    @property
    def total(self) -> Tensor:
        return self.fixed.sum() if self._totals else self.fixed.new_ones(())

    def reset_parameters(self) -> None:
        """Back to the first row."""
        if "schedule" not in self._buffers:  # still under construction
            super().reset_parameters()
            return
        with torch.no_grad():
            self.schedule.copy_(self._rows)
            self.position.zero_()
            self._load_row()

    def _starts(self) -> dict[str, Tensor]:
        position = torch.zeros(1, dtype=torch.int64, device="cpu")
        return {"fixed": self._rows[0], "schedule": self._rows, "position": position}

    def _note(self, values: Values) -> None:
        super()._note(values)
        if self._attachment is None and self._training_calls >= watch.PATIENCE:
            health.warn(self, health.NotReplaying, calls=self._training_calls)

    def _after_step(self, found_inf: Tensor | None) -> None:
        """One row on, unless GradScaler skipped the step; all on the device. The last row holds to the end."""
        if self._frozen:
            return
        step = 1 if found_inf is None else (found_inf == 0).to(self.position.device)
        with torch.no_grad():
            self.position.add_(step).clamp_(max=len(self.schedule) - 1)
            self._load_row()

    def _load_row(self) -> None:
        """Make the weights those of the schedule's current row."""
        self.fixed.copy_(self.schedule.index_select(0, self.position)[0])
        self._show()

    def _start_weights(self, device: torch.device) -> Tensor:
        return self.schedule[0].to(device)

    def _is_at_start(self, exponents: Tensor) -> bool:
        return False  # the rows are exact as recorded


def replay(
    history: History | str | os.PathLike[str], *, scale: float = 1.0, nonfinite: NonFinite = "propagate"
) -> ReplayLoss:
    """The recorded weights of an earlier run as a schedule that does not depend on the losses.

    As a control it shows whether the weights themselves help, or that they respond to the losses. Attach the result
    like any criterion: it advances one row at each optimizer step that is not skipped, and keeps the last row after the
    end.

    :param history: A :class:`History`, or the path of its file.
    :param scale: As in :class:`CompositeLoss`.
    :param nonfinite: As in :class:`CompositeLoss`.

    >>> import trainonce
    >>> w, history = nn.Parameter(torch.ones(1)), trainonce.History()
    >>> criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), torch.optim.SGD([w], lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion, decay=1.0, history=history)
    >>> for _ in range(3):
    ...     criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    ...     _ = optimizer.step()
    >>> print(replay(history))
    ReplayLoss(
      term  weight  ratio to base  exponent
      a     0.9091              1         0 (base)
      b     0.0909            0.1   -2.3026
    )
    """
    with torch.device("cpu"):  # from_pretrained makes models on the meta device
        recorded = history if isinstance(history, History) else History.load(history)
        weights = recorded.weights()
    steps = recorded.columns()["step"]
    missing = next((i for i, step in enumerate(steps, start=1) if step != i), None)
    if missing is not None:
        raise ValueError(
            f"The history lacks step {missing}, so the weights would be replayed at the wrong steps. Replay a complete "
            "one; a killed run is complete if history.flush() was called before its checkpoint was saved."
        )
    return ReplayLoss(recorded.terms, weights, scale=scale, nonfinite=nonfinite)
