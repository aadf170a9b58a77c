"""trainonce explain: a section for every warning, in the package and in the documentation, readable in a terminal."""

import os
import pty
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

import trainonce
from trainonce import cli, health
from trainonce.cli import explain

ROOT = Path(__file__).parents[2]
TOPICS = ROOT / "src" / "trainonce" / "health" / "topics.md"
WARNINGS = health.HealthWarning.__subclasses__()


def run(*arguments):
    return cli.main(["explain", *arguments])


def test_every_warning_has_a_section_and_every_section_a_warning():
    assert list(explain.sections()) == [category.topic() for category in WARNINGS]
    assert health.NotAttached.topic() == "not-attached"


@pytest.mark.parametrize("topic", explain.sections())
def test_a_section_says_what_was_seen_why_and_the_fix(topic):
    assert re.findall(r"^\*\*(\w+)\.\*\* ", explain.sections()[topic], re.MULTILINE) == ["Seen", "Why", "Fix"]


@pytest.mark.parametrize("category", WARNINGS, ids=lambda category: category.__name__)
def test_what_the_command_prints(category, capsys):
    assert run(category.topic()) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{category.topic()}\n\nSeen. ")
    assert "\n\nWhy. " in text
    assert "\n\nFix. " in text
    assert f"category=trainonce.health.{category.__name__})" in text
    assert "**" not in text
    assert "```" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_code_is_kept_as_it_is(capsys):
    run("learning-rate-reset")
    text = capsys.readouterr().out
    code = re.search(r"```python\n(.*?)```", explain.sections()["learning-rate-reset"], re.DOTALL)[1]
    assert all(f"\n    {line}\n" in text for line in code.splitlines())


@pytest.mark.parametrize(
    "name", ["NeverStepped", "health.NeverStepped", "trainonce.health.NeverStepped", "never_stepped", "Never-Stepped"]
)
def test_other_spellings_of_a_topic(name, capsys):
    assert run(name) == 0
    assert capsys.readouterr().out.startswith("never-stepped\n")


def test_the_overview_has_every_topic_with_what_was_seen(capsys):
    assert run() == 0
    text = capsys.readouterr().out
    assert re.findall(r"^([a-z]\S+)  +\S", text, re.MULTILINE) == list(explain.sections())
    assert "ranks-differ           The exponents are not the same on every rank." in text


@pytest.mark.parametrize(("name", "likely"), [("never-steppe", "'never-stepped'"), ("NeverSteppe", "'never-stepped'")])
def test_a_wrong_name_gets_the_likely_one(name, likely, capsys):
    assert run(name) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == f"There is no topic {name!r}. Did you mean {likely}? 'trainonce explain' lists all.\n"


def test_a_name_like_no_topic(capsys):
    assert run("qqq") == 2
    assert capsys.readouterr().err == "There is no topic 'qqq'. 'trainonce explain' lists all.\n"


def test_in_a_terminal_rich_shows_it():
    pytest.importorskip("rich")
    here, there = pty.openpty()
    command = [sys.executable, "-m", "trainonce", "explain", "never-stepped"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "90"}
    with subprocess.Popen(command, stdout=there, env=environment):
        os.close(there)
        shown = b""
        while chunk := _read(here):
            shown += chunk
    os.close(here)
    assert b"\x1b[" in shown  # colours or bold, which plain text has not
    assert b"Seen." in shown
    assert b"**" not in shown


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux: the other end is closed
        return b""


def test_the_end_of_a_warning_is_a_command_that_works(capsys):
    criterion = trainonce.CompositeLoss(["a", "b"], lr="model")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        criterion.load_state_dict({"exponents": criterion.exponents.detach()})
    command = re.search(r"Run `trainonce (explain [\w-]+)` for the fix\.$", str(given[0].message))[1]
    assert cli.main(command.split()) == 0
    assert capsys.readouterr().out.startswith("no-saved-names\n")


# The text is one file, in the package


def test_the_documentation_shows_the_file_of_the_package():
    page = ROOT / "docs" / "reference" / "health.md"
    included = re.findall(r"^```\{include\} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(page.parent / path).resolve() for path in included] == [
        ROOT / "src" / "trainonce" / "health" / "topics.md"
    ]
    assert "## " not in page.read_text(encoding="utf-8")


def test_the_wheel_holds_the_text(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        text = archive.read("trainonce/health/topics.md").decode()
    assert text == TOPICS.read_text(encoding="utf-8")
