"""Studies that are hard to draw: many terms, outlying seeds, other seeds for each plan, results of any size."""

import dataclasses
import math
import random

import _stores
from _stores import yoto

from trainonce.study import Summary
from trainonce.study.rules import fixed
from trainonce.study.store import Store

TWELVE = (
    "ce",
    "consistency",
    "rec",
    "smooth",
    "perceptual",
    "edge",
    "cycle",
    "identity",
    "adversarial",
    "feature matching",
    "kl",
    "total variation",
)
ERROR = {"metric": "rmse", "direction": "minimize", "unit": "", "margin": None}


def random_points(terms, count=8):
    rng = random.Random(3)
    return [fixed((1.0, *(10 ** rng.uniform(-2, 2) for _ in terms[1:]))) for _ in range(count)]


def plans(terms):
    """The usual plans; with many terms a random set in place of the grid."""
    rule, grid, *rest = _stores.usual(terms[:3])
    if len(terms) > 3:
        grid = _stores.plan("random(trials=8)", "set", random_points(terms))
    uniform = _stores.plan("uniform", "fixed", [fixed((1.0,) * len(terms))])
    return [rule, grid, uniform, *rest[1:], _stores.plan("balance", "rule", [_stores.balance()])]


def rmse(rule, terms, seed):
    select, report = _stores.quality(rule, terms, seed)
    return 0.7 + (91.5 - select) / 20, 0.7 + (91.5 - report) / 20


def with_outlier(is_hit):
    """One seed of some rules has 40 000, the others about 0.7."""

    def result(rule, terms, seed):
        select, report = rmse(rule, terms, seed)
        return select, 40_000.0 if seed == 1 and is_hit(rule) else report

    return result


def scaled(factor, shift=0.0):
    def result(rule, terms, seed):
        return tuple(factor * value + shift for value in _stores.quality(rule, terms, seed))

    return result


def is_uniform(rule):
    return rule.is_fixed and len(set(rule.coefficients)) == 1


def diverge(record):
    if not is_uniform(record.rule) and (record.seed != 1 or not record.rule.trains):
        return record
    return dataclasses.replace(record, status="diverged", metrics=dict.fromkeys(record.metrics, math.nan))


def lose_base(record):
    """A rule that ends with nothing of the base, and of an auxiliary term in one seed."""
    count = len(record.coefficients)
    ends = {0: (0.0, *(1.0,) * (count - 1)), 1: (1.0, 0.0, *(1.0,) * (count - 2)), 2: (0.0,) * count}
    return dataclasses.replace(record, coefficients=ends[record.seed]) if record.rule.trains else record


#: How to build each study, with :func:`build`.
HARD = {
    "three terms": {"terms": TWELVE[:3]},
    "five terms": {"terms": TWELVE[:5]},
    "twelve terms": {"terms": TWELVE},
    "one seed": {"seeds": (0,)},
    "outlier of a grid point": {"result": with_outlier(is_uniform), **ERROR},
    "outlier of the reference": {"result": with_outlier(lambda rule: rule.is_fixed), "histories": False, **ERROR},
    "outlier of a rule": {"result": with_outlier(lambda rule: rule.trains), **ERROR},
    "outlier of five terms": {"terms": TWELVE[:5], "result": with_outlier(lambda rule: rule == yoto()), **ERROR},
    "other seeds": {"seeds": range(10), "of": {"yoto": [0, 1, 2], "uw": [0], "replay": [4, 5]}, "histories": False},
    "diverged": {"change": diverge},
    "a base of 0": {"change": lose_base, "histories": False},
    "a base of 0 of three": {"terms": TWELVE[:3], "change": lose_base, "histories": False},
    "a base of 0 of four": {"terms": TWELVE[:4], "change": lose_base, "histories": False},
    "equal": {"result": lambda *_: (0.5, 0.5), "margin": None, "histories": False},
    "zero": {"terms": TWELVE[:3], "result": lambda *_: (0.0, 0.0), "margin": None, "histories": False},
    "negative": {"result": scaled(1, -120), "histories": False},
    "tiny": {"result": scaled(1e-9), "margin": None, "histories": False},
    "huge": {"terms": TWELVE[:5], "result": scaled(1e7), "margin": None, "histories": False},
}


def build(path, *, terms=TWELVE[:2], of=None, seeds=(0, 1, 2), **options):
    """Write the study.

    :param of: The seeds of some plans.
    """
    folder = _stores.build(path, terms=terms, plans=plans(terms), seeds=tuple(seeds), **options)
    store = Store(folder)
    manifest = store.read_manifest()
    manifest["plans"] = [plan | {"seeds": (of or {}).get(plan["name"], plan["seeds"])} for plan in manifest["plans"]]
    store.write_manifest(manifest)
    return folder


def summary(path, name):
    return Summary.read(build(path, **HARD[name]))
