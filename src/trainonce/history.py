"""History: what happened to the weights, step by step, without stalling the device.

Each real optimizer step leaves one row on the device. Rows travel to the host in blocks, and are written there as JSON
lines, one object a step. A killed run loses at most the block that was under way; a line torn by the kill is dropped
when the file is read again.
"""

from __future__ import annotations

import atexit
import json
import math
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce import distributed, health
from trainonce.reading import Reading
from trainonce.terms import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import Self

    from trainonce.terms import Values

__all__ = ["History"]

FORMAT = 1


class History:
    """Records losses, weights, exponents and the two parts of each update, once per real optimizer step.

    Pass it to :func:`trainonce.attach`. With accumulation, the losses of a step are the means over its micro-batches; a
    step that GradScaler skips leaves no row.

    :param path: A JSON-lines file to write. Without one, the rows are kept in memory only. With several ranks only the
        first writes.
    :param step: Where a resumed run goes on: the number of optimizer steps the loaded checkpoint had made. Rows after
        it, from the run that was cut off, no longer count. Needed if the file already holds rows.
    :param block: How many steps travel and are written at a time.

    >>> import trainonce
    >>> w, history = torch.nn.Parameter(torch.ones(1)), History()
    >>> criterion = trainonce.CompositeLoss(["a", "b"])
    >>> optimizer = torch.optim.SGD([w], lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion, decay=1.0, history=history)
    >>> criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    >>> _ = optimizer.step()
    >>> columns = history.columns()
    >>> columns["step"], [round(x, 4) for x in columns["weight/b"]]
    ([1], [0.0909])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        step: int | None = None,
        block: int = 64,
    ) -> None:
        if block < 1:
            raise ValueError(f"block must be at least 1; got {block}.")
        self.path = None if path is None else Path(path)
        self.terms: tuple[str, ...] = ()
        self._block = block
        self._rows: list[Tensor] = []  # on the device, one per step
        self._coming: Reading | None = None
        self._done: list[Tensor] = []  # on the host, one block of rows each
        self._steps: list[int] = []
        self._mark: int | None = None
        self._torn = False
        if self.path is not None and _is_first_rank():
            self._start_file(self.path, step)
        at_exit = weakref.WeakMethod(self.flush)
        atexit.register(lambda: (flush := at_exit()) and flush())

    def _start_file(self, path: Path, step: int | None) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(0)
                content = file.read()
                if b"\n" not in content:  # empty, or a first line torn by a kill
                    file.truncate(0)
        except OSError as error:
            raise OSError(
                f"The history file {path} cannot be written: {error.strerror}. Choose another path."
            ) from None
        if b"\n" not in content:
            return
        self.terms, steps, self._done = _read(path, self)
        self._steps = steps
        if steps and step is None:
            raise ValueError(
                f"The history file {path} already holds {len(steps)} steps. To go on from a checkpoint pass step=, the "
                "number of optimizer steps it had made; for a new run choose another path."
            )
        self._torn = not content.endswith(b"\n")
        self._mark = step = step or 0
        kept = [i for i, s in enumerate(steps) if s <= step]
        if self._done:
            self._done = [torch.cat(self._done)[kept]]
        self._steps = [steps[i] for i in kept]

    # What attach calls

    def bind(self, terms: tuple[str, ...]) -> None:
        """Take the names of the terms; the first write puts them at the head of the file."""
        if self.terms and self.terms != terms:
            raise ValueError(
                f"The history records the terms {quoted(self.terms)}; this criterion has {quoted(terms)}. "
                "Use one history for each criterion."
            )
        fresh = not self.terms
        self.terms = terms
        if fresh:
            self._write([{"trainonce_history": FORMAT, "terms": list(terms)}])
        elif self._mark is not None:
            self._write([{"resume": self._mark}])
            self._mark = None

    def append(self, row: Tensor) -> None:
        """One step's row, as :func:`row` lays it out. No waiting: it is read a block later."""
        self._rows.append(row)
        if len(self._rows) >= self._block:
            self._collect()
            self._coming = Reading(torch.stack(self._rows))
            self._rows = []

    # What a user calls

    def flush(self) -> None:
        """Bring every row to the host and the file."""
        self._collect()
        if self._rows:
            self._coming = Reading(torch.stack(self._rows))
            self._rows = []
            self._collect()

    def columns(self) -> dict[str, list[Any]]:
        """All rows as named columns.

        ``step``; ``loss/x`` and ``weight/x`` for each term; ``exponent/x``, ``empirical/x`` and ``decay/x`` for each
        auxiliary term; ``lr``. Weights and exponents are those the step started from; ``empirical`` is what the
        optimizer added to the exponent and ``decay`` what the hyperparameter decay added.
        """
        self.flush()
        names = _columns(self.terms)
        table = torch.cat(self._done) if self._done else torch.empty(0, len(names))
        return {"step": list(self._steps)} | {n: table[:, i].tolist() for i, n in enumerate(names)}

    def weights(self) -> Tensor:
        """The weights used in each step, one row a step."""
        self.flush()
        n = len(self.terms)
        return torch.cat(self._done)[:, n : 2 * n] if self._done else torch.empty(0, n)

    def __len__(self) -> int:
        self.flush()
        return len(self._steps)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a history file, also of a run that is still going or was killed."""
        history = cls()
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no history file at {path}.")
        history.terms, history._steps, history._done = _read(path, history)
        return history

    def _collect(self) -> None:
        if self._coming is None:
            return
        block, self._coming = self._coming.value(), None
        block = block[block[:, -1] == 0][:, :-1]  # the last entry marks a skipped step
        first = (self._steps[-1] if self._steps else self._mark or 0) + 1
        steps = list(range(first, first + len(block)))
        self._done.append(block)
        self._steps += steps
        self._write([_line(self.terms, step, row) for step, row in zip(steps, block.tolist(), strict=True)])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self.path is None or not lines or not _is_first_rank():
            return
        text = "".join(json.dumps(line) + "\n" for line in lines)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self._torn else "") + text)
            self._torn = False
        except OSError as error:
            self._torn = True
            health.warn(self, health.HistoryLost, path=self.path, reason=error.strerror)


class Tally:
    """The sum of the losses since the last step, kept on the device: a step's losses under accumulation."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count: Tensor | None = None

    def add(self, values: Values, terms: int) -> None:
        losses = values.padded(terms)
        if values.present is None:
            seen = torch.ones_like(losses)
        else:
            seen = torch.zeros_like(losses)
            for i in values.present:
                seen[i].fill_(1)
            losses = torch.where(seen > 0, losses, 0)
        self._sum = losses if self._sum is None else self._sum + losses
        self._count = seen if self._count is None else self._count + seen

    def take(self) -> Tensor | None:
        """The mean of each loss since the last call, NaN for a term that was absent; None without any."""
        if self._sum is None or self._count is None:
            return None
        mean = self._sum / self._count
        self._sum = self._count = None
        return mean


