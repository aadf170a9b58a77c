"""Print the tables of docs/results from the records of finished studies.

python benchmarks/study_table.py docs/results/data/study/{distillation,digits,burgers}.tar.xz
python benchmarks/study_table.py --symbols --without seconds docs/results/data/segmentation/camvid.tar.xz

For each study it prints the result in words and then its tables: the comparison, what was chosen, and the sweeps.
Of several studies it first prints an overview with a row for each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from _tables import markdown, short_name, title_of
from records import open_study

from trainonce.report import headline, numbers, table
from trainonce.study import Summary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trainonce.study.summary import Outcome, Row

APART = 0.05  # weights that differ more over seeds are shown as a range
COMPARISON = 5  # columns of the first table
CHOSEN = (0, 6, 7, 5)  # columns of the second table: plan, validation metric, weights, seconds


def tables(summary: Summary, *, symbols: bool = False, without: Collection[str] = ()) -> list[str]:
    """The tables of a study: the comparison, what was chosen, and the sweeps where there are any.

    :param symbols: Write the settings of the paper's rule with its symbols.
    :param without: Columns that are left out.
    """
    head, *body = [[typeset(cell) for cell in row] for row in table.cells(summary)]
    body = [[*row[:-1], weights_cell(of.chosen)] for row, of in zip(body, shown(summary), strict=True)]
    rows = [[*map(title_of, head[:-1]), "final weights"], *body]
    if symbols:
        rows = [[short_name(row[0]), *row[1:]] for row in rows]
    columns = [c for c in CHOSEN if rows[0][c] not in without]
    found = [markdown([row[:COMPARISON] for row in rows]), markdown([[row[c] for c in columns] for row in rows])]
    return [*found, markdown(sweeps(summary), "llrr")] if summary.sweeps else found


def shown(summary: Summary) -> list[Row]:
    """Return the rows that a table of the study has."""
    return [*summary.ranked, *summary.without_result]


def weights_cell(outcome: Outcome) -> str:
    """Return the last coefficients, divided by their sum, and the sum where it is not 1; ranges over the seeds."""
    found = [record.coefficients for record in outcome.records.values() if record.coefficients]
    totals = [sum(coefficients) for coefficients in found]
    weights = [[c / total for c in coefficients] for coefficients, total in zip(found, totals, strict=True)]
    text = " : ".join(spread(column) for column in zip(*weights, strict=True))
    apart = any(abs(total - 1) > 1e-5 for total in totals)
    return f"{text} (sum {spread(totals)})" if apart else text


def spread(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f} to {high:.2f}" if high - low > APART else f"{sum(values) / len(values):.2f}"


def sweeps(summary: Summary) -> list[list[str]]:
    """A row for each setting of each sweep, with the sweep's name at its first one."""
    rows = [["sweep", "setting", f"{summary.task.report} {metric_of(summary)}", "final weights"]]
    for row in summary.sweeps:
        for number, outcome in enumerate(row.outcomes):
            result = numbers.mean_and_deviation(outcome, numbers.decimal_places(summary))
            rows.append(
                [
                    "" if number else row.plan,
                    outcome.label,
                    typeset(result) + numbers.missing_seeds(outcome),
                    weights_cell(outcome),
                ]
            )
    return rows


def overview(summaries: Sequence[Summary]) -> str:
    """Return the paper's rule against the best grid point, a row for each study."""
    head = ["task", "learned weights", "best grid point", "its cost", "better grid points", "difference [95 %]"]
    return markdown([[*head, "verdict"], *map(overview_row, summaries)], "lrrrrrl")


def first_rule(summary: Summary) -> Row | None:
    return next((row for row in summary.rows if row.kind == "rule"), None)


def overview_row(summary: Summary) -> list[str]:
    ours, grid, decimals = first_rule(summary), summary.reference, numbers.decimal_places(summary)
    if ours is None or grid is None:
        raise ValueError(f"The study of {summary.task.name} lacks the paper's rule or a grid.")
    verdict = summary.verdict(ours)
    return [
        f"{summary.task.name} ({metric_of(summary)})",
        *(typeset(numbers.mean_and_deviation(row.chosen, decimals)) for row in (ours, grid)),
        f"{numbers.times(grid.cost / ours.cost)} ×",  # noqa: RUF001
        f"{ours.beaten_by} of {summary.reference_size}",
        numbers.interval(ours.difference, decimals),
        verdict if verdict == "undecided" else f"**{verdict}**",
    ]


def metric_of(summary: Summary) -> str:
    """The metric with its unit, as in 'mIoU, %'."""
    return title_of(", ".join(part for part in (summary.task.metric, summary.task.unit) if part))


def typeset(text: str) -> str:
    return text.replace("+-", "±")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("studies", nargs="+", type=Path, help="folders of studies, or packed ones")
    parser.add_argument(
        "--symbols", action="store_true", help="name the settings of the paper's rule as the paper does"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="COLUMN", help="leave a column out, such as seconds"
    )
    given = parser.parse_args()
    summaries = []
    for path in given.studies:
        with open_study(path) as folder:
            summaries.append(Summary.read(folder))
    if len(summaries) > 1 and all(first_rule(s) and s.reference for s in summaries):
        print(overview(summaries) + "\n")
    for summary in summaries:
        print(f"### {summary.task.name}\n")
        print(f"{headline.sentence(summary)} {headline.evidence(summary)}".strip() + "\n")
        for text in tables(summary, symbols=given.symbols, without=given.without):
            print(text + "\n")


if __name__ == "__main__":
    main()
