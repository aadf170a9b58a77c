"""The records that are kept under docs/results: today's code still finds each of their trials."""

import hashlib
import json
from pathlib import Path

import _stores
import pytest
import records

from trainonce.recipes import load
from trainonce.study import Study, Summary, layout
from trainonce.study.store import Store
from trainonce.study.summary import keys_of

DATA = Path(__file__).parents[2] / "docs" / "results" / "data"
PACKED = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.tar.xz"))


#: How many records each kept study has, and a hash of all their numbers, which no change of format or keys may touch.
NUMBERS = {
    "depth/nyu-heavier": (2, "2c36d09f733d3312"),
    "depth/nyu": (57, "00d64b58dd1e38f9"),
    "depth/rooms-many": (1, "d01e8f1137272450"),
    "depth/rooms-mixed-start": (1, "e60a5aa725099b59"),
    "depth/rooms-mixed": (18, "f152974657af892d"),
    "depth/rooms-whole": (1, "af2471ee23629ed6"),
    "depth/rooms": (2, "d6b943e91accab66"),
    "segmentation/camvid-poly": (9, "b60f3a5bbc56c020"),
    "segmentation/camvid": (66, "5fde8d5eb010d6ac"),
    "segmentation/streets-sgdw": (57, "2ba9735c3a11eb22"),
    "study/burgers-initial": (155, "2af57ccfb01cfc89"),
    "study/burgers": (575, "e4e9a9c53c40f157"),
    "study/digits": (575, "7de73777f9934b93"),
    "study/distillation": (510, "f5df02f2de4d3951"),
}
#: Trials of other settings of the task, which the study in that folder does not use.
OTHERS = {"depth/rooms": 1}
#: Those whose results today's code still gives; the recipes of the others have another version, or base, by now.
OF_TODAY = {
    "segmentation/camvid": "camvid",
    "segmentation/camvid-poly": "camvid",
    "segmentation/streets-sgdw": "streets",
    "study/burgers-initial": "burgers",
    "study/digits": "digits",
    "study/distillation": "distillation",
}

needs_records = pytest.mark.skipif(not DATA.is_dir(), reason="a source distribution has no records")


@needs_records
def test_the_kept_studies_are_there():
    assert [f"{name}.tar.xz" for name in NUMBERS] == PACKED


@needs_records
@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_a_kept_study_stay_and_each_trial_belongs_to_a_plan(name):
    with records.open_study(DATA / f"{name}.tar.xz") as folder:
        summary = Summary.read(folder)
        kept = [json.loads(line) for line in (folder / layout.RECORDS).read_text().splitlines()]
        numbers = [{key: line[key] for key in line if key not in ("key", "rule", "format")} for line in kept]
        found = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]
        assert (len(kept), found) == NUMBERS[name]
        wanted = {key for plan in summary.plans for key in keys_of(plan, summary.task.identity)}
        assert len({line["key"] for line in kept} - wanted) == OTHERS.get(name, 0)
        assert len(summary.rows) == len(summary.plans)


@needs_records
@pytest.mark.parametrize("name", NUMBERS)
def test_only_records_of_today_say_that_they_are_of_the_task_of_today(name):
    with records.open_study(DATA / f"{name}.tar.xz") as folder:
        info = Summary.read(folder).task
    settings = {key: value for key, value in info.settings.items() if key in load(info.name).settings}
    assert (load(info.name).using(**settings).identity == info.identity) == (name in OF_TODAY)


#: What the plans of older studies are called today: by default their rule moved at the rate of the model.
RENAMED = {
    "one-shot": "yoto(lr=model)",
    "one-shot(preset=softplus)": "yoto(regularizer=softplus,lr=model)",
    "one-shot(init=0.1)": "yoto(init=0.1,lr=model)",
    "one-shot(init=1)": "yoto(init=1,lr=model)",
    **{name: f"{name}(lr=model)" for name in ("replay", "final", "sweep-init", "sweep-decay")},
}


@needs_records
@pytest.mark.parametrize("name", ["study/digits", "study/distillation", "study/burgers-initial"])
def test_a_study_of_today_goes_on_from_the_kept_records(name, tmp_path):
    records.unpack(DATA / f"{name}.tar.xz", tmp_path)
    kept = Store(tmp_path).read()
    study = Study(load(OF_TODAY[name]), tmp_path, seeds=5)
    assert not study.changes
    wanted = set()
    for plan in Summary.read(tmp_path).plans:
        if plan["name"].startswith("asha"):  # which is no plan any more
            wanted.update(keys_of(plan, study.task.identity))
        else:
            study.add(RENAMED.get(plan["name"], plan["name"]))
    assert wanted | {key for item in study.items() for key in item.keys} == set(kept)


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


def test_rekey_finds_all_trials_again(study, task):
    before = Summary.read(study)
    records.rekey(study, task)
    after = Summary.read(study)
    assert after.task.settings == {"steps": 120, "lr": 0.01, "added": 0}
    assert after.task.identity == records.load_task(task).identity != before.task.identity
    assert results(after) == results(before)
    assert {path.parent.name for path in study.glob("trials/*/history.jsonl")} == set(Store(study).read())


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
