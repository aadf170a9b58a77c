"""The modules of docs/architecture.md: every file is in a table, with exactly the imports that its source has."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "trainonce"
CORE, UPPER = "The core", "On top of it"


def table(title):
    """The rows of the table under a heading: the imports of ours that each file or folder names."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| `([\w./]+)` \| .+? \| (.+?) \|$", section, re.MULTILINE)
    return {name: set(re.findall(r"(?<=`)\w+(?=`)|\bcore\b", named)) for name, named in rows}


CORE_FILES = table(CORE)
CORE_NAMES = [name.removesuffix(".py").rstrip("/") for name in CORE_FILES]


def imports(source):
    """The absolute names that a file imports when it runs, wherever in the file."""
    for node in _when_running(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "trainonce":
            yield from (f"trainonce.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module


def _when_running(node):
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from _when_running(child)


def of_ours(*paths):
    """The modules and folders of trainonce that the files import."""
    names = {name for path in paths for name in imports(path.read_text(encoding="utf-8"))}
    ours = [name.split(".") for name in names if name.partition(".")[0] == "trainonce"]
    return {parts[1] if len(parts) > 1 else "trainonce" for parts in ours}


def files_of(name):
    """The sources of a row: one file, or those of a folder."""
    return list((PACKAGE / name).rglob("*.py")) if name.endswith("/") else [PACKAGE / name]


def imports_of_row(name):
    """What the files of a row import of ours, but for the folder itself."""
    return of_ours(*files_of(name)) - {name.rstrip("/")}


def test_imports_are_found_wherever_they_are():
    source = (
        "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from trainonce import d\n    from e.f import g\n"
    )
    assert list(imports(source)) == ["a.b", "trainonce.d", "e.f"]


def test_every_file_and_folder_is_in_a_table():
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert CORE_FILES.keys() | table(UPPER).keys() == files | folders


@pytest.mark.parametrize("name", CORE_FILES)
def test_a_file_of_the_core_imports_what_its_row_says(name):
    assert imports_of_row(name) == CORE_FILES[name]


@pytest.mark.parametrize("name", CORE_FILES)
def test_a_file_of_the_core_imports_rows_above_it_alone(name):
    above = CORE_NAMES[: list(CORE_FILES).index(name)]
    assert imports_of_row(name) <= set(above)


@pytest.mark.parametrize("name", CORE_FILES)
def test_the_core_imports_torch_alone(name):
    names = [found for path in files_of(name) for found in imports(path.read_text(encoding="utf-8"))]
    roots = {found.partition(".")[0] for found in names}
    assert roots - sys.stdlib_module_names <= {"torch", "trainonce"}


@pytest.mark.parametrize("name", table(UPPER))
def test_what_lies_on_top_imports_what_its_row_says(name):
    found = imports_of_row(name)
    core = {*CORE_NAMES, "trainonce"}
    assert (found - core) | ({"core"} if found & core else set()) == table(UPPER)[name]


def layers():
    """Each file of the study and of the core, and what lies above it."""
    for path in (PACKAGE / "study").rglob("*.py"):
        yield path, {"report", "recipes", "cli"}
    for path in (path for name in CORE_FILES for path in files_of(name)):
        yield path, {"study", "report", "recipes", "cli"}


def test_nothing_imports_what_lies_above_it_not_even_for_its_types():
    for path, above in layers():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {name for node in ast.walk(tree) for name in _names(node)}
        found = {name.split(".")[1] for name in named if name.startswith("trainonce.")}
        assert not found & above, path


def _names(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []


# What the attachment, the health checks, histories and ranks use of a criterion's private names

INTERFACE = {"_added", "_attachment", "_call", "_counts", "_device", "_parameters", "_ranks", "_states", "_whole"}


def private_uses(source):
    """The private names of a criterion that a file uses, and those that it assigns."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.fullmatch("_[a-z]\\w*", node.attr):
            owner = ast.unparse(node.value)
            if owner == "criterion" or owner.endswith(".criterion"):
                yield node.attr, isinstance(node.ctx, ast.Store)


def test_private_uses_are_found():
    assert list(private_uses("criterion._a = self.criterion._b + self._c + criterion.d")) == [
        ("_a", True),
        ("_b", False),
    ]


def test_nobody_reaches_into_the_criterion_but_through_its_interface():
    uses = {use for path in PACKAGE.rglob("*.py") for use in private_uses(path.read_text(encoding="utf-8"))}
    assert {name for name, _ in uses} == INTERFACE
    assert {name for name, stored in uses if stored} == {"_attachment"}
