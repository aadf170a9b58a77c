"""The demo: selection on validation only, a sentence that says what happened, files that are all there."""

import json
import math
import os
import random
import re
import subprocess
import sys

import pytest

from trainonce import demo
from trainonce.recipes import digits

NUMBER = r"(\d+\.\d)(?: \+- (\d+\.\d))?"
SENTENCE = re.compile(
    rf"One run with learned weights: {NUMBER} % test accuracy; best of (\d+) grid points \(chosen on validation\): "
    rf"{NUMBER} % at (\d+) times the cost; (\d+) of the (\d+) points did better on test than the learned weights\."
)


def planted(accuracies):
    """Trials with the given (validation, test) of every plan and seed, in an order that means nothing."""
    trials = [
        demo.Trial(plan, seed, validation, test, [0, 1], [[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]], 1.0)
        for plan, seeds in zip(demo.plans(), accuracies, strict=True)
        for seed, (validation, test) in enumerate(seeds)
    ]
    random.Random(0).shuffle(trials)
    return trials


def independently(accuracies):
    """Mean and standard deviation of learned and best, and how many points are better, in other words than demo's."""

    def moments(values):
        mean = sum(values) / len(values)
        squares = sum((v - mean) ** 2 for v in values)
        return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None

    tests = [moments([t for _, t in seeds]) for seeds in accuracies]
    validations = [moments([v for v, _ in seeds])[0] for seeds in accuracies]
    best = 1 + validations[1:].index(max(validations[1:]))
    return tests[0], tests[best], sum(mean > tests[0][0] for mean, _ in tests[1:])


FAVOURABLE = [[(80, 90), (82, 92)], *([[(70 + i, 60 + i), (71 + i, 62 + i)] for i in range(9)])]
# Learned is worst of all; the point that is best on test (the first) is not the one validation chooses (the last).
UNFAVOURABLE = [[(95, 30), (96, 33)], [(50, 99), (52, 97)], *([[(60 + i, 70 + i), (60 + i, 75 + i)] for i in range(8)])]
ONE_SEED = [[(50, 50.04)], *([[(50 - i, 50 + i / 2)] for i in range(9)])]


@pytest.mark.parametrize("accuracies", [FAVOURABLE, UNFAVOURABLE, ONE_SEED], ids=["good", "bad", "one seed"])
def test_the_sentence_says_what_an_independent_computation_finds(accuracies):
    said = SENTENCE.fullmatch(demo.sentence(demo.summarise(planted(accuracies))))
    assert said
    learned, best, better = independently(accuracies)
    for (mean, deviation), groups in ((learned, said.group(1, 2)), (best, said.group(4, 5))):
        assert float(groups[0]) == pytest.approx(mean, abs=0.0501)
        assert (groups[1] is None) == (deviation is None)
        if deviation is not None:
            assert float(groups[1]) == pytest.approx(deviation, abs=0.0501)
    assert [int(said.group(i)) for i in (3, 6, 7, 8)] == [9, 9, better, 9]


def test_the_planted_unfavourable_truth_is_said():
    text = demo.sentence(demo.summarise(planted(UNFAVOURABLE)))
    assert "learned weights: 31.5 +- 2.1 %" in text
    assert "(chosen on validation): 79.5 +- 3.5 %" in text  # not the 98.0 of the point that is best on test
    assert "9 of the 9 points did better" in text


@pytest.mark.parametrize("accuracies", [FAVOURABLE, UNFAVOURABLE, ONE_SEED, [[(100.0, 100.0), (0.0, 0.0)]] * 10])
def test_the_table_fits_and_counts_the_trainings(accuracies):
    summaries = demo.summarise(planted(accuracies))
    lines = demo.table(summaries).splitlines()
    seeds = len(accuracies[0])
    assert max(map(len, lines)) <= 80
    assert len(lines) == 12
    assert [int(line.split()[-1]) for line in lines[1:]] == [seeds] * 10 + [9 * seeds]
    marked = [line for line in lines[1:-1] if " * " in line]
    assert len(marked) == 1
    assert marked[0].startswith(demo.chosen(summaries).plan.name)
    assert lines[1].split()[:5] == ["learned", "(last)", "0.50", "0.30", "0.20"]


