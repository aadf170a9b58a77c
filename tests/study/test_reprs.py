"""What a study and a summary show of themselves."""

import html.parser

import _tasks
import pytest
from _stores import yoto
from test_summary import BAD, GOOD, TASK, plan, summary

from trainonce.study import Study, Summary, sentences
from trainonce.study.rules import fixed


class Table(html.parser.HTMLParser):
    """The rows of the tables in a text, the text outside, and all tags."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.outside, self.tags, self._open = [], "", set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if "tr" in self._open:
            self.rows[-1][-1] += text
        else:
            self.outside += text


@pytest.mark.parametrize("numbers", [BAD, GOOD])
def test_a_summary_reads_like_the_commands_output(numbers):
    made = summary(*numbers)
    text = repr(made)
    assert " ".join(text.partition("\n\n")[0].split()) == sentences.sentence(made)
    assert text.endswith(sentences.text_table(made))
    assert max(map(len, text.partition("\n\n")[0].splitlines())) <= 100


def test_a_notebook_shows_a_summary_as_a_table():
    made = summary(*BAD)
    found = Table(made._repr_html_())
    assert found.rows == sentences.table(made)
    assert found.outside == sentences.sentence(made) + "".join(sentences.notes(made))


def test_a_notebook_explains_the_marks_and_names_outliers():
    learned, grid = BAD
    made = summary([*learned[:2], (97, 40000.0)], grid)
    made.plans[0]["seeds"] = [0, 1, 2, 3]
    text = Table(made._repr_html_()).outside
    for note in (
        "* the reference: its best point on validation",
        "+ other seeds than grid",
        "seed 2 is an outlier with",
    ):
        assert note in text
        assert note in repr(made)


def test_names_are_text_in_a_notebook():
    rule, evil = fixed((1.0, 1.0)), "<script>alert('&')</script>"
    hostile = summary(*BAD, plans=[plan(evil, "point", [rule], [0, 1, 2])], unit=evil, name=evil, metric="score")
    found = Table(hostile._repr_html_())
    assert found.tags == {"p", "table", "thead", "tbody", "tr", "th", "td"}
    assert [row[0] for row in found.rows].count(evil) == 1
    assert evil in found.rows[0][1]


def test_a_summary_of_nothing_says_so():
    empty = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [])
    assert repr(empty) == "toy\nNo trial has ended yet."
    assert Table(empty._repr_html_()).outside == "toy No trial has ended yet."


def test_a_study_says_how_far_it_is(tmp_path):
    study = Study(_tasks.troubled.using(steps=2), tmp_path, seeds=3)
    assert "none; add some" in repr(study)
    study.add("uniform").add("grid(0.1,1)")
    assert repr(study).splitlines() == [
        "Study of troubled: Goes wrong in a given way for one seed; with a marker only as long as that file is there.",
        "  plans   uniform, grid(0.1,1)",
        "  seeds   0 to 2",
        "  trials  0 of 12 done",
        f"  folder  {tmp_path}",
    ]
    Study(study.task, tmp_path, seeds=[0, 1]).add("uniform").run(workers=0, device="cpu", show=False)
    assert "  trials  1 of 12 done (1 failed)" in repr(study)
    found = Table(study._repr_html_())
    assert ["trials", "1 of 12 done (1 failed)"] in found.rows
    assert found.outside.startswith("Study of troubled")


def test_many_plans_are_wrapped(tmp_path):
    study = Study(_tasks.line, tmp_path, seeds=[4, 2])
    for weight in range(1, 20):
        study.add(f"fixed(1,{weight},{weight})")
    text = repr(study)
    assert max(map(len, text.splitlines())) <= 100
    assert "  seeds   4, 2" in text
    assert text.count("fixed(") == 19
