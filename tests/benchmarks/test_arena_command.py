"""The arena's command: records, resuming, searches."""

import itertools
import json

import pytest
from _arena_toy import TOY

from benchmarks.arena import __main__ as command
from benchmarks.arena import choose, points, records, searches
from benchmarks.arena.rules import Point
from benchmarks.arena.schedule import stacks_of
from benchmarks.arena.score import name_of
from benchmarks.arena.task import with_base

HEAD = ["task", "variant", "rule", "settings", "seed"]


@pytest.fixture
def arena(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "find", lambda name, base: with_base(TOY, base))
    trained = []
    make = command.Stack

    def watched(task, some, seeds, **more):
        trained.append((len(some), tuple(seeds)))
        return make(task, some, seeds, **more)

    monkeypatch.setattr(command, "Stack", watched)
    out = tmp_path / "arena.jsonl"

    def call(*arguments):
        trained.clear()
        command.main(["toy", "--steps", "9", "--out", str(out), *arguments])
        return list(trained), records.read(out)

    return call, out


def test_a_command_goes_on_where_it_was(arena):
    call, out = arena
    rules = ["--rules", "uniform", "printed", "units"]
    trained, first = call(*rules, "--seeds", "0-1")
    assert trained == [(3, (0, 1)), (2, (0, 1))]  # what never measures, and what does
    assert len(first) == 10
    assert call(*rules, "--seeds", "0-1") == ([], first)
    out.write_text(out.read_text()[:-30])  # stopped within a line
    trained, second = call(*rules, "--seeds", "0-2")
    assert sorted(trained) == [(1, (1, 2)), (1, (2,)), (3, (2,))]
    assert len(second) == 15
    assert len({records.key(record) for record in second}) == 15


def test_a_record_says_all_and_is_short(arena):
    call, out = arena
    call("--rules", "uniform", "units", "--seeds", "3", "--scale", "side=100", "--optimizer", "sgd")
    uniform, units, _ = records.read(out)
    assert [uniform[name] for name in HEAD] == ["toy", "sgd, side x100, 9 steps", "uniform", {}, 3]
    assert uniform["weights"] == [0.3333] * 3
    assert "path" not in uniform
    assert units["settings"]["p"] == 0.75
    assert "rho" not in units["settings"]  # switched off
    assert 2 <= len(units["path"]) <= 7
    assert {len(row) for row in units["path"]} == {2}  # without the base
    assert units["curve"][-1] == pytest.approx(units["validation"], rel=1e-3)
    assert {"cost", "test", "diverged", "seconds", "torch", "device"} <= set(units)
    assert max(map(len, out.read_text().splitlines())) < 500


def test_another_base_has_records_of_its_own(arena):
    call, _ = arena
    (plain,) = call("--rules", "base", "--seeds", "0")[1]
    _, found = call("--rules", "base", "--seeds", "0", "--base", "smooth", "--scale", "smooth=2")
    other = found[-1]
    assert (plain["variant"], other["variant"]) == ("adam, 9 steps", "adam, smooth x2, 9 steps, base smooth")
    assert other["weights"] == plain["weights"] == [1, 0, 0]
    assert other["test"] != plain["test"]  # another term was trained
    assert len(call("--rules", "base", "--seeds", "0", "--base", "fit")[1]) == len(found)  # which it is


def test_settings_from_a_file(arena, tmp_path):
    call, _ = arena
    file = tmp_path / "settings.json"
    file.write_text(json.dumps([{"p": 0.0}, {"p": 1.0, "c": None}, {"p": 0.0, "c": 10.0}]))
    trained, found = call("--explore", str(file), "--seeds", "0")
    assert trained == [(2, (0,))]  # the third is the first with a default written out
    assert [record["settings"]["p"] for record in found] == [0.0, 1.0]
    assert found[1]["settings"]["c"] is None


def test_tpe_and_random_search_leave_one_record_a_seed(arena, monkeypatch):
    pytest.importorskip("optuna")
    call, _ = arena
    monkeypatch.setattr(searches.tpe, "__defaults__", (3,))
    monkeypatch.setattr(searches, "TPE_TRIALS", 3)
    trained, found = call("--rules", "tpe", "random", "--seeds", "0-1")
    assert trained == [(27, (0, 1)), *[(1, (0, 1))] * 3]
    costs = {(record["rule"], record["seed"]): record["cost"] for record in found if record["rule"] != "random"}
    assert costs == {(rule, s): c for rule, c in {"tpe": 3, "asha": 7, "random search": 20}.items() for s in (0, 1)}
    assert call("--rules", "tpe", "random", "--seeds", "0-1") == ([], found)


