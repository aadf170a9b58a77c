"""The command ``evaluate``: which training it takes, what it prints, and one sentence where it cannot."""

import json
import re

import pytest

from trainonce import cli

TASK = '''
"""A line through points; the metric is the seed's own number, so that the order of the seeds is known."""
import torch
from trainonce.study import task

ERRORS = {0: 3.0, 1: 1.0, 2: 2.0}

def evaluate(kept, *, steps, data_root, shift):
    weight = torch.load(kept.network)["weight"]
    kept.progress(1, 1, "points")
    for folder in filter(None, (kept.pictures, kept.export)):
        folder.mkdir(parents=True)
        (folder / "written.txt").write_text(f"{kept.seed} {kept.device}")
    return {"validation/error": ERRORS[kept.seed] + shift, "test/error": float(weight), "more/size": 1.0}

def train(trial, *, steps=2, data_root="", shift=(0.0,)):
    """A line."""
    model = torch.nn.Linear(1, 1)
    criterion = trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    trial.attach(optimizer)
    for _ in range(steps):
        criterion(fit=model.weight.square().sum(), small=model.bias.square().sum()).backward()
        optimizer.step()
    if trial.seed != 3:
        torch.save(model.state_dict(), trial.dir / "network.pt")
    return {"validation/error": ERRORS.get(trial.seed, 0.0), "test/error": model.weight.item()}

given = dict(terms=["fit", "small"], metric="error", direction="minimize", incidental=["data_root"])
line = task(**given, name="line", evaluate=lambda kept, **s: evaluate(kept, **(s | {"shift": s["shift"][0]})))(train)
plain = task(**given, name="plain")(train)
'''


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Studies of both tasks, to be read only; that called one has kept no network."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "tasks.py").write_text(TASK)
    several = ("yoto", "grid:0.1,1")
    for name, plans, seeds in (("line", several, "0-2"), ("plain", ("yoto",), "1"), ("one", ("yoto",), "3-3")):
        task = f"{folder / 'tasks.py'}:{'line' if name == 'one' else name}"
        given = [
            "compare",
            task,
            "--plans",
            *plans,
            "--seeds",
            seeds,
            "--workers",
            "0",
            "--no-report",
            "--device",
            "cpu",
        ]
        assert cli.main([*given, "--out", str(folder / name)]) == 0
    return folder


def evaluate(studies, name, *more):
    task = f"{studies / 'tasks.py'}:{'line' if name.partition('/')[0] == 'one' else name.partition('/')[0]}"
    return cli.main(["evaluate", str(studies / name), "--task", task, "--device", "cpu", *map(str, more)])


@pytest.mark.parametrize(("choice", "seed"), [("worst", 0), ("best", 1), ("median", 2)])
def test_a_seed_is_chosen_by_the_selecting_split(studies, capsys, choice, seed):
    assert evaluate(studies, "line", "--plan", "yoto", "--choose", choice) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^line: yoto, init .*, seed {seed}, {studies}/line/trials/\w+/network.pt$", said, re.M)
    first, *rest = said.splitlines()[2:]
    assert first.split() == ["validation/error", *[str(3 - 2 * (seed == 1) - (seed == 2))] * 2]
    assert rest[0].split()[1] == rest[0].split()[2]  # the weight that was kept is the one that was recorded
    assert rest[1].split() == ["more/size", "1"]  # what the record does not have


def test_of_a_grid_it_takes_the_point_that_is_reported_and_a_trial_by_its_folder(studies, capsys):
    assert evaluate(studies, "line", "--plan", "grid:0.10,1", "--seed", 1) == 0
    said = capsys.readouterr().out
    trial = re.search(r"trials/(\w+)", said)[1]
    assert "line: fixed, 1 : 0.1, seed 1, " in said
    assert evaluate(studies, f"line/trials/{trial}") == 0
    assert capsys.readouterr().out == said


def test_other_settings_are_used_and_named_and_files_are_written_where_asked(studies, tmp_path, capsys):
    more = ("--set", "shift=[0.5]", "--data-root", tmp_path, "--pictures", tmp_path / "p", "--export", tmp_path / "e/x")
    assert evaluate(studies, "line", "--plan", "yoto", "--seed", 2, *more) == 0
    said = capsys.readouterr().out
    assert "With other settings than in training: shift=(0.5,) for (0.0,)\n" in said
    assert re.search(r"^validation/error +2.5 +2$", said, re.M)
    assert said.endswith(f"Pictures: {tmp_path}/p\nPredictions: {tmp_path}/e/x\n")
    assert (tmp_path / "e/x/written.txt").read_text() == "2 cpu"


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("nowhere", (), "{folder}/nowhere has no study.json."),
        ("plain", (), "The task 'plain' cannot evaluate a kept network: its @task has no evaluate=."),
        ("line", (), "Several plans of {folder}/line kept networks: choose one with --plan: yoto, grid(0.1,1)."),
        (
            "line",
            ("--plan", "uniform"),
            "No plan 'uniform' of {folder}/line has kept a network; these have: yoto, grid",
        ),
        ("line", ("--plan", "yoto"), "seeds 0, 1, 2: choose one with --seed, or by the validation error with --choose"),
        (
            "line",
            ("--plan", "yoto", "--seed", 7),
            "Seed 7 of 'yoto' has kept no network; the seeds with one are 0, 1, 2.",
        ),
        (
            "one",
            (),
            "No trial of {folder}/one has kept its network, network.pt. Networks are kept with --set keep_model=yes",
        ),
        ("line/trials/nothing", (), "The trial nothing of {folder}/line has no result: it failed or has not ended."),
        (
            "line/trials/nothing",
            ("--seed", 0),
            "is one trial: --plan, --seed and --choose are for the folder of a study.",
        ),
        ("line", ("--plan", "yoto", "--seed", 0, "--set", "shft=1"), "has no setting 'shft'"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(studies, capsys, name, more, said):
    assert evaluate(studies, name, *more) == 1
    captured = capsys.readouterr()
    assert said.format(folder=studies) in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_a_study_of_no_recipe_needs_its_task(studies, capsys):
    assert cli.main(["evaluate", str(studies / "line")]) == 1
    assert "is of the task 'line', which is no recipe: name its file with --task." in capsys.readouterr().err
    assert cli.main(["evaluate", str(studies / "line"), "--task", f"{studies / 'tasks.py'}:plain"]) == 1
    assert "is of the task 'line'; --task " in capsys.readouterr().err


def test_a_trial_of_earlier_settings_is_refused(studies, tmp_path, capsys):
    """Its settings are no longer written anywhere."""
    old = tmp_path / "line"
    old.mkdir()
    for name in ("trials.jsonl", "study.json"):
        (old / name).write_text((studies / "line" / name).read_text())
    manifest = json.loads((old / "study.json").read_text())
    manifest["task"]["identity"] = "another"
    (old / "study.json").write_text(json.dumps(manifest))
    key = json.loads((old / "trials.jsonl").read_text().splitlines()[0])["key"]
    (old / "trials" / key).mkdir(parents=True)
    assert cli.main(["evaluate", str(old / "trials" / key), "--task", f"{studies / 'tasks.py'}:line"]) == 1
    assert f"The trial {key} is of no plan of {old} as it is now: its settings were others" in capsys.readouterr().err
