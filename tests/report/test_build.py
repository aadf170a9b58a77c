"""The report's files: the truth whichever way it went, nothing half-written."""

import dataclasses
import json
import math
import re
import sys

import _stores
import pytest
from _pages import Page, html_text, plans, snapshot
from _stores import yoto

from trainonce import report
from trainonce.report import headline
from trainonce.report.drawing import render
from trainonce.study import Summary
from trainonce.study.rules import fixed


def test_a_planted_unfavourable_truth_is_reported(tmp_path):
    # The rule is bad; of the grid, validation prefers a point that is not the best on test.
    grid = [fixed((1.0, r)) for r in (0.1, 1.0, 10.0, 100.0)]
    truth = {0.1: ([70, 72, 71], [93, 94, 98]), 1.0: ([90, 91, 95], [88, 87, 89]), 10.0: ([60] * 3, [62, 64, 60])}
    truth |= {100.0: ([50] * 3, [81.5, 80, 82])}
    ours = [99, 98, 97], [71.25, 74.5, 72.0]

    def result(point, terms, seed):
        select, test = ours if point.trains else truth[round(point.ratios[0], 6)]
        return select[seed], test[seed]

    made = [_stores.plan("yoto", "rule", [yoto()]), _stores.plan("grid", "set", grid)]
    path = _stores.build(tmp_path, plans=made, result=result, histories=False)
    page = report.write(path).read_text(encoding="utf-8")
    answer = Page(page).text["answer"]

    def moments(values):
        mean = sum(values) / len(values)
        return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))

    best = max(truth, key=lambda r: sum(truth[r][0]))
    beaten = sum(sum(test) > sum(ours[1]) for _, test in truth.values())
    assert best == 1.0
    assert beaten == 3
    numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", answer)]
    expected = [len(grid), *moments(truth[best][1]), len(grid), *moments(ours[1])]
    assert numbers == pytest.approx(expected, abs=0.0501)
    assert answer.endswith("Equal weights are that point; one run of the paper's rule (72.6 ± 1.7) is worse.")
    assert html_text(f"{beaten} of the 4 grid points did better on test than one run of the paper's rule") in page


def test_the_same_study_gives_the_same_bytes_and_old_figures_go(tmp_path, monkeypatch):
    path = _stores.build(tmp_path, plans=plans("yoto"))
    report.write(path)
    first = snapshot(path)
    report.write(path)
    assert snapshot(path) == first
    (path / "figures" / "mine.svg").write_text("x")
    monkeypatch.setattr(render, "png", lambda figure: b"")
    for history in path.glob("trials/*/history.jsonl"):
        history.unlink()
    text = report.write(path).read_text(encoding="utf-8")
    assert not (path / "figures" / "ratios-0-yoto.svg").exists()
    assert (path / "figures" / "mine.svg").exists()
    assert "The histories of the trials are not in the folder" in text


@pytest.mark.parametrize("obstacle", ["figures", "report.html"])
def test_a_folder_that_cannot_be_written_stays_as_it_is(tmp_path, obstacle):
    path = _stores.build(tmp_path, plans=plans("yoto"), histories=False)
    if obstacle == "figures":
        (path / obstacle).write_text("a file")
    else:
        (path / obstacle).mkdir()
    before = snapshot(path)
    with pytest.raises(OSError, match=r"The report cannot be written into .*Nothing was changed"):
        report.write(path)
    assert snapshot(path) == before
    assert not list(path.rglob("*.part*"))


def test_a_folder_without_a_study_is_an_error_and_not_touched(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no study in"):
        report.write(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="There is no study in"):
        report.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch):
    path = _stores.build(tmp_path, plans=plans("yoto"), histories=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    before = snapshot(path)
    with pytest.raises(ImportError, match=r'This needs \w+, which is not installed: pip install "trainonce\[study\]"'):
        report.write(path)
    assert snapshot(path) == before


# Odd studies


def diverge(record):
    bad = dict.fromkeys(record.metrics, math.nan)
    return dataclasses.replace(record, status="diverged", metrics=bad) if record.rule.trains else record


ODD = {
    "one seed": {"plans": plans("yoto", "grid", "sweep-init"), "seeds": (0,)},
    "rule diverged": {"plans": plans("yoto", "grid"), "change": diverge},
    "no grid": {"plans": plans("yoto", "uniform")},
    "no rule": {"plans": plans("grid")},
    "only sweeps": {"plans": plans("sweep-init", "sweep-decay")},
    "nothing done": {"plans": plans("yoto", "grid"), "change": lambda record: None},
    "all equal": {"plans": plans("yoto", "grid"), "result": lambda point, terms, seed: (1.0, 1.0)},
    "less is better": {"plans": plans("yoto", "grid"), "direction": "minimize", "unit": "", "margin": None},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_studies_have_a_page_that_opens_with_what_is_known(tmp_path, monkeypatch, case):
    monkeypatch.setattr(render, "png", lambda figure: b"")  # they take half of the time
    path = _stores.build(tmp_path, histories=case == "one seed", **ODD[case])
    page = Page(report.write(path).read_text(encoding="utf-8"))
    assert not page.open
    assert page.text["answer"] == headline.sentence(Summary.read(path)).replace("+-", "±")
    names = json.loads((path / "summary.json").read_text(encoding="utf-8"))["figures"]
    expected = {
        "one seed": "cost-quality",
        "rule diverged": "response-curve",
        "only sweeps": "sensitivity-0-init",
        "nothing done": None,
    }.get(case, "seeds")
    assert expected in names if expected else not names
