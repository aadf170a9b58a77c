"""A kept depth network: its metrics are those of its training, on any layout, and depth is exported as images."""

import json

import numpy
import pytest
import torch
from PIL import Image

from trainonce import cli
from trainonce.recipes.depth.data.made_up.folders import write_folders
from trainonce.recipes.depth.data.made_up.hdf5 import write_hdf5

pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning"),
    pytest.mark.filterwarnings("ignore::trainonce.recipes.depth.data.batches.UnreadableFrame"),
]

SMALL = {"encoder": "vit-tiny", "dim": 32, "heads": 2, "shape": "28,42", "batch": 4, "points": 200, "average_from": 0.0}
SETS = ("validation", "test", "argoverse2-own", "waymo-own", "sunrgbd")


def run(*arguments):
    assert cli.main([str(a) for a in arguments]) == 0


def columns(said):
    """For each metric what was evaluated and what was recorded."""
    lines = said.split("recorded\n")[1].splitlines()
    return {line.split()[0]: tuple(map(float, line.split()[1:3])) for line in lines if "/" in line.split()[0]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training on HDF5 files with an EMA, whose weights are those that are kept; the same data in folders."""
    root = tmp_path_factory.mktemp("kept")
    write_hdf5(root / "hdf5")
    write_folders(root / "folder")
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    given = ("--steps", 3, "--workers", 0, "--device", "cpu", "--out", root / "out", "--set", "readers=0")
    run("run", "unidepth-paper", "--data-root", root / "hdf5", *given, *settings, "--set", "precision=float32")
    return root


def evaluate(trained, layout, *more):
    run("evaluate", trained / "out", "--data-root", trained / layout, "--device", "cpu", "--set", "readers=0", *more)


def test_a_kept_network_gives_the_metrics_of_its_training_and_depth_as_images(trained, tmp_path, capsys):
    evaluate(trained, "hdf5", "--export", tmp_path / "e", "--pictures", tmp_path / "p")
    found = columns(capsys.readouterr().out)
    assert {name.split("/")[0] for name in found} == set(SETS)
    assert all(now == before for now, before in found.values())
    assert {path.relative_to(tmp_path / "p").as_posix() for path in tmp_path.glob("p/*/*")} == {
        f"{name}/{picture}.png" for name in SETS for picture in ("depth", "points")
    }
    for name, count, scale in (("validation", 1, 1000), ("test", 6, 256), ("waymo-own", 2, 256), ("sunrgbd", 3, 1000)):
        beside = json.loads((tmp_path / "e" / name / "cameras.json").read_text())
        assert beside["depth_scale"] == scale
        files = {path.relative_to(tmp_path / "e" / name).as_posix() for path in (tmp_path / "e" / name).rglob("*.png")}
        assert files == beside["cameras"].keys()
        assert len(files) == count
        for file, camera in beside["cameras"].items():
            stored = numpy.array(Image.open(tmp_path / "e" / name / file))
            assert (stored.shape, stored.dtype) == ((48, 64), numpy.uint16)
            assert 0.1 < stored.mean() / scale < 50  # metres
            assert torch.tensor(camera).shape == (3, 3)


def test_both_layouts_count_the_same_frames(trained, capsys):
    evaluate(trained, "folder")
    for name, (now, before) in columns(capsys.readouterr().out).items():
        near = (
            {"rel": 0.02, "abs": 0.5} if name.startswith("validation") else {"rel": 1e-3}
        )  # JPEG images in one layout
        assert now == pytest.approx(before, **near), name
