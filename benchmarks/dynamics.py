"""Draw the paper's Fig. 1: losses, exponents and weights over the steps, from the records.

python benchmarks/dynamics.py docs/results/data/depth/nyu.tar.xz FIGURE.png [init decay [regularizer]]

The composite loss and that of each term on a log scale, the exponents, the weights: those of the paper's rule in
colour, fixed ones in grey. Each line is the mean over the seeds of one point of the study; the composite loss is the
sum of the mean losses times the mean weights of some steps. Which setting: by default the paper's for AdamW, 0.1 and
20, with both parts of the regularizer, ``paper``.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from typing import TYPE_CHECKING

from matplotlib import ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from records import open_study, read_histories, read_records

from trainonce.report.drawing import render, style
from trainonce.study.rules import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainonce.study.rules import Rule

LEARNED = {"color": style.COLOURS["rule"], "linewidth": 1.8, "zorder": 3}
FIXED = {"color": "#A9AFB8", "linewidth": 1.0}
#: Of the ticks of a logarithmic axis, coarse ones first.
DIGITS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8))


def main() -> None:
    study, file, *given = sys.argv[1:]
    init, decay, parts = [*given, *("0.1", "20", "paper")[len(given) :]]
    with open_study(study) as folder:
        figure = draw(folder, float(init), float(decay), parts)
    if figure is None:
        sys.exit(f"{study} has no run with init {init}, decay {decay}, {parts}.")
    with open(file, "wb") as out:
        out.write(render.png(figure))


def draw(folder: Path, init: float = 0.1, decay: float = 20, parts: str = "paper") -> Figure | None:
    """Draw one setting of the paper's rule among the fixed weights of a study; None where it has no such run."""
    records = read_records(folder)
    histories = [history for history in read_histories(folder) if history["key"] in records]
    runs: dict[Rule, list[dict]] = {}
    for history in histories:
        runs.setdefault(records[history["key"]].rule, []).append(history)
    terms = [name.removeprefix("loss/") for name in histories[0] if name.startswith("loss/")]
    wanted = {"init": init, "decay": decay, "regularizer": PARTS if parts == "paper" else [parts]}
    learned = [
        rule for rule in runs if rule.trains and all(rule.settings[name] == value for name, value in wanted.items())
    ]
    if not learned:
        return None
    shown = [*(rule for rule in runs if rule.is_fixed), *learned]
    rows = [
        [(composite, ""), *((loss, term) for term in terms[1:])],
        [(loss, terms[0]), *((exponent, term) for term in terms[1:])],
        [(weight, term) for term in terms],
    ]
    with style.panel(None):
        figure = Figure(figsize=(3.3 * len(terms), 7.5), layout="constrained")
        panels = figure.subplots(3, len(terms), sharex=True)
        for axes, (what, term) in zip(panels.flat, itertools.chain(*rows), strict=True):
            for rule in learned if what is exponent else shown:
                draw_line(axes, runs[rule], what, terms, term, ours=rule in learned)
            dress(axes, what, term)
        for axes in panels[-1]:
            axes.set_xlabel("optimizer step")
        handles = [Line2D([], [], **look) for look in (LEARNED, FIXED)]
        names = ["learned", f"{len(shown) - len(learned)} fixed weights"]
        figure.legend(handles, names, loc="outside upper center", ncols=2)
    return figure


def draw_line(axes, histories: Sequence[dict], what, terms: Sequence[str], term: str, *, ours: bool) -> None:
    values = [statistics.mean(at) for at in zip(*(what(h, terms, term) for h in histories), strict=True)]
    axes.plot(histories[0]["step"], values, **LEARNED if ours else FIXED)


def loss(history: dict, terms: Sequence[str], term: str) -> list[float]:
    return history[f"loss/{term}"]


def exponent(history: dict, terms: Sequence[str], term: str) -> list[float]:
    return history[f"exponent/{term}"]


def weight(history: dict, terms: Sequence[str], term: str) -> list[float]:
    """Return the coefficient; of older histories, the softmax of the exponents, of which the base's is 0."""
    if f"coefficient/{term}" in history:
        return history[f"coefficient/{term}"]
    powers = {each: [math.exp(mu) for mu in history.get(f"exponent/{each}", [0.0])] for each in terms}
    count = len(history["step"])
    whole = {each: values * count if len(values) == 1 else values for each, values in powers.items()}
    return [whole[term][i] / sum(values[i] for values in whole.values()) for i in range(count)]


def composite(history: dict, terms: Sequence[str], term: str) -> list[float]:
    """Return the sum of all weighted losses."""
    parts = [zip(weight(history, terms, each), history[f"loss/{each}"], strict=True) for each in terms]
    return [sum(coefficient * raw for coefficient, raw in at) for at in zip(*parts, strict=True)]


def dress(axes, what, term: str) -> None:
    if what in (loss, composite):
        axes.set_yscale("log")
        ticks = log_ticks(*axes.get_ylim())
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    elif what is weight:
        axes.set_ylim(0, 1)
    titles = {composite: "composite loss", loss: "loss: {}", exponent: "exponent of {}", weight: "weight of {}"}
    axes.set_title(titles[what].format(term), loc="left", fontsize=10.5)
    style.grid_lines(axes, "y")


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers in the range, about evenly spaced on a logarithmic axis and at least three where possible."""
    for digits in DIGITS:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [tick for p in powers for d in digits if low <= (tick := float(f"{d}e{p}")) <= high]
        if len(found) >= 3:
            break
    return found


if __name__ == "__main__":
    main()
