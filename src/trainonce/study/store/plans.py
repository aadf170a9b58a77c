"""The plans of a study as its manifest writes them: a large grid as the ratios of each term, not point by point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.study.rules import grid

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTED = 100  # points that a manifest lists, whatever the plan


def shorten(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan without the rules of a large grid, which can be made anew from the ratios along its ``axes``."""
    kept = plan.get("axes") is not None and len(plan["rules"]) > LISTED
    return {key: value for key, value in plan.items() if key != ("rules" if kept else "axes")}


def expand(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with its rules, listed in the manifest or not."""
    return dict(plan) if "rules" in plan else {**plan, "rules": [rule.to_json() for rule in grid(plan["axes"])]}
