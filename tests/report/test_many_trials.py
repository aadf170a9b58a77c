"""A report of very many trials: what it reads grows with what it draws, and the page stays small and whole."""

import collections
import dataclasses
import itertools
import json
import re
import subprocess
import sys

import _stores
import pytest
from _figures import marked
from _pages import Page
from _stores import yoto

from trainonce import report
from trainonce.history import History
from trainonce.report import drawing, pictures, trials
from trainonce.report.drawing import over_steps, plans, render
from trainonce.study import Summary, layout, rules
from trainonce.study.record import Record
from trainonce.study.rules import fixed
from trainonce.study.store import Store, curves

TERMS = ("ce", "consistency")
SEEDS = (0, 1)


def many(path, points, **more):
    """A yoto plan and a grid of so many points, with thinned histories."""
    grid = [fixed((1.0, 0.01 * (i + 1))) for i in range(points)]
    asked = [_stores.plan("yoto", "rule", [yoto()]), _stores.plan("grid", "set", grid)]
    made = _stores.build(path, terms=TERMS, plans=asked, seeds=SEEDS, **more)
    for folder in (made / layout.TRIALS).glob("*"):
        curves.write(folder)
    return made


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return many(tmp_path_factory.mktemp("many"), 150)


@pytest.fixture
def counts(monkeypatch):
    """How often some functions are called."""
    found = collections.Counter()

    def count(name, where, attribute, wrap=lambda made: made):
        before = getattr(where, attribute)

        def counted(*arguments, **more):
            found[name] += 1
            return before(*arguments, **more)

        monkeypatch.setattr(where, attribute, wrap(counted))

    count("histories", History, "load", staticmethod)
    count("curves", curves, "_read")
    count("records", Record, "from_json", staticmethod)
    count("keys", rules, "digest")
    monkeypatch.setattr(render, "png", lambda figure: b"")
    drawing.curves._read.cache_clear()
    drawing.curves._loss_curves.cache_clear()
    return found


def test_a_report_reads_each_record_once_and_only_the_curves_it_draws(study, counts):
    report.write(study)
    trials = 151 * len(SEEDS)
    assert counts["records"] == trials
    assert counts["histories"] == 0
    shown = over_steps.GREY + 2  # with the reference and the rule, whose ratios are read, too
    assert counts["curves"] <= (shown + 1) * len(SEEDS)
    assert counts["keys"] <= 4 * trials


def test_twice_the_trials_are_not_more_curves_and_twice_the_keys(study, counts, tmp_path):
    many(tmp_path, 300)
    report.write(study)
    first = counts.copy()
    counts.clear()
    report.write(tmp_path)
    assert counts["curves"] == first["curves"]
    assert counts["keys"] < 2.1 * first["keys"]
    assert counts["records"] < 2.1 * first["records"]


def test_a_summary_reads_no_curves(study, counts):
    print(Summary.read(study))
    assert counts["records"] == 151 * len(SEEDS)
    assert counts["curves"] == counts["histories"] == 0


def test_the_thinned_histories_give_the_same_bytes(tmp_path):
    one, other = many(tmp_path / "a", 5), many(tmp_path / "b", 5)
    for path in other.glob(f"{layout.TRIALS}/*/{layout.CURVES}"):
        path.unlink()
    assert report.write(one).read_bytes() == report.write(other).read_bytes()


def test_of_many_fixed_weights_some_are_drawn_from_the_best_to_the_worst(study):
    summary = Summary.read(study)
    drawn, every = over_steps.fixed_choices(summary)
    assert (len(drawn), every) == (over_steps.GREY, 149)
    others = [o for o in summary.reference.outcomes if o is not summary.reference.chosen]
    ranks = sorted(sorted(others, key=lambda o: -o.mean).index(o) for o in drawn)
    assert (ranks[0], ranks[-1]) == (0, 148)
    assert max(b - a for a, b in itertools.pairwise(ranks)) <= 3
    for figure in (report.loss(summary, "ce"), report.progress(summary)):
        assert len(marked(figure, "fixed weights")) == over_steps.GREY
        assert "60 of 149 fixed weights" in {text.get_text() for axes in figure.axes for text in axes.texts}


def test_the_page_lists_some_trials_and_the_files_hold_all(tmp_path, monkeypatch):
    for name in ("LISTED", "FAILED", "DIVERGED"):
        monkeypatch.setattr(trials, name, 3)

    def change(record):
        if record.rule == fixed((1.0, 0.01)):
            return dataclasses.replace(record, status="diverged")
        if record.rule in (fixed((1.0, 0.02)), fixed((1.0, 0.03))):
            return dataclasses.replace(record, status="failed", error={"type": "OSError", "message": "gone"})
        return record

    path = many(tmp_path, 8, change=change, histories=False)
    text = report.write(path).read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    assert "All trials (3 of 18)" in text
    assert text.count("OSError: gone</summary>") == 3
    assert "And 1 trial more, in trials.csv." in text
    assert re.search(r"All trials are listed in trials\.csv", text)
    assert "trials" not in json.loads(page.scripts[0])
    content = json.loads((path / layout.SUMMARY).read_text(encoding="utf-8"))
    assert len(content["trials"]) == 18
    assert len((path / layout.TABLE).read_text().splitlines()) == 19


def test_no_more_pictures_are_read_than_are_needed(study, monkeypatch):
    found = []
    monkeypatch.setattr(pictures, "list_pictures", lambda folder: [folder / "a.png"])
    monkeypatch.setattr(
        pictures, "read_picture", lambda path, folder: found.append(path) or pictures.Picture(b"", 1, 1)
    )
    summary = Summary.read(study)
    chosen = pictures.choose_trials([plans.rules(summary)[0], summary.reference], Store(study, writable=False))
    assert [record.seed for record, _ in chosen] == [0, 0]
    assert {path.parent.name for path in found} == {record.key for record, _ in chosen}


def test_neither_report_nor_summary_loads_the_compiler_of_torch():
    code = "import sys, trainonce.report, trainonce.study.summary; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
