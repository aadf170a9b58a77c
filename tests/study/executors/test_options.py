"""The options of executors on a cluster."""

import _tasks
import pytest

from trainonce import cli
from trainonce.study.executors import options, tools
from trainonce.study.executors.tools import Tools


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    monkeypatch.setitem(tools.EXECUTORS, "far", None)
    monkeypatch.setitem(options.TAKES, "far", ("max_concurrent", "gpus"))


def test_options_say_how_many_trainings_and_on_what():
    made = Tools.choose(_tasks.line, executor="far", options={"max_concurrent": 3, "gpus": 0.5})
    assert (made.executor, made.workers, made.devices) == ("far", 3, ("cuda",))
    assert Tools.choose(_tasks.line, executor="far").devices == ("cpu",)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"executor": "far", "options": {"gpu": 1}}, r"'far' does not take the option 'gpu'.* Did you mean 'gpus'\?"),
        (
            {"executor": "processes", "options": {"gpus": 1}},
            r"'processes' does not take .*: it takes none; .*'far' does",
        ),
        ({"options": {"gpus": 1}}, r"'processes' does not take the option 'gpus'"),
        ({"executor": "far", "options": {"gpus": -1}}, r"'gpus' must be a number of at least 0; got -1\."),
        ({"executor": "far", "options": {"max_concurrent": 1.5}}, r"must be a whole number of at least 1; got 1\.5\."),
        ({"executor": "far", "workers": 2}, r"takes max_concurrent, .* and no workers; got 2 workers\."),
        ({"executor": "far", "device": "cuda:1"}, r"takes gpus, .* and no device; got 'cuda:1'\."),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        Tools.choose(_tasks.line, **asked)


def test_the_command_reads_them(tmp_path, capsys):
    task = f"{_tasks.__file__}:line"
    given = ["run", task, "--steps", "2", "--out", str(tmp_path), "--device", "cpu"]
    assert cli.main([*given, "--executor", "processes", "--gpus", "1"]) == 1
    assert "'processes' does not take the option 'gpus'" in capsys.readouterr().err
    assert cli.main([*given, "--executor", "prosesses"]) == 1
    assert "Did you mean 'processes'?" in capsys.readouterr().err
    assert cli.main([*given, "--executor", "processes"]) == 0
    with pytest.raises(SystemExit):
        cli.main([*given, "--max-concurrent", "0"])
    assert "must be a whole number of at least 1; got '0'" in capsys.readouterr().err
