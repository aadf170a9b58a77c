"""The trials of a study as a table: CSV, Parquet, pandas, Polars."""

import csv
import importlib
import math
import re
import sys
import types

import pytest
from _stores import yoto
from _tasks import line
from test_summary import BAD, TASK, plan, record, summary

from trainonce.study import Record, Study, Summary, tables
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


def test_there_is_a_row_for_each_record_of_a_plan():
    table = tables.columns(mixed())
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
    assert tables.columns(shared)["plans"] == ["grid uniform"]


def test_a_metric_cannot_take_the_place_of_another_column():
    rule = yoto()
    metrics = {"validation/score": 1.0, "test/score": 2.0, "seed": 99.0, "seconds": 98.0, "coefficient/a": 97.0}
    one = Record(key_of("id", rule, 5), "toy", rule, 5, "done", metrics, coefficients=(0.25, 0.75), seconds=3.0)
    table = tables.columns(Summary({"task": TASK, "plans": [plan("yoto", "rule", [rule], [5])]}, [one]))
    assert (table["seed"], table["seconds"], table["coefficient/a"]) == ([5], [3.0], [0.25])
    assert [table[f"metric/{name}"] for name in ("seed", "seconds", "coefficient/a")] == [[99.0], [98.0], [97.0]]


def test_a_csv_file_reads_back(tmp_path):
    study = mixed()
    study.to_csv(tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = tables.columns(study)
    assert list(rows[0]) == list(table)
    for name, values in table.items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]


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


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_is_made_of_the_columns(package, monkeypatch):
    made = []
    monkeypatch.setitem(
        sys.modules, package, types.SimpleNamespace(DataFrame=lambda given: made.append(given) or "frame")
    )
    study = mixed()
    assert getattr(study, f"to_{package}")() == "frame"
    assert made[0].keys() == tables.columns(study).keys()
    assert made[0]["validation/score"] == [None, 80.0, 1.0, None]


def test_a_study_has_the_tables_of_its_summary(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "to_frame", lambda table, package: (package, table))
    made = Study(line.using(steps=1), tmp_path / "out", seeds=2).add("uniform")
    assert made.to_pandas()[1]["seed"] == []
    made.run(workers=0, device="cpu", show=False)
    made.to_csv(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_bytes() == (tmp_path / "out" / "trials.csv").read_bytes()
    assert made.to_pandas() == ("pandas", tables.columns(made.summary()))
    assert made.to_polars() == ("polars", tables.columns(made.summary()))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_there_is_named_with_its_pip_line(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    pip = rf'pip install "trainonce\[{package}\]"$'
    with pytest.raises(ImportError, match=rf"^This needs {package}, which is not installed: {pip}"):
        getattr(mixed(), f"to_{package}")()


def test_without_pyarrow_there_is_no_parquet_file_and_a_pip_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    pip = r'pip install "trainonce\[parquet\]"$'
    with pytest.raises(ImportError, match=rf"^This needs pyarrow, which is not installed: {pip}"):
        mixed().to_parquet(tmp_path / "trials.parquet")
    assert not list(tmp_path.iterdir())


def test_a_message_that_is_no_text_is_shown_as_far_as_it_is():
    error = {"type": "OSError", "message": "no file \udcff"}
    one = Record(key_of("id", yoto(), 0), "toy", yoto(), 0, "failed", error=error)
    study = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [one])
    assert tables.columns(study)["error"] == ["OSError: no file ?"]


def test_a_parquet_file_keeps_the_columns_and_their_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    study = mixed()
    study.to_parquet(tmp_path / "trials.parquet")
    found, table = parquet.read_table(tmp_path / "trials.parquet").to_pydict(), tables.columns(study)
    assert list(found) == list(table)
    assert str(found) == str(table)  # NaN is not equal to itself
    assert [path.name for path in tmp_path.iterdir()] == ["trials.parquet"]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_real_frame_has_a_row_per_record_and_numbers(package):
    pytest.importorskip(package, reason=f"{package} is not installed")
    study = summary(*BAD)
    frame = getattr(study, f"to_{package}")()
    assert frame.shape == (12, len(tables.columns(study)))
    assert frame["test/score"].mean() == pytest.approx(sum(r.metrics["test/score"] for r in study.records) / 12)
    assert importlib.import_module(package).DataFrame is type(frame)
