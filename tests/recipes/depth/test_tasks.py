"""The depth recipes as tasks: the paper's numbers, checked settings, and miniatures of the real layouts."""

import json

import pytest
from _runs import torchrun

from trainonce import cli
from trainonce.recipes import load
from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.made_up.archives import write_archives
from trainonce.recipes.depth.data.made_up.folders import write_folders
from trainonce.recipes.depth.data.made_up.hdf5 import write_hdf5
from trainonce.recipes.depth.data.readers import frame_files
from trainonce.recipes.depth.optimisation import learning_rate_factor
from trainonce.recipes.depth.settings import Settings

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning"),
    pytest.mark.filterwarnings("ignore::trainonce.recipes.depth.data.batches.UnreadableFrame"),
]


@pytest.mark.parametrize("name", ["rooms", "nyu", "unidepth-paper"])
def test_the_exponents_learning_rate_is_explicit_and_lets_them_travel(name):
    """As far as Adam takes them, a learning rate a step: several times from the start, log(0.1), to the base's 0."""
    lr, settings = load(name).yoto["lr"], Settings(**load(name).settings)
    assert lr * sum(learning_rate_factor(step, settings) for step in range(0, settings.steps, 100)) * 100 > 2 * 2.3


def test_the_papers_exponents_learn_as_its_model_does():
    task = load("unidepth-paper")
    assert task.yoto["lr"] == Settings(**task.settings).lr


def test_the_paper_is_the_paper():
    task = load("unidepth-paper")
    settings = Settings(**task.settings)
    assert (settings.steps, settings.batch, settings.lr, settings.encoder_lr) == (300_000, 64, 1.35e-4, 0.1)
    assert (settings.encoder, settings.dim, settings.heads, settings.depths) == ("vit-l", 512, 8, (3, 2, 1))
    assert (settings.weight_decay, settings.constant, settings.clip, settings.attention) == (0.1, 0.25, 1.0, "nystrom")
    assert (task.yoto["init"], task.yoto["decay"]) == (0.1, 20.0)


def test_the_released_code_is_one_word():
    settings = Settings(**load("unidepth-paper").preset("released").settings)
    assert (settings.crossed, settings.rounding, settings.squared, settings.clip_exponents) == (
        True,
        "integer",
        True,
        True,
    )
    last = settings.lr * learning_rate_factor(settings.steps, settings)
    assert last == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch": 6, "parts": 2}, r"batch counts views.*must be a multiple of 4; got 6"),
        ({"dim": 36, "heads": 2}, r"dim must be a multiple of 8 times heads, 16; got 36"),
        ({"pixels": 3}, r"pixels is the fewest and the most of a view"),
        ({"depths": (1, 1)}, r"depths is three whole numbers"),
        ({"attention": "some"}, r"attention is one of 'full', 'nystrom'; got 'some'"),
        ({"camera": "fov"}, r"camera is one of 'rays', 'angles'; got 'fov'"),
        ({"shape": (10,)}, r"shape is a height and a width"),
        ({"lr": -1.0}, r"lr is a number of at least 0"),
        ({"graphed": True}, r"graphed needs a fixed shape, parts=1 and recompute=False"),
        ({"graphed": True, "shape": (28, 28), "compile": True}, r"compile needs graphed=False"),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings, said):
    with pytest.raises(ValueError, match=said):
        Settings(**settings)


# Miniatures of the real layouts


SMALL = {
    "graphed": False,
    "encoder": "vit-tiny",
    "dim": 32,
    "heads": 2,
    "shape": "28,42",
    "batch": 4,
    "readers": 1,
    "points": 200,
}


def command(name, root, *more, code=0, **settings):
    sets = [part for key, value in (SMALL | settings).items() for part in ("--set", f"{key}={value}")]
    given = ["run", name, "--data-root", str(root), "--device", "cpu", "--workers", "0", *sets, *map(str, more)]
    assert cli.main(given) == code


@pytest.mark.parametrize("write", [write_hdf5, write_folders])
def test_unidepth_paper_runs_on_a_miniature(tmp_path, capsys, write):
    write(tmp_path / "data")
    command(
        "unidepth-paper", tmp_path / "data", "--steps", 20, "--out", tmp_path / "out", evaluations=2, average_from=0.5
    )
    said = capsys.readouterr().out
    for expected in ("test/delta_1", "sunrgbd/f_a", "waymo-own/si_log"):
        assert expected in said
    (folder,) = (tmp_path / "out" / "trials").iterdir()
    assert (folder / "network.pt").exists()
    assert len((folder / "history.jsonl").read_text().splitlines()) == 21


@pytest.mark.dist
def test_unidepth_paper_runs_in_two_processes(tmp_path):
    write_hdf5(tmp_path / "data")
    settings = SMALL | {"evaluations": 0}
    given = ["run", "unidepth-paper", "--data-root", "data", "--steps", "2", "--device", "cpu", "--out", "out"]
    said = torchrun(tmp_path, *given, *(part for key, v in settings.items() for part in ("--set", f"{key}={v}")))
    assert said.count("sunrgbd/f_a") == 1
    (record,) = map(json.loads, (tmp_path / "out" / "trials.jsonl").read_text().splitlines())
    assert record["status"] == "done"


def test_nyu_runs_on_a_miniature(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    write_archives(tmp_path / "data")
    given = {"weights": "", "precision": "float32", "evaluations": 0}
    command("nyu", tmp_path / "data", "--steps", 2, "--out", tmp_path / "out", **given)
    said = capsys.readouterr().out
    assert "tum/delta_1" in said
    assert "7scenes/delta_1" in said


def test_missing_data_is_one_sentence(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    command("unidepth-paper", tmp_path / "data", "--out", tmp_path / "out", code=1)
    said = capsys.readouterr().err
    assert said.startswith(
        f"{tmp_path / 'data'} must hold the data sets 'scannet' (ScanNetS.hdf5, or a folder scannet), "
    )
    assert said.count("\n") == 1


def test_depth_in_the_wrong_unit_stops_before_training(tmp_path, capsys, monkeypatch):
    write_hdf5(tmp_path / "data")
    layout = paper_data.LAYOUTS["scannet"]
    monkeypatch.setitem(paper_data.LAYOUTS, "scannet", layout._replace(depth_format=frame_files.DepthFormat(1.0)))
    command("unidepth-paper", tmp_path / "data", "--steps", 2, "--out", tmp_path / "out", code=1)
    said = capsys.readouterr().err
    assert "scannet" in said
    assert "1000" in said
    assert "Traceback" not in said
