"""What a training writes at its end, and that failing to write does not lose it."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from trainonce.recipes.vision import output
from trainonce.recipes.vision.output import write_or_warn, write_outputs


@pytest.mark.parametrize("keep_model", [True, False])
def test_the_network_is_written_if_asked_for_and_pictures_always(tmp_path, keep_model):
    network, drawn = torch.nn.Linear(2, 1), []
    trial, settings = SimpleNamespace(dir=tmp_path), SimpleNamespace(keep_model=keep_model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_outputs(trial, settings, network, lambda: drawn.append(1))
    assert drawn == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["network.pt"] * keep_model
    if keep_model:
        assert torch.equal(torch.load(tmp_path / "network.pt", weights_only=True)["weight"], network.weight)


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(output.torchrun, "is_first", lambda: False)
    drawn = []
    trial, settings = SimpleNamespace(dir=tmp_path), SimpleNamespace(keep_model=True)
    write_outputs(trial, settings, torch.nn.Linear(2, 1), lambda: drawn.append(1))
    assert not drawn
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ImportError, OSError, ValueError, RuntimeError, IndexError])
def test_a_writer_that_fails_is_a_warning_and_the_next_writes(error):
    done = []

    def fail():
        raise error("no space left")

    with pytest.warns(UserWarning, match="^The network was not written: no space left$"):
        write_or_warn({"The network was not": fail, "No pictures were": lambda: done.append(1)})
    assert done == [1]


def test_the_warning_points_at_the_recipe(tmp_path):
    def full():
        raise OSError("no space left")

    def train():
        write_outputs(SimpleNamespace(dir=tmp_path), SimpleNamespace(keep_model=False), torch.nn.Linear(1, 1), full)

    with pytest.warns(UserWarning, match="No pictures were written") as found:
        train()
    assert found[0].filename == __file__
