"""The headline: planted truths of every kind, against a computation of another kind."""

import dataclasses
import re

import numpy as np
import pytest
from _stores import yoto
from _toy import MARGIN, TASK
from scipy import stats

from trainonce.report import headline, table
from trainonce.study import Record, Summary
from trainonce.study.rules import Rule, fixed, key_of
from trainonce.study.search import Search

CHOICES = {
    "yoto": ("rule", [yoto()]),
    "yoto(init=1)": ("rule", [yoto(init=1.0)]),
    "uniform": ("fixed", [fixed((1.0, 1.0))]),
    "base": ("fixed", [fixed((1.0, 0.0))]),
    "fixed(1,7)": ("fixed", [fixed((1.0, 7.0))]),
    "uw": ("peer", [Rule("uw")]),
    "grid": ("set", [fixed((1.0, ratio)) for ratio in (0.1, 0.5, 10.0)]),
    "grid(0.1,0.5,1)": ("set", [fixed((1.0, ratio)) for ratio in (0.1, 0.5, 1.0)]),  # with equal weights
    "random(trials=3)": ("set", [fixed((1.0, ratio)) for ratio in (0.3, 2.0, 5.0)]),
}
SINGLE = ("yoto", "uniform", "base", "fixed(1,7)", "uw")
NOISE = np.array([0.3, -0.2, 0.1, -0.3, 0.1])  # over five seeds, alike for all plans


def plant(levels, noise=NOISE, twist=0.05):
    """The results of plans with the given levels by seed, a dict for each point."""
    return {
        name: [
            {s: float(level + noise[s] + twist * np.sin(1 + 7 * s + 3 * number + 5 * place)) for s in range(len(noise))}
            for place, level in enumerate(np.atleast_1d(level))
        ]
        for number, (name, level) in enumerate(levels.items())
    }


def summarize(planted, direction="maximize", seeds=None, **task):
    """The summary of planted results; plans were asked for the seeds that they have, or for the given ones."""
    records, plans, sign = {}, [], 1 if direction == "maximize" else -1
    for name, points in planted.items():
        asked = sorted(seeds or {seed for point in points for seed in point})
        search = Search("tpe", len(points), 0.01, 100.0) if name.startswith(("tpe", "sha")) else None
        kind, rules = ("search", []) if search else CHOICES[name]
        described = None if search is None else dataclasses.asdict(search)
        points_json = [w.to_json() for w in rules]
        plans.append({"name": name, "kind": kind, "rules": points_json, "search": described, "seeds": asked})
        for number, point in enumerate(points):
            for seed, value in point.items():
                rule = rules[number] if search is None else fixed((1.0, 0.2 + number))
                key = search.key("id", seed, number) if search else key_of("id", rule, seed)
                metrics = dict.fromkeys(("validation/score", "test/score"), sign * value)
                more = {"coefficients": (0.5, 0.5), "seconds": 1.0}
                records.setdefault(key, Record(key, "toy", rule, seed, "done", metrics, **more))
    return Summary({"task": TASK | {"direction": direction} | task, "plans": plans}, list(records.values()))


def study(levels, noise=NOISE, direction="maximize", twist=0.05):
    return summarize(plant(levels, noise, twist), direction)


def chosen(name, points):
    """The results by seed that a plan stands for: of the best point, or in a search the best of each seed."""
    if name.startswith(("tpe", "sha")):
        return {seed: max(point[seed] for point in points) for seed in points[0]}
    return max(points, key=lambda point: np.mean(list(point.values())))


def independent_verdict(one, other, margin=MARGIN):
    """The verdict on results by seed, more is better, by SciPy's paired test."""
    common = sorted(set(one) & set(other))
    low, high = stats.ttest_rel([one[s] for s in common], [other[s] for s in common]).confidence_interval(0.95)
    for verdict, holds in {
        "better": low > margin,
        "slightly better": low > 0 and high > margin,
        "not worse": low >= -margin,
        "worse": high < -margin,
        "slightly worse": high < 0,
    }.items():
        if holds:
            return verdict
    return "undecided"


