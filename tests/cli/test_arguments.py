"""What the command reads: its version, seeds, and plans in every way to write them."""

import contextlib
import json
import re
import shlex
from pathlib import Path

import pytest
from _tasks import line

import trainonce
from trainonce import cli
from trainonce.cli.arguments import build_parser, put_task_first
from trainonce.cli.training import compare
from trainonce.study.plans import parse, separate

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command.md"


def commands_of(parser):
    return dict(next(a for a in parser._actions if isinstance(a.choices, dict)).choices)


def test_every_option_is_in_the_reference():
    commands = commands_of(build_parser())
    commands |= {f"data {name}": action for name, action in commands_of(commands.pop("data")).items()}
    options = {o for command in commands.values() for action in command._actions for o in action.option_strings}
    page = PAGE.read_text()
    assert [option for option in options - {"-h", "--help"} if f"| `{option}" not in page] == []
    assert [name for name in commands if f"| `trainonce {name}" not in page] == []


def read(*arguments):
    return build_parser().parse_args(put_task_first(["compare", *arguments]))


def test_the_scripts_for_clusters_give_the_command_what_it_reads():
    page = (PAGE.parents[1] / "how-to" / "cluster.md").read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|yaml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    quoted = [json.loads(found) for block in blocks for found in re.findall(r"command: (\[.*\])", block)]
    plain = [
        shlex.split(found, comments=True) for block in blocks for found in re.findall(r"trainonce compare .*", block)
    ]
    commands = [[word for word in command if word != "&"] for command in [*quoted, *plain]]
    assert len(commands) == 6
    for program, *arguments in commands:
        asked = build_parser().parse_args(put_task_first(arguments))
        assert (program, asked.command) == ("trainonce", compare)
        assert asked.task in ("study.toml", "my_task.py")
    assert sum("--no-wait" in command for command in commands) == 3


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"trainonce {trainonce.__version__}\n"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("5", 5), ("0-4", [0, 1, 2, 3, 4]), ("10,11,12", [10, 11, 12]), ("3-3", [3]), ("0-2,7", [0, 1, 2, 7])],
)
def test_seeds_are_counted_listed_or_a_range(text, seeds):
    assert read("digits", "--seeds", text).seeds == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4-0", "must be ranges from the lower to the higher seed, as 0-4; got '4-0'"),
        ("1,1", "must be different seeds; got '1,1'"),
        ("0-4,3", "must be different seeds; got '0-4,3'"),
        ("0-x", "must be a whole number of at least 0; got 'x'"),
        ("2-", "must be a whole number of at least 1; got '2-'"),
        ("0-4-6", "must be a whole number of at least 0; got '4-6'"),
        ("0-999999999", "must be at most 100,000 seeds"),
        ("999999999", "must be at most 100,000 seeds; got 999,999,999"),
    ],
)
def test_seeds_that_are_none_are_one_sentence(text, message, capsys):
    with pytest.raises(SystemExit):
        read("digits", "--seeds", text)
    error = capsys.readouterr().err
    assert message in error
    assert "seeds is" not in error


PLANS = ["yoto:init=1,decay=2", "uniform", "grid:0.1,1,10", "fixed:fit=1,small=2,flat=3", "grid:small=1/2,flat=1"]
BRACKETS = [
    "yoto(init=1,decay=2)",
    "uniform",
    "grid(0.1,1,10)",
    "fixed(fit=1,small=2,flat=3)",
    "grid(small=1/2,flat=1)",
]


def test_settings_behind_a_colon_are_those_in_brackets():
    for colon, brackets in zip(PLANS, BRACKETS, strict=True):
        assert parse(colon, line) == parse(brackets, line)
        assert parse(colon, line).name == brackets


def test_plans_are_separate_arguments_or_separated_by_commas():
    asked = read("digits", "--plans", *PLANS, "--seeds", "2", "--plans", ",".join(BRACKETS[:2]))
    assert asked.task == "digits"
    assert [plan for text in asked.plans for plan in separate(text)] == [*PLANS, *BRACKETS[:2]]


@pytest.mark.parametrize("task", ["digits", "my_task.py", "my_task.py:line", "my.package:line", "study.toml"])
@pytest.mark.parametrize("more", [[], ["--seeds", "2"]])
def test_a_task_behind_the_plans_is_found(task, more):
    asked = read("--plans", "yoto,uniform", task, *more)
    assert (asked.task, asked.plans) == (task, ["yoto,uniform"])


@pytest.mark.parametrize(
    ("given", "plans"),
    [
        (["--plans", "uniform", "--plans", "yoto", "toy.py"], ["uniform", "yoto"]),
        (["--plans", "uniform", "toy.py", "--plans", "yoto", "base"], ["uniform", "yoto", "base"]),
        (["--plans", "uniform", "--seeds", "2", "--plans", "yoto", "toy.py", "--yes"], ["uniform", "yoto"]),
        (["--plan", "uniform", "toy.py"], ["uniform"]),  # argparse takes the beginning of an option for it
    ],
)
def test_a_task_behind_any_list_of_plans_is_found(given, plans):
    asked = read(*given)
    assert (asked.task, asked.plans) == ("toy.py", plans)


def test_plans_behind_the_task_stay_where_they_are():
    asked = read("my_task.py", "--plans", "yoto:init=1", "grid:0.1,1", "--out", "results.py")
    assert (asked.task, asked.plans) == ("my_task.py", ["yoto:init=1", "grid:0.1,1"])


@pytest.mark.parametrize("rule", ["my_rules.py:GradNorm", "my_rules.py:GradNorm(alpha=1.5)", "rules.mine:gradnorm"])
def test_rules_of_ones_own_are_plans_and_no_tasks(rule):
    asked = read("digits", "--plans", "yoto", rule)
    assert (asked.task, asked.plans) == ("digits", ["yoto", rule])
    asked = read("--plans", "yoto", rule, "my_task.py")
    assert (asked.task, asked.plans) == ("my_task.py", ["yoto", rule])


@pytest.mark.parametrize(
    "text", ["yoto,grid:0.1,1", "grid:0.1,1,uniform", "grid:0.1,tpe(trials=2)", "tpe:trials=3,sha:trials=3"]
)
def test_what_can_be_read_in_two_ways_is_one_sentence(text):
    with pytest.raises(ValueError, match=r"can be read in more than one way: behind a colon, commas .* by spaces"):
        separate(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uniform:x=1", r"The plan 'uniform' takes no settings; got 'x'\. Write uniform\."),
        ("tpe:trails=3", r"The plan 'tpe' has no setting 'trails'; it has: 'trials', 'low', 'high'\. Did you mean"),
        ("grid(1):2", r"A plan is a name with settings in brackets or after a colon"),
    ],
)
def test_settings_that_a_plan_lacks_are_named_in_words(text, message):
    with pytest.raises(ValueError, match=message) as raised:
        parse(text, line)
    assert "keyword" not in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["digits", "--workers", "-1"],
        ["digits", "--seeds", "1,1"],
        ["digits", "--plans", ","],
        ["digits", "--plans", "uniform(x=1)"],
        ["digits", "--plans", "random(seeds=1)"],
        ["digits", "--device", "abacus"],
        ["digits", "--steps", "0"],
        ["digits", "--margin", "0"],
    ],
)
def test_messages_are_not_in_python(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        assert cli.main(["compare", *arguments]) == 1
    error = capsys.readouterr().err
    assert error
    assert not any(word in error for word in ("study.add", "workers=", "seeds is", "keyword", "()", "Error", "None"))
