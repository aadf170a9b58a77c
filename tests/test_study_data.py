"""A study does not go on with other data than it began with."""

import json

import pytest
from _depth_data import write_archives, write_hdf5
from _street_folders import write_acdc, write_camvid, write_cityscapes
from _tasks import TERMS, train

from trainonce.recipes.depth.tasks import nyu, unidepth_paper
from trainonce.recipes.segmentation.tasks import camvid, ciss_paper
from trainonce.study import Study, task
from trainonce.study.inventory import Inventory, inventory

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


@task(terms=TERMS, metric="error", direction="minimize", incidental=["root"], data=lambda settings: [settings["root"]])
def reading(trial, *, root="", steps=3):
    """Reads nothing, but says that it does."""
    return train(trial, steps)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "images").mkdir(parents=True)
    (tmp_path / "data" / "images" / "1.png").write_bytes(b"123")
    (tmp_path / "data" / "list.txt").write_text("1\n")
    return tmp_path / "data"


def study(root, out):
    return Study(reading.using(root=str(root)), out, seeds=1).add("uniform")


def test_files_count_by_name_and_size_wherever_they_lie(data, tmp_path):
    whole = inventory([data])
    assert (whole.files, whole.bytes, str(whole)) == (2, 5, "2 files of 5 bytes")
    assert str(inventory([data / "list.txt"])) == "1 file of 2 bytes"
    assert str(Inventory(3, 12_340_000_000, "")) == "3 files of 12.3 GB"
    (data / ".hidden").touch()
    assert inventory([data]) == whole
    (tmp_path / "elsewhere").mkdir()
    assert inventory([data.rename(tmp_path / "elsewhere" / "data")]) == whole
    assert inventory([data]) is None  # it is not there any more


def test_a_study_goes_on_with_the_same_data_only(data, tmp_path):
    study(data, tmp_path / "out").run(workers=0, show=False)
    (tmp_path / "moved").mkdir()
    data = data.rename(tmp_path / "moved" / "data")
    assert len(study(data, tmp_path / "out").run(workers=0, show=False).records) == 1
    (data / "images" / "2.png").write_bytes(b"4567")
    before = (tmp_path / "out" / "study.json").read_bytes()
    with pytest.raises(
        ValueError, match="of other data: it began with 2 files of 5 bytes, and now there are 3 files of"
    ):
        study(data, tmp_path / "out")
    assert (tmp_path / "out" / "study.json").read_bytes() == before
    assert study(data, tmp_path / "other")
    manifest = json.loads(before)
    del manifest["data"]
    (tmp_path / "out" / "study.json").write_text(json.dumps(manifest))
    study(data, tmp_path / "out").run(workers=0, show=False)
    assert json.loads((tmp_path / "out" / "study.json").read_text())["data"][:2] == [3, 9]


def test_a_study_whose_data_are_away_shows_what_it_has(data, tmp_path):
    study(data, tmp_path / "out").run(workers=0, show=False)
    kept = json.loads((tmp_path / "out" / "study.json").read_text())["data"]
    study(tmp_path / "nowhere", tmp_path / "out").run(workers=0, show=False)
    assert json.loads((tmp_path / "out" / "study.json").read_text())["data"] == kept


def test_other_settings_may_be_of_other_data(data, tmp_path):
    study(data, tmp_path / "out").run(workers=0, show=False)
    (data / "list.txt").write_text("other")
    changed = Study(reading.using(root=str(data), steps=4), tmp_path / "out", seeds=1)
    assert changed.changed


def write_streets(root):
    write_cityscapes(root / "cityscapes")
    write_acdc(root / "acdc")


@pytest.mark.parametrize(
    ("recipe", "write"),
    [(nyu, write_archives), (unidepth_paper, write_hdf5), (camvid, write_camvid), (ciss_paper, write_streets)],
)
def test_recipes_say_what_they_read(tmp_path, monkeypatch, recipe, write):
    monkeypatch.delenv("TRAINONCE_DATA", raising=False)
    assert recipe.inventory is None
    write(tmp_path)
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".DS_Store").touch()
    everything = [path for path in tmp_path.rglob("[!.]*") if path.is_file() and path.name != "notes.txt"]
    assert recipe.using(data_root=str(tmp_path)).inventory.files == len(everything)
