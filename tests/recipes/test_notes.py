"""What the recipes with a paper's numbers say before they start: each note where it is due, and only there."""

import re

import pytest

from trainonce.recipes import load, notes
from trainonce.study import plans

WEIGHTS = {"weights": "encoder.pth"}


def said(name, given, texts, seeds, ranks=1, preset="printed"):
    task = load(name).using(**WEIGHTS | given).over(ranks)
    task = task.preset(preset) if preset in task.presets else task
    return task.notes(task, [plans.parse(text, task) for text in texts], list(range(seeds)))


@pytest.mark.parametrize(
    ("name", "texts", "seeds", "trainings"),
    [
        ("unidepth-paper", ["yoto", "yoto(regularizer=softplus)", "grid-3x3", "sweep-init(decay=2)"], 1, 16),
        ("ciss-paper", ["yoto", "grid-13"], 3, 42),
        ("ciss-paper", ["uniform"], 1, 1),
    ],
)
def test_the_papers_own_trainings_need_no_note(name, texts, seeds, trainings):
    task = load(name)
    made = [plans.parse(text, task) for text in texts]
    assert notes.cost.missing_trials(task, made, list(range(seeds)), {}) == trainings
    assert said(name, {}, texts, seeds) == []


def test_choices_that_are_not_as_printed_are_noted():
    (note,) = said("ciss-paper", {}, ["yoto"], 3, preset="")
    assert note == "Optimizer, weight decay, decay and regularizer are not as printed: --preset printed."


@pytest.mark.parametrize("name", ["unidepth-paper", "ciss-paper"])
def test_random_weights_are_noted(name):
    (note,) = said(name, {"weights": ""}, ["uniform"], 1)
    assert "starts from random weights" in note
    assert "Set weights=" in note


def test_a_whole_network_is_as_good_as_an_encoder():
    assert said("unidepth-paper", {"weights": "", "network": "network.pt"}, ["uniform"], 1) == []


@pytest.mark.parametrize(
    ("name", "steps", "text", "expected"),
    [
        (
            "ciss-paper",
            37_188,
            "yoto",
            r"In 37,188 steps .* of yoto .* at most 9\.3, the paper's 37\. Set their lr=0\.001 ",
        ),
        ("ciss-paper", 37_188, "final", "of final"),
        ("ciss-paper", 37_188, "yoto(lr=0.001)", ""),
        ("ciss-paper", 37_188, "sweep-lr(0.0001,0.001)", ""),
        ("ciss-paper", 37_188, "grid-13", ""),
        ("ciss-paper", 75_000, "yoto", ""),
        ("unidepth-paper", 75_000, "yoto", r"at most 10, the paper's 40\."),
        ("unidepth-paper", 75_000, "yoto(lr=0.00054)", ""),
    ],
)
def test_exponents_that_hardly_travel_are_noted(name, steps, text, expected):
    found = said(name, {"steps": steps}, [text], 1)
    assert len(found) == bool(expected)
    assert all(re.search(expected, note) for note in found)


@pytest.mark.parametrize(
    ("name", "given", "ranks", "expected"),
    [
        ("unidepth-paper", {}, 8, "A step sees 512 views, 64 in each of 8 processes; the paper's sees 64."),
        ("unidepth-paper", {"batch": 8}, 8, ""),
        ("unidepth-paper", {"batch": 32}, 1, "A step sees 32 views; the paper's sees 64."),
        ("ciss-paper", {}, 4, "A step sees 4 source images"),
    ],
)
def test_another_batch_is_noted(name, given, ranks, expected):
    found = said(name, given, ["uniform"], 1, ranks)
    assert len(found) == bool(expected)
    assert all(note.startswith(expected) for note in found)


@pytest.mark.parametrize(
    ("name", "texts", "seeds", "expected"),
    [
        (
            "unidepth-paper",
            ["yoto", "grid-3x3"],
            3,
            "3 seeds make 30 trainings. The paper has 1 seed, which would make 10.",
        ),
        ("unidepth-paper", ["yoto", "grid-3x3"], 1, ""),
        (
            "ciss-paper",
            ["yoto", "grid-13"],
            5,
            "5 seeds make 70 trainings. The paper has 3 seeds, which would make 42.",
        ),
        ("ciss-paper", ["yoto", "grid-13"], 3, ""),
    ],
)
def test_more_seeds_than_the_paper_are_noted(name, texts, seeds, expected):
    assert said(name, {}, texts, seeds) == [expected] * bool(expected)
