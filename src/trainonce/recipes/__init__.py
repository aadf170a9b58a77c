"""Complete systems to train: data, model, losses, metrics, as tasks for studies.

Nothing is imported before it is asked for: a recipe may need packages that others do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainonce.study import Task

#: The recipes by name: where the task is.
RECIPES = {
    "digits": "trainonce.recipes.digits:digits",
    "burgers": "trainonce.recipes.burgers:burgers",
    "distillation": "trainonce.recipes.distillation:distillation",
    "streets": "trainonce.recipes.segmentation.tasks:streets",
    "camvid": "trainonce.recipes.segmentation.tasks:camvid",
    "ciss-paper": "trainonce.recipes.segmentation.tasks:ciss_paper",
    "rooms": "trainonce.recipes.depth.tasks:rooms",
    "nyu": "trainonce.recipes.depth.tasks:nyu",
    "unidepth-paper": "trainonce.recipes.depth.tasks:unidepth_paper",
}


def load(name: str) -> Task:
    """The task of a recipe."""
    module, _, attribute = RECIPES[name].partition(":")
    task: Task = getattr(importlib.import_module(module), attribute)
    return task
