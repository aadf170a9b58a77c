"""Pieces of HTML: cells with very many values."""

import re

from trainonce.report import markup


def cell(value):
    """The HTML of a cell of ratios."""
    (found,) = markup.table([["plan", "ratios"], ["a", value]], "a table", ratios=["ratios"]).split("<td>a</td>")[1:]
    return found.split("</td>")[0]


def test_a_few_ratios_are_all_there_and_break_only_between_them():
    value = "1 : 0.13 to 0.32 : 0.68 to 0.87"
    spans = ["1 :", "0.13 to 0.32 :", "0.68 to 0.87"]
    assert cell(value) == f'<td class="ratios" title="{value}">' + " ".join(f"<span>{span}</span>" for span in spans)


def test_of_many_ratios_the_first_are_shown_and_all_can_be_read():
    ratios = [f"0.{i:02}" for i in range(12)]
    value = " : ".join(ratios)
    found = cell(value)
    assert f'title="{value}"><details>' in found
    shown, hidden = found.partition("<summary>")[2].split("</summary>")
    assert re.findall(r"0\.\d\d", shown) == ratios[:4]
    assert shown.endswith("<span>… of 12</span>")
    assert re.findall(r"0\.\d\d", hidden) == ratios[4:]


def test_ratios_are_escaped():
    assert "<b>" not in cell(" : ".join(["<b>"] * 12))


def test_a_long_name_may_break_and_a_short_one_may_not():
    rows = [["plan"], ["yoto(init=0.0183156,decay=0.05,regularizer=softplus)"], ["uniform"]]
    found = markup.table(rows, "a table")
    assert '<td class="long">yoto(' in found
    assert "<td>uniform</td>" in found
