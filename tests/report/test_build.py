"""The page and its files: the truth whichever way it went, nothing from outside, nothing half-written."""

import csv
import dataclasses
import html
import html.parser
import json
import math
import re
import sys

import _stores
import pytest

from trainonce import report
from trainonce.report.drawing import render
from trainonce.report.plotly import cost_quality
from trainonce.study import Record, Summary, sentences
from trainonce.study.store import Store
from trainonce.study.weightings import Fixed, Learned, key_of

TERMS = ("ce", "consistency")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What a browser would find: the text by class, all addresses, all ids, and tags that do not fit."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.addresses, self.ids, self.scripts = [], {}, [], [], []
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action", "data", "srcset")]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append((tag, found.get("class", "")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, name in self.open:
            self.text[name] = self.text.get(name, "") + data
        if self.open and self.open[-1][0] == "script":
            self.scripts.append(data)


def html_text(text):
    return html.escape(text.replace("+-", "±"))


def plans(*names):
    known = {p["name"]: p for p in _stores.usual(TERMS)}
    return [known[name] for name in names]


def test_a_planted_unfavourable_truth_is_told(tmp_path):
    # Learned weights are bad; of the grid, validation prefers a point that is not the best on test.
    grid = [Fixed.of((1.0, r)) for r in (0.1, 1.0, 10.0, 100.0)]
    truth = {0.1: ([70, 72, 71], [93, 94, 98]), 1.0: ([90, 91, 95], [88, 87, 89]), 10.0: ([60] * 3, [62, 64, 60])}
    truth |= {100.0: ([50] * 3, [81.5, 80, 82])}
    ours = [99, 98, 97], [71.25, 74.5, 72.0]

    def result(point, terms, seed):
        select, test = ours if isinstance(point, Learned) else truth[round(point.ratios[0], 6)]
        return select[seed], test[seed]

    made = [_stores.plan("one-shot", "learned", [Learned()]), _stores.plan("grid", "set", grid)]
    path = _stores.build(tmp_path, plans=made, result=result, histories=False)
    said = Page(report.write(path).read_text(encoding="utf-8")).text["answer"]

    def moments(values):
        mean = sum(values) / len(values)
        return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))

    best = max(truth, key=lambda r: sum(truth[r][0]))
    beaten = sum(sum(test) > sum(ours[1]) for _, test in truth.values())
    assert best == 1.0
    assert beaten == 3
    numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", said)]
    expected = [*moments(ours[1]), len(grid), *moments(truth[best][1]), len(grid), beaten, len(grid)]
    assert numbers == pytest.approx(expected, abs=0.0501)
    assert "best of 4 grid points" in said
    assert "3 of the 4 points did better" in said


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A study with a name that is an attack, a warning, a failure, a divergence and no history for some."""
    failed = {"type": "ValueError", "message": "no <b>such</b> file", "traceback": "Traceback <i>here</i>"}

    def change(record):
        if isinstance(record.weighting, Learned):
            texts = [f"OtherScale: The losses differ by {record.seed + x}x" for x in (100, 200)]
            texts += ["Settled: <u>same</u>"]
            record = dataclasses.replace(record, warnings=texts)
        if record.weighting == Fixed.of((1.0, 100.0)) and record.seed == 1:
            return dataclasses.replace(record, status="diverged", metrics=dict.fromkeys(record.metrics, math.nan))
        return record

    uniform = Fixed.of((1.0, 1.0))
    lost = Record(key_of(_stores.IDENTITY, uniform, 2), "x", uniform, 2, "failed", fraction=0.5, error=failed)
    other = Record("f" * 20, "x", uniform, 0, "done", {"validation/accuracy": 1.0, "test/accuracy": 1.0})
    path = _stores.build(
        tmp_path_factory.mktemp("attack"),
        plans=plans("one-shot", "grid", "uniform", "replay", "sweep-init"),
        change=change,
        extra=[lost, other],
        name='</script><script>alert("1")</script>',
        about="<img src=https://example.org/x.png>",
        unit="%",
        settings={"steps": 120, "note": "</pre><script>"},
    )
    report.write(path)
    return path


def test_whatever_the_user_gave_is_text(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    assert page.tags.count("script") == 1  # the data
    assert "img" not in page.tags
    assert "</script><script>" not in text
    assert json.loads(page.scripts[0])["task"]["name"].startswith("</script>")
    for piece in ("no <b>such</b> file", "Traceback <i>here</i>", "<u>same</u>"):
        assert piece not in text
        assert html_text(piece) in text


def test_the_page_needs_nothing_from_outside(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "@import" not in style
    assert "url(" not in style
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))
    assert "default-src 'none'" in text


def test_ids_are_unique_and_every_reference_is_there(written):
    page = Page((written / "report.html").read_text(encoding="utf-8"))
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)


def test_warnings_failures_and_divergence_are_told(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    assert "OtherScale, 12 trials" in text  # 3 seeds of one-shot, shared with replay, and of 3 other starts
    assert "Settled, 12 trials" in text
    assert "Failed, 1 trial<" in text
    assert "ValueError: no &lt;b&gt;such&lt;/b&gt; file" in text
    assert "Diverged, 1 trial<" in text
    assert "1 trial of other plans or of an earlier version" in text


def test_the_table_of_the_page_is_that_of_the_summary(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    summary = Summary.read(written)
    for row in sentences.table(summary):
        for cell in row:
            assert html_text(cell) in text
    assert text.count('<tr class="learned">') == 1
    assert html_text(sentences.evidence(summary)) in text


def test_json_and_csv_hold_the_records(written):
    records = {(r.key, r.status): r for r in Store(written).read_all() if r.key != "f" * 20}
    content = json.loads((written / "summary.json").read_text(encoding="utf-8"))
    assert len(content["trials"]) == len(records)
    for trial in content["trials"]:
        record = records[trial["key"], trial["status"]]
        assert trial["seed"] == record.seed
        for name, value in record.metrics.items():
            assert trial["metrics"][name] == (value if math.isfinite(value) else None)
    summary = Summary.read(written)
    for row, shown in zip(summary.rows, content["plans"], strict=True):
        assert shown["plan"] == row.plan
        assert shown["chosen"]["mean"] == pytest.approx(row.chosen.mean)
        assert shown["cost"] == pytest.approx(row.cost)
    with (written / "trials.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(records)
    for line in lines:
        record = records[line["key"], line["status"]]
        for name, value in record.metrics.items():
            assert float(line[name]) == pytest.approx(value, nan_ok=True)
        if record.weights:
            assert float(line["weight/ce"]) == record.weights[0]
    replayed = [line["plans"] for line in lines if line["weights"] == Learned().label]
    assert "one-shot replay sweep-init" in replayed


def test_every_figure_is_there_twice(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    names = json.loads((written / "summary.json").read_text(encoding="utf-8"))["figures"]
    assert {"cost-quality", "weights", "exponents", "loss-0-ce", "response-curve", "seeds"} <= set(names)
    for name in names:
        assert f'<figure id="{name}"' in text
        assert (written / "figures" / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert (written / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def snapshot(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_the_same_study_gives_the_same_bytes_and_old_figures_go(tmp_path, monkeypatch):
    path = _stores.build(tmp_path, plans=plans("one-shot"))
    report.write(path)
    first = snapshot(path)
    report.write(path)
    assert snapshot(path) == first
    (path / "figures" / "mine.svg").write_text("x")
    monkeypatch.setattr(render, "png", lambda figure: b"")
    for history in path.glob("trials/*/history.jsonl"):
        history.unlink()
    text = report.write(path).read_text(encoding="utf-8")
    assert not (path / "figures" / "weights.svg").exists()
    assert (path / "figures" / "mine.svg").exists()
    assert "The histories of the trials are not in the folder" in text


@pytest.mark.parametrize("obstacle", ["figures", "report.html"])
def test_a_folder_that_cannot_be_written_stays_as_it_is(tmp_path, obstacle):
    path = _stores.build(tmp_path, plans=plans("one-shot"), histories=False)
    if obstacle == "figures":
        (path / obstacle).write_text("a file")
    else:
        (path / obstacle).mkdir()
    before = snapshot(path)
    with pytest.raises(OSError, match=r"The report cannot be written into .*Nothing was changed"):
        report.write(path)
    assert snapshot(path) == before
    assert not list(path.rglob("*.part*"))


def test_a_folder_without_a_study_is_said_and_not_touched(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no study in"):
        report.write(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="There is no study in"):
        report.write(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("missing", "interactive", "extra"),
    [("matplotlib.figure", False, "study"), ("plotly.graph_objects", True, "interactive")],
)
def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, missing, interactive, extra):
    path = _stores.build(tmp_path, plans=plans("one-shot"), histories=False)
    monkeypatch.setitem(sys.modules, missing, None)
    before = snapshot(path)
    with pytest.raises(
        ImportError, match=rf'This needs \w+, which is not installed: pip install "trainonce\[{extra}\]"'
    ):
        report.write(path, interactive=interactive)
    assert snapshot(path) == before


# Odd studies


def diverge(record):
    bad = dict.fromkeys(record.metrics, math.nan)
    return (
        dataclasses.replace(record, status="diverged", metrics=bad) if isinstance(record.weighting, Learned) else record
    )


ODD = {
    "one seed": {"plans": plans("one-shot", "grid", "sweep-init"), "seeds": (0,)},
    "learned diverged": {"plans": plans("one-shot", "grid"), "change": diverge},
    "no grid": {"plans": plans("one-shot", "uniform")},
    "no one-shot": {"plans": plans("grid")},
    "only sweeps": {"plans": plans("sweep-init", "sweep-decay")},
    "nothing done": {"plans": plans("one-shot", "grid"), "change": lambda record: None},
    "all equal": {"plans": plans("one-shot", "grid"), "result": lambda point, terms, seed: (1.0, 1.0)},
    "less is better": {"plans": plans("one-shot", "grid"), "direction": "minimize", "unit": "", "margin": None},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_studies_have_a_page_that_opens_with_what_is_known(tmp_path, monkeypatch, case):
    monkeypatch.setattr(render, "png", lambda figure: b"")  # they take half of the time
    path = _stores.build(tmp_path, histories=case == "one seed", **ODD[case])
    page = Page(report.write(path).read_text(encoding="utf-8"))
    assert not page.open
    assert page.text["answer"] == sentences.sentence(Summary.read(path)).replace("+-", "±")
    names = json.loads((path / "summary.json").read_text(encoding="utf-8"))["figures"]
    expected = {
        "one seed": "cost-quality",
        "learned diverged": "response-curve",
        "only sweeps": "sensitivity-0-init",
        "nothing done": None,
    }.get(case, "seeds")
    assert expected in names if expected else not names


# Interactive


def test_plotly_is_in_the_page_once(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")
    path = _stores.build(tmp_path, plans=plans("one-shot", "grid", "uniform"))
    text = report.write(path, interactive=True).read_text(encoding="utf-8")
    page = Page(text)
    assert sum("plotly.js v" in script for script in page.scripts) == 1
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    figures = [json.loads(s) for s in page.scripts if s.startswith('{"data"')]
    assert len(figures) == 5  # cost and quality, weights, response curve, two losses
    names = {trace.get("name") for trace in figures[0]["data"]}
    assert {"one-shot", "best of grid", "uniform"} <= names
    summary = Summary.read(path)
    (ours,) = [trace for trace in figures[0]["data"] if trace.get("name") == "one-shot"]
    assert ours["y"] == pytest.approx([summary.one_shot.chosen.mean])
    assert ours["error_y"]["array"] == pytest.approx([summary.one_shot.chosen.deviation])


@pytest.mark.parametrize("terms", [("a", "<b>b</b>", "c"), ("a", "b", "c", "d")])
def test_interactive_figures_of_more_terms(tmp_path, terms):
    learned, grid = _stores.usual(terms)[:2]
    summary = Summary.read(_stores.build(tmp_path, terms=terms, plans=[learned, grid], seeds=(0, 1)))
    name = "simplex" if len(terms) == 3 else "parallel-coordinates"
    found = json.loads(cost_quality.all_as_json(summary, [name])[name])
    if len(terms) == 3:
        assert sum(trace.get("name") == "learned" for trace in found["data"]) == 2
        assert "&lt;b>" in json.dumps(found)
    else:
        (trace,) = found["data"]
        assert len(trace["dimensions"]) == 4