TRUTHS = {
    "equal weights win": ({"yoto": 85, "uniform": 90, "uw": 88, "grid": [80, 90.05, 70]}, "uniform", "not worse"),
    "a peer wins": ({"yoto": 88, "uniform": 88, "uw": 92, "grid": [80, 89, 70]}, "uw", "better"),
    "searching wins": ({"yoto": 80, "uniform": 82, "uw": 79, "grid": [80, 90, 70]}, "uniform", "worse"),
    "the paper's rule wins": ({"yoto": 93, "uniform": 85, "uw": 84, "grid": [80, 89, 70]}, "yoto", "better"),
    "all are level": ({"yoto": 90, "uniform": 90, "uw": 90, "grid": [90, 90, 90]}, "uw", "not worse"),
    "a win inside the margin": ({"yoto": 90, "uw": 90.4, "grid": [80, 90, 70]}, "uw", "not worse"),
    "a loss inside the margin": ({"yoto": 89, "uw": 89.6, "grid": [80, 90, 70]}, "uw", "not worse"),
    "a little is gained": (
        {"yoto": 88, "uniform": 91.05, "uw": 87, "grid": [80, 90, 70]},
        "uniform",
        "slightly better",
    ),
    "a little is lost": (
        {"yoto": 88, "uniform": 89.05, "uw": 87, "grid": [80, 90, 70]},
        "uniform",
        "slightly worse",
    ),
    "another search wins": ({"yoto": 85, "uniform": 90, "grid": [80, 90, 70], "tpe": [95, 80]}, "uniform", "worse"),
    "the only search wins": ({"yoto": 85, "uniform": 90, "sha": [80, 95]}, "uniform", "worse"),
    "random points win": (
        {"yoto": 85, "uw": 90, "grid": [80, 90, 70], "random(trials=3)": [95, 80, 80]},
        "uw",
        "worse",
    ),
}
NOISY = {"a little is lost": 0.3, "a little is gained": 0.3}
SAYS = {
    "equal weights win": "Equal weights do as well as the best of 3 grid points here, so you need not search: test "
    "score N, against N at 3 times the cost. One run of the paper's rule is worse: N.",
    "a peer wins": "Uncertainty weighting (uw) does better than the best of 3 grid points here: test score N, against "
    "N at 3 times the cost. One run of the paper's rule is worse: N.",
    "searching wins": "Searching pays here: the best of 3 grid points has N at 3 times the cost, and equal weights, "
    "the best single training, test score N. One run of the paper's rule is worse: N.",
    "the paper's rule wins": "One run of the paper's rule does better than the best of 3 grid points here: test score "
    "N, against N at 3 times the cost. Equal weights are worse: N.",
    "all are level": "Uncertainty weighting (uw) does as well as the best of 3 grid points here, so you need not "
    "search: test score N, against N at 3 times the cost. One run of the paper's rule does as well: N.",
    "a win inside the margin": "Uncertainty weighting (uw) does as well as the best of 3 grid points here, so you need "
    "not search: test score N, against N at 3 times the cost. One run of the paper's rule does as well: N.",
    "a loss inside the margin": "Uncertainty weighting (uw) does as well as the best of 3 grid points here, so you "
    "need not search: test score N, against N at 3 times the cost. One run of the paper's rule does as well: N.",
    "a little is gained": "Equal weights do a little better than the best of 3 grid points here: test score N, against "
    "N at 3 times the cost. One run of the paper's rule is worse: N.",
    "a little is lost": "Equal weights, the best single training, are a little worse than the best of 3 grid points: "
    "test score N, against N at 3 times the cost. One run of the paper's rule is a little worse: N.",
    "another search wins": "Searching pays here: the best of 2 tpe trials has N at 2 times the cost, and equal "
    "weights, the best single training, test score N. One run of the paper's rule is worse: N.",
    "the only search wins": "Searching pays here: the best of 2 sha trials has N at 2 times the cost, and equal "
    "weights, the best single training, test score N. One run of the paper's rule is worse: N.",
    "random points win": "Searching pays here: the best of 3 random points has N at 3 times the cost, and uncertainty "
    "weighting (uw), the best single training, test score N. One run of the paper's rule is worse: N.",
}
RESULT = r"(-?\d+\.\d+) \+- (\d+\.\d+) %"


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_headline_tells_the_planted_truth(truth, direction):
    levels, best, verdict = TRUTHS[truth]
    planted = plant(levels, twist=NOISY.get(truth, 0.05))
    found = summarize(planted, direction)
    text = headline.sentence(found)
    assert re.sub(RESULT, "N", text) == SAYS[truth]
    of_plan = {name: chosen(name, points) for name, points in planted.items()}
    search = max((name for name in of_plan if name not in SINGLE), key=lambda n: np.mean(list(of_plan[n].values())))
    assert (found.best_single.plan, found.best_search.plan) == (best, search)
    said = found.verdict(found.best_single, found.best_search)
    assert said == independent_verdict(of_plan[best], of_plan[search]) == verdict
    third = "uniform" if best == "yoto" else "yoto"
    order = [search, best, third] if verdict == "worse" else [best, search, third]
    sign = 1 if direction == "maximize" else -1
    expected = [(sign * np.mean(v), np.std(v, ddof=1)) for v in (list(of_plan[name].values()) for name in order)]
    shown = [(float(mean), float(deviation)) for mean, deviation in re.findall(RESULT, text)]
    assert np.array(shown) == pytest.approx(np.array(expected), abs=0.0051)


