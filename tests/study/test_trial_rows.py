"""The trials of a study as rows: a list of dictionaries, a CSV file."""

import csv
import math
import re

import pytest
from _stores import yoto
from test_summary import TASK, plan, record

from trainonce.study import Record, Summary
from trainonce.study.rules import fixed, key_of


def mixed():
    """A trial that failed and then ended, one that diverged, one that failed, and one of no plan."""
    rule, seeds = yoto(), [0, 1, 2]
    error = {"type": "OSError", "message": 'a "quoted", long\nmessage'}
    failed = [
        Record(key_of("id", rule, seed), "toy", rule, seed, "failed", seconds=1.0, fraction=0.5, error=error)
        for seed in (0, 2)
    ]
    records = [failed[0], record(rule, 0, 80.0, 90.0), record(rule, 1, 1.0, math.nan, "diverged"), failed[1]]
    records.append(record(fixed((1.0, 7.0)), 0, 1.0, 2.0))
    return Summary({"task": TASK, "plans": [plan("yoto", "rule", [rule], seeds)]}, records)


def by_column(summary):
    rows = summary.to_dicts()
    assert all(list(row) == list(rows[0]) for row in rows)
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_there_is_a_row_for_each_record_of_a_plan():
    table = by_column(mixed())
    assert table["seed"] == [0, 0, 1, 2]
    assert table["status"] == ["failed", "done", "diverged", "failed"]
    assert table["last"] == [False, True, True, True]
    assert table["plans"] == ["yoto"] * 4
    assert table["validation/score"] == [None, 80.0, 1.0, None]
    assert table["test/score"][1] == 90.0
    assert math.isnan(table["test/score"][2])
    assert table["coefficient/b"] == [None, 0.5, 0.5, None]
    assert table["ratio/b"] == [None, 1.0, 1.0, None]
    assert table["seconds"] == [1.0, 2.0, 2.0, 1.0]
    assert table["fraction"] == [0.5, 1.0, 1.0, 0.5]
    assert table["error"] == ['OSError: a "quoted", long\nmessage', None, None, 'OSError: a "quoted", long\nmessage']
    assert table["key"][1] == key_of("id", yoto(), 0)


def test_a_trial_of_several_plans_names_them_all():
    grid = plan("grid", "set", [fixed((1.0, 1.0))], [0])
    uniform = plan("uniform", "point", [fixed((1.0, 1.0))], [0])
    shared = Summary({"task": TASK, "plans": [grid, uniform]}, [record(fixed((1.0, 1.0)), 0, 1.0, 2.0)])
    assert by_column(shared)["plans"] == ["grid uniform"]


def test_a_metric_cannot_take_the_place_of_another_column():
    rule = yoto()
    metrics = {"validation/score": 1.0, "test/score": 2.0, "seed": 99.0, "seconds": 98.0, "coefficient/a": 97.0}
    one = Record(key_of("id", rule, 5), "toy", rule, 5, "done", metrics, coefficients=(0.25, 0.75), seconds=3.0)
    table = by_column(Summary({"task": TASK, "plans": [plan("yoto", "rule", [rule], [5])]}, [one]))
    assert (table["seed"], table["seconds"], table["coefficient/a"]) == ([5], [3.0], [0.25])
    assert [table[f"metric/{name}"] for name in ("seed", "seconds", "coefficient/a")] == [[99.0], [98.0], [97.0]]


def test_a_csv_file_reads_back(tmp_path):
    study = mixed()
    study.to_csv(tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = by_column(study)
    assert list(rows[0]) == list(table)
    for name, values in table.items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]


def test_a_csv_file_of_nothing_has_its_columns(tmp_path):
    empty = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [])
    empty.to_csv(tmp_path / "trials.csv")
    assert (tmp_path / "trials.csv").read_text().startswith("plans,rule,seed,status,last,ratio/a,ratio/b,")
    assert empty.to_dicts() == []


def test_a_csv_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "trials.csv"
    path.write_text("before")
    for bad in (tmp_path / "none" / "trials.csv", tmp_path):
        with pytest.raises(
            OSError, match=rf"The table cannot be written to {re.escape(str(bad))}: .+\. Choose another"
        ):
            mixed().to_csv(bad)
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match=r"No space left\. Choose another path"):
        mixed().to_csv(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("trials.csv", "before")]


def test_a_message_that_is_no_text_is_shown_as_far_as_it_is():
    error = {"type": "OSError", "message": "no file \udcff"}
    one = Record(key_of("id", yoto(), 0), "toy", yoto(), 0, "failed", error=error)
    study = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [one])
    assert by_column(study)["error"] == ["OSError: no file ?"]
