"""The commands ``data make`` and ``data check``, on a task of one's own and on every recipe that reads data."""

import pytest

from trainonce import cli
from trainonce.recipes import RECIPES, load

OWN = '''
from trainonce.study import task

def check(progress, *, data_root):
    progress(1, 1, "files")
    if data_root.endswith("bad"):
        raise ValueError(f"There is nothing in {data_root}.")
    return {"training": "3 numbers", "test": "1 number"}

def write(folder, size):
    (folder / "a.txt").write_text(str(size))

@task(terms=["a", "b"], metric="m", direction="minimize", check_data=check, make_data={"text": write, "more": write})
def own(trial, *, data_root=""):
    """One's own."""
'''


def run(*arguments):
    return cli.main(["data", *map(str, arguments)])


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def test_a_task_of_ones_own_makes_and_checks_data(own, tmp_path, capsys):
    assert run("make", own, tmp_path / "data", "--size", "48,64") == 0
    assert (tmp_path / "data/a.txt").read_text() == "(48, 64)"
    data = tmp_path / "data"
    said = f"own, layout text: 1 file, 8e-06 MB, in {data}.\nNext: trainonce data check {own} --data-root {data}\n"
    assert capsys.readouterr().out == said
    assert run("check", own, "--data-root", data) == 0
    assert capsys.readouterr().out == "training  3 numbers\ntest      1 number\n"


@pytest.mark.parametrize("name", ["camvid", "ciss-paper"])
def test_the_check_that_is_named_next_passes(name, tmp_path, capsys):
    """The images are smaller than what the recipe cuts out of them."""
    assert run("make", name, tmp_path / "data") == 0
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("Next: trainonce data ")
    assert run(*command.split()) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("make", "digits", "{0}/new"), "The task 'digits' makes no data: its @task has no make_data=."),
        (("check", "rooms"), "The task 'rooms' has no data to check: its @task has no check_data=."),
        (("make", "{0}/own.py", "{0}"), "Made-up data goes to a new or empty folder; {0} is neither. Name another."),
        (("make", "{0}/own.py", "{0}/own.py"), "Made-up data goes to a new or empty folder; {0}/own.py is neither."),
        (
            ("make", "{0}/own.py", "{0}/new", "--layout", "tex"),
            "own reads the layouts 'text', 'more'; got 'tex'. Did you",
        ),
        (("check", "{0}/own.py", "--data-root", "{0}/bad"), "There is nothing in {0}/bad."),
        (("check", "camvid"), "This recipe reads data: give its folder with --data-root, or in TRAINONCE_DATA."),
        (("check", "nyu", "--data-root", "{0}/bad"), "NYU Depth V2 is expected as nyuv2_320.zip, or the folder in it,"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(own, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.delenv("TRAINONCE_DATA", raising=False)
    assert run(*(text.format(tmp_path) for text in arguments)) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(said.format(tmp_path))
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("size", ["48", "48,64,3", "16,64", "a,b"])
def test_a_size_that_is_none_is_one_sentence(size, capsys):
    with pytest.raises(SystemExit):
        run("make", "nyu", "x", "--size", size)
    assert f"must be a height and a width of at least 32, as 48,64; got '{size}'" in capsys.readouterr().err


# The recipes

#: Made-up images are small.
SMALL = {"ciss-paper": ("frame=48,96", "crop=48,64"), "camvid": ("crop=48,64",)}


@pytest.mark.parametrize("name", [name for name in RECIPES if load(name).make_data])
def test_every_layout_of_a_recipe_holds_the_same_and_limit_thins_each_set(name, tmp_path, capsys):
    pytest.importorskip("h5py")
    found = {}
    for layout in load(name).make_data:
        folder = tmp_path / layout
        assert run("make", name, folder, "--layout", layout) == 0
        capsys.readouterr()
        settings = [part for each in SMALL.get(name, ()) for part in ("--set", each)]
        for limit in (0, 2):
            assert run("check", name, "--data-root", folder, *settings, "--set", f"limit={limit}") == 0
            found.setdefault(limit, {})[layout] = capsys.readouterr().out
    assert len(set(found[0].values())) == 1
    whole, thinned = (next(iter(said.values())).splitlines() for said in found.values())
    counts = [[int(line.split("  ")[-1].split()[0].replace(",", "")) for line in said] for said in (whole, thinned)]
    assert max(counts[0]) > 2
    assert counts[1] == [min(2, count) for count in counts[0]]


def test_made_up_data_has_the_size_that_is_asked_for(tmp_path, capsys):
    assert run("make", "ciss-paper", tmp_path / "data", "--size", "60,80") == 0
    assert run("check", "ciss-paper", "--data-root", tmp_path / "data", "--set", "frame=", "--set", "crop=60,80") == 0
    assert capsys.readouterr().out.count(" of 60x80 pixels; ") == 5


def test_what_is_wrong_with_data_is_reported_by_name(tmp_path, capsys):
    assert run("make", "nyu", tmp_path / "data", "--layout", "folder") == 0
    broken = tmp_path / "data/nyuv2_320/depth/0003.png"
    broken.write_bytes(b"nothing")
    assert run("check", "nyu", "--data-root", tmp_path / "data") == 1
    assert f"The depth image {broken} cannot be read" in capsys.readouterr().err
