"""Reading ahead: all items at once by threads, or step by step by the workers of a data loader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torch.utils.data import DataLoader, Dataset

from trainonce.study.orphans import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

T = TypeVar("T")


class LoadingSettings(Protocol):
    """The settings of a recipe that say how data is read."""

    @property
    def readers(self) -> int: ...


def at_once(read: Callable[[int], T], count: int, threads: int) -> list[T]:
    """The first so many of something, read by several threads: decoding leaves Python to others."""
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(pool.map(read, range(count)))


AHEAD = 4  # steps that each reader reads ahead


def loader(dataset: Dataset[Any], settings: LoadingSettings, device: torch.device) -> DataLoader[Any]:
    """The items of a dataset in order, read ahead by processes that are spared where there is little to read."""
    readers = min(settings.readers, len(dataset))  # type: ignore[arg-type]
    ahead = {"prefetch_factor": AHEAD} if readers else {}
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=readers,
        pin_memory=device.type == "cuda",
        worker_init_fn=end_with_parent,
        **ahead,  # type: ignore[arg-type]
    )


def named(name: str, error: Exception) -> str:
    """What an error says, with the scene's name if it does not say that itself."""
    return str(error) if name in str(error) else f"{name}: {error}"
