"""--preset: settings that belong together, resolved in what is kept; and what a task notes before it is trained."""

import json
from pathlib import Path

import pytest

from trainonce import cli

TASK = """
import _tasks
from trainonce.study import Preset, task


def notes(task, plans, seeds):
    rate = "" if task.settings["lr"] < 1 else "The learning rate is high."
    return [rate] * bool(rate) + [f"{len(seeds)} seeds of {plans[0].name}."] * (len(seeds) > 1)


@task(
    terms=_tasks.TERMS,
    metric="error",
    direction="minimize",
    presets={"odd": Preset("as others do it", {"lr": 0.5, "act": "gelu"}, yoto={"decay": 7.0})},
    notes=notes,
)
def mine(trial, *, steps=2, lr=0.1, act="relu"):
    return _tasks.train(trial, steps)
"""


@pytest.fixture
def given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TASK)
    return ["mine.py", "--workers=0", "--device=cpu", "--out=out"]


def kept(folder="out"):
    """The settings and the decay of the rule that a study has kept."""
    manifest = json.loads(Path(folder, "study.json").read_text())
    (plan,) = manifest["plans"]
    return manifest["task"]["settings"], plan["rules"][0]["settings"]["decay"]


@pytest.mark.parametrize(
    ("more", "settings", "decay"),
    [
        ([], {"steps": 2, "lr": 0.1, "act": "relu"}, 4.0),
        (["--preset", "odd"], {"steps": 2, "lr": 0.5, "act": "gelu"}, 7.0),
        (["--set", "lr=0.25", "--preset", "odd"], {"steps": 2, "lr": 0.25, "act": "gelu"}, 7.0),
        (["--preset", "odd", "--steps", "3", "--plan", "yoto:decay=1"], {"steps": 3, "lr": 0.5, "act": "gelu"}, 1.0),
    ],
)
def test_what_is_kept_are_the_settings_of_the_preset_and_those_that_go_before_it(given, more, settings, decay):
    assert cli.main(["run", *given, *more]) == 0
    assert kept() == (settings, decay)


@pytest.mark.parametrize(
    ("preset", "more", "rate"), [("odd", [], 0.5), ("odd", ["--set=lr=0.25"], 0.25), ("none", ["--preset=odd"], 0.5)]
)
def test_a_study_file_has_a_preset(given, preset, more, rate):
    Path("study.toml").write_text(f'task = "mine.py"\nplans = ["yoto"]\nseeds = 1\npreset = "{preset}"\nout = "out"\n')
    assert cli.main(["compare", "study.toml", "--no-report", *given[1:3], *more]) == 0
    assert kept() == ({"steps": 2, "lr": rate, "act": "gelu"}, 7.0)


def test_presets_are_listed_with_the_settings(given, capsys):
    assert cli.main(["recipes", "mine.py"]) == 0
    assert "--preset odd: as others do it: lr=0.5, act=gelu; yoto: decay=7\n" in capsys.readouterr().out


def test_a_preset_that_is_not_there_is_one_sentence(given, capsys):
    assert cli.main(["run", *given, "--preset", "old"]) == 1
    assert capsys.readouterr().err == "The task 'mine' has no preset 'old'; it has: 'odd'. Did you mean 'odd'?\n"


@pytest.mark.parametrize(
    ("command", "notes"),
    [
        (["run"], []),
        (["run", "--set=lr=1"], ["The learning rate is high."]),
        (["compare", "--plans=yoto", "--seeds=1", "--no-report"], []),
        (["compare", "--plans=yoto", "--seeds=2", "--no-report"], ["2 seeds of yoto."]),
        (
            ["compare", "--plans=uniform", "--set=lr=1", "--dry-run"],
            ["The learning rate is high.", "3 seeds of uniform."],
        ),
    ],
)
def test_what_a_task_notes_is_shown_before_anything_is_trained(given, command, notes, capsys):
    assert cli.main([command[0], *given, *command[1:]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mine: ")
    assert lines[1 : 1 + len(notes)] == [f"Note: {note}" for note in notes]
    assert not any(line.startswith("Note:") for line in lines[1 + len(notes) :])
