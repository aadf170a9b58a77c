"""Print the two smaller tables on CamVid: losses of learned and fixed weights, and the falling learning rate.

python benchmarks/camvid_table.py docs/results/data/segmentation/camvid.tar.xz \\
    docs/results/data/segmentation/camvid-poly.tar.xz
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import TYPE_CHECKING

from _tables import markdown
from records import open_study, read_histories

from trainonce.study import Summary

if TYPE_CHECKING:
    from pathlib import Path

    from trainonce.study.summary import Outcome

LEARNED = "one-shot(init=0.0183156,decay=0.05,preset=softplus)"
STEPS = (100, 300, 500, 1000, 1500)
SEEDS = (0, 1, 2)


def losses(study: str | Path) -> str:
    """Losses and ratios of learned weights beside the best fixed ones, up to some steps.

    Each value is the mean over the seeds and over the window of steps that ends there.
    """
    with open_study(study) as folder:
        summary, histories = Summary.read(folder), {h["key"]: h for h in read_histories(folder)}
    learned = next(row.chosen for row in summary.rows if row.plan == LEARNED)
    assert summary.reference is not None
    runs = [[histories[r.key] for r in outcome.records.values()] for outcome in (learned, summary.reference.chosen)]
    names = ["cross-entropy", "invariance", "ratio"]
    head = ["step", f"learned: {names[0]}", *names[1:], f"best fixed: {names[0]}", *names[1:]]
    return markdown([head, *([f"{step:,}", *window(runs[0], step), *window(runs[1], step)] for step in STEPS)], "r" * 7)


def window(histories: list[dict], step: int) -> list[str]:
    """Cross-entropy, invariance and ratio in the window that ends at the step."""
    middles = histories[0]["step"]
    width = middles[1] - middles[0]
    at = next(i for i, middle in enumerate(middles) if math.isclose(middle + (width - 1) / 2, step))
    ce, invariance = (statistics.mean(h[f"loss/{term}"][at] for h in histories) for term in ("ce", "invariance"))
    ratio = statistics.mean(math.exp(h["exponent/invariance"][at]) for h in histories)
    return [f"{ce:.2f}", f"{invariance:#.2g}", f"{ratio:.2g}"]


def schedules(constant: str | Path, falling: str | Path) -> str:
    """Fixed ratios with a constant and with a falling learning rate."""
    before, after = ratios(constant), ratios(falling)
    head = ["ratio", "dusk, constant", "dusk, falling", "difference, seed by seed"]
    rows = []
    for ratio, outcome in sorted(after.items()):
        other = before[ratio]
        differences = [outcome.report[seed] - other.report[seed] for seed in SEEDS]
        results = [f"{o.mean:.1f} ± {o.standard_deviation:.1f}" for o in (other, outcome)]
        rows.append([f"{ratio:g}", *results, ", ".join(f"{d:+.1f}" for d in differences)])
    return markdown([head, *rows], "rrrl")


def ratios(study: str | Path) -> dict[float, Outcome]:
    """The fixed weights of a study, by their ratio to one digit."""
    with open_study(study) as folder:
        rows = [row for row in Summary.read(folder).rows if row.kind in ("set", "fixed")]
    return {
        float(f"{weights[1] / weights[0]:.1g}"): outcome
        for row in rows
        for outcome in row.outcomes
        if (weights := outcome.rule.coefficients)[0]
    }


def main() -> None:
    constant, falling = sys.argv[1:3]
    print(losses(constant) + "\n")
    print(schedules(constant, falling))


if __name__ == "__main__":
    main()
