"""The catalogue: every figure is exported, documented, explained and drawn."""

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from trainonce import report
from trainonce.report import catalogue, figures
from trainonce.report.drawing import render
from trainonce.report.figures import CATALOGUE

NAMES = [entry.draw.__name__ for entry in CATALOGUE]
FOLDER = Path(figures.__file__).parent
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"

each_entry = pytest.mark.parametrize("entry", CATALOGUE, ids=NAMES)


@pytest.fixture(scope="module")
def drawings(studies):
    """All figures of the studies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "png", lambda figure: b"")
        return [d for summary in studies.values() for d in catalogue.draw_all(summary, CATALOGUE)[0]]


def test_every_file_of_the_folder_is_one_figure_of_the_catalogue():
    files = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    assert files == sorted(NAMES)
    assert [entry.draw.__module__.rpartition(".")[2] for entry in CATALOGUE] == NAMES


@each_entry
def test_every_figure_is_exported(entry):
    assert getattr(report, entry.draw.__name__) is entry.draw


@each_entry
def test_every_figure_is_documented(entry):
    directive = re.search(
        r"\.\. automodule:: trainonce\.report\n((?:   :.*\n)*)", REFERENCE.read_text(encoding="utf-8")
    )
    options = dict(re.findall(r":([a-z-]+): ?(.*)", directive[1]))
    assert options == {"members": "", "imported-members": ""}  # all public names, the imported ones included
    assert entry.draw.__doc__.partition("\n")[0].endswith(".")


@each_entry
def test_every_figure_has_a_title_and_a_caption(studies, entry):
    assert entry.caption.endswith(".")
    words = catalogue.fields(studies[1], catalogue.Case(0, "the case", "the argument"))
    for text in (entry.title, entry.caption):
        assert text[0] in "{" or text[0].isupper()
        assert "{" not in text.format_map(words)
    assert ("{case}" in entry.title) == (entry.cases is not None)


@each_entry
def test_every_figure_is_drawn_in_some_study(drawings, entry):
    mine = [d for d in drawings if re.fullmatch(rf"{entry.name}(-\d+-[a-z]+)?", d.name)]
    assert mine
    for drawing in mine:
        assert drawing.part == entry.part
        assert drawing.svg.startswith("<?xml")


def test_the_parts_of_the_page_are_in_one_piece():
    parts = [part for part, _ in itertools.groupby(entry.part for entry in CATALOGUE)]
    assert len(parts) == len(set(parts))


def test_both_figures_of_a_sweep_are_neighbours(drawings):
    names = [d.name for d in drawings if d.part == "sensitivity"]
    pair = ["sensitivity-{}", "sensitivity-ratios-{}"]
    assert names == [name.format(sweep) for _ in range(3) for sweep in ("0-init", "1-decay") for name in pair]


def test_figures_do_not_import_each_other():
    """What figures share is in drawing/; the order of the catalogue is that of the list alone."""
    for path in FOLDER.glob("[!_]*.py"):
        found = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [module for module in found if module.startswith("trainonce.report.figures")], path.name


def test_matplotlib_is_imported_when_it_is_needed():
    code = "import sys, trainonce.report; print(sorted({'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def drawn_or_reason(draw, summary):
    try:
        return draw(summary)
    except report.NothingToDrawError as reason:
        return str(reason)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_drawn_or_says_why_not(studies, odd, name):
    drawn = 0
    for summary in [*studies.values(), *odd]:
        figure = drawn_or_reason(getattr(report, name), summary)
        if isinstance(figure, str):
            assert figure.endswith(".")
            continue
        drawn += 1
        assert isinstance(figure, Figure)
    assert drawn
    assert figure if isinstance(figure, str) else figure._repr_png_().startswith(b"\x89PNG")
