"""The numbers of the page as JSON and CSV."""

import csv
import json
import math

import pytest
from _stores import yoto

from trainonce.study import Summary
from trainonce.study.store import Store


def test_json_and_csv_hold_the_records(written):
    records = {(r.key, r.status): r for r in Store(written).read_all() if r.key != "f" * 20}
    content = json.loads((written / "summary.json").read_text(encoding="utf-8"))
    assert len(content["trials"]) == len(records)
    for trial in content["trials"]:
        record = records[trial["key"], trial["status"]]
        assert trial["seed"] == record.seed
        for name, value in record.metrics.items():
            assert trial["metrics"][name] == (value if math.isfinite(value) else None)
    summary = Summary.read(written)
    for row, shown in zip(summary.rows, content["plans"], strict=True):
        assert shown["plan"] == row.plan
        assert shown["chosen"]["mean"] == pytest.approx(row.chosen.mean)
        assert shown["cost"] == pytest.approx(row.cost)
    with (written / "trials.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(records)
    for line in lines:
        record = records[line["key"], line["status"]]
        for name, value in record.metrics.items():
            assert float(line[name]) == pytest.approx(value, nan_ok=True)
        if record.coefficients:
            assert float(line["coefficient/ce"]) == record.coefficients[0]
    replayed = [line["plans"] for line in lines if line["rule"] == yoto().label]
    assert "yoto replay sweep-init" in replayed
