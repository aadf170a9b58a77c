"""Synthetic studies: stores with planted results and histories, written without any training."""

from __future__ import annotations

import itertools
import json
import math
import random

from trainonce.study.layout import HISTORY
from trainonce.study.record import Record
from trainonce.study.rules import Control, Rule, fixed, key_of, make
from trainonce.study.search import Search
from trainonce.study.store import Store

IDENTITY = "0123456789abcdef"


def yoto(**settings):
    return make("CompositeLoss", {"init": 0.1} | settings)


def balance(**settings):
    return make("BalancedLoss", settings)


def replay(of):
    return Control.make(of)


def final(of):
    return Control.make(of, last=True)


def ratio_grid(count, values=(0.1, 1.0, 10.0)):
    """Every combination of ratios for so many auxiliary terms."""
    return [fixed((1.0, *ratios)) for ratios in itertools.product(values, repeat=count)]


def plan(name, kind, rules=(), search=None):
    return {"name": name, "kind": kind, "rules": list(rules), "search": search}


def start_of(rule):
    """The first ratio of the auxiliary terms."""
    return getattr(rule, "of", rule).settings.get("init", 0.1)


def last_coefficients(rule, terms):
    """Where rules that move end: halfway, in exponents, to a fixed place. They sum to 1."""
    if rule.is_fixed:
        return list(rule.coefficients)
    if rule.name not in ("CompositeLoss", "BalancedLoss", "Replay"):
        return [1 / len(terms)] * len(terms)
    start = math.log(start_of(rule))
    logits = [0.0, *(0.5 * start + 0.5 * math.log(0.3 * (i + 1)) for i in range(len(terms) - 1))]
    total = sum(map(math.exp, logits))
    return [math.exp(v) / total for v in logits]


def quality(rule, terms, seed):
    """Accuracy: best at ratios of 0.3, 0.6, ..., a little noise, the seeds alike for all points."""
    base, *rest = last_coefficients(rule, terms)
    off = [math.log10(max(w / base, 1e-3) / (0.3 * (i + 1))) if base else 3.0 for i, w in enumerate(rest)]
    noise = random.Random(f"{rule.to_json()} {seed}").gauss(0, 0.25) + 0.3 * math.sin(seed)
    value = 91.5 - 1.8 * sum(x * x for x in off) + noise
    return value + 0.4 * math.cos(7 * seed), value


def write_history(path, terms, rule, seed, steps=120):
    """A history file as the library writes it."""
    rng, auxiliary = random.Random(seed), terms[1:]
    end = last_coefficients(rule, terms)
    moves = rule.name in ("CompositeLoss", "BalancedLoss", "Replay")
    start = [1.0, *([start_of(rule)] * len(auxiliary))] if moves else end
    kinds = [("loss", terms), ("coefficient", terms)]
    kinds += [(kind, auxiliary) for kind in ("exponent", "empirical", "decay")] if rule.trains else []
    names = [f"{kind}/{term}" for kind, group in kinds for term in group] + (["lr"] if rule.trains else [])
    names += [f"alignment/{term}" for term in auxiliary] if rule.measures else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"trainonce_history": 2, "terms": list(terms), "columns": names}) + "\n")
        for step in range(1, steps + 1):
            part = 1 - math.exp(-4 * step / steps)
            logs = [
                (1 - part) * math.log(max(a, 1e-12) / max(start[0], 1e-12))
                + part * math.log(max(b, 1e-12) / max(end[0], 1e-12))
                for a, b in zip(start, end, strict=True)
            ]
            logs = [v + (0.05 * math.sin(seed + 3 * part) * part if i else 0) for i, v in enumerate(logs)]
            total = sum(map(math.exp, logs))
            values = {f"coefficient/{term}": math.exp(v) / total for term, v in zip(terms, logs, strict=True)}
            if rule.measures:  # the base's is held
                values = {
                    name: value / (len(terms) * values[f"coefficient/{terms[0]}"]) for name, value in values.items()
                }
            for i, term in enumerate(terms):
                level = (2.0 / (i + 1)) / (0.2 + math.exp(logs[i]) / total)
                values[f"loss/{term}"] = level * math.exp(-3 * step / steps) + 0.05 + 0.02 * rng.random()
            for term, v in zip(auxiliary, logs[1:], strict=True):
                values |= {f"exponent/{term}": v, f"empirical/{term}": 0.02 * math.exp(-step / 40)}
                values |= {f"decay/{term}": -0.004, f"alignment/{term}": 0.4 * part}
            values["lr"] = 0.01
            file.write(json.dumps({"step": step} | {name: values[name] for name in names}) + "\n")


