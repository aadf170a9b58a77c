"""The headline: planted truths of every kind, against a computation of another kind."""

import re

import numpy as np
import pytest
from _toy import MARGIN, TASK
from scipy import stats

from trainonce.study import Record, Summary, sentences
from trainonce.study.weightings import Fixed, Learned, key_of
from trainonce.study.weightings.peers import Peer

GRID = [Fixed.of((1.0, ratio)) for ratio in (0.1, 0.5, 10.0)]
CHOICES = {
    "one-shot": ("learned", [Learned()]),
    "uniform": ("fixed", [Fixed.of((1.0, 1.0))]),
    "base": ("fixed", [Fixed.of((1.0, 0.0))]),
    "fixed(1,7)": ("fixed", [Fixed.of((1.0, 7.0))]),
    "uw": ("peer", [Peer("uw")]),
    "grid": ("set", GRID),
}
NOISE = np.array([0.3, -0.2, 0.1, -0.3, 0.1])  # over five seeds, alike for all plans


def study(levels, noise=NOISE, direction="maximize", twist=0.05):
    """A study whose plans have the given levels; the points of the grid have one each."""
    records, plans, sign = [], [], 1 if direction == "maximize" else -1
    seeds = list(range(len(noise)))
    for number, (name, level) in enumerate(levels.items()):
        kind, weightings = CHOICES[name]
        plans.append({"name": name, "kind": kind, "points": [w.to_json() for w in weightings], "seeds": seeds})
        for place, (weighting, value) in enumerate(zip(weightings, np.atleast_1d(level), strict=True)):
            for seed in seeds:
                own = twist * np.sin(1 + 7 * seed + 3 * number + 5 * place)
                found = sign * float(value + noise[seed] + own)
                metrics = {"validation/score": found, "test/score": found}
                key = key_of("id", weighting, seed)
                records.append(Record(key, "toy", weighting, seed, "done", metrics, weights=(0.5, 0.5), seconds=1.0))
    return Summary({"task": TASK | {"direction": direction}, "plans": plans}, records)


def independent_verdict(found, one, other):
    """The verdict on two lists of test results by SciPy's paired test, from the records alone."""
    interval = stats.ttest_rel(one, other).confidence_interval(0.95)
    low, high = sorted((interval.low, interval.high))
    if found.task.direction == "minimize":
        low, high = -high, -low
    if low > 0:
        return "better"
    if low >= -MARGIN:
        return "not worse"
    return "worse" if high < -MARGIN else "slightly worse" if high < 0 else "undecided"


def results(found, weighting):
    return [r.metrics["test/score"] for r in found.records if r.weighting == weighting]


