"""Draw losses and weights over the steps: those of the paper's rule in colour, fixed ones in grey, from the records.

python benchmarks/dynamics.py docs/results/data/depth/nyu.tar.xz FIGURE.png [init decay [regularizer]]

Each line is the mean over the seeds of one point of the study; losses are on a log scale. Which setting:
by default the paper's for AdamW, 0.1 and 20, with both parts of the regularizer, ``paper``.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import TYPE_CHECKING

from matplotlib import ticker
from matplotlib.figure import Figure
from records import open_study, read_histories

from trainonce.report.drawing import style
from trainonce.study.rules import PARTS
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.rules import Rule

FADED = "#A9AFB8"


def main() -> None:
    study, figure = sys.argv[1:3]
    init, decay, parts = [*sys.argv[3:], *("0.1", "20", "paper")[len(sys.argv) - 3 :]]
    with open_study(study) as folder:
        records, histories = Store(folder, writable=False).read(), read_histories(folder)
    runs: dict[Rule, list[dict]] = {}
    for history in histories:
        runs.setdefault(records[history["key"]].rule, []).append(history)
    terms = [name.removeprefix("loss/") for name in histories[0] if name.startswith("loss/")]
    wanted = {"init": float(init), "decay": float(decay), "regularizer": PARTS if parts == "paper" else [parts]}
    learned = [
        rule for rule in runs if rule.trains and all(rule.settings[name] == value for name, value in wanted.items())
    ]
    if not learned:
        sys.exit(f"{study} has no run with init {init}, decay {decay}, {parts}.")
    shown = [*(rule for rule in runs if rule.is_fixed), *learned]
    with style.panel(None):
        drawn = Figure(figsize=(3.3 * len(terms), 5.2), layout="constrained")
        panels = drawn.subplots(2, len(terms), sharex=True)
        for axes, (what, term) in zip(panels.flat, [(w, t) for w in (loss, weight) for t in terms], strict=True):
            for rule in shown:
                draw(axes, runs[rule], what, terms, term, ours=rule in learned)
            dress(axes, what, term)
        for height, text, colour in (
            (0.93, "learned", COLOUR),
            (0.84, f"{len(shown) - len(learned)} fixed weights", FADED),
        ):
            panels[0][0].annotate(text, (0.97, height), xycoords="axes fraction", ha="right", color=colour)
        drawn.savefig(figure, dpi=150, metadata={"Software": None})
    print(f"{figure}: {len(shown)} points; learned: {learned[0].label}")


COLOUR = style.COLOURS["rule"]


def draw(axes, histories: Sequence[dict], what, terms: Sequence[str], term: str, *, ours: bool) -> None:
    values = [statistics.mean(at) for at in zip(*(what(h, terms, term) for h in histories), strict=True)]
    look = {"color": COLOUR, "linewidth": 1.8, "zorder": 3} if ours else {"color": FADED, "linewidth": 1.0}
    axes.plot(histories[0]["step"], values, **look)


def loss(history: dict, terms: Sequence[str], term: str) -> list[float]:
    return history[f"loss/{term}"]


def weight(history: dict, terms: Sequence[str], term: str) -> list[float]:
    """Return the coefficient; of older histories, the softmax of the exponents, of which the base's is 0."""
    if f"coefficient/{term}" in history:
        return history[f"coefficient/{term}"]
    powers = {each: [math.exp(mu) for mu in history.get(f"exponent/{each}", [0.0])] for each in terms}
    count = len(history["step"])
    whole = {each: values * count if len(values) == 1 else values for each, values in powers.items()}
    return [whole[term][i] / sum(values[i] for values in whole.values()) for i in range(count)]


def dress(axes, what, term: str) -> None:
    if what is loss:
        axes.set_yscale("log")
        ticks = log_ticks(*axes.get_ylim())
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.set_title(f"loss: {term}", loc="left", fontsize=10.5)
    else:
        axes.set_ylim(0, 1)
        axes.set_title(f"weight of {term}", loc="left", fontsize=10.5)
        axes.set_xlabel("optimizer step")
    style.grid_lines(axes, "y")


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers in the range, about evenly spaced on a logarithmic axis and at least three where possible."""
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [tick for p in powers for d in digits if low <= (tick := float(f"{d}e{p}")) <= high]
        if len(found) >= 3:
            break
    return found


if __name__ == "__main__":
    main()