def build(
    path,
    *,
    terms=("ce", "consistency"),
    plans=None,
    seeds=(0, 1, 2),
    result=quality,
    change=lambda record: record,
    histories=True,
    extra=(),
    **task,
):
    """Write a study. ``result(point, terms, seed)`` gives both metrics; ``change`` may replace a record, or drop it."""
    info = {
        "name": "toy",
        "terms": list(terms),
        "metric": "accuracy",
        "direction": "maximize",
        "select": "validation",
        "report": "test",
        "unit": "%",
        "margin": 0.5,
        "about": "A toy.",
        "settings": {"steps": 120, "lr": 0.01},
        "identity": IDENTITY,
    } | task
    plans = usual(terms) if plans is None else plans
    store, written = Store(path), set()

    def add(rule, seed, key):
        if key in written:
            return
        written.add(key)
        select, report = result(rule, terms, seed)
        metrics = {f"{info['select']}/{info['metric']}": select, f"{info['report']}/{info['metric']}": report}
        reports = [(s, {info["metric"]: select * (1 - math.exp(-s / 25))}) for s in range(20, 121, 20)]
        record = change(
            Record(
                key,
                info["name"],
                rule,
                seed,
                "done",
                metrics,
                reports,
                last_coefficients(rule, terms),
                seconds=2.0,
                versions={"trainonce": "0.1.0", "torch": "2.13.0"},
            )
        )
        if record is None:
            return
        store.append(record)
        if histories:
            write_history(store.folder(key) / HISTORY, terms, rule, seed)

    manifest = []
    for one in plans:
        if one["search"] is not None:
            search = Search(**one["search"])
            for seed in seeds:
                rng = random.Random(seed)
                for n in range(search.trials):
                    rule = fixed((1.0, *(10 ** rng.uniform(-2, 2) for _ in terms[1:])))
                    add(rule, seed, search.key(IDENTITY, seed, n))
        for rule in one["rules"]:
            for seed in seeds:
                for each, of in filter(None, (rule.needs(seed), (rule, seed))):
                    add(each, of, key_of(IDENTITY, each, of))
        manifest.append(one | {"rules": [rule.to_json() for rule in one["rules"]], "seeds": list(seeds)})
    for record in extra:
        store.append(record)
    store.write_manifest({"task": info, "plans": manifest})
    return store.path


def usual(terms):
    """Plans of nearly every kind."""
    count = len(terms) - 1
    line = [fixed((1.0, r)) for r in (0.0, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)]
    return [
        plan("yoto", "rule", [yoto()]),
        plan("grid", "set", line if count == 1 else ratio_grid(count)),
        plan("uniform", "fixed", [fixed((1.0,) * len(terms))]),
        plan("uw", "peer", [Rule("uw")]),
        plan("tpe(trials=5)", "search", search={"method": "tpe", "trials": 5, "low": 0.01, "high": 100.0}),
        plan("replay", "control", [replay(yoto())]),
        plan("final", "control", [final(yoto())]),
        plan("sweep-init", "sweep", [yoto(init=v) for v in (0.001, 0.01, 0.1, 1.0)]),
        plan("sweep-decay", "sweep", [yoto(decay=v) for v in (0.0, 0.2, 2.0, 20.0)]),
    ]
