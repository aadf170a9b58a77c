"""A recipe whose code has changed must say whether its results have changed, too."""

import json

import recipe_versions


def test_a_recipe_that_has_changed_has_a_new_version_or_the_same_results():
    kept, found = json.loads(recipe_versions.FILE.read_text()), recipe_versions.current()
    changed = [name for name in {**kept, **found} if kept.get(name) != found.get(name)]
    assert not changed, (
        f"The code of {', '.join(changed)} has changed. If the same seed may give other numbers, raise the version in "
        "its @task; then, in any case, run python benchmarks/recipe_versions.py --accept."
    )


def test_the_small_recipes_need_no_version():
    assert set(recipe_versions.current()) == {"streets", "camvid", "ciss-paper", "rooms", "nyu", "unidepth-paper"}
