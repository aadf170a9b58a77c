"""Which recipe may import from which: read from the sources, without importing them."""

import ast
from pathlib import Path

import pytest

import trainonce.recipes

ROOT = Path(trainonce.recipes.__file__).parent
PACKAGE = "trainonce.recipes"


def imported(path):
    """The modules that a file imports, anywhere in it."""
    found = set()
    own = [PACKAGE, *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def imports_of(folder, forbidden):
    """The files of a folder that import from another, with what they import."""
    return {
        str(path.relative_to(ROOT)): sorted(names)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := {n for n in imported(path) if f"{n}.".startswith(f"{PACKAGE}.{forbidden}.")})
    }


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("depth", "segmentation"),
        ("segmentation", "depth"),
        ("vision", "segmentation"),
        ("vision", "depth"),
    ],
)
def test_recipes_share_code_through_vision_alone(folder, forbidden):
    assert imports_of(folder, forbidden) == {}


@pytest.mark.parametrize("folder", ["depth", "segmentation"])
def test_both_recipes_use_vision(folder):
    """So the check above does see imports."""
    assert f"{folder}/training.py" in imports_of(folder, "vision")


@pytest.mark.parametrize(
    "line",
    [
        "import trainonce.recipes.segmentation.losses",
        "from trainonce.recipes import segmentation",
        "from trainonce.recipes.segmentation.data import batches",
        "from ..segmentation import losses",
        "def later():\n    from trainonce.recipes.segmentation.losses import TERMS",
    ],
)
def test_every_way_to_import_is_found(tmp_path, monkeypatch, line):
    (tmp_path / "depth").mkdir()
    (tmp_path / "depth" / "new.py").write_text(line)
    monkeypatch.setitem(imports_of.__globals__, "ROOT", tmp_path)
    assert list(imports_of("depth", "segmentation")) == ["depth/new.py"]
