"""What a report writes into the folder of a study: the page with its figures, or the data alone."""

import csv
import json
import os
import re

import _tasks
import pytest

from trainonce import report
from trainonce.report import headline
from trainonce.study import Study, layout

DATA = {layout.SUMMARY, layout.TABLE}
PAGE = {layout.REPORT, layout.FIGURES}
QUICK = _tasks.line.using(steps=2)


def trained(folder, seeds=1):
    study = Study(QUICK, folder, seeds=seeds).add("yoto").add("random(trials=2)")
    study.run(workers=0, device="cpu", show=False)
    return study


def written(folder):
    return {path.name for path in folder.iterdir()} & (DATA | PAGE)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.name in DATA | {layout.REPORT}}


def test_a_study_writes_records_alone_and_its_report_the_files(tmp_path, capsys):
    study = trained(tmp_path)
    assert written(tmp_path) == set()
    report.write_data(study)
    assert written(tmp_path) == DATA
    content = json.loads((tmp_path / layout.SUMMARY).read_text())
    assert content["sentence"] == headline.sentence(study.summary())
    with (tmp_path / layout.TABLE).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert report.write(study) == tmp_path / layout.REPORT
    assert written(tmp_path) == DATA | PAGE
    before = contents(tmp_path)
    report.write(tmp_path)  # by its folder
    assert contents(tmp_path) == before
    assert capsys.readouterr().out == ""


def test_data_that_is_written_after_a_page_knows_its_figures(tmp_path):
    report.write(trained(tmp_path))
    before = json.loads((tmp_path / layout.SUMMARY).read_text())["figures"]
    report.write_data(trained(tmp_path, seeds=2))
    content = json.loads((tmp_path / layout.SUMMARY).read_text())
    assert before
    assert content["figures"] == before
    assert {trial["seed"] for trial in content["trials"]} >= {0, 1}


def test_files_that_cannot_be_written_are_one_sentence_and_change_nothing(tmp_path):
    study = trained(tmp_path)
    os.mkdir(tmp_path / layout.SUMMARY)  # a folder in the place of a file
    with pytest.raises(OSError, match=f"The report cannot be written into {re.escape(str(tmp_path))}: .* Nothing was"):
        report.write_data(study)
    assert not (tmp_path / layout.TABLE).exists()


def test_the_csv_of_a_summary_is_that_of_the_report(tmp_path):
    study = trained(tmp_path)
    report.write_data(study)
    study.summary().to_csv(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_bytes() == (tmp_path / layout.TABLE).read_bytes()
