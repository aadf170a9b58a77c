"""Checks of the data: one error with all problems, the same in every process."""

import pytest

from trainonce.recipes.vision import checks
from trainonce.recipes.vision.checks import check_in_first_process, summarize


def test_one_problem_stands_alone_and_several_are_listed():
    assert summarize(["It is empty."]) == "It is empty."
    assert summarize(["a", "b"]) == "The data have 2 problems:\n- a\n- b"
    many = summarize([str(i) for i in range(8)]).splitlines()
    assert many == ["The data have 8 problems:", "- 0", "- 1", "- 2", "- 3", "- 4", "- and 3 more."]


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError])
def test_what_a_check_finds_is_raised(error):
    def check():
        raise error("the image a.png is empty")

    with pytest.raises(ValueError, match=r"^the image a\.png is empty$"):
        check_in_first_process(check)
    check_in_first_process(lambda: None)


def test_an_error_in_the_code_of_a_check_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        check_in_first_process(lambda: 1 / 0)


def test_other_processes_raise_what_the_first_has_found(monkeypatch):
    monkeypatch.setattr(checks.torchrun, "is_first", lambda: False)
    monkeypatch.setattr(checks.torchrun, "broadcast", lambda _: "the image a.png is empty")
    called = []
    with pytest.raises(ValueError, match=r"the image a\.png is empty"):
        check_in_first_process(lambda: called.append(1))
    assert not called
