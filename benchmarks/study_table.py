"""Print the tables of docs/results from the records of finished studies.

python benchmarks/study_table.py docs/results/data/study/*.tar.xz
"""

from __future__ import annotations

import sys

from records import open_study

from trainonce.study import Summary, sentences


def markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join("| " + " | ".join(cell for cell in line) + " |" for line in lines)


def sweep(summary: Summary, decimals: int) -> list[list[str]]:
    rows = [["sweep", "setting", f"{summary.task.report} {summary.task.metric}", "last weights"]]
    for row in summary.sweeps:
        rows += [
            [
                row.plan,
                outcome.label,
                sentences.mean_and_deviation(outcome, decimals) + sentences.missing_seeds(outcome),
                " : ".join(f"{w:.2f}" for w in outcome.weights),
            ]
            for outcome in row.outcomes
        ]
    return rows


def main() -> None:
    for path in sys.argv[1:]:
        with open_study(path) as folder:
            summary = Summary.read(folder)
        print(f"### {summary.task.name}\n")
        print(f"{sentences.sentence(summary)} {sentences.evidence(summary)}\n")
        print(markdown(sentences.table(summary)) + "\n")
        if summary.sweeps:
            print(markdown(sweep(summary, sentences.places(summary))) + "\n")


if __name__ == "__main__":
    main()
