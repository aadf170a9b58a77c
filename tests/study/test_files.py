"""What a run of a study leaves in its folder besides the records: the files that the command writes."""

import csv
import importlib.util
import json
import os
import sys

import _tasks
import pytest

from trainonce import report
from trainonce.study import Study, layout, sentences
from trainonce.study.store import Store

DATA = {layout.SUMMARY, layout.TABLE}
PAGE = {layout.REPORT, layout.FIGURES}
QUICK = _tasks.line.using(steps=2)


def study(folder, seeds=1):
    return Study(QUICK, folder, seeds=seeds).add("yoto").add("random(trials=2)")


def written(folder):
    return {path.name for path in folder.iterdir()} & (DATA | PAGE)


def test_a_silent_run_writes_the_data_and_no_page(tmp_path, capsys):
    summary = study(tmp_path).run(workers=0, device="cpu", show=False)
    assert written(tmp_path) == DATA
    content = json.loads((tmp_path / layout.SUMMARY).read_text())
    assert content["sentence"] == sentences.sentence(summary)
    with (tmp_path / layout.TABLE).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert capsys.readouterr().out == ""


def test_a_run_that_shows_itself_writes_what_the_command_writes(tmp_path, capsys):
    study(tmp_path).run(workers=0, device="cpu")
    assert written(tmp_path) == DATA | PAGE
    assert f"Report: {tmp_path / layout.REPORT}\n" in capsys.readouterr().out
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.name in DATA | {layout.REPORT}}
    report.write(tmp_path)
    assert {path: path.read_bytes() for path in files} == files


def test_a_run_can_do_without_the_page(tmp_path, capsys):
    study(tmp_path).run(workers=0, device="cpu", report=False)
    assert written(tmp_path) == DATA
    assert "Report:" not in capsys.readouterr().out


def test_without_matplotlib_there_is_no_page_and_asking_for_it_fails_at_once(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr("trainonce.study.study.find_spec", lambda name: None if name == "matplotlib" else found(name))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    study(tmp_path / "a").run(workers=0, device="cpu")
    assert written(tmp_path / "a") == DATA
    with pytest.raises(ImportError, match=r"This needs matplotlib, which is not installed: pip install \"trainonce"):
        study(tmp_path / "b").run(workers=0, device="cpu", report=True)
    assert Store(tmp_path / "b").read_all() == []


def test_data_that_is_written_after_a_page_knows_its_figures(tmp_path, capsys):
    study(tmp_path).run(workers=0, device="cpu", show=False, report=True)
    assert written(tmp_path) == DATA | PAGE
    assert capsys.readouterr().out == ""
    before = json.loads((tmp_path / layout.SUMMARY).read_text())["figures"]
    study(tmp_path, seeds=2).run(workers=0, device="cpu", show=False)
    content = json.loads((tmp_path / layout.SUMMARY).read_text())
    assert before
    assert content["figures"] == before
    assert {trial["seed"] for trial in content["trials"]} >= {0, 1}


def test_files_that_cannot_be_written_cost_a_warning_and_not_the_summary(tmp_path):
    os.mkdir(tmp_path / layout.SUMMARY)  # a folder in the place of a file
    with pytest.warns(UserWarning, match="The report cannot be written into"):
        summary = study(tmp_path).run(workers=0, device="cpu", show=False)
    assert [row.plan for row in summary.rows] == ["yoto", "random(trials=2)"]
    assert not (tmp_path / layout.TABLE).exists()
