"""With which weights the trainings of the plan halving went on, in a sentence a plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.record import Record
    from trainonce.study.summary import Summary


def branches(summary: Summary) -> list[str]:
    """A sentence for each plan whose trainings began with several weights."""
    found = []
    for row in summary.rows:
        records = [record for record in row.chosen.records.values() if record.answers]
        if records:
            found.append(f"{row.plan}: {_winners(records)}")
    return found


def _winners(records: Sequence[Record]) -> str:
    """With which of the weights that were tried the trainings went on."""
    chosen = Counter(record.answers[-1]["chosen"] for record in records)
    trainings = f"{len(records)} training{'s' if len(records) > 1 else ''}"
    return f"of {trainings}, {_listed([f'{count} went on {name}' for name, count in chosen.most_common()])}."


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
