"""What the tables and figures of docs/results share: Markdown, the names of plans and of metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainonce.study.rules import Rule

#: Metrics whose usual spelling is not their name in the records.
METRICS = {"miou": "mIoU"}
UNBROKEN = "\u00a0"  # a space that does not end a line
SYMBOLS = {"init": "ε", "decay": "ρ", "lr": "lr"}  # noqa: RUF001
REGULARIZERS = ("regularizer", "preset")  # as older plans called it


def markdown(rows: Sequence[Sequence[str]], align: str = "") -> str:
    """A Markdown table; ``align`` has a letter per column, l or r, and by default only the first column is l."""
    head, *body = rows
    whole = [[_keep_together(cell) for cell in row] for row in body]
    marks = {"l": "---", "r": "---:"}
    ruler = "|".join(marks[letter] for letter in align or "l" + "r" * (len(head) - 1))
    lines = ["| " + " | ".join(row) + " |" for row in [head, *whole]]
    return "\n".join([lines[0], f"|{ruler}|", *lines[1:]])


def _keep_together(cell: str) -> str:
    """A cell with numbers, kept on one line; only ranges of several weights may be broken."""
    if not re.search(r"\d", cell):
        return cell
    whole = cell.replace(" ", UNBROKEN)
    return whole.replace(f"{UNBROKEN}:{UNBROKEN}", " : ") if " to " in cell else whole


def title_of(metric: str) -> str:
    """The metric as it is usually spelled.

    >>> title_of("validation miou, %")
    'validation mIoU, %'
    """
    return re.sub(r"\w+", lambda word: METRICS.get(word[0], word[0]), metric)


def label_of(rule: Rule, *, lr: bool = True) -> str:
    """Return the settings of the paper's rule, as in 'ε 0.1, ρ 20, lr 0.01'; with ``lr=False`` without that."""
    settings = {name: rule.settings[name] for name in SYMBOLS if lr or name != "lr"}
    parts = rule.settings["regularizer"]
    return ", ".join([*_settings(settings.items()), *(parts if len(parts) == 1 else [])])


def short_name(plan: str) -> str:
    """Return a plan of the paper's rule with its settings in the order and symbols of the paper; others as they are.

    >>> short_name("yoto(init=0.0183156,decay=0.05,regularizer=softplus,lr=0.001)"), short_name("grid(0.1,1)")
    ('yoto, ε 0.018, ρ 0.05, lr 0.001, softplus', 'grid(0.1,1)')
    """
    name, _, inside = plan.rstrip(")").partition("(")
    given = dict(setting.split("=") for setting in inside.split(",") if "=" in setting)
    if not given or not given.keys() <= {*SYMBOLS, *REGULARIZERS}:
        return plan
    parts = [given[name] for name in REGULARIZERS if given.get(name, "paper") != "paper"]
    settings = _settings((key, float(given[key])) for key in SYMBOLS if key in given)
    return ", ".join([name, *settings, *parts])


def _settings(values: Iterable[tuple[str, float | None]]) -> list[str]:
    digits = {"init": ".2g"}  # exp(-4) is a usual start
    return [f"{SYMBOLS[key]} {value:{digits.get(key, 'g')}}" for key, value in values if value is not None]
