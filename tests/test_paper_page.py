"""The tables of the page on the paper: every item has a row, names import, commands work, results are there."""

import argparse
import importlib
import pkgutil
import re
import shlex
import string
from pathlib import Path

import pytest

from trainonce.cli.arguments import build_parser
from trainonce.cli.request import read_request

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "paper.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("## Item by item\n")[2].partition("\n## ")[0]
NAMES = {name: value.strip('"') for name, value in re.findall(r"^([A-Z_]+)=(.*)$", TEXT, re.MULTILINE)}
LINKS = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", TEXT, re.MULTILINE))
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TEXT.splitlines() if "| `" in line]
COMMANDS = [string.Template(row[2].strip("`| ")).substitute(NAMES) for row in ROWS]
ITEMS = [
    *("Eq. 1, 2, 5", "Eq. 3", "Eq. 4", "Eq. 6", "Eq. 7", "Eq. 8", "Eq. 9", "Eq. 10", "App. A", "App. B", "App. C"),
    *("3.5", "Algorithm 1", "AdamW", "Table 1", "Mean", "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "ACDC's server"),
]

pytestmark = pytest.mark.skipif(not (ROOT / "docs" / "results" / "data").is_dir(), reason="no records in an sdist")


class ParsedError(Exception):
    """Raised once a script has read its arguments."""


def commands(start):
    return sorted({command for command in COMMANDS if command.startswith(start)})


def anchors(page):
    """The anchors of a page's headings."""
    plain = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("item", ITEMS)
def test_an_item_of_the_paper_has_a_row(item):
    assert any(re.search(rf"{re.escape(item)}(?!\d)", row[0]) for row in ROWS)


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in re.findall(r"`(.+?)`", row[1])}))
def test_what_is_named_is_in_the_code(name):
    assert name.startswith("trainonce.")
    pkgutil.resolve_name(name)


def test_every_command_is_of_a_kind_that_is_tried_here():
    assert len(COMMANDS) == len(ROWS) == sum(map(COMMANDS.count, commands(("trainonce ", "python ", "pytest "))))


@pytest.mark.parametrize("command", commands("trainonce "))
def test_a_command_is_understood(command):
    asked = build_parser().parse_args(shlex.split(command)[1:])
    if command.startswith(("trainonce run ", "trainonce compare ")):
        assert all(plan.rules for plan in read_request(asked, getattr(asked, "plans", None) or [asked.plan], [0]).plans)


@pytest.mark.parametrize("command", commands("python "))
def test_a_script_prints_or_draws_from_the_records(command, monkeypatch, tmp_path, capsys):
    """Scripts that measure on a GPU read their arguments, and no more."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser, *given):
        parse(parser, *given)
        raise ParsedError

    _, script, *arguments = shlex.split(command)
    assert (ROOT / script).is_file()
    monkeypatch.chdir(ROOT)
    drawn = [str(tmp_path / Path(one).name) if one.endswith((".png", "/figures")) else one for one in arguments]
    monkeypatch.setattr("sys.argv", [script, *drawn])
    main = importlib.import_module(Path(script).stem).main
    if script.endswith("_step.py"):
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        with pytest.raises(ParsedError):
            main()
    else:
        main()
        assert capsys.readouterr().out or any(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("command", commands("pytest "))
def test_a_test_is_there(command):
    file, _, name = command.removeprefix("pytest ").partition(" -k ")
    assert f"\ndef test_{name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("record", sorted(value for value in NAMES.values() if value.endswith(".tar.xz")))
def test_a_record_is_kept(record):
    assert (ROOT / record).is_file()


def test_every_result_is_linked():
    results = [row[3] for row in ROWS if len(row) == 4]
    assert len(results) == len(ROWS) - len(commands("pytest "))
    named = [re.findall(r"\]\[([\w-]+)\]", result) for result in results]
    assert all(named)
    assert {link for links in named for link in links} == set(LINKS)


@pytest.mark.parametrize("link", LINKS.values())
def test_a_link_leads_to_a_heading(link):
    page, _, anchor = link.partition("#")
    assert anchor in anchors(PAGE.parent / page)