# Searches that are the same as a single training, or not complete


def test_equal_weights_that_are_the_best_point_of_the_grid_need_no_comparison():
    planted = plant({"yoto": 88, "uniform": 90, "grid(0.1,0.5,1)": [80, 89, 90]})
    planted["grid(0.1,0.5,1)"][2] = planted["uniform"][0]
    found = summarize(planted)
    assert headline.sentence(found) == (
        "Equal weights are the best of 3 grid points here, so you need not search: test score 89.98 +- 0.25 %. One run "
        "of the paper's rule is worse: 88.02 +- 0.25 %."
    )
    assert "uniform - best grid point: the same trials; yoto - best grid point -1.9" in headline.evidence(found)


def test_one_seed_decides_nothing_even_if_equal_weights_are_the_best_point():
    planted = {"yoto": [{0: 85.0}], "uniform": [{0: 90.0}], "grid(0.1,0.5,1)": [{0: 89.0}, {0: 70.0}, {0: 90.0}]}
    assert headline.sentence(summarize(planted)) == (
        "One seed decides nothing: equal weights are the best of 3 grid points, with test score 90.0 %. One run of "
        "the paper's rule has 85.0 %."
    )


def test_a_grid_that_is_not_complete_does_not_say_that_you_need_not_search():
    planted = plant({"yoto": 85, "uniform": 90})
    same = planted | {"grid(0.1,0.5,1)": [{}, {}, planted["uniform"][0]]}
    assert headline.sentence(summarize(same)) == (
        "Equal weights are the best of 1 grid points so far: test score 89.98 +- 0.25 % (10 of its 15 trainings are "
        "missing). One run of the paper's rule is worse: 85.02 +- 0.25 %."
    )
    other = planted | {"grid": [plant({"grid": 90})["grid"][0], {}, {}]}
    assert headline.sentence(summarize(other)) == (
        "Equal weights do as well as the best of 1 grid points so far: test score 89.98 +- 0.25 %, against 90.02 +- "
        "0.25 % (10 of its 15 trainings are missing). One run of the paper's rule is worse: 85.02 +- 0.25 %."
    )


def test_another_search_that_is_not_complete_is_named():
    planted = plant({"yoto": 85, "uniform": 90, "grid": [80, 90, 70], "tpe": [70, 60]})
    del planted["tpe"][1][4]
    assert headline.sentence(summarize(planted)).startswith(
        "Equal weights do as well as the best of 3 grid points so far, without all of tpe: test score 8"
    )


# Mixed seeds

HARD = {0: 70.0, 1: 71.0, 2: 70.5, 3: 90.0, 4: 91.0, 5: 92.0, 6: 93.0, 7: 94.0}


def shift(by, seeds=HARD):
    """Results that differ from the hard seeds by so much, a little unevenly."""
    return {seed: HARD[seed] + by + 0.01 * seed for seed in seeds}


