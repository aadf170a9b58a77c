"""What makes another task of it, what does not, and what is refused."""

import ast
import functools
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from trainonce.recipes import load
from trainonce.study import Study, identity, task
from trainonce.study.executors.task_location import load_file

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize", "name": "it"}

MINE = '''
"""About."""
from typing import TYPE_CHECKING
import torch
from trainonce.study import task
import plain, nested.deep as deep
from package.inner import Net
from package import VERSION, helpers

def with_bias(bias):
    def decorate(function):
        def wrapper(trial, *, steps=3, where="here"):
            return function(trial, steps=steps, where=where) + bias
        return wrapper
    return decorate

@task(terms=["a", "b"], metric="error", direction="minimize", name="mine", margin=1.0)
@with_bias(0)
def mine(trial, *, steps=3, where="here"):
    """Text."""
    from inside import CONSTANT
    return steps + 1, f"a{steps}b{{c}}", ""

if __name__ == "__main__":
    start(mine)
'''
FILES = {
    "mine.py": MINE,
    "plain.py": "WIDTH = 1\ntry:\n    import tried\nexcept ImportError:\n    pass\nimport plain\n",
    "tried.py": "import plain\nX = 1\n",
    "inside.py": "CONSTANT = 1\n",
    "nested/deep.py": "from . import beside\nX = 1\n",
    "nested/beside.py": "import upper as X\n",
    "nested/unused.py": "X = 1\n",
    "upper.py": "X = 1\n",
    "package/__init__.py": "VERSION = 1\n",
    "package/helpers.py": "X = 1\n",
    "package/inner/__init__.py": "from .net import Net\n",
    "package/inner/net.py": "from ..constants import X\nclass Net: ...\n",
    "package/constants.py": "X = 1\n",
    "package/unused.py": "X = 1\n",
    "unused.py": "X = 1\n",
}


def load_anew(path):
    """Load a task as another process does."""
    for name in ("trainonce_task_mine", *(Path(name).with_suffix("").as_posix().replace("/", ".") for name in FILES)):
        sys.modules.pop(name.removesuffix(".__init__"), None)
    sys.modules.pop("nested", None)
    return load_file(path).mine


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "before", "after", "counts"),
    [
        ("mine.py", "steps + 1", "steps + 2", True),
        ("mine.py", "steps=3, where", "steps=4, where", True),
        ("mine.py", "with_bias(0)", "with_bias(1)", True),
        ("mine.py", "@with_bias(0)\n", "", True),
        ("mine.py", "b{{c}}", "b{{d}}", True),
        ("mine.py", ', ""\n', ", None\n", True),
        ("mine.py", 'if __name__ == "__main__":', "if __file__ == 0:", True),
        ("mine.py", "start(mine)\n", "start(mine)\nelse:\n    start = 0\n", True),
        ("mine.py", '"b"], metric="error"', '"b"], metric="loss"', True),
        ("mine.py", '["a", "b"]', '["a", "c"]', True),
        ("mine.py", '"minimize"', '"maximize"', True),
        ("mine.py", '"minimize"', '"minimize", select="train"', True),
        ("mine.py", 'name="mine"', 'name="other"', True),
        ("mine.py", '"minimize"', '"minimize", version=1', True),
        ("mine.py", "steps + 1", "(steps  +  1)", False),
        ("mine.py", '"""Text."""', '"""Other."""', False),
        ("mine.py", "import torch", "\n\nimport torch", False),
        ("mine.py", "margin=1.0", "margin=2.0", False),
        ("mine.py", "start(mine)", "start(mine, seeds=5)", False),
        ("plain.py", "WIDTH = 1", "WIDTH = 1  # wide enough", False),
        *((name, "X = 1", "X = 2", "unused" not in name) for name, text in FILES.items() if "X = 1" in text),
        ("inside.py", "= 1", "= 2", True),
        ("nested/beside.py", "X", "X as Y", True),
        ("package/__init__.py", "1", "2", True),
        ("package/inner/net.py", "...", "x = 1", True),
        ("package/inner/net.py", "...", "x = (", True),
    ],
)
def test_an_edit_counts_where_it_computes(folder, name, before, after, counts, monkeypatch):
    first = load_anew(folder / "mine.py")
    assert first.identity == load_anew(folder / "mine.py").identity
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after))
    edited = first if name != "mine.py" else load_anew(folder / name)
    assert (identity.digest(identity.parts_of(edited)) != first.identity) == counts


