"""What a study and a summary show of themselves: facts, no judgement."""

import _tasks
from _stores import yoto
from test_summary import BAD, TASK, plan, summary

from trainonce.study import Record, Study, Summary
from trainonce.study.rules import key_of


def test_a_summary_shows_the_mean_of_each_plan():
    assert repr(summary(*BAD)).splitlines() == [
        "Summary of toy: 12 trials, mean test score",
        "  yoto  31.333",
        "  grid  72",
    ]


def test_a_plan_without_a_result_says_so():
    failed = Record(
        key_of("id", yoto(), 0), "toy", yoto(), 0, "failed", error={"type": "OSError", "message": "no file"}
    )
    found = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [failed])
    assert repr(found) == "Summary of toy: 1 trials, mean test score\n  yoto  no result"


def test_a_summary_of_nothing_has_no_plans():
    empty = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0])]}, [])
    assert repr(empty) == "Summary of toy: 0 trials, mean test score"


def test_a_study_says_how_far_it_is(tmp_path):
    study = Study(_tasks.troubled.using(steps=2), tmp_path, seeds=3).add("uniform").add("grid(0.1,1)")
    assert repr(study) == f"<Study of troubled in {tmp_path}: 2 plans, 3 seeds, 0 of 12 trials done>"
    Study(study.task, tmp_path, seeds=[0, 1]).add("uniform").run(workers=0, device="cpu", show=False)
    assert "1 of 12 trials done" in repr(study)  # one failed
