"""--set: what a text means follows from the type of the setting's default."""

import json
import math
import tomllib
from argparse import Namespace

import pytest

from trainonce import cli
from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import read_setting, with_settings
from trainonce.study import task


@task(terms=["a", "b"], metric="error", direction="minimize")
def sized(
    trial,
    *,
    on=True,
    off=False,
    k=3,
    steps=10,
    lr=0.1,
    act="relu",
    root=None,
    size=(2, 3),
    betas=(0.9, 0.999),
    names=("x", "y"),
    blocks=((1, 2),),
    anything=(),
    widths=[1],  # noqa: B006 what is tested
    clip: float | None = 1.0,
    limit: "int | None" = 5,
):
    """A task with settings of every type."""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("on", text, False) for text in ("no", "off", "false", "False", "NO", "0")),
        *(("off", text, True) for text in ("yes", "on", "true", "True", "Yes", "1")),
        ("k", "7", 7),
        ("k", "-7", -7),
        ("steps", "1e2", 100),
        ("steps", "100.0", 100),
        ("steps", "1_000", 1000),
        ("steps", "123456789012345678901", 123456789012345678901),
        ("lr", "1", 1.0),
        ("lr", "1e-3", 0.001),
        ("lr", "inf", math.inf),
        ("act", "none", "none"),
        ("act", "true", "true"),
        ("act", "5", "5"),
        ("act", "1,2", "1,2"),
        ("act", "'gelu'", "gelu"),
        ("act", "", ""),
        ("root", "none", None),
        ("root", "/data", "/data"),
        ("root", "5", 5),
        ("size", "512,1024", (512, 1024)),
        ("size", "[4,4]", (4, 4)),
        ("size", "", ()),
        ("size", "4,", (4,)),
        ("size", "[]", ()),
        ("size", "1e1,4.0", (10, 4)),
        ("betas", "0,1", (0.0, 1.0)),
        ("names", "a, b", ("a", "b")),
        ("names", "['a', 'b,c']", ("a", "b,c")),
        ("names", "[a,b]", ("a", "b")),
        ("blocks", "[[1,2],[3,4]]", ((1, 2), (3, 4))),
        ("anything", "1,'a'", (1, "a")),
        ("widths", "[1, 2]", [1, 2]),
        ("widths", "1,2", [1, 2]),
        ("widths", "none", None),
        ("clip", "none", None),
        ("clip", "2", 2.0),
        ("limit", "None", None),
    ],
)
def test_a_text_is_read_as_the_type_of_the_default(name, text, value):
    found = read_setting(sized, name, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("on", "maybe", "on of the task 'sized' is yes or no, by default True; got 'maybe'."),
        ("on", "2", "is yes or no"),
        ("k", "abc", "k of the task 'sized' is a whole number, by default 3; got 'abc'."),
        ("k", "1.5", "is a whole number"),
        ("k", "yes", "is a whole number"),
        ("k", "none", "is a whole number"),
        ("k", "inf", "is a whole number"),
        ("k", "nan", "is a whole number"),
        ("k", "1,2", "is a whole number"),
        ("lr", "fast", "lr of the task 'sized' is a number, by default 0.1; got 'fast'."),
        ("lr", "", "is a number"),
        ("lr", "nan", "lr of the task 'sized' is a number, by default 0.1; got 'nan'."),
        ("size", "4", "size of the task 'sized' is a list, such as [1,2] or [1], by default (2, 3); got '4'."),
        ("size", "abc", "is a list"),
        ("size", "{1: 2}", "is a list"),
        ("size", "1,x", "is a list"),
        ("size", "1,2.5", "is a whole number"),
        ("size", "1,[2]", "is one value"),
        ("betas", "0.9,'x'", "is a number"),
        ("names", "a", "is a list"),
        ("blocks", "1,2", "is a list"),
        ("widths", "4", "is a list"),
    ],
)
def test_a_text_of_another_type_is_one_sentence(name, text, rule):
    with pytest.raises(Problem) as raised:
        read_setting(sized, name, text)
    assert str(raised.value).startswith(f"The setting {name} of the task")
    assert rule in str(raised.value)


def asked(**given):
    """What the command line says, which is nothing else."""
    return Namespace(**{"file_settings": {}, "set": [], "steps": None, "data_root": None, "preset": None} | given)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("size = [4, 4]", "size=[4,4]"),
        ("blocks = [[1, 2]]", "blocks=(1,2),"),
        ("lr = 1", "lr=1"),
        ("root = '/x'", "root=/x"),
    ],
)
def test_a_study_file_and_an_option_give_the_same_task(written, text):
    from_file = with_settings(sized, asked(file_settings=tomllib.loads(written)))
    from_option = with_settings(sized, asked(set=[text]))
    assert from_file.settings == from_option.settings
    assert from_file.identity == from_option.identity


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("size = 4", "is a list, such as [1,2] or [1], by default (2, 3); got 4."),
        ("size = 'abc'", "is a list"),
        ("size = [1, 'x']", "is a list in which every entry is a whole number, by default (2, 3); got [1, 'x']."),
        ("lr = nan", "is a number, by default 0.1; got nan."),
        ("k = [1, 2]", "is one value, by default 3; got [1, 2]."),
        ("act = {x = 1}", "is one value, by default relu; got {'x': 1}."),
    ],
)
def test_an_entry_of_another_type_is_one_sentence(written, sentence):
    with pytest.raises(Problem) as raised:
        with_settings(sized, asked(file_settings=tomllib.loads(written)))
    assert sentence in str(raised.value)


def test_a_text_of_a_study_file_stays_text_where_the_default_says_nothing():
    assert with_settings(sized, asked(file_settings={"root": "5"})).settings["root"] == "5"


def test_the_command_reads_them_so(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "import _tasks\nfrom trainonce.study import task\n\n\n"
        "@task(terms=_tasks.TERMS, metric='error', direction='minimize')\n"
        "def mine(trial, *, steps=3, on=True, act='relu'):\n"
        "    return _tasks.train(trial, steps)\n"
    )
    given = ("run", str(tmp_path / "mine.py"), "--workers=0", "--device=cpu", "--out", str(tmp_path / "out"))
    assert cli.main([*given, "--set", "on=no", "--set", "steps=1e1", "--set", "act=none"]) == 0
    settings = json.loads((tmp_path / "out" / "study.json").read_text())["task"]["settings"]
    assert settings == {"steps": 10, "on": False, "act": "none"}
    capsys.readouterr()
    assert cli.main([*given, "--set", "steps=abc"]) == 1
    assert (
        capsys.readouterr().err == "The setting steps of the task 'mine' is a whole number, by default 3; got 'abc'.\n"
    )
