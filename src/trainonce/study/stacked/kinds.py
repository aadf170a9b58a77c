"""Which rules are computed together in a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.study.stacked.points import BalancedPoints, FixedPoints, PacedPoints, PaperPoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.rules import Rule

#: The rules that can be stacked; all others train one by one.
KINDS: dict[str, Any] = {"FixedLoss": FixedPoints, "CompositeLoss": PaperPoints, "BalancedLoss": BalancedPoints}


def points_of(rule: Rule) -> Any:
    """Return the class that computes a rule in a stack."""
    paced = rule.name == "CompositeLoss" and rule.settings["lr"] is None
    return PacedPoints if paced else KINDS[rule.name]


def kind(rule: Rule) -> tuple[str, ...]:
    """Return what rules of one group have in common; also how they are sorted."""
    found = points_of(rule)
    return (found.__name__, *(repr(rule.settings.get(name)) for name in found.alike))


def groups_of(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return the rules in groups that are computed together, in their order."""
    groups: list[list[Rule]] = []
    for rule in rules:
        if groups and kind(groups[-1][0]) == kind(rule):
            groups[-1].append(rule)
        else:
            groups.append([rule])
    return groups
