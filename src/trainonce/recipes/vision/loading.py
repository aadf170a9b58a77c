"""Reading data: all items at once by threads, or ahead of the training by the workers of a data loader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torch.utils.data import DataLoader, Dataset

from trainonce.recipes.vision.checks import format_size
from trainonce.study.executors.parent_watch import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

T = TypeVar("T")

PREFETCHED = 4  # steps that each worker reads ahead


class LoadingSettings(Protocol):
    """The settings of a recipe that say how data is read."""

    @property
    def readers(self) -> int: ...


class Named(Protocol):
    """A list whose items have names for messages."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str: ...


def read_all(read: Callable[[int], T], count: int, threads: int) -> list[T]:
    """The items 0 to ``count`` - 1, read by several threads: decoding releases Python's lock."""
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(pool.map(read, range(count)))


def data_loader(dataset: Dataset[Any], settings: LoadingSettings, device: torch.device) -> DataLoader[Any]:
    """The items of a dataset in order, read ahead by worker processes: no more of them than there are items."""
    workers = min(settings.readers, len(dataset))  # type: ignore[arg-type]
    ahead = {"prefetch_factor": PREFETCHED} if workers else {}
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        worker_init_fn=end_with_parent,
        **ahead,  # type: ignore[arg-type]
    )


def read_or_next(
    items: Named,
    index: int,
    read: Callable[[int], T],
    bad: list[str],
    failure: str,
    errors: tuple[type[Exception], ...] = (OSError, ValueError),
) -> T:
    """The item at an index, or the next one that can be read; the texts of errors are appended to ``bad``.

    :param failure: What the error says if no item can be read.
    :param errors: What ``read`` raises for an item that cannot be read.
    """
    for i in range(len(items)):
        at = (index + i) % len(items)
        try:
            return read(at)
        except errors as error:
            bad.append(error_with_name(items.name(at), error))
    raise OSError(f"{failure}; the last: {bad[-1]}")


def error_with_name(name: str, error: Exception) -> str:
    """The text of an error, with the item's name in front if the text does not contain it."""
    return str(error) if name in str(error) else f"{name}: {error}"


def check_one_size(what: str, planes: Sequence[Tensor]) -> None:
    """Raise unless all have the same height and width, as stacking them needs.

    :param what: The plural of what they are, at the beginning of a sentence.
    """
    sizes = {tuple(plane.shape[-2:]) for plane in planes}
    if len(sizes) > 1:
        found = ", ".join(map(format_size, sorted(sizes)))
        rule = f"{what} that are kept in memory must have one size"
        raise ValueError(f"{rule}; got {found}. Set size=height,width, or resident=False.")
