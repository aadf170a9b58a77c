"""The figure of the arena, from records that the test plants."""

import importlib

import pytest

pytest.importorskip("matplotlib")
score = importlib.import_module("benchmarks.arena.score")
figure = importlib.import_module("benchmarks.arena.figure")


def row(rule, regret, cost=1.0, task="a", variant="adam"):
    return score.Row(task, variant, rule, 1.0, -regret, 0.1, 1, 25, regret, cost, 0, 5)


def test_each_rule_stands_at_its_cost_and_mean_regret():
    rows = [
        row("halving", 0.1, cost=1.4),
        row("halving", 0.3, cost=1.6, task="b"),
        row("halving", 9.0, cost=1.6, task="b", variant="sgd"),
        row("uniform", 0.4),
        row("uniform", 0.6, task="b"),
        row("asha trials=27", 0.05, cost=7.0, task="c"),
    ]
    made = figure.draw(rows, {"one": ("a", "b"), "other": ("c",)})
    one, other = made.axes
    places = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in one.lines}
    assert places["halving of it, no longer there"] == pytest.approx((1.5, 0.2))
    assert places["equal weights"][1] == 0.5
    assert "ASHA, 27 points" not in places
    assert any(line.get_label() == "ASHA, 27 points" for line in other.lines)
    labels = [text.get_text() for text in other.get_legend().get_texts()]
    assert labels == ["halving of it, no longer there", "equal weights", "ASHA, 27 points"]
