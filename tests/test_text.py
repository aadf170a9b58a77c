"""Names on one line, their width, and cutting them."""

import pytest

from trainonce import CompositeLoss, text
from trainonce.study import task

REFUSED = ["\n", "\t", "\r", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\u2067", "\ud800"]
ALLOWED = ["$x$", "a_b^{c}\\", "損失", "שלום", "👩\u200d💻", "نم\u200cی", "e\u0301", "<b>", "w" * 300]
WIDE = ["consistency loss", "損失関数損失関数", "e\u0301\u0323" * 20, "🔥" * 9, "a\u0301 " * 9]


@pytest.mark.parametrize("bad", REFUSED, ids=ascii)
def test_a_name_is_one_line_without_control_characters(bad):
    name = f"a{bad}b"
    with pytest.raises(ValueError, match="A term's name must be one line without control characters; got"):
        CompositeLoss(["ce", name])
    for role in ("metric", "select", "report", "unit", "name"):
        with pytest.raises(ValueError, match=f"^{role} must be one line") as found:
            task(**{"terms": ["a", "b"], "metric": "m", "direction": "minimize"} | {role: name})
        assert str(found.value).endswith(f"Leave out {bad[0]!a}.")
        assert str(found.value).isprintable()


@pytest.mark.parametrize("name", ALLOWED)
def test_any_other_name_is_allowed(name):
    assert CompositeLoss(["ce", name]).terms == ("ce", name)
    made = task(terms=["ce", name], metric=name, direction="minimize", unit=name, name=name)(lambda trial: None)
    assert (made.name, made.metric, made.unit) == (name, name, name)


def test_a_blank_metric_is_refused():
    with pytest.raises(ValueError, match="metric must be a name without '/'; got '  '"):
        task(terms=["a", "b"], metric="  ", direction="minimize")


@pytest.mark.parametrize("length", [2, 3, 8, 13])
@pytest.mark.parametrize("name", WIDE)
def test_a_short_name_fits_and_keeps_its_accents(name, length):
    short = text.shorten(name, length)
    assert text.display_width(short) <= length
    assert short.endswith("…")
    kept = short[:-1]
    assert name.startswith(kept)
    assert text.display_width(name[len(kept) :].lstrip()[:1]) > 0
    assert text.shorten(name, text.display_width(name)) == name
