"""What a manifest holds of a plan with very many points."""

import json

import pytest

from trainonce.study import Study, Summary, task
from trainonce.study.plans import parse
from trainonce.study.record import FORMAT
from trainonce.study.store import Store, plans
from trainonce.study.summary import keys_of


@task(terms=[f"t{i}" for i in range(8)], metric="error", direction="minimize")
def eight(trial, *, steps=2):
    """Eight terms."""


@task(terms=["a", "b", "c"], metric="error", direction="minimize")
def three(trial, *, steps=2):
    """Three terms."""


def write(folder, of, *texts):
    study = Study(of, folder, seeds=2)
    for text in texts:
        study.add(text)
    study.store.write_manifest(study._manifest())
    return study


@pytest.mark.parametrize("text", ["grid", "grid(0,0.3,1e5)", "grid(1,1.0,7)", "grid(1,2)"])
def test_a_large_grid_is_stored_as_its_ratios_and_reads_back_the_same(text, tmp_path):
    study = write(tmp_path, eight, "yoto", text, "tpe(trials=3)")
    content = json.loads((tmp_path / "study.json").read_text())
    assert content["format"] == FORMAT
    assert ["rules" in plan for plan in content["plans"]] == [True, False, True]
    assert len(content["plans"][1]["axes"]) == 7
    assert (tmp_path / "study.json").stat().st_size < 10_000
    (_, found, _) = Summary.read(tmp_path).plans
    assert found["rules"] == [rule.to_json() for rule in parse(text, eight).rules]
    assert set(keys_of(found, eight.identity)) <= {key for item in study.items() for key in item.keys}
    again = write(tmp_path, eight, "uniform").store.read_manifest()
    assert [plan["name"] for plan in again["plans"]] == [
        "yoto",
        parse(text, eight).name,
        "tpe(trials=3)",
        "uniform",
    ]
    assert (tmp_path / "study.json").stat().st_size < 10_000


def test_a_small_grid_is_listed_for_any_trainonce_to_read(tmp_path):
    write(tmp_path, three, "grid", "random(trials=101)")
    content = json.loads((tmp_path / "study.json").read_text())
    assert content["format"] == FORMAT
    assert [len(plan["rules"]) for plan in content["plans"]] == [9, 101]
    assert not any("axes" in plan for plan in content["plans"])


@pytest.mark.parametrize("axes", [3, [["x"]], [[-1.0]], [3]])
def test_ratios_that_are_none_are_a_damaged_manifest(axes, tmp_path):
    store = Store(tmp_path)
    store.manifest.write_text(json.dumps({"format": FORMAT, "task": {}, "plans": [{"name": "grid", "axes": axes}]}))
    with pytest.raises(ValueError, match="is damaged"):
        store.read_manifest()


def test_a_plan_keeps_what_the_store_does_not_know():
    plan = {"name": "grid", "rules": [], "axes": ((1.0,),), "more": 1}
    assert plans.shorten(plan) == {"name": "grid", "rules": [], "more": 1}