def test_halving_leaves_one_record_a_seed_and_shares_the_trainings(arena):
    call, _ = arena
    given = ["--rules", "units", "drift", "halving", "--seeds", "0-1", "--steps", "36"]
    trained, found = call(*given)
    assert sum(count for count, _ in trained) == 1 + 2 * (1 + 4)  # at the last layer; two factors of two terms
    chosen = [record for record in found if record["rule"] == "halving"]
    assert {(r["settings"]["travel"], r["seed"]): r["cost"] for r in chosen} == dict.fromkeys(
        itertools.product((0.0, 4.0), (0, 1)), 1.556
    )
    assert call(*given) == ([], found)
    assert {name_of(record) for record in chosen} == {"halving", "halving travel=0"}


def test_halving_is_compared_under_many_settings_from_the_same_trainings(arena):
    call, _ = arena
    _, found = call("--rules", "around", "--seeds", "0-1", "--steps", "36")
    compared = choose.halved([{**record, "variant": "adam"} for record in found], lambda name: TOY)
    names = [name_of(record) for record in compared]
    assert set(names) == {name_of({"rule": "halving", "settings": one}) for one in choose.settings()}
    assert names.count("halving") == names.count("halving rounds=1 keep=1 seat=False") == 2  # one a seed


def test_halving_on_a_table():
    """The best at first falls behind in the second round; what is best in the end was left out."""
    curves = [[9.0] + [1.0] * 17, [8.0] * 18, [7.0] * 18, [1.0] * 2 + [99.0] * 16]
    assert searches.halve(curves, True, (1 / 18, 1 / 9), (3, 1)) == searches.Found(1, round((4 + 3 + 16) / 18, 3))


def test_the_first_has_a_seat_until_the_last_round():
    late, other, third = [0.0] * 2 + [9.0] * 16, [5.0] * 18, [4.0] * 18
    rounds, keep = (1 / 18, 1 / 9, 1 / 3), (2, 2, 1)
    assert searches.halve([late, other, third], True, rounds, keep).best == 1
    assert searches.halve([late, other, third], True, rounds, keep, seat=True).best == 0
    assert searches.halve([[None] * 18, other, third], True, rounds, keep, seat=True).best == 1


def test_asha_on_a_table():
    """Nine trainings: the best at the first rung falls behind, a late one is lost, and the rest decide."""
    early = [9, 8, 7, 1, 2, 3, 4, 5, 6]
    curves = [[value] * 2 + [value + 0.5 * (i == 1)] * 6 + [value + (10 if i == 3 else 0)] * 10 for i, value in
              enumerate(early)]  # fmt: skip
    curves[0][5:] = [7.5] * 13
    assert searches.asha(curves, higher=True) == searches.Found(1, pytest.approx(9 / 9 + 3 * 2 / 9 + 2 / 3, abs=1e-3))
    lower = [[-v for v in curve] for curve in curves]
    lower[8] = [None] * 18
    assert searches.asha(lower, higher=False).best == 1
    assert searches.asha([[1.0] * 18] * 27, True).cost == 7


def test_the_grids():
    assert len(points.grid(1)) == 13
    assert [points.grid(1)[i] for i in (0, 6, 12)] == [[0.001], [1.0], [1000.0]]
    assert len(points.grid(2)) == 25
    assert [0.01, 100.0] in points.grid(2)
    assert len(points.grid(3)) == 25
    assert [1.0] * 3 in points.grid(3)
    assert points.grid(3) == points.grid(3)
    assert all(0.01 <= ratio <= 100 for row in points.grid(4) for ratio in row)


def test_stacks_are_no_larger_than_asked():
    some = [Point("grid", {"ratios": [r]}) for r in range(1, 6)]
    assert [len(stack) for stack, _ in stacks_of(some, lambda point: (0,), 2)] == [2, 2, 1]


def test_unknown_names_are_refused(arena):
    call, _ = arena
    with pytest.raises(ValueError, match="got 'grids'"):
        call("--rules", "grids")
    with pytest.raises(ValueError, match=r"units has the settings p, c, .* got q"):
        stacks_of([Point("units", {"q": 1})], lambda point: (0,), 2)
