"""Reading data by threads and workers, and what takes the place of an unreadable item."""

import threading
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from trainonce.recipes.vision.loading import check_one_size, data_loader, error_with_name, read_all, read_or_next

CPU = torch.device("cpu")


class Squares(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index**2

    def name(self, index):
        return f"number {index}"


def test_threads_read_in_order_and_at_the_same_time():
    both = threading.Barrier(2, timeout=20)

    def read(index):
        both.wait()
        return index**2

    assert read_all(read, 4, threads=2) == [0, 1, 4, 9]
    assert read_all(lambda index: index, 3, threads=0) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with fewer cores
@pytest.mark.parametrize("readers", [0, 2, 8])
def test_a_loader_keeps_the_order_with_no_more_workers_than_items(readers):
    loader = data_loader(Squares(), SimpleNamespace(readers=readers), CPU)
    assert loader.num_workers == min(readers, 3)
    assert list(loader) == [0, 1, 4]


def failing(*bad, error=OSError):
    def read(index):
        if index in bad:
            raise error("it is gone")
        return index

    return read


def test_the_next_readable_item_takes_the_place_of_another():
    bad = []
    assert read_or_next(Squares(), 2, failing(2, 0), bad, "None") == 1
    assert bad == ["number 2: it is gone", "number 0: it is gone"]
    assert read_or_next(Squares(), 1, failing(), bad, "None") == 1
    assert len(bad) == 2


def test_if_no_item_can_be_read_that_is_the_error():
    with pytest.raises(OSError, match="None of the three; the last: number 0: it is gone"):
        read_or_next(Squares(), 1, failing(0, 1, 2), [], "None of the three")


def test_other_errors_are_not_hidden():
    with pytest.raises(KeyError):
        read_or_next(Squares(), 0, failing(0, error=KeyError), [], "None")
    assert read_or_next(Squares(), 0, failing(0, error=KeyError), [], "None", errors=(KeyError,)) == 1


def test_an_error_names_its_item_once():
    assert error_with_name("a.png", ValueError("it is empty")) == "a.png: it is empty"
    assert error_with_name("a.png", ValueError("The image a.png is empty.")) == "The image a.png is empty."


def test_what_is_stacked_must_have_one_size():
    check_one_size("Frames", [torch.zeros(3, 8, 9), torch.zeros(8, 9)])
    with pytest.raises(ValueError, match=r"^Frames that are kept in memory must have one size; got 8x8, 8x9\."):
        check_one_size("Frames", [torch.zeros(8, 9), torch.zeros(8, 8)])
