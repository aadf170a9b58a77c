"""With which weights halving went on, in words."""

from types import SimpleNamespace

from trainonce.study.sentences.branches import branches


def record(*answers):
    return SimpleNamespace(answers=[{"step": step, "chosen": chosen, "scores": {}} for step, chosen in answers])


def summary(*records):
    chosen = SimpleNamespace(records=dict(enumerate(records)))
    return SimpleNamespace(rows=[SimpleNamespace(plan="halving", chosen=chosen)])


def test_with_which_weights_halving_went_on():
    found = [record((5, "as it is"), (9, name)) for name in ("with a at 4", "as it is", "with a at 4")]
    assert branches(summary(*found)) == ["halving: of 3 trainings, 2 went on with a at 4 and 1 went on as it is."]
    assert branches(summary(*found[:1])) == ["halving: of 1 training, 1 went on with a at 4."]


def test_a_plan_that_began_with_one_weight_has_no_sentence():
    assert branches(summary(record())) == []
