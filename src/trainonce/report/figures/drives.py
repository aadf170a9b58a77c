"""The figure of what moved an exponent: the losses and the decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_auxiliary_term, entry
from trainonce.report.drawing import curves, plans, style
from trainonce.report.drawing.over_steps import NO_HISTORY, describe_band, draw_curve, end_label, find_trained, finish
from trainonce.report.drawing.style import COLOURS, DASHES, NothingToDrawError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from trainonce.report.drawing.labels import Label
    from trainonce.study.summary import Summary


@entry(
    part="diagnostics",
    title="What moved the exponent of {case}",
    caption="What the losses and the decay have added to the exponent since the start, under {trained}; together they "
    "are its change.",
    applies=lambda summary: bool(plans.trained(summary)),
    cases=each_auxiliary_term,
)
def drives(summary: Summary, term: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw what moved an exponent of the first rule that trains them: the running sums of losses and decay.

    :param term: An auxiliary term, by default the first.
    """
    term = term or summary.task.terms[1]
    parts = {"losses": "empirical", "decay": "decay", "both": "both"}
    runs = [dict(run) for run in curves.read_histories(summary, find_trained(summary).chosen)]
    runs = [run for run in runs if f"empirical/{term}" in run]
    for run in runs:
        for part in ("empirical", "decay"):
            run[f"sum/{part}/{term}"] = _running_sum(run[f"{part}/{term}"], run["rows"])
        run[f"sum/both/{term}"] = run[f"sum/empirical/{term}"] + run[f"sum/decay/{term}"]
    found = {name: curves.curve(runs, f"sum/{part}/{term}") for name, part in parts.items()}
    if not any(found.values()):
        raise NothingToDrawError(NO_HISTORY)
    with style.panel(axes) as axes:
        ends: list[Label] = []
        looks = {"losses": ("#2E86C8", DASHES[1]), "decay": ("#009E73", DASHES[2]), "both": (COLOURS["rule"], "-")}
        for name, line in found.items():
            if line is not None:
                draw_curve(axes, line, *looks[name], f"drive {name}")
                ends += end_label(line, name, looks[name][0], name == "both")
        above = f"change since the start; {describe_band(len(runs))}"
        finish(axes, ends, f"What moved the exponent of {term}", above, zero=True)
    return style.root(axes)


def _running_sum(values: Tensor, rows: Tensor) -> Tensor:
    """Return the sum up to each point, where a thinned value is the mean of some rows."""
    return (values.nan_to_num(0.0) * rows).cumsum(0)
