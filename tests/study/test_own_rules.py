"""Rules of one's own: named by their file, with their settings; their code is part of what a trial is."""

import json
import os
import textwrap
from pathlib import Path

import pytest
from _tasks import line

from trainonce.cli import main
from trainonce.study import Study, Summary
from trainonce.study.plans import name_of, parse, separate, usage
from trainonce.study.rules import key_of, read_rule
from trainonce.study.store import Store

RULES = """
    import torch
    from trainonce import LossWeighting
    from beside_my_rules import invert

    class Sliding(LossWeighting):
        # Coefficients that follow a running mean of each loss.

        version = 3

        def __init__(self, terms, alpha=0.5, *, window: int = 2, kind=torch.float32, **options):
            super().__init__(terms, **options)
            if not 0 < alpha <= 1:
                raise ValueError(f"Sliding needs alpha between 0 and 1; got {alpha!r}.")
            self.alpha, self.window = alpha, window
            self.add_state("means", 1.0)
            self.add_count("calls", 0)

        def weigh(self):
            return invert(self.means)

        def observe(self, batch):
            if self.calls % self.window == 0:
                self.means.lerp_(self.mean(batch.losses.detach()), self.alpha)
            self.calls += 1

    class Bare(LossWeighting):
        def __init__(self, terms, must):
            super().__init__(terms)
            self.add_state("shown", must)

        def weigh(self):
            return self.shown
"""
TASK = """
    import os, signal
    import torch
    from trainonce.study import task

    @task(terms=["fit", "small"], metric="error", direction="minimize")
    def mine(trial, *, steps=12, stop_at=0, flag="", scale=1.0):
        model = torch.nn.Linear(2, 1)
        criterion = trial.criterion(scale=scale)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trial.attach(optimizer)
        loop = trial.loop([model])
        for done in loop:
            if done and done % 5 == 0:
                loop.snapshot()
            step = done + 1
            if step == stop_at and not os.path.exists(flag):
                open(flag, "w").close()
                raise RuntimeError("stopped")
            x = torch.randn(8, 2)
            optimizer.zero_grad()
            criterion(fit=(model(x) - x[:, :1]).square().mean(), small=model.weight.square().sum()).backward()
            optimizer.step()
        return {"validation/error": model.weight.sum().item(), "test/error": model.bias.item()}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a file of rules and one of a task."""
    for name, text in (("my_rules.py", RULES), ("my_task.py", TASK), ("beside_my_rules.py", INVERT)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path


INVERT = "def invert(means):\n    return 1 / means.clamp_min(0.001)\n"
ALL = {"alpha": 0.5, "window": 2}


def rule(text):
    (found,) = parse(text, line).rules
    return found


def compare(*arguments):
    return main(["compare", "my_task.py", "--seeds", "1", "--no-report", "--out", "out", *arguments])


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("my_rules.py:Sliding", "my_rules.py:Sliding", {}),
        ("./my_rules.py:Sliding()", "my_rules.py:Sliding", {}),
        ("my_rules.py:Sliding(alpha=1)", "my_rules.py:Sliding(alpha=1)", {"alpha": 1.0}),
        (
            "my_rules.py:Sliding:alpha=0.1,window=5",
            "my_rules.py:Sliding(alpha=0.1,window=5)",
            {"alpha": 0.1, "window": 5},
        ),
    ],
)
def test_a_rule_is_named_as_tasks_are(folder, text, name, settings):
    assert separate(text) == [text]
    assert name_of(text) == name
    plan = parse(str(folder / text) if text.startswith("my") else text, line)
    (found,) = plan.rules
    assert (plan.name, plan.kind) == (name, "rule")
    assert (found.name, found.version, found.settings) == ("my_rules.py:Sliding", 3, ALL | settings)
    assert read_rule(json.loads(json.dumps(found.to_json()))) == found
    assert str(folder) not in json.dumps(found.to_json())