def test_numbers_are_those_of_the_seeds_that_both_have():
    """The peer does better on its three hard seeds; the grid has a higher mean, for it has easier ones too."""
    learned = {seed: value - 5 for seed, value in HARD.items()}
    planted = {"yoto": [learned], "uw": [shift(2, (0, 1, 2))], "grid": [HARD, shift(-2), shift(-3)]}
    assert independent_verdict(planted["uw"][0], HARD) == "better"
    assert independent_verdict(learned, planted["uw"][0]) == "worse"
    assert headline.sentence(summarize(planted)) == (
        "Uncertainty weighting (uw) does better than the best of 3 grid points here: test score 72.51 +- 0.51 %, "
        "against 70.50 +- 0.50 % at 3 times the cost, on the 3 seeds that both have. One run of the paper's rule is "
        "worse: 65.50 +- 0.50 % on the same 3 seeds."
    )


def test_the_learned_weights_are_compared_on_their_seeds():
    planted = {"yoto": [{s: HARD[s] - 2 for s in (5, 6, 7)}], "uniform": [shift(0)]}
    planted |= {"grid": [HARD, shift(-1), shift(-3)]}
    assert independent_verdict(planted["yoto"][0], planted["uniform"][0]) == "worse"
    assert headline.sentence(summarize(planted)) == (
        "Equal weights do as well as the best of 3 grid points here, so you need not search: test score 84 +- 11 %, "
        "against 84 +- 11 % at 3 times the cost. One run of the paper's rule is worse: 91.0 +- 1.0 %, against 93.1 +- "
        "1.0 %, on the 3 seeds that both have."
    )


def test_one_common_seed_decides_nothing():
    planted = {"yoto": [shift(1, (6, 7))], "grid": [{7: 93.0, 3: 90.0}, shift(-9, (7, 3)), shift(-8, (7, 3))]}
    assert headline.sentence(summarize(planted)) == (
        "One seed decides nothing: one run of the paper's rule has test score 95.1 %, the best of 3 grid points 93.0 "
        "% at 3 times the cost, on the one seed that both have."
    )


def test_without_a_common_seed_nothing_is_decided():
    easy = {10: 95.0, 11: 96.0, 12: 95.5}
    found = summarize({"yoto": [easy], "grid": [HARD, shift(-2), shift(-3)]})
    assert headline.sentence(found) == (
        "No seed is common to one run of the paper's rule (test score 95.5 +- 0.5 %) and the best of 3 grid points "
        "(83.9 +- 11.2 % at 3 times the cost), so nothing is decided."
    )
    assert headline.evidence(found) == headline.details(found) == ""
    assert found.first_rule.beaten_by is None
    both = summarize({"yoto": [easy], "uniform": [shift(0)], "grid": [HARD, shift(-2), shift(-3)]})
    assert headline.sentence(both).endswith(
        "One run of the paper's rule has 95.5 +- 0.5 %, on other seeds, which decides nothing."
    )
    assert both.best_single.plan == "uniform"  # though the seeds of the other are easier


@pytest.mark.parametrize("others", [("yoto", "uniform"), ("yoto",)])
def test_a_plan_with_few_seeds_does_not_decide_which_single_training_is_best(others):
    """In its only seed equal weights are ahead of learned ones, which are better in all others."""
    learned = {s: HARD[s] + (5 if s else -1) + 0.01 * s for s in HARD}
    results = {"yoto": learned, "uniform": shift(-0.5)}
    planted = {name: [results[name]] for name in others} | {"uw": [{0: 69.9}], "grid": [shift(-4), HARD, shift(-3)]}
    found = summarize(planted)
    assert found.best_single.plan == "yoto"
    assert independent_verdict(learned, HARD) == "better"
    assert headline.sentence(found).startswith("One run of the paper's rule does better than the best of 3 grid poin")
    assert table.notices(found)[-1] == (
        "uw has too few seeds in common with the others (seed 0) to be the best single training."
    )


def test_a_search_with_few_seeds_is_not_the_best_search():
    planted = {"yoto": [shift(-5)], "tpe": [{0: 99.0}, {0: 98.0}], "grid": [HARD, shift(-2), shift(-3)]}
    found = summarize(planted)
    assert found.best_search.plan == "grid"
    assert "tpe has too few seeds in common with the others (seed 0) to be the best search." in table.notices(found)


# No spread, and differences that rounding hides


