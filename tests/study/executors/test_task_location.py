"""Where another process finds a task."""

from pathlib import Path

import _tasks

from trainonce.study import task
from trainonce.study.executors.task_location import TaskLocation, load_file


def test_a_file_named_from_here_is_found_from_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "near.py").write_text(
        "from trainonce.study import task\n"
        "@task(terms=['a', 'b'], metric='e', direction='minimize')\ndef near(trial): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    where = TaskLocation.of(load_file(Path("near.py")).near)
    monkeypatch.chdir("/")
    assert where.load().name == "near"
    assert where.file == str(tmp_path / "near.py")


def test_a_task_under_another_name_is_found(tmp_path):
    file = tmp_path / "other.py"
    file.write_text(
        "from trainonce.study import task\ndef _train(trial): ...\n"
        "renamed = task(terms=['a', 'b'], metric='e', direction='minimize')(_train)\n"
    )
    found = load_file(file).renamed
    assert TaskLocation.of(found).load().function.__name__ == "_train"


def test_a_task_in_a_file_is_found_from_elsewhere(tmp_path):
    (tmp_path / "neighbour.py").write_text("STEPS = 7\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from trainonce.study import task\nfrom neighbour import STEPS\n"
        "@task(terms=['a', 'b'], metric='e', direction='minimize')\ndef mine(trial, *, steps=STEPS):\n    ...\n"
    )
    found = load_file(file).mine
    where = TaskLocation.of(found)
    assert where.file == str(file)
    assert where.load().settings == {"steps": 7}
    assert TaskLocation.of(_tasks.line).load() is _tasks.line
    assert TaskLocation.of(task(terms=["a", "b"], metric="error", direction="minimize")(lambda trial: None)) is None
