"""Evaluation against counting by hand: whole scenes, in groups, by one process or by two."""

import pytest
import torch
from torch import nn

from trainonce.recipes.segmentation import evaluate
from trainonce.recipes.segmentation.data.scenes import IGNORE
from trainonce.recipes.segmentation.settings import Settings
from trainonce.study import torchrun

CLASSES = 3


class Coloured:
    """Scenes whose red says what is predicted; every second one is wider."""

    def __init__(self, count=5, unreadable=()):
        self.count, self.unreadable = count, unreadable

    def __len__(self):
        return self.count

    def name(self, index):
        return f"scene {index}"

    def _draw(self, index, what):
        size = (4, 6 + 2 * (index % 2))
        return torch.randint(0, CLASSES, size, generator=torch.Generator().manual_seed(2 * index + what))

    def image(self, index):
        if index in self.unreadable:
            raise OSError("it is gone")
        return self._draw(index, 0).expand(3, -1, -1).to(torch.uint8)

    def label(self, index):
        label = self._draw(index, 1).to(torch.uint8)
        label[0, index % 6] = IGNORE
        return label


class ByRed(nn.Module):
    """Predicts the class that the image's red channel names."""

    def __init__(self):
        super().__init__()
        self.register_buffer("statistics", torch.zeros(1))
        self.seen = []

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled(), len(images)))
        return nn.functional.one_hot(images[:, 0].long(), CLASSES).permute(0, 3, 1, 2).float()


def counted(scenes, indices):
    """Row: truth; column: prediction."""
    table = [[0] * CLASSES for _ in range(CLASSES)]
    for i in indices:
        pairs = zip(scenes.label(i).flatten().tolist(), scenes.image(i)[0].flatten().tolist(), strict=True)
        for truth, predicted in pairs:
            if truth != IGNORE:
                table[truth][predicted] += 1
    return table


def found(scenes, resident, process=(0, 1), network=None):
    settings, device = Settings(resident=resident, readers=0), torch.device("cpu")
    loader = evaluate.EvaluationLoader(scenes, settings, device, process)
    return evaluate.confusion_matrix(network or ByRed(), loader, CLASSES, settings, device).tolist()


@pytest.mark.parametrize("resident", [False, True])
def test_every_pixel_of_every_scene_is_counted_once(resident):
    scenes = Coloured()
    table = counted(scenes, range(5))
    assert table != [list(column) for column in zip(*table, strict=True)]  # rows and columns can be told apart
    assert found(scenes, resident) == table


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.filterwarnings("always::trainonce.recipes.segmentation.data.batches.UnreadableScene")
def test_a_scene_that_cannot_be_read_is_left_out_alone(resident):
    with pytest.warns(evaluate.UnreadableScene, match="left out of the metric: scene 2: it is gone"):
        got = found(Coloured(unreadable=(2,)), resident)
    assert got == counted(Coloured(), (0, 1, 3, 4))


def test_a_set_of_several_groups_is_counted_whole(monkeypatch):
    monkeypatch.setattr(evaluate, "GROUP", 2)
    monkeypatch.setattr(Coloured, "_draw", lambda self, i, w: torch.full((4, 6), (i + w) % CLASSES))
    network = ByRed()
    assert found(Coloured(5), True, network=network) == counted(Coloured(5), range(5))
    assert [count for _, _, count in network.seen] == [2, 2, 1]


@pytest.mark.parametrize("training", [False, True])
def test_the_network_is_evaluated_without_gradients_and_left_as_it_was(training):
    network = ByRed().train(training)
    found(Coloured(), True, network=network)
    assert network.training is training
    assert {(mode, gradients) for mode, gradients, _ in network.seen} == {(False, False)}


@pytest.mark.parametrize(("align", "classes"), [(True, [0, 1, 1, 1, 1]), (False, [0, 0, 1, 1, 1])])
def test_logits_are_brought_to_the_images_size_as_the_settings_say(align, classes):
    """Two cells to five pixels: the class changes where the first logit falls below 0.8."""

    def coarse(images):
        return torch.tensor([[[[1.0, 0.0]], [[0.8, 0.8]]]])

    found = evaluate.predict(coarse, torch.zeros(1, 3, 1, 5), (1, 5), Settings(align_corners=align))
    assert found.dtype == torch.uint8
    assert found.tolist() == [[classes]]


def on_a_rank():
    return found(Coloured(), True, (torchrun.rank(), torchrun.world_size()))


@pytest.mark.dist
def test_two_processes_count_what_one_counts(ranks):
    """Five scenes: three in one process and two in the other, and both know all."""
    table = counted(Coloured(), range(5))
    assert ranks(on_a_rank) == [table, table]
