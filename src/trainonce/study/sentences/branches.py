"""What scouts asked during the trainings, and what was answered, in a sentence a plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.record import Record
    from trainonce.study.summary import Summary

NO_CHANGE = "as it is"


def branches(summary: Summary) -> list[str]:
    """A sentence for each plan whose trainings had scouts."""
    found = []
    for row in summary.rows:
        records = [record for record in row.chosen.records.values() if record.answers]
        if records:
            found.append(f"{row.plan}: {_answers(records)}")
    return found


def _answers(records: Sequence[Record]) -> str:
    """What was changed, in how many trainings, and when.

    Answers of different seeds count as the same where the change and the step are.
    """
    if all(record.weighting.kind == "halving" for record in records):
        return _winners(records)
    changes = Counter(
        (answer["step"], answer["chosen"])
        for record in records
        for answer in record.answers
        if answer["chosen"] != NO_CHANGE
    )
    asked = sorted({answer["step"] for record in records for answer in record.answers})
    when = f"scouts asked after {_listed([str(step) for step in asked])} steps whether a term helps"
    if not changes:
        return f"{when}, and nothing was changed in any of {len(records)} trainings."
    parts = [f"{count} went on {name} from step {step}" for (step, name), count in sorted(changes.items())]
    return f"{when}. Of {len(records)} trainings, {_listed(parts)}."


def _winners(records: Sequence[Record]) -> str:
    """With which of the weights that were tried the trainings went on."""
    chosen = Counter(record.answers[-1]["chosen"] for record in records)
    trainings = f"{len(records)} training{'s' if len(records) > 1 else ''}"
    return f"of {trainings}, {_listed([f'{count} went on {name}' for name, count in chosen.most_common()])}."


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