def row(
    losses: Tensor,
    weights: Tensor,
    exponents: Tensor,
    empirical: Tensor,
    decay: Tensor,
    lr: Tensor,
    skipped: Tensor,
) -> Tensor:
    """One step as a vector: the columns of :meth:`History.columns` in order, then whether the step was skipped."""
    parts = (losses, weights, exponents, empirical, decay, lr.reshape(1), skipped.reshape(1))
    return torch.cat([part.to(exponents.dtype) for part in parts])


def _columns(terms: tuple[str, ...]) -> list[str]:
    per_term = [f"{kind}/{t}" for kind in ("loss", "weight") for t in terms]
    learned = [f"{kind}/{t}" for kind in ("exponent", "empirical", "decay") for t in terms[1:]]
    return [*per_term, *learned, "lr"]


def _line(terms: tuple[str, ...], step: int, values: list[float]) -> dict[str, Any]:
    line: dict[str, Any] = {"step": step}
    for name, value in zip(_columns(terms), values, strict=True):
        # JSON has no NaN; the words keep the file readable by any reader.
        line[name] = value if math.isfinite(value) else str(value)
    return line


def _read(path: Path, owner: History) -> tuple[tuple[str, ...], list[int], list[Tensor]]:
    """The terms, steps and rows of a file; whatever cannot be read is left out, and said unless it is a torn end."""
    lines = path.read_bytes().split(b"\n")
    parsed = [_parse(line) for line in lines if line]
    bad = sum(p is None for p in parsed) - (bool(lines[-1]) and parsed[-1] is None)
    records = [p for p in parsed if p is not None]
    if not records or "trainonce_history" not in records[0]:
        raise ValueError(f"{path} is not a history file: its first line does not name the terms.")
    if records[0]["trainonce_history"] > FORMAT:
        raise ValueError(f"{path} was written by a newer trainonce. Update trainonce to read it.")
    terms = tuple(records[0]["terms"])
    table = dict(_rows(records[1:], _columns(terms)))
    bad += len(records) - 1 - sum("resume" in r or "step" in r for r in records[1:])
    if bad:
        health.warn(owner, health.HistoryDamaged, count=bad, path=path)
    steps = list(table)
    return (
        terms,
        steps,
        [torch.tensor([table[s] for s in steps], dtype=torch.float64)] if steps else [],
    )


def _rows(records: list[dict[str, Any]], names: list[str]) -> Iterator[tuple[int, list[float]]]:
    table: dict[int, list[float]] = {}
    for record in records:
        if "resume" in record:
            table = {s: values for s, values in table.items() if s <= record["resume"]}
        elif "step" in record:
            table[record["step"]] = [float(record[name]) for name in names]
    yield from sorted(table.items())


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_first_rank() -> bool:
    return not distributed.is_distributed() or torch.distributed.get_rank() == 0
