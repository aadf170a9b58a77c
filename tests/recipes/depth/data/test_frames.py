"""Lists of frames: cached ones, and subsets of generated ones."""

import torch

from trainonce.recipes.depth.data import frames as lists
from trainonce.recipes.depth.data.frames import CachedFrames, Frame, Subset
from trainonce.recipes.depth.generated.rooms import GeneratedFrames


def test_frames_that_are_remembered_are_read_once_up_to_a_number():
    read = []

    class Counted:
        def __len__(self):
            return 3

        def name(self, index):
            return str(index)

        def frame(self, index):
            read.append(index)
            return Frame(*(torch.full((1,), index) for _ in range(3)))

    first = Frame(*(torch.zeros(1) for _ in range(3)))
    kept = CachedFrames(Counted(), 2, [first])
    assert kept.frame(0) is first
    assert [int(kept.frame(i).depth) for i in (1, 1, 2, 2)] == [1, 1, 2, 2]
    assert read == [1, 2, 2]


def test_some_of_generated_frames_are_made_together():
    some = Subset(GeneratedFrames(0, 6, "room", (24, 32)), [4, 1])
    images, depths, _ = lists.generate(some, [1, 0], torch.device("cpu"))
    assert torch.equal(images[0], some.frame(1).image)
    assert torch.equal(depths[1], some.frame(0).depth)
    assert lists.generate(Subset(CachedFrames(some), [0]), [0], torch.device("cpu")) is None
