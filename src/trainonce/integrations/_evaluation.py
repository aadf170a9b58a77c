"""Average each term over an evaluation, from the calls of the criterion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce.terms import AT, collect, stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from trainonce.weighting import LossWeighting


class EvaluationTerms:
    """Add up what the criterion is called with while the context lasts; nothing is read from the device meanwhile.

    A batch counts with its number of samples, and a term that is absent from a batch does not count there.
    """

    def __init__(self, criterion: LossWeighting) -> None:
        self._criterion = criterion
        # For each term the sum of its values and how many there were; then the number of calls.
        self._batch = self._total = torch.zeros(2 * len(criterion.terms) + 1)

    def __enter__(self) -> Self:
        self._hook = self._criterion.register_forward_pre_hook(self._add, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _add(self, criterion: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        terms = criterion.terms
        losses = {name: value for name, value in named.items() if name != AT}
        given, where = collect(criterion.kind, terms, args[0] if args else None, losses)
        where = tuple(range(len(terms))) if where is None else where
        if not where:
            return
        columns = [*where, *(len(terms) + i for i in where), 2 * len(terms)]
        values = stack(terms, given, where).detach()
        call = values.new_zeros(len(self._batch))
        call[columns] = torch.cat([values, values.new_ones(len(where) + 1)])
        self._batch = self._batch.to(call.device) + call

    def end_batch(self, samples: int, device: torch.device, gather: Callable[[Tensor], Tensor]) -> None:
        """Count a batch of so many samples; ``gather`` makes of each process's samples those of all."""
        everyone = gather(self._batch.to(device).expand(samples, -1).contiguous())
        self._total = self._total.to(device) + everyone.sum(0)
        self._batch = torch.zeros_like(self._batch)

    def means(self, prefix: str) -> dict[str, float]:
        """Return the mean of each term, and of the reference, by the name it has in the logs."""
        terms = self._criterion.terms
        *both, calls = self._total.tolist()
        sums, counts = both[: len(terms)], both[len(terms) :]
        found = {f"{prefix}_loss/{t}": s / n for t, s, n in zip(terms, sums, counts, strict=True) if n}
        if found:
            # Linear in the losses, an absent one counts as 0: that of the means is the mean of all.
            with torch.no_grad():
                reference = self._criterion.reference(torch.tensor(sums) / calls)
            found[f"{prefix}_reference"] = reference.item()
        return found
