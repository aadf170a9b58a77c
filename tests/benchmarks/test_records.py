"""The records that are kept under docs/results: today's code still finds each of their trials."""

import json
import re
from pathlib import Path

import _stores
import pytest
import records

from trainonce.recipes import load
from trainonce.study import Study, Summary
from trainonce.study.peers import PEERS
from trainonce.study.rules import PARTS, digest
from trainonce.study.store import Store
from trainonce.study.summary import keys_of

DATA = Path(__file__).parents[2] / "docs" / "results" / "data"
PACKED = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.tar.xz"))


#: Trials of other settings of the task, which the study in that folder does not use.
OTHERS = {"depth/rooms.tar.xz": 1}
#: Those that were not kept as format 2 wrote them.
LATER = ("depth/rooms-mixed", "depth/rooms-mixed-start", "segmentation/streets-sgdw", "study/burgers-initial")
FORMATS = {f"{name}.tar.xz": 4 for name in LATER}

needs_records = pytest.mark.skipif(not DATA.is_dir(), reason="a source distribution has no records")


@needs_records
def test_the_kept_studies_are_there():
    assert len(PACKED) == 14


@pytest.mark.parametrize("name", PACKED)
def test_every_trial_of_a_kept_study_belongs_to_a_plan(name):
    with records.open_study(DATA / name) as folder:
        summary = Summary.read(folder)
        wanted = {key for plan in summary.plans for key in keys_of(plan, summary.task.identity)}
        kept = {record.key for record in summary.records}
        assert len(kept - wanted) == OTHERS.get(name, 0)
        assert len(summary.rows) == len(summary.plans)
        assert Store(folder, writable=False).read_manifest()["format"] == FORMATS.get(name, 2)


@needs_records
@pytest.mark.parametrize(("name", "trials"), [("digits", 575), ("distillation", 510), ("burgers-initial", 155)])
def test_a_study_of_today_goes_on_from_the_kept_records(name, trials, tmp_path):
    """With the keys of today: a study has other ones since rules are kept with all their settings."""
    records.unpack(DATA / "study" / f"{name}.tar.xz", tmp_path)
    records.rekey(tmp_path)
    kept = Store(tmp_path).read()
    study = Study(load(name.partition("-")[0]), tmp_path, seeds=5)
    assert not study.changes
    for plan in Summary.read(tmp_path).plans:
        study.add(plan["name"])
    wanted = {key for item in study.items() for key in item.keys}
    assert len(wanted) == trials
    assert wanted <= set(kept)


# Packing and re-keying


@pytest.fixture
def study(tmp_path):
    return _stores.build(tmp_path / "study", seeds=(0, 1))


def results(summary):
    return [(row.plan, row.counts, row.cost, row.chosen.mean) for row in summary.rows]


def test_a_packed_study_says_the_same_and_is_packed_to_the_same_bytes(study, tmp_path):
    first, second, again = tmp_path / "a.tar.xz", tmp_path / "b.tar.xz", tmp_path / "again"
    records.pack(study, first)
    records.unpack(first, again)
    records.pack(again, second)
    assert first.read_bytes() == second.read_bytes()
    before, after = Summary.read(study), Summary.read(again)
    assert [(r.plan, r.chosen.mean, r.cost) for r in before.rows] == [
        (r.plan, r.chosen.mean, r.cost) for r in after.rows
    ]
    histories = records.read_histories(again)
    assert {h["key"] for h in histories} == set(Store(study).read())
    assert all(len(h["step"]) == records.WINDOWS for h in histories)


def test_a_folder_with_something_in_it_is_not_unpacked_over(study, tmp_path):
    records.pack(study, tmp_path / "a.tar.xz")
    with pytest.raises(ValueError, match="is not empty: unpack into a new one"):
        records.unpack(tmp_path / "a.tar.xz", study)


def test_a_thinned_history_keeps_the_last_step_and_its_numbers_in_single_precision(study):
    (path, *_) = study.glob("trials/*/history.jsonl")
    head, *rows = path.read_text().splitlines()
    short_head, *short = records.thin(path.read_text()).splitlines()
    assert short_head == head
    assert len(short) < len(rows)
    assert json.loads(short[0])["step"] == 1
    last, kept = json.loads(rows[-1]), json.loads(short[-1])
    assert last.keys() == kept.keys()
    assert all(records.single(last[name]) == records.single(kept[name]) for name in last)
    assert records.thin(records.thin(path.read_text())) == records.thin(path.read_text())