TRUTHS = {
    "equal weights win": ({"one-shot": 85, "uniform": 90, "uw": 88, "grid": [80, 90.05, 70]}, "uniform", "not worse"),
    "a peer wins": ({"one-shot": 88, "uniform": 88, "uw": 92, "grid": [80, 89, 70]}, "uw", "better"),
    "searching wins": ({"one-shot": 80, "uniform": 82, "uw": 79, "grid": [80, 90, 70]}, "uniform", "worse"),
    "learned weights win": ({"one-shot": 93, "uniform": 85, "uw": 84, "grid": [80, 89, 70]}, "one-shot", "better"),
    "all are level": ({"one-shot": 90, "uniform": 90, "uw": 90.2, "grid": [90, 90.1, 90]}, "uw", "better"),
    "a little is lost": (
        {"one-shot": 88, "uniform": 89.05, "uw": 87, "grid": [80, 90, 70]},
        "uniform",
        "slightly worse",
    ),
}
SAYS = {
    "equal weights win": "Equal weights do as well as the best of 3 grid points here: test score N, against N at 3 "
    "times the cost. You need not search. One run with learned weights is worse: N.",
    "a peer wins": "Uncertainty weighting (uw) does better than the best of 3 grid points here: test score N, against "
    "N at 3 times the cost. One run with learned weights is worse: N.",
    "searching wins": "Searching pays here: the best of 3 grid points has N at 3 times the cost, and equal weights, "
    "the best single training, test score N. One run with learned weights is worse: N.",
    "learned weights win": "One run with learned weights does better than the best of 3 grid points here: test score "
    "N, against N at 3 times the cost. Equal weights are worse: N.",
    "all are level": "Uncertainty weighting (uw) does better than the best of 3 grid points here: test score N, "
    "against N at 3 times the cost. One run with learned weights does as well: N.",
    "a little is lost": "Equal weights, the best single training, are a little worse than the best of 3 grid points: "
    "test score N, against N at 3 times the cost. One run with learned weights is a little worse: N.",
}
RESULT = r"(-?\d+\.\d+) \+- (\d+\.\d+) %"


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_headline_tells_the_planted_truth(truth, direction):
    levels, best, verdict = TRUTHS[truth]
    found = study(levels, direction=direction, twist=0.3 if truth == "a little is lost" else 0.05)
    assert found.best_single.plan == best
    ours, theirs = results(found, CHOICES[best][1][0]), results(found, found.reference.chosen.weighting)
    assert found.verdict(found.best_single) == independent_verdict(found, ours, theirs) == verdict
    text = sentences.sentence(found)
    assert re.sub(RESULT, "N", text) == SAYS[truth]
    third = results(found, CHOICES["uniform" if best == "one-shot" else "one-shot"][1][0])
    order = [theirs, ours, third] if verdict == "worse" else [ours, theirs, third]
    said = [(float(mean), float(deviation)) for mean, deviation in re.findall(RESULT, text)]
    expected = [(np.mean(values), np.std(values, ddof=1)) for values in order]
    assert np.array(said) == pytest.approx(np.array(expected), abs=0.0051)


def test_noise_that_hides_the_difference_is_called_so():
    found = study({"one-shot": 86, "uniform": 90.5, "grid": [80, 90, 70]}, twist=2.0)
    assert re.sub(RESULT, "N", sentences.sentence(found)) == (
        "5 seeds cannot tell equal weights, the best single training, from the best of 3 grid points: test score N, "
        "against N at 3 times the cost. One run with learned weights has N, too close to call."
    )


def test_equal_weights_that_are_the_best_point_of_the_grid_need_no_comparison():
    found = study({"one-shot": 88, "uniform": 90, "grid": [80, 89, 70]})
    same = [*GRID[:2], Fixed.of((1.0, 1.0))]
    plans = [p | ({"points": [w.to_json() for w in same]} if p["name"] == "grid" else {}) for p in found.plans]
    text = sentences.sentence(Summary({"task": TASK, "plans": plans}, found.records))
    assert text.startswith("Equal weights are the best of 3 grid points here, with test score 89.98 +- 0.25 %")
    assert ": you need not search. One run with learned weights is worse: 88.02" in text


def test_one_seed_decides_nothing():
    text = sentences.sentence(study({"one-shot": 88, "uniform": 90, "grid": [80, 92, 70]}, noise=[0.0]))
    assert text.startswith("One seed decides nothing: equal weights have test score 90")


@pytest.mark.parametrize(
    ("levels", "starts"),
    [
        ({"base": 95, "grid": [80, 90, 70]}, "The base term alone does better than the best of 3 grid points here: "),
        ({"fixed(1,7)": 95, "grid": [80, 90, 70]}, "The fixed weights 1 : 7 do better than the best of 3 grid points "),
    ],
)
def test_every_single_training_has_a_name(levels, starts):
    text = sentences.sentence(study(levels))
    assert text.startswith(starts)
    assert text.endswith("There is no run with learned weights: add the plan one-shot.")


def test_without_a_search_the_best_single_training_is_named():
    text = sentences.sentence(study({"one-shot": 88, "uniform": 90}))
    assert text.startswith("Equal weights, the best of the single trainings, have test score 89.98")
    assert "There is no grid to compare with: add the plan grid. One run with learned weights is worse: 88" in text
