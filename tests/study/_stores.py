"""Synthetic studies: stores with planted results and histories, written without any training."""

from __future__ import annotations

import json
import math
import random

from trainonce.study.layout import HISTORY
from trainonce.study.record import Record
from trainonce.study.search import Search
from trainonce.study.store import Store
from trainonce.study.weightings import Final, Fixed, Learned, Replay, key_of
from trainonce.study.weightings.peers import Peer

IDENTITY = "0123456789abcdef"


def ratio_grid(count, values=(0.1, 1.0, 10.0)):
    """Every combination of ratios for so many auxiliary terms."""
    weightings = [()]
    for _ in range(count):
        weightings = [(*p, v) for p in weightings for v in values]
    return [Fixed.of((1.0, *p)) for p in weightings]


def plan(name, kind, weightings=(), search=None):
    return {"name": name, "kind": kind, "points": list(weightings), "search": search}


def learned_end(weighting, terms):
    """Where learned weights of this start end: halfway, in exponents, to a fixed place."""
    start = math.log(weighting.init)
    logits = [0.0, *(0.5 * start + 0.5 * math.log(0.3 * (i + 1)) for i in range(len(terms) - 1))]
    total = sum(map(math.exp, logits))
    return [math.exp(v) / total for v in logits]


def last_weights(weighting, terms):
    match weighting:
        case Fixed():
            return list(weighting.weights)
        case Learned():
            return learned_end(weighting, terms)
        case Replay():
            return learned_end(weighting.of, terms)
    return [1 / len(terms)] * len(terms)


def quality(weighting, terms, seed):
    """Accuracy: best at ratios of 0.3, 0.6, ..., a little noise, the seeds alike for all points."""
    base, *rest = last_weights(weighting, terms)
    off = [math.log10(max(w / base, 1e-3) / (0.3 * (i + 1))) if base else 3.0 for i, w in enumerate(rest)]
    noise = random.Random(f"{weighting!r} {seed}").gauss(0, 0.25) + 0.3 * math.sin(seed)
    value = 91.5 - 1.8 * sum(x * x for x in off) + noise
    return value + 0.4 * math.cos(7 * seed), value


def write_history(path, terms, weighting, seed, steps=120):
    """A history file as the library writes it."""
    rng = random.Random(seed)
    end = last_weights(weighting, terms)
    moves = isinstance(weighting, Learned | Replay)
    start = (
        [1.0, *([weighting.init if isinstance(weighting, Learned) else weighting.of.init] * (len(terms) - 1))]
        if moves
        else end
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    units = {"units": "gradient"} if weighting.measures else {}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"trainonce_history": 1, "terms": list(terms)} | units) + "\n")
        for step in range(1, steps + 1):
            part = 1 - math.exp(-4 * step / steps)
            logs = [
                (1 - part) * math.log(max(a, 1e-12) / start[0]) + part * math.log(max(b, 1e-12) / max(end[0], 1e-12))
                for a, b in zip(start, end, strict=True)
            ]
            logs = [v + (0.05 * math.sin(seed + 3 * part) * part if i else 0) for i, v in enumerate(logs)]
            total = sum(map(math.exp, logs))
            row = {"step": step}
            for i, term in enumerate(terms):
                level = (2.0 / (i + 1)) / (0.2 + math.exp(logs[i]) / total)
                row[f"loss/{term}"] = level * math.exp(-3 * step / steps) + 0.05 + 0.02 * rng.random()
            row |= {f"weight/{term}": math.exp(v) / total for term, v in zip(terms, logs, strict=True)}
            row |= {f"exponent/{term}": v for term, v in zip(terms[1:], logs[1:], strict=True)}
            row |= {f"empirical/{term}": 0.02 * math.exp(-step / 40) for term in terms[1:]}
            row |= {f"decay/{term}": -0.004 for term in terms[1:]}
            row |= {"lr": 0.01}
            if units:  # what the exponents of the raw run are, the units are here; the exponents drift or rest
                drift = weighting.drift * part / 10
                row |= {f"exponent/{term}": drift for term in terms[1:]}
                row |= {f"{kind}/{term}": 0.0 for kind in ("empirical", "decay") for term in terms[1:]}
                row |= {f"unit/{term}": math.exp(drift - v) for term, v in zip(terms[1:], logs[1:], strict=True)}
                row["total"] = 1 / (len(terms) * row[f"weight/{terms[0]}"])
            file.write(json.dumps(row) + "\n")


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

    def add(weighting, seed, key):
        if key in written:
            return
        written.add(key)
        select, report = result(weighting, terms, seed)
        metrics = {f"{info['select']}/{info['metric']}": select, f"{info['report']}/{info['metric']}": report}
        reports = [(s, {info["metric"]: select * (1 - math.exp(-s / 25))}) for s in range(20, 121, 20)]
        record = change(
            Record(
                key,
                info["name"],
                weighting,
                seed,
                "done",
                metrics,
                reports,
                last_weights(weighting, terms),
                seconds=2.0,
                versions={"trainonce": "0.1.0", "torch": "2.13.0"},
            )
        )
        if record is None:
            return
        store.append(record)
        if histories:
            write_history(store.folder(key) / HISTORY, terms, weighting, seed)

    manifest = []
    for one in plans:
        if one["search"] is not None:
            search = Search(**one["search"])
            for seed in seeds:
                rng = random.Random(seed)
                for n in range(search.trials):
                    weighting = Fixed.of((1.0, *(10 ** rng.uniform(-2, 2) for _ in terms[1:])))
                    add(weighting, seed, search.key(IDENTITY, seed, n))
        for weighting in one["points"]:
            for seed in seeds:
                for each, of in filter(None, (weighting.needs(seed), (weighting, seed))):
                    add(each, of, key_of(IDENTITY, each, of))
        manifest.append(one | {"points": [p.to_json() for p in one["points"]], "seeds": list(seeds)})
    for record in extra:
        store.append(record)
    store.write_manifest({"task": info, "plans": manifest})
    return store.path


def usual(terms):
    """Plans of nearly every kind."""
    count = len(terms) - 1
    learned = Learned()
    line = [Fixed.of((1.0, r)) for r in (0.0, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)]
    return [
        plan("one-shot", "learned", [learned]),
        plan("grid", "set", line if count == 1 else ratio_grid(count)),
        plan("uniform", "fixed", [Fixed.of((1.0,) * len(terms))]),
        plan("uw", "peer", [Peer("uw")]),
        plan("tpe(trials=5)", "search", search={"method": "tpe", "trials": 5, "low": 0.01, "high": 100.0}),
        plan("replay", "control", [Replay(learned)]),
        plan("final", "control", [Final(learned)]),
        plan("sweep-init", "sweep", [Learned(init=v) for v in (0.001, 0.01, 0.1, 1.0)]),
        plan("sweep-decay", "sweep", [Learned(decay=v) for v in (0.0, 0.2, 2.0, 20.0)]),
    ]
