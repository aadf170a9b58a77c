"""History: what happened to the weights, step by step, without stalling the device.

Each real optimizer step leaves one row on the device. Rows travel to the host in blocks, and are written there as JSON
lines, one object a step. A killed run loses at most the block that was under way; a line torn by the kill is dropped
when the file is read again.
"""

from __future__ import annotations

import atexit
import bisect
import enum
import itertools
import json
import math
import operator
import os
import weakref
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from trainonce import distributed, health, readout
from trainonce.readback import Readback, is_capturing
from trainonce.text import quoted, singular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from trainonce.terms import Values
    from trainonce.weighting import LossWeighting

__all__ = ["History"]

FORMAT = 2
HEAD = "trainonce_history"
_JSON = json.JSONEncoder(allow_nan=False)
_CALLED = "called"  # false in the row of a step without a call of the criterion; absent in all others
_BLOCK = 1 << 18  # bytes of a file that are parsed at a time


class History:
    """Records losses, coefficients and what a rule trains, once per optimizer step.

    Pass it to :func:`trainonce.attach`. With accumulation, the losses of a step are the means over its micro-batches; a
    step that GradScaler skips leaves no row. A step before which the criterion was not called leaves one, with
    losses of NaN, only if it can move the exponents, as momentum and decay do after ``zero_grad(set_to_none=False)``.
    Steps inside a CUDA graph cannot be recorded.

    .. note:: Unless the optimizer is fused, GradScaler does not announce that it skipped a step. It is noticed when the
        gradient of what the rule trains is gone at the next call, as it is after ``zero_grad()``. With
        ``set_to_none=False``, and for a rule that trains nothing, a skipped step's losses count in the means of the
        next row.

    :param path: A JSON-lines file to write. Without one, the rows are kept in memory only. With several ranks only the
        first writes.
    :param step: Where a resumed run continues: the number of optimizer steps the loaded checkpoint had made. Rows after
        it, from the run that was cut off, are removed when the history is attached. Needed if the file already holds
        rows.
    :param block: How many steps are copied from the device and written at a time. Call :meth:`flush` before you save a
        checkpoint, or the steps of the last block may be missing after a kill.

    >>> import trainonce
    >>> w, history = torch.nn.Parameter(torch.ones(1)), History()
    >>> criterion = trainonce.CompositeLoss(["a", "b"])
    >>> optimizer = torch.optim.SGD([w], lr=0.1)
    >>> _ = trainonce.attach(optimizer, criterion, history=history)
    >>> criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    >>> _ = optimizer.step()
    >>> columns = history.columns()
    >>> columns["step"], columns["coefficient/b"]
    ([1], [0.5])
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
        if step is not None and step < 0:
            raise ValueError(f"step is the number of steps made so far and must be at least 0; got {step}.")
        self.path = None if path is None else Path(path)
        self.terms: tuple[str, ...] = ()
        self.names: list[str] = []  # of the columns, without the step
        self._block = block
        self._rows: list[Tensor] = []  # on the device, one per step
        self._coming: Readback | None = None
        self._done: list[Tensor] = []  # on the host, one block of rows each
        self._steps: list[int] = []
        self._last = step or 0  # the number of the last step
        self._cut: int | None = None  # where the good part of the file ends, if anything may follow it
        self._unwritten = b""
        self._criterion: weakref.ref[LossWeighting] | None = None
        if self.path is not None and _is_first_rank():
            self._open(self.path, step)
        self._process: int | None = os.getpid()
        _alive.add(self)

    def _open(self, path: Path, step: int | None) -> None:
        """Take over what the file holds. It is not changed before the first write."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"), path.open("rb") as file:
                first = file.readline()
        except OSError as error:
            raise OSError(
                f"The history file {path} cannot be written: {error.strerror}. Choose another path."
            ) from None
        if _is_torn_head(first):
            self._cut = 0
            return
        found = _read(path, self)
        if found.steps and step is None:
            raise ValueError(
                f"The history file {path} already holds {len(found.steps)} steps. To go on from a checkpoint pass "
                "step=, the number of optimizer steps it had made; for a new run choose another path."
            )
        kept = bisect.bisect_right(found.steps, self._last)
        self.terms, self.names = found.terms, found.names
        self._steps, self._cut = found.steps[:kept], found.ends[kept]
        self._done = [found.table[:kept]] if kept else []

    # What attach calls

    def bind(self, criterion: LossWeighting) -> None:
        """Take the names of the terms, and start the file or cut what a resumed run does again."""
        terms, bound = criterion.terms, None if self._criterion is None else self._criterion()
        if bound is not None and bound.attachment is not None and bound.attachment.history is self:
            raise ValueError("This history records another criterion already. Use one history for each criterion.")
        if self.terms and self.terms != terms:
            raise ValueError(
                f"The history records the terms {quoted(self.terms)}; this criterion has {quoted(terms)}. "
                "Use one history for each criterion."
            )
        names = column_names(criterion)
        if self.terms and self.names != names:
            raise ValueError(
                f"The history was begun by another rule; a {criterion.kind} has other columns: "
                f"{quoted(sorted(set(names) ^ set(self.names)))}. Use one history for each criterion."
            )
        self._criterion = weakref.ref(criterion)
        self.begin(terms, names)

    def begin(self, terms: tuple[str, ...], names: list[str]) -> None:
        """Take the names of the terms and of the columns, for rows that :meth:`extend` adds, and start the file."""
        self.terms, self.names = terms, names
        self._write([])

    def append(self, row: Tensor) -> None:
        """Add one step's row: the columns in order, then its :class:`Mark`.

        There is no waiting: a full block is sent, and written once it has arrived.
        """
        if is_capturing(row):
            raise RuntimeError(
                "A history cannot record steps inside a CUDA graph: replaying the graph runs no Python. Attach without "
                "history=, or keep the optimizer step out of the graph."
            )
        self._rows.append(row)
        if len(self._rows) >= self._block:
            self._collect()
            self._send()
        if self._coming is not None and self._coming.ready():
            self._collect()

    # What a user calls

    def flush(self) -> None:
        """Copy every row to the host and the file. This also happens when the history is deleted or Python exits."""
        self._collect()
        if self._rows:
            self._send()
            self._collect()

    def extend(self, rows: Tensor) -> None:
        """Add rows that are on the host."""
        self.flush()
        self._keep(rows)

    def columns(self) -> dict[str, list[Any]]:
        """All rows as named columns.

        ``step``; ``loss/x`` and ``coefficient/x`` for each term; for rules that train, ``exponent/x``, ``empirical/x``
        and ``decay/x`` for each auxiliary term, and ``lr``; then the rule's own columns. What is trained and the
        coefficients are those the step started from; ``empirical`` is what the optimizer added and ``decay`` what the
        rule's decay added.
        """
        return {name: column.tolist() for name, column in self.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return the same columns, each as a tensor on the host."""
        table = self._table()
        steps = torch.tensor(self._steps, dtype=torch.int64, device="cpu")
        return {"step": steps} | {name: table[:, i] for i, name in enumerate(self.names)}

    def coefficients(self) -> Tensor:
        """Return what the losses were multiplied by, one row for each step with a call of the criterion."""
        n, table = len(self.terms), self._table()
        return table[table[:, -1] == Mark.CALLED][:, n : 2 * n]

    def _table(self) -> Tensor:
        """Return all rows: the columns, then the mark."""
        self.flush()
        return torch.cat(self._done) if self._done else torch.empty(0, len(self.names) + 1)

    def __len__(self) -> int:
        self.flush()
        return len(self._steps)

    def __bool__(self) -> bool:
        return True  # also when empty: ``if history`` asks whether there is one

    def __getstate__(self) -> dict[str, Any]:
        """A copy holds the rows and writes no file: two writers would spoil it."""
        self.flush()
        return self.__dict__ | {"path": None, "_criterion": None}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a history file, also that of a run that is still going or was killed."""
        history = cls()
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no history file at {path}.")
        found = _read(path, history)
        history.terms, history.names = found.terms, found.names
        history._steps, history._done = found.steps, [found.table]
        return history

    # From the device to the host to the file

    def _send(self) -> None:
        self._coming = Readback(torch.stack(self._rows))
        self._rows = []

    def _collect(self) -> None:
        if self._coming is None:
            return
        block, self._coming = self._coming.value(), None
        self._keep(block[block[:, -1] != Mark.SKIPPED])

    def _keep(self, block: Tensor) -> None:
        steps = range(self._last + 1, self._last + 1 + len(block))
        self._last += len(block)
        self._done.append(block)
        self._steps += steps
        self._write(list(_lines(self.names, steps, block)))

    def _write(self, lines: list[dict[str, Any]]) -> None:
        """Append the lines and whatever an earlier failure left unwritten."""
        if self.path is None or not _is_first_rank():
            return
        self._unwritten += _encode(lines)
        try:
            with self.path.open("ab", buffering=0) as file:
                if self._cut is not None:
                    file.truncate(self._cut)
                self._cut = file.seek(0, os.SEEK_END)  # should this write fail halfway, the next one cuts it off
                head = b"" if self._cut else _encode([self._head()])
                rest = head + self._unwritten
                while rest:
                    rest = rest[file.write(rest) :]
            self._cut, self._unwritten = None, b""
        except OSError as error:
            health.warn(self, health.HistoryLost, path=self.path, reason=error.strerror or error)

    def _head(self) -> dict[str, Any]:
        return {HEAD: FORMAT, "terms": self.terms, "columns": self.names}

    def __del__(self) -> None:
        # Not in a forked child, such as a data loader's worker: the rows are the parent's to write. And apart from
        # whatever the collector interrupts: it may be torch.compile, tracing with tensors that hold nothing.
        ending = os is None  # the interpreter is: what could be written was, at exit
        if not ending and getattr(self, "_process", None) == os.getpid() and self.path is not None:
            with _disable_current_modes():
                self.flush()


_alive: weakref.WeakSet[History] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for history in list(_alive):
        history.__del__()
        history._process = None  # nothing is left to do when Python itself is being taken down


class Mark(enum.IntEnum):
    """What a row says of its step, as its last entry."""

    CALLED = 0
    SKIPPED = 1  # by GradScaler, or nothing could move: the row is not kept
    NOT_CALLED = 2  # the exponents may have moved without a call of the criterion


class Tally:
    """The sum of the losses since the last step, kept on the device: a step's losses under accumulation."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count: Tensor | None = None
        self._backward = False

    def mark_backward(self, _: Tensor) -> None:
        """A backward pass has reached the exponents."""
        self._backward = True

    def add(self, values: Values, fresh: bool) -> None:
        """Count a call's losses. ``fresh``: the exponents have no gradient yet."""
        if fresh and self._backward:  # they had one, and it was cleared without a step: GradScaler skipped it
            self.take()
        losses = values.pad()
        losses = losses.to(torch.promote_types(losses.dtype, torch.float32))  # a sum in bfloat16 stops growing
        if values.present is None:
            seen = torch.ones_like(losses)
        else:
            seen = values.present.mask.to(losses.dtype)
            losses = torch.where(values.present.mask, losses, 0)
        self._sum = losses if self._sum is None else self._sum + losses
        self._count = seen if self._count is None else self._count + seen

    def take(self) -> Tensor | None:
        """The mean of each loss since the last call, NaN for a term that was absent; None without any."""
        self._backward = False
        if self._sum is None or self._count is None:
            return None
        mean = self._sum / self._count
        self._sum = self._count = None
        return mean


def column_names(criterion: LossWeighting) -> list[str]:
    """Return the columns of a rule's history, in order."""
    terms = criterion.terms
    found = [f"{kind}/{term}" for kind in ("loss", "coefficient") for term in terms]
    if criterion.trainable is not None:
        trained = readout.names("", terms, criterion._states[criterion.trainable].start)
        found += [f"{kind}{term}" for kind in (singular(criterion.trainable), "empirical", "decay") for term in trained]
        found += ["lr"]
    return found + [name for kind, row in criterion._added().items() for name in readout.names(kind, terms, row)]


def _lines(names: list[str], steps: range, block: Tensor) -> Iterator[dict[str, Any]]:
    for step, (*values, mark) in zip(steps, block.tolist(), strict=True):
        # JSON has no NaN; the words keep the file readable by any reader.
        words = [v if math.isfinite(v) else str(v) for v in values]
        note = {_CALLED: False} if mark == Mark.NOT_CALLED else {}
        yield {"step": step} | dict(zip(names, words, strict=True)) | note


def _encode(lines: list[dict[str, Any]]) -> bytes:
    return "".join(_JSON.encode(line) + "\n" for line in lines).encode()


class _Content:
    """What a file holds, read a block of lines at a time: terms, columns, and of each row step, numbers and end.

    ``ends`` are places in the file, in bytes: where its first line ends, then each row. ``bad`` counts the lines that
    cannot be read or are out of order.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.readline()
            self.terms, names, former = _head(path, head)
            self.steps: list[int] = []
            self.ends = array("q", [len(head)])
            self.bad = 0
            self._place = len(head)
            self.names = [_rename(name) for name in names if _is_kept(name)] if former else names
            fields = ["step", *names, "step"]  # the last one gives way to the mark
            self._width, self._fields, self._former = len(fields), operator.itemgetter(*fields), names if former else []
            self._values = array("d")
            while lines := file.readlines(_BLOCK):
                if not lines[-1].endswith(b"\n"):
                    lines.pop()  # torn by a kill, or just being written
                self._take(lines)

    @property
    def table(self) -> Tensor:
        """The columns, then the mark."""
        if not self._values:
            return torch.empty(0, len(self.names) + 1, dtype=torch.float64, device="cpu")
        table = torch.frombuffer(self._values, dtype=torch.float64).reshape(-1, self._width)[:, 1:]
        return _from_first_format(table, self._former, len(self.terms)) if self._former else table

    def _take(self, lines: list[bytes]) -> None:
        """Add the lines; where one of them is bad, halve them until it is alone."""
        rows = _parse(lines, self._fields, self._width)
        if rows is not None and self._is_next(steps := rows[:: self._width]):
            self.steps += map(int, steps)
            self.ends.extend(itertools.accumulate(map(len, lines[1:]), initial=self._place + len(lines[0])))
            self._values.extend(rows)
        elif len(lines) > 1:
            self._take(lines[: len(lines) // 2])
            self._take(lines[len(lines) // 2 :])
            return
        else:
            self.bad += len(lines)
        self._place += sum(map(len, lines))

    def _is_next(self, steps: array[float]) -> bool:
        """Whether the steps are in order, and after those there are."""
        last = self.steps[-1] if self.steps else -math.inf
        return steps[-1] < math.inf and all(a < b for a, b in itertools.pairwise((last, *steps)))


def _read(path: Path, owner: History) -> _Content:
    """A file's rows; a line that cannot be read is left out, with a warning unless it is the torn end."""
    found = _Content(path)
    if found.bad:
        health.warn(owner, health.HistoryDamaged, count=found.bad, path=path)
    return found


def _head(path: Path, head: bytes) -> tuple[tuple[str, ...], list[str], bool]:
    """Return the terms of a history, the columns of its lines, and whether they are those of the first format."""
    try:
        found = json.loads(head)
        version = int(found[HEAD])
        newer = version > FORMAT
        terms = () if newer else tuple(map(str, found["terms"]))
        names = _first_columns(terms, "units" in found) if version == 1 or newer else list(map(str, found["columns"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a history file: its first line does not name the terms.") from None
    if newer:
        raise ValueError(f"{path} was written by a newer trainonce. Update trainonce to read it.")
    return terms, names, version == 1


# The first format, of committed records: weights that sum to 1, in gradient units beside their total.


def _first_columns(terms: tuple[str, ...], units: bool) -> list[str]:
    per_term = [f"{kind}/{t}" for kind in ("loss", "weight") for t in terms]
    learned = [f"{kind}/{t}" for kind in ("exponent", "empirical", "decay") for t in terms[1:]]
    return [*per_term, *learned, "lr", *([*(f"unit/{t}" for t in terms[1:]), "total"] if units else [])]


def _rename(name: str) -> str:
    return name.replace("weight/", "coefficient/", 1) if name.startswith("weight/") else name


def _is_kept(name: str) -> bool:
    return not name.startswith("unit/") and name != "total"


def _from_first_format(table: Tensor, names: list[str], terms: int) -> Tensor:
    """Return the table with coefficients for weights, without units and total."""
    table = table.clone()
    if "total" in names:
        table[:, terms : 2 * terms] *= table[:, names.index("total"), None]
    return table[:, [i for i, name in enumerate([*names, "mark"]) if _is_kept(name)]]


def _parse(lines: list[bytes], fields: Callable[[Any], tuple[Any, ...]], width: int) -> array[float] | None:
    """The fields of all lines in a row, each line's last one replaced by its mark; None where one cannot be read."""
    text = b"[%b]" % b",".join(lines)
    try:
        found = json.loads(text)  # all at once: half the time of one by one
        try:
            numbers = array("d", itertools.chain.from_iterable(map(fields, found)))
        except TypeError:  # NaN and infinity are words
            numbers = array("d", map(float, itertools.chain.from_iterable(map(fields, found))))
        called = [one.get(_CALLED, True) for one in found] if _CALLED.encode() in text else [True] * len(found)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not found or len(found) != len(lines):
        return None
    numbers[width - 1 :: width] = array("d", [Mark.CALLED if c else Mark.NOT_CALLED for c in called])
    return numbers


def _is_torn_head(first: bytes) -> bool:
    """Whether a file with this first line holds nothing yet: it is empty, or a kill tore the line."""
    start = b'{"' + HEAD.encode()
    return not first.endswith(b"\n") and (first.startswith(start) or start.startswith(first))


def _is_first_rank() -> bool:
    return not distributed.is_distributed() or torch.distributed.get_rank() == 0