def test_the_files_are_named_from_the_folder_of_the_task(folder):
    files = load_anew(folder / "mine.py").info()["files"]
    assert sorted(files) == sorted(name for name in FILES if "unused" not in name)


def test_files_may_be_left_out_with_what_only_they_import(folder):
    def files(*ignored):
        return set(identity.files_of(folder / "mine.py", (), ignored))

    assert (
        files() - files("package/*", "plain.py")
        == {
            *("package/__init__.py", "package/helpers.py", "package/inner/__init__.py"),
            *("package/inner/net.py", "package/constants.py", "plain.py", "tried.py"),
        }
        & files()
    )
    assert files("*") == {"mine.py"}
    with pytest.raises(
        ValueError, match=r"^ignore_files names files .*; 'plan.py' is none of them\. It imports: .*plain"
    ):
        files("plan.py")


def test_a_task_in_a_package_counts_with_its_package_and_not_with_what_lies_beside_that(tmp_path):
    files = {
        "mine/__init__.py": "",
        "mine/model.py": "",
        "mine/losses.py": "",
        "mine/tasks/__init__.py": "",
        "mine/tasks/one.py": "from mine.model import Net\nfrom ..losses import l1\nimport beside, sibling, torch, mine",
        "mine/tasks/beside.py": "",
        "mine/unused.py": "",
        "sibling.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = identity.files_of(tmp_path / "mine/tasks/one.py")
    assert set(found) == files.keys() - {"mine/unused.py", "sibling.py"}


def test_links_do_not_matter(folder, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(folder)
    assert identity.hashes_of(link / "mine.py") == identity.hashes_of(folder / "mine.py")


def test_what_is_installed_does_not_count(tmp_path):
    installed = tmp_path / "site-packages"
    for name in ("mine.py", "torch.py", "pkg/__init__.py", "pkg/mine.py", "pkg/net.py"):
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text("import torch\nfrom pkg import net\n")
    assert set(identity.files_of(installed / "mine.py")) == {"mine.py"}
    assert set(identity.files_of(installed / "pkg/mine.py")) == {"pkg/__init__.py", "pkg/mine.py", "pkg/net.py"}
    assert not any(map(identity.is_own, (installed / "mine.py", Path(torch.__file__), Path(ast.__file__))))
    recipes = Path(identity.__file__).parents[1] / "recipes"
    assert set(identity.files_of(recipes / "distillation.py")) == {
        "trainonce/recipes/distillation.py",
        "trainonce/recipes/digits.py",
    }
    assert identity.is_own(recipes / "digits.py")
    assert not identity.is_own(Path(identity.__file__))


def test_a_file_that_cannot_be_parsed_counts_by_its_bytes(tmp_path):
    found = set()
    for content in (b"x = (", b"x = [", b"x = (  # more", b"\xff\xfe = 1", b"x = " + b"-" * 100_000 + b"1"):
        (tmp_path / "broken.py").write_bytes(content)
        found.add(identity.read(tmp_path / "broken.py")[0])
    assert len(found) == 5


def test_the_hash_of_a_file_is_the_same_in_each_version_of_python(tmp_path):
    """Keys are made of it: another hash would make everyone's stored results useless."""
    (tmp_path / "model.py").write_text(MINE)
    assert identity.read(tmp_path / "model.py")[0] == "925f64909624f0dd"


# Values


def square(x):
    return x * x


def made(value=None, **given):
    @task(**TWO, **given)
    def train(trial, *, value=value): ...

    return train


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, True),
        ("a", None),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        (square, F.mse_loss),
        (F.l1_loss, F.mse_loss),
        (torch.nn.ReLU, torch.nn.GELU),
    ],
)
def test_settings_count(one, other):
    assert made(one).identity == made(one).identity != made(other).identity
    assert made(one).identity == made(other).using(value=one).identity


@pytest.mark.parametrize("value", [(1, 2), {"b": 1, "a": 2}])
def test_a_setting_counts_as_json_has_it(value):
    same = list(value) if isinstance(value, tuple) else dict(sorted(value.items()))
    assert made(value).identity == made(same).identity


