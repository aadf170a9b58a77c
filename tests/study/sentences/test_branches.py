"""What scouts asked, in words."""

from types import SimpleNamespace

import pytest

from trainonce.study.sentences.branches import branches


def record(*answers, kind="scout"):
    told = [{"step": step, "chosen": chosen, "scores": {}} for step, chosen in answers]
    return SimpleNamespace(answers=told, weighting=SimpleNamespace(kind=kind))


def summary(*records):
    chosen = SimpleNamespace(records=dict(enumerate(records)))
    return SimpleNamespace(rows=[SimpleNamespace(plan=records[0].weighting.kind, chosen=chosen)])


ASKED = "scout: scouts asked after 20 and 70 steps whether a term helps"


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([record((20, "as it is"), (70, "as it is"))] * 3, f"{ASKED}, and nothing was changed in any of 3 trainings."),
        (
            [record((20, "with a at 1/30"), (70, "as it is")), record((20, "as it is"), (70, "as it is"))],
            f"{ASKED}. Of 2 trainings, 1 went on with a at 1/30 from step 20.",
        ),
        (
            [record((20, "with a at 1/30"), (70, "with a again"))] * 2,
            f"{ASKED}. Of 2 trainings, 2 went on with a at 1/30 from step 20 and 2 went on with a again from step 70.",
        ),
    ],
)
def test_what_was_asked_and_answered(records, text):
    assert branches(summary(*records)) == [text]


def test_with_which_weights_halving_went_on():
    found = [record((5, "as it is"), (9, name), kind="halving") for name in ("with a at 4", "as it is", "with a at 4")]
    assert branches(summary(*found)) == ["halving: of 3 trainings, 2 went on with a at 4 and 1 went on as it is."]
    assert branches(summary(*found[:1])) == ["halving: of 1 training, 1 went on with a at 4."]


def test_a_plan_without_scouts_has_no_sentence():
    assert branches(summary(record())) == []
