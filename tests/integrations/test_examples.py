"""The examples of the trainers run and learn something."""

import pytest
from _examples import last_number, load, ratios
from _lightning import quiet


@pytest.mark.parametrize(
    ("name", "few", "many", "terms"),
    [
        ("lightning_module", {"steps": 1}, {"steps": 100}, ["ce", "reconstruction"]),
        ("hf_trainer", {"steps": 1}, {"steps": 100}, ["topic", "words"]),
    ],
)
def test_a_classifier_learns(name, few, many, terms, capsys):
    example = load(name)
    with quiet():
        example.main(**few)
        untrained = last_number(capsys.readouterr().out)
        example.main(**many)
    printed = capsys.readouterr().out
    assert last_number(printed) > untrained + 10
    found = ratios(printed)
    assert list(found) == terms
    assert abs(found[terms[1]] - 1) > 0.01  # it starts at 1


def test_accumulation_learns(capsys):
    example = load("accelerate_accumulation")
    example.main(epochs=1)
    before = capsys.readouterr().out
    example.main(epochs=8)
    printed = capsys.readouterr().out
    assert last_number(printed) < last_number(before) / 1.5
    assert abs(ratios(printed)["difference"] - 1) > 0.01
