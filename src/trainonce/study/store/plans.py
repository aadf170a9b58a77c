"""The plans of a study as its manifest writes them: a large grid as the ratios of each term, not point by point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.study.weightings import grid

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTED = 100  # points that a manifest lists, whatever the plan


def is_short(plan: Mapping[str, Any]) -> bool:
    """Whether a manifest holds the plan without its points."""
    return plan.get("axes") is not None and "points" not in plan


def shorten(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan without points that can be made anew: those of a large grid, from the ratios along its ``axes``."""
    kept = plan.get("axes") is not None and len(plan["points"]) > LISTED
    return {key: value for key, value in plan.items() if key != ("points" if kept else "axes")}


def expand(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with its points, listed in the manifest or not."""
    return dict(plan) | ({"points": [point.to_json() for point in grid(plan["axes"])]} if is_short(plan) else {})