def test_results_that_are_equal_in_every_seed_are_as_good():
    same = dict(enumerate([89.0, 91.0, 90.0]))
    planted = {"yoto": [same], "uw": [same], "grid": [same, shift(-9, same), shift(-8, same)]}
    found = summarize(planted)
    assert found.verdict(found.first_rule) == "not worse"
    assert headline.sentence(found) == (
        "One run of the paper's rule does exactly as well as the best of 3 grid points in each of 3 seeds: test score "
        "90.0 +- 1.0 %, against 90.0 +- 1.0 % at 3 times the cost."
    )
    assert "yoto - best grid point +0.0 [+0.0, +0.0], all seeds alike, not worse" in headline.evidence(found)


@pytest.mark.parametrize(("peer", "word", "gap"), [(95.0, "ahead of", "10.0"), (84.0, "behind", "1.0")])
def test_the_same_difference_in_every_seed_says_who_is_ahead(peer, word, gap):
    alike = [dict.fromkeys(range(3), v) for v in (80.0, peer, 70.0, 85.0)]
    found = summarize({"yoto": alike[:1], "uw": alike[1:2], "grid": [alike[2], alike[3], alike[2]]})
    assert headline.sentence(found) == (
        f"Uncertainty weighting (uw), the best single training, is {word} the best of 3 grid points by the same {gap} "
        f"% in each of 3 seeds, which says nothing of the spread: test score {peer} +- 0.0 %, against 85.0 +- 0.0 % at "
        f"3 times the cost. One run of the paper's rule is behind by the same {peer - 80} % in each of 3 seeds: 80.0 "
        "+- 0.0 %."
    )


def test_a_difference_that_rounding_hides_is_shown():
    base = {s: 80 + 10 * np.sin(s) for s in range(5)}
    ours = {s: v + 0.05 + 0.001 * np.cos(3 * s) for s, v in base.items()}
    grid = [base, *({s: v - down for s, v in base.items()} for down in (10, 20))]
    assert independent_verdict(ours, base, 0.01) == "better"
    assert headline.sentence(summarize({"yoto": [ours], "grid": grid}, margin=0.01)) == (
        "One run of the paper's rule does better than the best of 3 grid points here: test score 82.3 +- 6.8 %, "
        "against 82.3 +- 6.8 % at 3 times the cost, a difference of +0.0502 %."
    )


# Noise, one seed, other names


def test_noise_that_hides_the_difference_is_called_so():
    found = study({"yoto": 86, "uniform": 90.5, "grid": [80, 90, 70]}, twist=2.0)
    assert re.sub(RESULT, "N", headline.sentence(found)) == (
        "5 seeds cannot tell equal weights, the best single training, from the best of 3 grid points: test score N, "
        "against N at 3 times the cost. One run of the paper's rule has N, too close to call."
    )


def test_one_seed_decides_nothing():
    text = headline.sentence(study({"yoto": 88, "uniform": 90, "grid": [80, 92, 70]}, noise=[0.0]))
    assert text.startswith("One seed decides nothing: equal weights have test score 90")


@pytest.mark.parametrize(
    ("levels", "starts"),
    [
        ({"base": 95, "grid": [80, 90, 70]}, "The base term alone does better than the best of 3 grid points here: "),
        ({"fixed(1,7)": 95, "grid": [80, 90, 70]}, "The fixed weights 1 : 7 do better than the best of 3 grid points "),
    ],
)
def test_every_single_training_has_a_name(levels, starts):
    text = headline.sentence(study(levels))
    assert text.startswith(starts)
    assert text.endswith("There is no run of a rule: add the plan yoto or balance.")


def test_a_second_run_of_a_rule_goes_by_its_plan():
    text = headline.sentence(study({"yoto": 80, "yoto(init=1)": 85, "grid": [80, 90, 70]}))
    assert "and one run of the paper's rule (yoto(init=1)), the best single training, test score 84.98" in text
    assert "One run of the paper's rule (yoto) is worse: 80.0" in text


def test_without_a_search_the_best_single_training_is_named():
    text = headline.sentence(study({"yoto": 88, "uniform": 90}))
    assert text.startswith("Equal weights, the best of the single trainings, have test score 89.98")
    assert "There is no grid to compare with: add the plan grid. One run of the paper's rule is worse: 88" in text
