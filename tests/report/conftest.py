"""Studies that several tests only read."""

import dataclasses
import functools
import math

import _figures
import _pages
import _stores
import _studies
import pytest

from trainonce import report
from trainonce.study import Record, Summary
from trainonce.study.rules import fixed, key_of


@pytest.fixture(scope="session")
def studies(tmp_path_factory):
    """Studies of nearly every kind of plan, with two rules, by the number of auxiliary terms."""
    found = {}
    for k, terms in _figures.TERMS.items():
        plans = [*_stores.usual(terms), _stores.plan("balance", "rule", [_stores.balance()])]
        found[k] = Summary.read(_stores.build(tmp_path_factory.mktemp(f"k{k}"), terms=terms, plans=plans))
    return found


@pytest.fixture(scope="session")
def hard(tmp_path_factory):
    """The studies that are hard to draw, by name."""
    return functools.cache(lambda name: _studies.summary(tmp_path_factory.mktemp("hard"), name))


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """No grid; no rule and no histories."""
    options = [({"plans": [plan]}, plan["kind"] == "rule") for plan in _stores.usual(_figures.TERMS[2])[:2]]
    folders = [
        _stores.build(tmp_path_factory.mktemp("odd"), terms=_figures.TERMS[2], histories=h, **p) for p, h in options
    ]
    return [Summary.read(folder) for folder in folders]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A study with a name that is an attack, a warning, a failure, a divergence and no history for some."""
    failed = {"type": "ValueError", "message": "no <b>such</b> file", "traceback": "Traceback <i>here</i>"}

    def change(record):
        if record.rule.trains:
            texts = [f"OtherScale: The losses differ by {record.seed + x}x" for x in (100, 200)]
            texts += ["Settled: <u>same</u>"]
            record = dataclasses.replace(record, warnings=texts)
        if record.rule == fixed((1.0, 100.0)) and record.seed == 1:
            return dataclasses.replace(record, status="diverged", metrics=dict.fromkeys(record.metrics, math.nan))
        return record

    uniform = fixed((1.0, 1.0))
    lost = Record(key_of(_stores.IDENTITY, uniform, 2), "x", uniform, 2, "failed", fraction=0.5, error=failed)
    other = Record("f" * 20, "x", uniform, 0, "done", {"validation/accuracy": 1.0, "test/accuracy": 1.0})
    path = _stores.build(
        tmp_path_factory.mktemp("attack"),
        plans=_pages.plans("yoto", "grid", "uniform", "replay", "sweep-init"),
        change=change,
        extra=[lost, other],
        name='</script><script>alert("1")</script>',
        about="<img src=https://example.org/x.png>",
        unit="%",
        settings={"steps": 120, "note": "</pre><script>"},
    )
    report.write(path)
    return path