def test_a_control_may_be_of_such_a_rule(folder):
    (control,) = parse("final(of=my_rules.py:Sliding,window=7)", line).rules
    assert control.needs(0)[0] == rule("my_rules.py:Sliding(window=7)")
    assert read_rule(control.to_json()) == control


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("my_rules.py:Slidin", r"my_rules\.py has no rule 'Slidin', a class .*; it has: Sliding, Bare\. Did you mean"),
        ("none.py:Sliding", r"There is no file .*none\.py for the rule 'none.py:Sliding'"),
        ("no.such:Sliding", "'no.such:Sliding' cannot be loaded: ModuleNotFoundError"),
        (
            "my_rules.py:Sliding(alfa=1)",
            r"The rule Sliding has no setting 'alfa'; it has: 'alpha', .*Did you mean 'alpha'",
        ),
        ("my_rules.py:Sliding(alpha=2)", r"Sliding needs alpha between 0 and 1; got 2\.0"),
        ("my_rules.py:Sliding(3)", r"by name alone; got 3\. It is written my_rules\.py:Sliding\(alpha=.*, window=.*\)"),
        ("my_rules.py:Bare", r"The rule Bare needs the setting 'must': write my_rules\.py:Bare\(must=\.\.\.\)"),
    ],
)
def test_a_mistake_is_one_sentence(folder, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, line)
    assert usage("my_rules.py:Sliding").startswith("my_rules.py:Sliding(alpha=..., window=...")


def test_the_code_of_the_rule_and_what_it_imports_is_part_of_the_trial(folder):
    keys, edits = (
        [],
        [("my_rules.py", "calls += 1", "calls += 1  # a comment"), ("beside_my_rules.py", "0.001", "0.002")],
    )
    edits.append(("my_rules.py", "version = 3", "version = 4"))
    for name, before, after in [("my_rules.py", "", ""), *edits]:
        path = folder / name
        path.write_text(path.read_text().replace(before, after))
        os.utime(path, ns=(len(keys) * 10**9, len(keys) * 10**9))  # parsed once for each change
        keys.append(key_of("task", rule("my_rules.py:Sliding"), 0))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_study_trains_under_it_with_workers_and_reads_it_back_without_its_file(folder, capsys):
    plans = ["my_rules.py:Sliding(alpha=0.25)", "my_rules.py:Sliding", "final(of=my_rules.py:Sliding)", "uniform"]
    assert compare("--workers", "1", "--plans", *plans) == 0
    assert "my_rules.py:Sliding ends with the ratios fit 1, small" in capsys.readouterr().out
    before = Store(folder / "out").read()
    assert compare("--workers", "0", "--plans", *plans) == 0
    assert Store(folder / "out").read() == before
    (folder / "my_rules.py").unlink()
    summary = Summary.read("out")
    assert [row.plan for row in summary.rows] == plans
    assert all(row.counts == {"done": sum(row.counts.values())} for row in summary.rows)


def test_a_stopped_trial_goes_on_as_if_it_had_not_been_stopped(folder, capsys):
    arguments = ["--workers", "0", "--plans", "my_rules.py:Sliding", "--set"]
    assert compare(*arguments, "stop_at=8", "--set", "flag=there") == 1
    assert compare(*arguments, "stop_at=8", "--set", "flag=there") == 0
    Path("there").touch()
    assert main(["run", "my_task.py", "--plan", "my_rules.py:Sliding", "--workers", "0", "--out", "straight"]) == 0
    capsys.readouterr()
    *_, second = Store("out").read_all()
    (straight,) = Store("straight").read_all()
    assert (second.metrics, second.coefficients) == (straight.metrics, straight.coefficients)


def test_a_rule_that_is_edited_while_the_study_runs_stops_it(folder):
    study = Study(line.using(steps=2), folder / "out", seeds=1).add("my_rules.py:Sliding")
    (folder / "beside_my_rules.py").write_text(INVERT.replace("0.001", "0.005"))
    with pytest.raises(RuntimeError, match=r"'my_rules\.py:Sliding' was changed while the study was running"):
        study.run(workers=0, device="cpu", show=False)


def test_what_the_task_asks_for_and_the_rule_does_not_take_is_one_sentence(folder, capsys):
    assert compare("--workers", "0", "--plans", "my_rules.py:Bare(must=2)") == 0
    assert compare("--workers", "0", "--plans", "my_rules.py:Bare(must=2)", "--set", "scale=3") == 1
    assert "asks for scale=3.0, which the rule Bare does not take" in capsys.readouterr().err
