"""Studies on a Ray cluster of two nodes, where nothing goes wrong but what the user got wrong."""

import collections
import os
import sys
from pathlib import Path

import _cluster_tasks
import pytest
import ray
from _cluster_studies import make_study, records

from trainonce import cli
from trainonce.errors import StoppedError
from trainonce.study import Study
from trainonce.study.executors.task_location import load_file
from trainonce.study.store import Store


@pytest.fixture
def address(shared_cluster):
    return {"address": shared_cluster.address}


def test_a_cluster_finds_the_same_numbers_and_files(tmp_path, address):
    plans = ["yoto", "replay", "sha(trials=4)"]  # which need another trial's history, and earlier records
    here, there = (make_study(tmp_path / name, tmp_path / "n", plans, steps=27) for name in ("here", "there"))
    here.run(workers=0, device="cpu", show=False)
    there.run(executor="ray", options=address, show=False)
    found = [
        {r.key: (r.status, r.metrics, r.coefficients, r.reports) for r in records(s.store.path)} for s in (here, there)
    ]
    assert found[0] == found[1]
    for key in found[0]:
        timed = {"checkpoint.pt", "spent.json"}  # they hold seconds
        files = [
            {p.name: p.name in timed or p.read_bytes() for p in s.store.folder(key).iterdir()} for s in (here, there)
        ]
        assert files[0] == files[1]
        assert there.store.log(key).read_text() == "a last word\n"
    assert {status for status, *_ in found[0].values()} == {"done", "paused"}


def test_both_nodes_work(steady, address):
    made = steady(seeds=4, pause=0.1)
    made.run(executor="ray", options=address, show=False)
    starts = _cluster_tasks.starts(made.task.settings["notes"])
    assert len({start.worker for start in starts}) == 2


def test_a_node_that_does_not_see_the_study_is_one_sentence(steady, address, monkeypatch):
    """The folder of its name that it has there is of another study."""
    monkeypatch.setattr(
        Store, "joined", property(lambda self: "elsewhere-1-ab", lambda self, name: None), raising=False
    )
    made = steady()
    with pytest.raises(
        StoppedError, match=r"^The worker on \S+ does not see the study in \S+: on a Ray cluster it must"
    ):
        made.run(executor="ray", options=address, show=False)
    assert records(made.store.path) == []


NEIGHBOUR = """
import json
from pathlib import Path

import torch

import helper
from trainonce.study import task


@task(terms=["fit", "small"], metric="error", direction="minimize")
def mine(trial):
    w, criterion = torch.nn.Parameter(torch.ones(1)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    criterion(fit=w.square().sum(), small=w.abs().sum()).backward()
    optimizer.step()
    value = helper.VALUE + json.loads(Path(__file__).with_name("values.json").read_text())
    return {"validation/error": value, "test/error": value}
"""


def test_a_task_finds_the_files_beside_it(tmp_path, address, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "near_task.py").write_text(NEIGHBOUR)
    (folder / "helper.py").write_text("VALUE = 40\n")
    (folder / "values.json").write_text("2")
    given = ["run", str(folder / "near_task.py"), "--executor", "ray", "--address", address["address"]]
    assert cli.main([*given, "--out", str(folder / "out"), "--cpus", "0.5"]) == 0
    assert "test/error               42" in capsys.readouterr().out


def test_a_task_that_cannot_be_imported_on_a_worker_is_one_sentence(tmp_path, address, monkeypatch):
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    (tmp_path / "project").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project" / "lost_task.py").write_text(NEIGHBOUR)
    (tmp_path / "elsewhere" / "helper.py").write_text("VALUE = 40\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    task = load_file(tmp_path / "project" / "lost_task.py").mine
    with pytest.raises(
        StoppedError, match=r"^The task 'mine' cannot be loaded on \S+: ModuleNotFoundError: No module n"
    ):
        Study(task, tmp_path / "out", seeds=2).add("uniform").run(executor="ray", options=address, show=False)
    assert records(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("raise", "ZeroDivisionError", "the divisor was 0"),
        ("die", "ProcessDied", "(signal SIGKILL). Was memory short?"),
    ],
)
def test_a_trial_that_fails_is_recorded_and_runs_again_next_time(trouble, kind, text, steady, address):
    made = steady(seeds=3, trouble=trouble, seed_of_trouble=1)
    made.run(executor="ray", options=address, show=False)
    found = {r.seed: r for r in records(made.store.path)}
    assert [found[seed].status for seed in range(3)] == ["done", "failed", "done"]
    assert found[1].error["type"] == kind
    assert text in found[1].error["message"]
    if trouble == "die":
        assert made.store.log(found[1].key).read_text() == "a word before the trouble\n"
    assert len(_cluster_tasks.starts(made.task.settings["notes"])) == 3  # it is not tried again at once
    made.run(executor="ray", options=address, show=False)
    assert len(records(made.store.path)) == 4


def test_four_trainings_share_two_gpus(tmp_path, gpu_cluster):
    notes = tmp_path / "notes"
    made = Study(_cluster_tasks.visible.using(notes=str(notes), together=4), tmp_path / "out", seeds=4).add("uniform")
    options = {"address": gpu_cluster.address, "gpus": 0.5}
    made.run(executor="ray", options=options, show=False, keep_going=True)
    seen = [line.split() for line in notes.read_text().splitlines()]
    assert {device for device, _ in seen} == {"cuda"}
    assert collections.Counter(visible for _, visible in seen) == {"0": 2, "1": 2}


def test_an_error_that_the_user_can_fix_stops_the_study(steady, address):
    with pytest.raises(StoppedError, match=r"^The data is not where it should be\.$"):
        steady(trouble="input").run(executor="ray", options=address, show=False)


def test_what_a_cluster_does_not_have_is_one_sentence(steady, address):
    with pytest.raises(ValueError, match=r"asks for 1 CPUs and 3 GPUs, and no node of the Ray cluster has them\."):
        steady().run(executor="ray", options={**address, "gpus": 3}, show=False)
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("127.0.0.1:1", "No Ray cluster answers at '127.0.0.1:1'"), ("ray://here:10001", "is one of Ray Client")],
)
def test_an_address_that_cannot_be_used_is_one_sentence(address, sentence, steady, capsys):
    with pytest.raises((StoppedError, ValueError), match=sentence):
        steady().run(executor="ray", options={"address": address}, show=False)
    assert not ray.is_initialized()


def test_without_an_address_a_cluster_is_started_and_stopped(steady, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = _ray_processes()
    made = steady(seeds=1)
    made.run(executor="ray", show=False)
    assert [r.status for r in records(made.store.path)] == ["done"]
    assert not ray.is_initialized()
    assert _ray_processes() <= before


def _ray_processes():
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.path.basename(words[0]) in (b"raylet", b"gcs_server"):
            found.add(int(path.parent.name))
    return found
