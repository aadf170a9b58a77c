"""Which recipes have changed since their version was set, and whether their results change with it.

    python benchmarks/recipe_versions.py            what has changed
    python benchmarks/recipe_versions.py --accept   after raising versions, or because no result changes

A recipe with a version says itself when its results change: results of one version may stand in one table. Raise it,
in the recipe's ``@task(version=...)``, when the same settings and the same seed may give other numbers than before,
rounding apart: other data, augmentation, initial weights, losses, metrics, optimizer, precision. Leave it when the
change is one of names, speed, messages or pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from trainonce.recipes import RECIPES, load
from trainonce.study.identity import digest, file_of, hashes_of

FILE = Path(__file__).parents[1] / "tests" / "recipes" / "versions.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--accept", action="store_true", help="take the recipes as they are now")
    accept = parser.parse_args().accept
    found = current()
    changed = [name for name, content in found.items() if json.loads(FILE.read_text()).get(name) != content]
    print("\n".join(f"{name}: version {found[name]['version']}" for name in changed) or "No recipe has changed.")
    if accept:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(changed) and not accept)


def current() -> dict[str, dict[str, Any]]:
    """The versions of the recipes that have one, each with a hash of all its code."""
    tasks = {name: load(name) for name in RECIPES}
    return {
        name: {"version": task.version, "code": digest(hashes_of(file_of(task.function)))}
        for name, task in tasks.items()
        if task.version is not None
    }


if __name__ == "__main__":
    main()
