"""Names of tasks, terms, metrics, units and splits are text: no figure, page or table reads them as anything else."""

import csv
import dataclasses
import html
import io
import itertools
import json
import warnings
import xml.etree.ElementTree as ElementTree
from xml.sax.saxutils import escape

import _hostile
import _stores
import matplotlib
import pytest
from _pages import Page
from _stores import yoto
from matplotlib.figure import Figure
from matplotlib.text import Text

from trainonce import report
from trainonce.report import catalogue, headline, table
from trainonce.report.drawing import render
from trainonce.report.figures import CATALOGUE
from trainonce.study import Summary
from trainonce.study.rules import fixed
from trainonce.text import display_width

LONG = _hostile.NAMES["long"]


def study(path, terms, **names):
    grid = [fixed((1.0, *[ratio] * (len(terms) - 1))) for ratio in (0.1, 1.0, 10.0)]
    plans = [
        _stores.plan("yoto", "rule", [yoto()]),
        _stores.plan("balance", "rule", [_stores.balance()]),
        _stores.plan("grid", "set", grid),
        _stores.plan("sweep-init", "sweep", [yoto(init=v) for v in (0.01, 0.1)]),
    ]
    return _stores.build(path, terms=terms, plans=plans, seeds=(0, 1), **names)


# Every figure


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    terms = ("$\\frac", LONG, "損失 $x$", "{0} 🔥")
    names = {"name": "$\\frac", "metric": f"$\\frac {LONG}", "unit": f"$ {LONG}", "select": "$x", "report": "$y"}
    folders = [study(tmp_path_factory.mktemp("names"), terms[:count], **names) for count in (2, 3, 4)]
    return [Summary.read(folder) for folder in folders]


@pytest.mark.parametrize("one", CATALOGUE, ids=lambda one: one.name)
def test_every_figure_is_drawn_with_any_names_and_keeps_its_axes(summaries, one):
    drawn = 0
    for summary in summaries:
        cases = list(catalogue._list_cases(summary, [one]))
        for _, case in [*cases[:1], *cases[1:][-1:]]:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as one for each glyph that the font lacks
                figure = one.draw(summary, *((case.argument,) if case else ()))
                svg = ElementTree.fromstring(render.svg(figure, "x"))
                assert render.png(figure)
            shown = "\n".join(svg.itertext())
            assert LONG not in shown
            assert "mathdefault" not in shown
            for axes in figure.axes:
                assert axes.get_position().width > 0.4
                left, right = axes.get_xlim()
                start, end = axes.spines["bottom"].get_bounds() or (left, right)
                assert end - start > 0.3 * (right - left)
            drawn += 1
    assert drawn


def test_texts_of_others_on_given_axes_stay_formulas(summaries):
    figure = Figure()
    axes = figure.subplots()
    mine = axes.set_title("$\\mu$")
    report.response_curve(summaries[0], axes)
    assert mine.get_parse_math()
    assert not axes.xaxis.label.get_parse_math()
    assert axes.get_xlabel().endswith(" to $\\frac")
    assert render.png(figure)


def test_names_are_text_also_where_the_user_has_turned_tex_on(summaries):
    with matplotlib.rc_context({"text.usetex": True, "axes.formatter.use_mathtext": True}):
        figure = report.cost_quality(summaries[0])
        texts = [text for text in figure.findobj(Text) if "frac" in text.get_text()]
    assert texts
    assert not any(text.get_usetex() or text.get_parse_math() for text in texts)


# The page and its files


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports in which every name is that of a term, and most are that of something else, too."""
    terms_left, names, found = list(_hostile.NAMES.values()), itertools.cycle(_hostile.NAMES.values()), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "png", lambda figure: b"")  # they take half of the time
        for count in (2, 3, 4, 4, 4, 4):
            terms, terms_left = tuple(terms_left[:count]), terms_left[count:]
            roles = {role: next(names) for role in ("name", "about", "metric", "unit", "select", "report")}
            roles["metric"] = roles["metric"].replace("/", "|")  # as the rule for metrics and splits asks
            roles["select"], roles["report"] = (f"{roles[r]} {r}".replace("/", "|") for r in ("select", "report"))
            path = study(tmp_path_factory.mktemp("pages"), terms, **roles)
            report.write(path)
            found.append((path, terms, roles))
    return found


def test_every_name_is_a_term_of_some_page(pages):
    assert {term for _, terms, _ in pages for term in terms} == set(_hostile.NAMES.values())


def test_the_page_shows_names_as_they_are(pages):
    for path, terms, roles in pages:
        text = (path / "report.html").read_text(encoding="utf-8")
        page = Page(text)
        assert not page.open
        assert page.tags.count("b") == 1  # ours, in the heading
        assert not [address for address in page.addresses if not address.startswith(("#", "data:"))]
        assert page.text["answer"] == headline.sentence(Summary.read(path)).replace("+-", "±")
        assert f"<b>{html.escape(roles['name'])}</b> — {html.escape(roles['about'])}</h1>" in text
        assert html.escape(f"{terms[0]} (base), {', '.join(terms[1:])}") in text
        assert all(f"<title>{escape(f'Loss {term} over steps')}</title>" in text for term in terms)


def test_figures_show_short_names_as_they_are(pages):
    for path, terms, _ in pages:
        tree = ElementTree.parse(path / "figures" / "ratios-0-yoto.svg")
        texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert {term for term in terms[1:] if display_width(term) <= 24} <= set(texts)


def test_the_tables_read_back(pages):
    for path, terms, roles in pages:
        head, *lines = csv.reader(io.StringIO((path / "trials.csv").read_text(encoding="utf-8"), newline=""))
        expected = [f"coefficient/{term}" for term in terms]
        expected += [f"{roles[split]}/{roles['metric']}" for split in ("select", "report")]
        assert set(expected) <= set(head)
        assert {len(line) for line in lines} == {len(head)}
        content = json.loads((path / "summary.json").read_bytes())
        assert content["task"]["terms"] == list(terms)
        assert all(name.isascii() and len(name) < 80 for name in content["figures"])


def test_the_table_on_a_terminal_is_aligned(pages):
    for path, _, _ in pages:
        lines = table.to_text(Summary.read(path)).splitlines()
        rows = lines[: next(i for i, line in enumerate(lines) if line.startswith("* "))]
        assert len(rows) == 4
        assert len({display_width(row) for row in rows}) == 1


def test_a_long_head_of_a_table_is_cut_and_in_full_on_hovering(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "png", lambda figure: b"")
    path = study(tmp_path, ("a", "b"), metric=LONG, unit="", report="test")
    text = report.write(path).read_text(encoding="utf-8")
    assert f'<th scope="col" title="test {LONG}">test a long name' in text
    assert f">test {LONG}</th>" not in text


def test_an_error_that_is_no_text_does_not_end_the_report(tmp_path, monkeypatch):
    """Python reads the bytes of a file's name that are not UTF-8 as lone surrogates."""
    monkeypatch.setattr(render, "png", lambda figure: b"")
    error = {"type": "FileNotFoundError", "message": "no file \udcff.png", "traceback": "\udcff"}

    def change(record):
        return record if record.seed else dataclasses.replace(record, status="failed", metrics={}, error=error)

    plans = _stores.usual(("ce", "consistency"))[:2]
    path = _stores.build(tmp_path, plans=plans, change=change, histories=False)
    assert "no file ?.png" in report.write(path).read_text(encoding="utf-8")
    assert b"no file ?.png" in (path / "trials.csv").read_bytes()
