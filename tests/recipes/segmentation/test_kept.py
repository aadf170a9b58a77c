"""A kept segmentation network: its metrics are those of its training, predictions have the form that servers want."""

import numpy
import pytest
from PIL import Image

from trainonce import cli
from trainonce.recipes.segmentation.data.made_up import write_acdc, write_camvid, write_cityscapes

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

SMALL = {"backbone": "resnet-small", "size": "32,64", "frame": "", "crop": "32,32", "readers": 0, "evaluations": 0}
ON_CPU = ("--device", "cpu")


def run(*arguments):
    assert cli.main([str(a) for a in arguments]) == 0


def options(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def both_columns(said):
    """The metrics that were evaluated and that were recorded, as text."""
    lines = said.split("recorded\n")[1].splitlines()
    return [tuple(line.removesuffix(" %").split()[-2:]) for line in lines if "/" in line.split()[0]]


def pictures_in(folder):
    return {path.relative_to(folder).as_posix(): numpy.array(Image.open(path)) for path in folder.rglob("*.png")}


@pytest.fixture
def paper(tmp_path, capsys):
    """A training on made-up Cityscapes and ACDC at half their size, which keeps its network by default."""
    write_cityscapes(tmp_path / "data/cityscapes", train=1, val=1)
    write_acdc(tmp_path / "data/acdc", frames=1)
    given = ("--data-root", tmp_path / "data", "--steps", 2, "--workers", 0, *ON_CPU, "--out", tmp_path / "out")
    run("run", "ciss-paper", *given, *options(SMALL))
    capsys.readouterr()
    return tmp_path


def test_a_kept_network_gives_the_metrics_of_its_training_and_what_acdcs_server_wants(paper, capsys):
    given = ("--data-root", paper / "data", "--set", "readers=0", *ON_CPU)
    run("evaluate", paper / "out", *given, "--pictures", paper / "p", "--export", paper / "e")
    found = both_columns(capsys.readouterr().out)
    assert len(found) == 3 + 19
    assert all(now == before for now, before in found)
    exported = pictures_in(paper / "e")
    images = {f"acdc-test/{path.name}" for path in paper.glob("data/acdc/rgb_anon/*/test/*/*_rgb_anon.png")}
    images |= {f"val/{path.name}" for path in paper.glob("data/acdc/rgb_anon/*/val/*/*_rgb_anon.png")}
    assert exported.keys() == images
    assert len(images) == 24
    for classes in exported.values():
        assert (classes.shape, classes.dtype) == ((54, 96), numpy.uint8)  # as stored, not as the network sees them
        assert classes.max() < 19
    assert pictures_in(paper / "p").keys() == {"validation.png", "test.png", "val.png", "source.png"}


def test_without_acdcs_test_images_the_validation_set_is_exported_and_limit_thins_it(paper, capsys):
    for folder in paper.glob("data/acdc/rgb_anon/*/test"):
        folder.rename(folder.with_name("elsewhere"))
    given = ("--data-root", paper / "data", "--set", "readers=0", "--set", "limit=2", *ON_CPU)
    run("evaluate", paper / "out", *given, "--export", paper / "e")
    assert "With other settings than in training: limit=2 for 0\n" in capsys.readouterr().out
    assert sorted(path.parent.name for path in paper.glob("e/*/*.png")) == ["val", "val"]


def test_a_network_needs_no_pretrained_weights_to_be_evaluated(tmp_path, capsys):
    write_camvid(tmp_path / "data", frames=1)
    weights = tmp_path / "weights.pt"
    given = ("--data-root", tmp_path / "data", "--steps", 1, "--workers", 0, *ON_CPU, "--out", tmp_path / "out")
    small = {"backbone": "resnet-small", "weights": "", "crop": "48,64", "precision": "float32", "keep_model": "yes"}
    run("run", "camvid", *given, *options(small))
    weights.write_bytes(b"gone since")
    run("evaluate", tmp_path / "out", "--data-root", tmp_path / "data", *ON_CPU, "--set", f"weights={weights}")
    assert all(now == before for now, before in both_columns(capsys.readouterr().out))
    assert cli.main(["evaluate", str(tmp_path / "out"), "--set", "backbone=resnet-18", *ON_CPU,
                     "--data-root", str(tmp_path / "data")]) == 1  # fmt: skip
    assert "network.pt does not fit a network of resnet-18: it lacks encoder." in capsys.readouterr().err
