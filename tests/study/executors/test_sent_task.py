"""A worker finds the task that the study has, or says what is another there."""

import dataclasses
import itertools
import pickle
import sys

import _tasks
import pytest

from trainonce.study.executors.sent_task import OtherTaskError, SentTask
from trainonce.study.executors.task_location import TaskLocation, load_file

SOURCE = """
from trainonce.study import task
from beside import STEPS

@task(terms=["a", "b"], metric="e", direction="minimize")
def mine(trial, *, steps=STEPS, kinds=None):
    return trial
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A task in a file, and one that it imports."""
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "beside.py").write_text("STEPS = 7\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python takes an edit of the same second for the same file
    yield tmp_path
    forget()


def forget():
    """Load the files anew, as another process does."""
    for name in ("trainonce_task_mine", "beside"):
        sys.modules.pop(name, None)


def send(task):
    return SentTask.of(task, TaskLocation.of(task))


def sentence(sent):
    forget()
    with pytest.raises(OtherTaskError) as caught:
        sent.load()
    return str(caught.value)


def test_a_task_arrives_with_its_settings(folder):
    sent = send(load_file(folder / "mine.py").mine.using(steps=3, kinds={"a", "b"}))
    forget()
    arrived = pickle.loads(pickle.dumps(sent)).load()
    assert arrived.settings == {"steps": 3, "kinds": {"a", "b"}}
    assert arrived.identity == sent.identity


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("mine.py", "return trial", "return None", "was changed while the study was running: mine.py. Start it again."),
        ("beside.py", "7", "8", "was changed while the study was running: beside.py. Start it again."),
        ("mine.py", "return", "return (", "running, and cannot be loaded any more: '(' was never closed (mine.py, "),
        ("mine.py", "def mine", "def yours", "and cannot be loaded any more: there is no task 'mine' in "),
        ("mine.py", "kinds=None", "sorts=None", "and has no setting 'kinds' any more. Start it again."),
    ],
)
def test_a_change_is_named(name, before, after, expected, folder):
    sent = send(load_file(folder / "mine.py").mine)
    file = folder / name
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    assert sentence(sent).startswith("The task 'mine' was changed while the study was running")
    assert expected in sentence(sent)


class Odd:
    """Not the same twice."""

    numbers = itertools.count()

    def __init__(self, number=0): ...

    def __reduce__(self):
        return Odd, (next(self.numbers),)


def test_a_setting_that_is_another_in_each_process_is_named_and_no_file(folder):
    sent = send(load_file(folder / "mine.py").mine.using(kinds=Odd()))
    text = sentence(sent)
    assert text.startswith(
        "The task 'mine' does not have the same setting 'kinds' in a worker process as in the study."
    )
    assert "mine.py" not in text


def test_what_differs_otherwise_is_left_open():
    sent = dataclasses.replace(send(_tasks.line), identity="another", unchanged={})
    assert "or a value that it was made with is another one in each process" in sentence(sent)


FUNCTIONS = """
from trainonce.study import task

def square(x):
    return x * x

def double(x):
    return 2 * x

@task(terms=["a", "b"], metric="e", direction="minimize")
def mine(trial, *, steps=1, how=square, also=lambda x: x):
    return trial
"""


def test_functions_of_the_file_may_be_settings(folder):
    """They can be unpickled only when the file is loaded; defaults, lambdas too, are not sent at all."""
    (folder / "mine.py").write_text(FUNCTIONS)
    module = load_file(folder / "mine.py")
    sent = pickle.dumps(send(module.mine.using(how=module.double)))
    forget()
    arrived = pickle.loads(sent).load()
    assert arrived.settings["how"](3) == 6
    assert arrived.settings["also"](3) == 3


def test_a_setting_that_cannot_be_sent_is_one_sentence(folder):
    (folder / "mine.py").write_text(FUNCTIONS)
    mine = load_file(folder / "mine.py").mine
    with pytest.raises(
        ValueError, match=r"^The setting 'how' of the task 'mine' cannot be sent to a worker process: <f"
    ):
        send(mine.using(how=lambda x: x))


def test_files_are_parsed_again_only_where_their_bytes_have_changed(folder, monkeypatch):
    sent = send(load_file(folder / "mine.py").mine)
    (folder / "beside.py").write_text("STEPS = 7  # a comment\n")
    forget()
    assert sent.load().identity == sent.identity  # parsed, and the same
    (folder / "beside.py").write_text("STEPS = 7\n")
    forget()
    monkeypatch.setattr("trainonce.study.identity.source.normalise", lambda *_: pytest.fail("parsed"))
    assert sent.load().identity == sent.identity
