"""Which files travel with a task."""

import sys

import pytest

from trainonce.recipes.digits import digits
from trainonce.study.executors import task_folder
from trainonce.study.executors.task_location import TaskLocation, load_file

TASK = """
from trainonce.study import task
@task(terms=["a", "b"], metric="error", direction="minimize")
def small(trial):
    pass
"""


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TASK if name.endswith("mine.py") else "x")


def folder_of(path):
    return task_folder.task_folder(TaskLocation.of(load_file(path).small))


def test_neighbours_travel_and_results_environments_and_hidden_files_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(task_folder, "LARGEST", 5)
    write(tmp_path, "mine.py", "helper.py", "lib/more.py", "values.json", "pictures/cat.txt")
    write(tmp_path, ".env", ".git/config", "__pycache__/mine.pyc", "venv/pyvenv.cfg", "venv/lib/a.py")
    write(tmp_path, "out/mine/claims", "out/mine/trials.jsonl")
    (tmp_path / "data.bin").write_bytes(b"123456")
    found = folder_of(tmp_path / "mine.py")
    assert found.origin == tmp_path
    assert found.names == ("helper.py", "lib/more.py", "mine.py", "pictures/cat.txt", "values.json")
    found.copy(tmp_path / "there")
    assert (tmp_path / "there" / "lib" / "more.py").read_text() == "x"


def test_of_a_package_the_package_travels(tmp_path):
    write(tmp_path, "package/__init__.py", "package/sub/__init__.py", "package/other.py", "beside.py")
    write(tmp_path, "package/sub/mine.py")
    found = folder_of(tmp_path / "package" / "sub" / "mine.py")
    assert found.origin == tmp_path
    assert set(found.names) == {f"package/{n}" for n in ("__init__.py", "other.py", "sub/__init__.py", "sub/mine.py")}


def test_too_much_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(task_folder, "MOST", 10)
    write(tmp_path, "mine.py")
    with pytest.raises(ValueError, match=r"travel to the workers, at most 0 MB in all; found 0 MB in 1 files\. Put"):
        folder_of(tmp_path / "mine.py")


def test_installed_tasks_stay(tmp_path, monkeypatch):
    location = TaskLocation.of(digits)
    assert location.file is None
    monkeypatch.setattr(task_folder, "is_own", lambda path: False)
    assert task_folder.task_folder(location) is None
    assert task_folder.task_folder(TaskLocation(None, "not_loaded_anywhere", "small")) is None
    assert "not_loaded_anywhere" not in sys.modules
