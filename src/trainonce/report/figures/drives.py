"""The figure of what moved an exponent: the losses and the decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_auxiliary_term, entry
from trainonce.report.drawing import curves, style
from trainonce.report.drawing.over_steps import NO_HISTORY, describe_band, draw_curve, end_label, finish, learned_plan
from trainonce.report.drawing.style import COLOURS, DASHES, INK, NothingToDrawError
from trainonce.study import sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from trainonce.report.drawing.labels import Label
    from trainonce.study.summary import Summary


@entry(
    part="diagnostics",
    title="What moved the exponent of {case}",
    caption="What the losses and the decay have added to the exponent since the start; together they are its change.",
    cases=each_auxiliary_term,
)
def drives(summary: Summary, term: str | None = None, axes: Axes | None = None) -> Figure:
    """What moved an exponent: the running sums of what the losses and the decay added to it.

    :param term: An auxiliary term, by default the first.
    """
    term = term or summary.task.terms[1]
    parts = {"losses": "empirical", "decay": "decay", "both": "both"}
    runs = [dict(run) for run in curves.read_histories(summary, learned_plan(summary).chosen)]
    for run in runs:
        for part in ("empirical", "decay"):
            run[f"sum/{part}/{term}"] = _running_sum(run[f"{part}/{term}"], run["rows"])
        run[f"sum/both/{term}"] = run[f"sum/empirical/{term}"] + run[f"sum/decay/{term}"]
    found = {name: curves.curve(runs, f"sum/{part}/{term}") for name, part in parts.items()}
    if not any(found.values()):
        raise NothingToDrawError(NO_HISTORY)
    if sentences.is_in_units(summary.one_shot) and not any(any(line.mean) for line in found.values() if line):
        raise NothingToDrawError("Neither losses nor decay move the exponents of gradient units without signal=loss.")
    with style.panel(axes) as axes:
        ends: list[Label] = []
        looks = {"losses": ("#2E86C8", DASHES[1]), "decay": ("#009E73", DASHES[2]), "both": (COLOURS["learned"], "-")}
        for name, line in found.items():
            if line is not None:
                draw_curve(axes, line, *looks[name], f"drive {name}")
                ends += end_label(line, name, looks[name][0], name == "both")
        axes.axhline(0, color=INK, linewidth=0.8, alpha=0.5)
        finish(axes, ends, f"What moved the exponent of {term}", f"change since the start; {describe_band(len(runs))}")
    return style.root(axes)


def _running_sum(values: Tensor, rows: Tensor) -> Tensor:
    """The sum up to each point, where a thinned value is the mean of some rows."""
    return (values.nan_to_num(0.0) * rows).cumsum(0)