def test_the_plans_are_the_learned_weights_and_every_pair_of_ratios():
    learned, *grid = demo.plans()
    assert learned.criterion().learned
    assert [p.ratios for p in grid] == [(a, b) for a in (0.1, 1, 10) for b in (0.1, 1, 10)]
    for plan in grid:
        criterion = plan.criterion()
        assert not criterion.learned
        assert criterion.weights[1:].div(criterion.weights[0]).tolist() == pytest.approx(plan.ratios)


def test_every_plan_goes_through_the_one_loop(monkeypatch):
    calls = []

    def train(criterion, **settings):
        settings.pop("history").bind(criterion)
        calls.append((criterion.learned, settings))
        return {"validation": 1.0, "test": 2.0}

    monkeypatch.setattr(digits, "train", train)
    monkeypatch.setattr(demo.trainonce.History, "weights", lambda self: demo.torch.ones(7, 3) / 3)
    for plan in demo.plans():
        demo.run(plan, 4, 7)
    assert [learned for learned, _ in calls] == [True] + [False] * 9
    assert all(settings == calls[0][1] for _, settings in calls)
    assert calls[0][1] == {"seed": 4, "steps": 7, "lr": demo.LR, "decay": demo.DECAY}


def test_a_trial_keeps_the_weights_from_the_first_to_the_last():
    trial = demo.run(demo.Plan("learned"), seed=0, steps=4)
    assert trial.at == [0, 1, 2, 3, 4]
    assert trial.weights[0] == pytest.approx([1 / 3] * 3)
    assert all(sum(w) == pytest.approx(1) for w in trial.weights)
    assert trial.weights[-1] != trial.weights[-2]


def test_end_to_end_the_files_are_written(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert demo.main(["--steps", "5", "--seeds", "1", "--workers", "1", "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["results.json", "weights.png"]
    assert (out / "weights.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((out / "results.json").read_text())
    printed = capsys.readouterr().out
    assert str(out / "weights.png") in printed
    assert " ".join(results["sentence"].split()) in " ".join(printed.split())
    assert [t["plan"] for t in results["trials"]] == [p.name for p in demo.plans()]
    assert results["trials"][0]["weights"]["step"] == [0, 1, 2, 3, 4, 5]
    accuracies = [[(t["validation"], t["test"])] for t in results["trials"]]
    assert results["sentence"] == demo.sentence(demo.summarise(planted(accuracies)))
    assert sum("/10 " in line for line in printed.splitlines()) == 10  # progress: a plain line for each plan


def test_as_a_command_with_two_processes_and_no_warning(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "trainonce.demo", "--steps", "3", "--seeds", "1", "--workers", "2"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONWARN", "MPL"))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "out" / "demo" / "weights.png").is_file()
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("modules", "package"),
    [
        (("sklearn", "sklearn.datasets"), "scikit-learn"),
        (("matplotlib", "matplotlib.figure"), "matplotlib"),
        (("rich", "rich.progress"), "rich"),
    ],
)
def test_a_missing_extra_is_one_sentence_before_any_training(modules, package, monkeypatch, capsys, tmp_path):
    digits.pool.cache_clear()
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(demo, "run_all", lambda *_: pytest.fail("trained"))
    assert demo.main(["--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert err == f'This needs {package}, which is not installed: pip install "trainonce[demo]"\n'
    assert out == ""
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert demo.main(["--out", str(tmp_path / "file" / "out")]) == 1
    assert re.fullmatch(r"The folder .* cannot be made: .*\. Choose another with --out\.\n", capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--steps", "--seeds", "--workers"])
def test_counts_below_one_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        demo.main([option, "0"])
    assert "must be at least 1; got 0" in capsys.readouterr().err
