"""trainonce compare study.toml: a comparison in a file."""

import json
import re
from pathlib import Path

import pytest

from trainonce import cli
from trainonce.study.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare.md"
TASKS = Path(__file__).parents[1] / "study" / "_tasks.py"
FILE = """
task = "tasks.py:line"
plans = ["yoto", "grid:0.1,1", "uniform"]
seeds = "0-1"
margin = 0.3
out = "results"

[settings]
steps = 2
lr = 1
"""


def run(*arguments):
    return cli.main([str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "tasks.py").write_text(TASKS.read_text())
    (tmp_path / "paper" / "study.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "paper"


OPTIONS = ("--workers", 0, "--device", "cpu", "--no-report")


def test_a_study_file_is_compared_from_anywhere(folder, capsys):
    assert run("compare", "paper/study.toml", *OPTIONS) == 0
    assert "10 trials: yoto, grid(0.1,1), uniform; seeds 0 to 1." in capsys.readouterr().out.replace("\n", " ")
    manifest = json.loads((folder / "results" / "study.json").read_text())
    assert manifest["task"]["settings"] == {"steps": 2, "lr": 1.0, "pause": 0.0}
    assert manifest["task"]["margin"] == 0.3
    assert len(Store(folder / "results").read()) == 10  # uniform is a point of the grid


def test_options_go_before_the_file(folder):
    more = ("--plans", "base", "--seeds", "7,9", "--margin", 1, "--out", "other", "--steps", 3, "--set", "lr=0.5")
    assert run("compare", "paper/study.toml", *OPTIONS, *more) == 0
    manifest = json.loads(Path("other", "study.json").read_text())
    assert manifest["task"]["settings"] == {"steps": 3, "lr": 0.5, "pause": 0.0}
    assert manifest["task"]["margin"] == 1
    assert [(plan["name"], plan["seeds"]) for plan in manifest["plans"]] == [("base", [7, 9])]
    assert not (folder / "results").exists()


def test_everything_but_the_task_may_be_left_out(folder, capsys):
    (folder / "study.toml").write_text("task = 'digits'")
    assert run("compare", "paper/study.toml", "--dry-run") == 0
    text = capsys.readouterr().out
    assert "seeds 0 to 2" in text
    assert all(plan in text for plan in ("yoto", "balance", "uniform", "grid"))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seeds =", "sedes =", r"has an entry 'sedes'; there are: task, plans, seeds, .*\. Did you mean 'seeds'\?"),
        ("task =", "# task =", r"names no task: add task = 'my_task\.py'\."),
        ('"tasks.py:line"', "3", r"The entry 'task' of the study file .* is text, such as 'my_task\.py'; got 3\."),
        ('"0-1"', '"4-0"', r"The entry 'seeds' .* is how many, or which: 5, '0-4' or \[10, 11, 12\]; got '4-0'\."),
        ('"0-1"', "[1, 1]", r"The entry 'seeds' .*; got \[1, 1\]\."),
        ('"0-1"', "true", r"The entry 'seeds' .*; got True\."),
        ("0.3", "-1", r"The entry 'margin' .* is a number above 0; got -1\."),
        ("0.3", "true", r"The entry 'margin' .* is a number above 0; got True\."),
        ('["yoto", "grid:0.1,1", "uniform"]', "[]", r"The entry 'plans' .* is a list of texts"),
        ('"grid:0.1,1"', "1", r"The entry 'plans' .* is a list of texts"),
        ('"uniform"', '"unifrom"', r"There is no plan 'unifrom'"),
        ("steps = 2", "steps = 'many'", r"The setting steps .* is a whole number, by default 20; got 'many'\."),
        ("steps = 2", "step = 2", r"has no setting 'step'.* Did you mean 'steps'\?"),
        ('"0-1"', '"0-1', r"The study file .* cannot be read: .*line 4"),
        ('"tasks.py:line"', '"task.py:line"', r"There is no file paper/task\.py\."),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(old, new, sentence, folder, capsys):
    (folder / "study.toml").write_text(FILE.replace(old, new))
    assert run("compare", "paper/study.toml", *OPTIONS) == 1
    error = capsys.readouterr().err
    assert re.search(sentence, error)
    assert error.count("\n") == 1
    assert not (folder / "results").exists()


def test_a_study_file_that_is_not_there_is_one_sentence(capsys):
    assert run("compare", "none.toml") == 1
    assert capsys.readouterr().err == "There is no file none.toml.\n"


def test_a_study_file_that_is_no_text_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("d.toml").mkdir()
    assert run("compare", "d.toml") == 1
    assert capsys.readouterr().err == "d.toml is a folder: name the study file in it, such as d.toml/study.toml.\n"
    Path("b.toml").write_bytes(b"task = '\xff'")
    assert run("compare", "b.toml") == 1
    assert capsys.readouterr().err == "The study file b.toml cannot be read: it is not text in UTF-8.\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "No permission")))
    assert run("compare", "b.toml") == 1
    assert capsys.readouterr().err == "The study file b.toml cannot be read: No permission.\n"


def test_run_leaves_study_files_to_compare(folder, capsys):
    assert run("run", "paper/study.toml") == 1
    assert capsys.readouterr().err.endswith("Use trainonce compare paper/study.toml.\n")


def test_lists_and_switches_of_a_file_are_those_of_the_task(folder):
    (folder / "tasks.py").write_text(
        TASKS.read_text() + "\n\n@task(terms=TERMS, metric='error', direction='minimize')\n"
        "def sized(trial, *, size=(1, 2), on=True, act='relu', root=None):\n"
        "    assert (size, on, act, root) == ((3, 4), False, 'none', 'x')\n    return train(trial, 1)\n"
    )
    settings = "[settings]\nsize = [3, 4]\non = false\nact = 'none'\nroot = 'x'\n"
    (folder / "study.toml").write_text(f"task = 'tasks.py:sized'\nplans = 'uniform'\nseeds = [5]\n{settings}")
    assert run("compare", "paper/study.toml", *OPTIONS) == 0


def test_the_example_of_the_documentation_is_read_and_trained(folder, capsys):
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "blobs" in block)
    (folder / "my_task.py").write_text(code)
    (folder / "study.toml").write_text(example)
    assert run("compare", "paper/study.toml", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "blobs: Ten blobs in the plane." in shown
    assert run("compare", "paper/study.toml", *OPTIONS, "--seeds", 1, "--plans", "uniform", "--steps", 2) == 0
    assert (folder / "results" / "study.json").is_file()