def as_first_format(folder):
    """Rewrite a study as format 1 had it: keys of all fields, and former names."""
    store = Store(folder)

    def former(rule):
        settings = rule["settings"]
        if rule["rule"] == "FixedLoss":
            return {"kind": "fixed", "weights": settings["weights"]}
        if rule["rule"] == "Replay":
            of = former(settings["of"])
            return {"kind": "final" if settings["last"] else "replay", "of": {k: of[k] for k in of if k != "kind"}}
        if rule["rule"] in PEERS:
            return {"kind": "peer", "method": rule["rule"], "settings": settings, "epoch": None}
        preset = "printed" if settings["regularizer"] == PARTS else "consistent"
        return {"kind": "learned", "preset": preset} | {name: settings[name] for name in ("init", "decay", "lr")}

    manifest = store.read_manifest()
    keys, numbers = {}, {}
    for plan in manifest["plans"]:
        plan["name"] = plan["name"].replace("yoto", "one-shot").replace("regularizer=", "preset=")
        plan["points"] = [former(rule) for rule in plan.pop("rules")]
        if plan["search"] is not None:
            plan["search"] |= {"eta": None, "rung": None}
            new = keys_of(plan, _stores.IDENTITY)
            of = [(seed, n) for seed in plan["seeds"] for n in range(plan["search"]["trials"])]
            numbers |= {key: (plan["search"] | {"trials": None}, *which) for key, which in zip(new, of, strict=True)}
    lines = [json.loads(line) for line in store.trials.read_text().splitlines()]
    for line in lines:
        key, line["format"], line["point"] = line["key"], 1, former(line.pop("rule"))
        line["weights"] = line.pop("coefficients")
        content = numbers.get(key, (line["point"], line["seed"]))
        line["key"] = keys[key] = digest([_stores.IDENTITY, *content])
    store.trials.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store.manifest.write_text(json.dumps(manifest | {"format": 1}))
    records.move(folder, keys)


TASK = """
from trainonce.study import task

@task(terms=["ce", "consistency"], metric="accuracy", direction="maximize", version={version})
def toy(trial, *, steps=120, lr=0.01, added=0):
    return None
"""


@pytest.fixture
def task(tmp_path):
    """A task that has gained a setting since its study was run."""
    file = tmp_path / "toy.py"
    file.write_text(TASK.format(version=1))
    return f"{file}:toy"


def test_rekey_finds_all_trials_of_the_first_format_again(study, task):
    before = Summary.read(study)
    folders = {path.parent.name for path in study.glob("trials/*/history.jsonl")}
    as_first_format(study)
    assert Summary.read(study).first_rule is None  # nothing is found by today's keys
    records.rekey(study, task)
    after = Summary.read(study)
    assert after.task.settings == {"steps": 120, "lr": 0.01, "added": 0}
    assert after.task.identity == records.load_task(task).identity
    assert any("lr=model" in row.plan for row in after.rows)  # as the paper's rule was by default then
    assert [(re.sub(r",lr=model|\(lr=model\)", "", name), *rest) for name, *rest in results(after)] == results(before)
    moved = {path.parent.name for path in study.glob("trials/*/history.jsonl")}
    assert moved == set(Store(study).read())
    assert len(moved) == len(folders)


def test_rekey_of_a_packed_study_changes_it_in_place(study, task, tmp_path):
    packed = tmp_path / "a.tar.xz"
    records.pack(study, packed)
    records.rekey(packed, task)
    with records.open_study(packed) as folder:
        found = Summary.read(folder)
        assert found.task.identity == records.load_task(task).identity
        assert all("missing" not in row.counts for row in found.rows)
        assert {h["key"] for h in records.read_histories(folder)} == set(Store(folder).read())


def test_rekey_refuses_a_record_whose_key_is_not_that_of_its_content(study, task):
    store = Store(study)
    text = store.trials.read_text().replace('"seed": 1', '"seed": 7', 1)
    store.trials.write_text(text)
    manifest = store.manifest.read_bytes()
    with pytest.raises(ValueError, match=r"are not those of what their records hold.*Nothing was changed"):
        records.rekey(study, task)
    assert (store.trials.read_text(), store.manifest.read_bytes()) == (text, manifest)
    records.rekey(study, task, leave_others=True)
    assert sum(r.seed == 7 for r in store.read_all()) == 1
