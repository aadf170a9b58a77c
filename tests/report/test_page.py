"""The page: all it was given as text, nothing from outside, every id once."""

import json
import re

from _pages import Page, html_text

from trainonce.report import headline, table
from trainonce.study import Summary


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


def test_warnings_failures_and_divergence_are_listed(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    assert "OtherScale, 12 trials" in text  # 3 seeds of yoto, shared with replay, and of 3 other starts
    assert "Settled, 12 trials" in text
    assert "Failed, 1 trial<" in text
    assert "ValueError: no &lt;b&gt;such&lt;/b&gt; file" in text
    assert "Diverged, 1 trial<" in text
    assert "1 trial of other plans or of an earlier version" in text


def test_the_table_of_the_page_is_that_of_the_summary(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    summary = Summary.read(written)
    for row in table.cells(summary):
        for cell in row:
            assert html_text(cell) in text
    assert text.count('<tr class="rule">') == 1
    assert html_text(headline.evidence(summary)) in text


def test_every_figure_is_there_twice(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    names = json.loads((written / "summary.json").read_text(encoding="utf-8"))["figures"]
    assert {"cost-quality", "ratios-0-yoto", "exponents-0-yoto", "loss-0-ce", "response-curve", "seeds"} <= set(names)
    for name in names:
        assert f'<figure id="{name}"' in text
        assert (written / "figures" / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert (written / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
