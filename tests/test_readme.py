"""What the README prints is what its code prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_printed_criterion():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    shown = re.search(r"```\n(CompositeLoss\(.*?)```", README, re.DOTALL)[1]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    number = re.compile(r"-?\d+\.?\d*")
    assert number.sub("#", out.getvalue()).split() == number.sub("#", shown).split()
    printed, expected = (list(map(float, number.findall(text))) for text in (out.getvalue(), shown))
    assert printed == pytest.approx(expected, rel=1e-2)


def test_links_lead_somewhere():
    root = Path(__file__).parents[1]
    for page in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_files_that_contributing_names_are_there():
    root = Path(__file__).parents[1]
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", (root / "CONTRIBUTING.md").read_text())
    assert len(named) > 30
    missing = [name for name in named if "NAME" not in name and not (root / name).exists()]
    assert not missing
