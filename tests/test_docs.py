"""The Markdown is easy to read and to review: short lines, short paragraphs, code that fits the site's column."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WIDEST = 160  # characters of any line
CODE = 105  # characters of code that fit the site's column in a window of 1280 px; commands and output wrap
PARAGRAPH = 4  # lines

FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})")
WRAPPED = re.compile(r"\s*`{3,}(bash|text|\{)")  # a directive, in braces, is no code
LIST_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")
NOTE = re.compile(r"\[[^]]+\]: ")  # a footnote, or where a link leads


def pages() -> list[str]:
    """README and its neighbours, the docs and the examples, by path; not what the site's builder writes."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    written = (ROOT / "docs" / "_build", ROOT / "docs" / "results" / "data")
    return sorted(
        file.relative_to(ROOT).as_posix() for file in files if not any(folder in file.parents for folder in written)
    )


def lines(page: str) -> list[str]:
    return (ROOT / page).read_text(encoding="utf-8").splitlines()


def blocks(text: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Each run of lines between blank ones with the number of its first line: ``"code"`` whole, and ``"prose"``."""
    start, kind, held, end = 0, "prose", [], ""
    for number, line in enumerate([*text, ""], 1):
        fence = FENCE.match(line)
        if kind == "prose" and (fence or line.lstrip().startswith("<!--") or not line.strip()):
            if held:
                yield start, kind, held
            held = []
            if line.strip():
                start, kind, held, end = number, "code", [line], fence[1] if fence else "-->"
                if not fence and end in line:
                    kind, held = "prose", []
        elif kind == "code":
            held.append(line)
            if line.strip() == end or (end == "-->" and end in line):
                yield start, kind, held
                kind, held = "prose", []
        else:
            start = start if held else number
            held.append(line)


def is_paragraph(block: list[str]) -> bool:
    first = block[0]
    return not (LIST_ITEM.match(first) or NOTE.match(first) or first.lstrip().startswith(("|", "#", "<", ">")))


def test_pages_are_found():
    found = pages()
    assert {"README.md", "CHANGELOG.md", "docs/index.md", "docs/how-to/trainers/lightning.md"} <= set(found)
    assert not any("_build" in page or "results/data" in page for page in found)


def test_code_is_separated_from_prose():
    text = "One.\nTwo.\n\n```python\na\n\nb\n```\nThree.\n- a\n<!--- x\n\ny --->\nFour.".splitlines()
    assert list(blocks(text)) == [
        (1, "prose", ["One.", "Two."]),
        (4, "code", ["```python", "a", "", "b", "```"]),
        (9, "prose", ["Three.", "- a"]),
        (11, "code", ["<!--- x", "", "y --->"]),
        (14, "prose", ["Four."]),
    ]


@pytest.mark.parametrize("page", pages())
def test_no_line_is_too_long(page):
    long = [f"{page}:{number}: {len(line)}" for number, line in enumerate(lines(page), 1) if len(line) > WIDEST]
    assert not long, f"lines of more than {WIDEST} characters: {', '.join(long)}"


@pytest.mark.parametrize("page", pages())
def test_no_paragraph_is_too_long(page):
    prose = [(start, block) for start, kind, block in blocks(lines(page)) if kind == "prose" and is_paragraph(block)]
    long = [f"{page}:{start}: {len(block)}" for start, block in prose if len(block) > PARAGRAPH]
    assert not long, f"paragraphs of more than {PARAGRAPH} lines: {', '.join(long)}"


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_code_fits_its_column(page):
    code = [
        (start + offset, line)
        for start, kind, block in blocks(lines(page))
        if kind == "code" and FENCE.match(block[0]) and not WRAPPED.match(block[0])
        for offset, line in enumerate(block)
    ]
    wide = [f"{page}:{number}: {len(line)}" for number, line in code if len(line) > CODE]
    assert not wide, f"code of more than {CODE} characters: {', '.join(wide)}"