def test_a_function_is_a_setting_by_its_name_and_its_file(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    import plain

    (folder / "plain.py").write_text("from upper import X\ndef f(): return X\n")
    monkeypatch.delitem(sys.modules, "plain")
    import plain  # noqa: F811

    first = made(plain.f)
    assert first.info()["settings"] == {"value": "plain.py:f"}
    assert {Path(name).name for name in first.info()["files"]} >= {Path(__file__).name, "plain.py", "upper.py"}
    (folder / "upper.py").write_text("X = 2\n")
    assert made(plain.f).identity != first.identity


@pytest.mark.parametrize(
    "value",
    [
        {"a", "b"},
        object(),
        torch.ones(2),
        torch.relu,
        lambda x: x,
        functools.partial(square),
        Path("x"),
        {(1, 2): 3},
        [object()],
        square.__get__(3),
        float,
    ],
)
def test_what_a_later_run_could_not_recognise_is_one_sentence(value):
    sentence = (
        r"cannot be told apart from another in a later run: .*Use numbers, texts, lists \(not sets\), or functions"
    )
    with pytest.raises(ValueError, match=rf"^The setting 'value' of the task 'it' {sentence}"):
        made(value).identity  # noqa: B018

    @task(**TWO)
    def train(trial):
        return value

    with pytest.raises(ValueError, match=rf"^'value', which the task 'it' was made with, {sentence}.*a version="):
        train.identity  # noqa: B018
    assert task(**TWO, version=1)(train.function).identity
    assert made(value, incidental=["value"]).identity


def test_a_value_that_contains_itself_is_the_same_sentence():
    loop = {}
    loop["loop"] = loop
    with pytest.raises(ValueError, match=r"^The setting 'value' .* later run: a dict\. Use"):
        made(loop).identity  # noqa: B018


@pytest.mark.parametrize("wrap", [functools.wraps, lambda function: lambda wrapper: wrapper])
def test_what_a_task_and_its_decorators_were_made_with_counts(wrap):
    def with_bias(bias, width, decorate=lambda function: function):
        @decorate
        def train(trial, *, steps=1):
            return width

        @wrap(train)
        def wrapper(trial, *, steps=1):
            return bias

        return task(**TWO)(wrapper).identity

    one, same, bias, width = (with_bias(*each) for each in ((0, 1), (0, 1), (2, 1), (0, 3)))
    assert one == same != bias
    if wrap is functools.wraps:
        assert len({one, bias, width, with_bias(0, 3, torch.no_grad())}) == 3


def test_the_object_of_a_method_is_refused():
    class Trainer:
        def train(self, trial): ...

    with pytest.raises(ValueError, match=r"^'self', which the task 'it' was made with, cannot be told apart"):
        task(**TWO)(Trainer().train).identity  # noqa: B018


@pytest.mark.parametrize("given", [functools.partial(square), threading.Thread])
def test_a_task_is_made_of_a_function(given):
    with pytest.raises(TypeError, match=r"^@task decorates a function; got "):
        task(**TWO)(given)


def test_a_version_stands_for_the_code():
    assert made(1, version=1).identity == load_version(1).identity
    assert len({made(1, version=v).identity for v in (None, 1, 2)} | {made(2, version=1).identity}) == 4


def load_version(version):
    @task(**TWO, version=version)
    def other(trial, *, value=1):
        """Other code."""

    return other


def test_incidental_settings_and_their_order_do_not_count():
    one = made(1, incidental=["value"])
    assert one.identity == one.using(value=2).identity
    assert one.info()["settings"] == {}


def test_the_number_of_processes_counts():
    assert len({made(1).over(n).identity for n in (1, 2, 3)}) == 3
    assert made(1).over(1).identity == made(1).identity


# Notebooks


CELL = "@task(**TWO, version={version})\ndef it(trial, *, steps=1):\n    return {'validation/error': 1.0}"


def run_cell(version=None):
    scope = {"__name__": "notebook", "task": task, "TWO": TWO}
    exec(compile(CELL.replace("{version}", str(version)), "<cell 1>", "exec"), scope)
    return scope["it"]


def test_a_task_of_a_notebook_is_new_each_time_its_cell_runs_and_one_sentence_says_so(tmp_path):
    one = run_cell()
    assert one.identity == one.using(steps=2).using(steps=1).identity != run_cell().identity
    Study(one, tmp_path / "a").store.write_manifest({"task": one.info(), "plans": []})
    with pytest.warns(
        UserWarning, match=r"^The earlier trials in .*a are kept, and not used: .* @task\(\.\.\., version=1"
    ):
        Study(run_cell(), tmp_path / "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Study(one, tmp_path / "a")
        Study(run_cell(1), tmp_path / "b").store.write_manifest({"task": run_cell(1).info(), "plans": []})
        assert not Study(run_cell(1), tmp_path / "b").changes


def test_recipes_have_no_values_of_their_own_that_are_refused():
    assert load("camvid").identity
