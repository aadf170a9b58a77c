"""A worker finds the task that the study has, or says what is another there."""

import contextlib
import pickle
import sys

import pytest

from trainonce.study import identity
from trainonce.study.executors.sent_task import OtherTaskError, SentTask
from trainonce.study.executors.task_location import load_file

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
    return SentTask.of(task)


def sentence(sent):
    forget()
    with pytest.raises(OtherTaskError) as caught:
        sent.load()
    return str(caught.value)


def test_a_task_arrives_with_its_settings(folder):
    sent = send(load_file(folder / "mine.py").mine.using(steps=3, kinds=["a", "b"]))
    forget()
    arrived = pickle.loads(pickle.dumps(sent)).load()
    assert arrived.settings == {"steps": 3, "kinds": ["a", "b"]}
    assert arrived.identity == sent.identity


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("mine.py", "return trial", "return None", "was changed while the study was running: mine.py. Start it again."),
        ("beside.py", "7", "8", "was changed while the study was running: beside.py. Start it again."),
        ("mine.py", "return", "return (", "running, and cannot be loaded any more: '(' was never closed (mine.py, "),
        ("mine.py", "def mine", "def yours", "and cannot be loaded any more: there is no task 'mine' in "),
        ("mine.py", "steps=STEPS", "sorts=None", "has no setting 'steps'; it has: sorts, kinds."),
    ],
)
def test_a_change_is_named(name, before, after, expected, folder):
    sent = send(load_file(folder / "mine.py").mine.using(steps=3))
    file = folder / name
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    assert sentence(sent).startswith("The task 'mine' was changed while the study was running")
    assert expected in sentence(sent)


def test_a_setting_that_is_another_in_each_process_is_named_and_no_file(folder):
    (folder / "mine.py").write_text(
        SOURCE.replace("kinds=None", "kinds=time.time()").replace("from beside", "import time\nfrom beside")
    )
    text = sentence(send(load_file(folder / "mine.py").mine))
    assert text.startswith("The task 'mine' does not have the same setting 'kinds' in a worker process as in the study")
    assert "mine.py" not in text


def test_a_value_that_a_task_was_made_with_may_be_another_in_each_process(folder):
    made = "import time\ndef make(now):\n    def mine(trial):\n        return now\n    return mine\n"
    given = SOURCE[: SOURCE.index("@task")] + made
    call = "mine = task(terms=['a', 'b'], metric='e', direction='minimize')(make(time.time()))"
    (folder / "mine.py").write_text(given + call)
    assert "or a value that it was made with is another one in each process" in sentence(
        send(load_file(folder / "mine.py").mine)
    )


FUNCTIONS = """
from trainonce.study import task

def square(x):
    return x * x

def double(x):
    return 2 * x

@task(terms=["a", "b"], metric="e", direction="minimize")
def mine(trial, *, steps=1, how=square, also=double):
    return trial
"""


def test_functions_of_the_file_may_be_settings(folder):
    """They can be unpickled only when the file is loaded."""
    (folder / "mine.py").write_text(FUNCTIONS)
    module = load_file(folder / "mine.py")
    sent = pickle.dumps(send(module.mine.using(how=module.double)))
    forget()
    arrived = pickle.loads(sent).load()
    assert arrived.settings["how"](3) == 6
    assert arrived.settings["also"](3) == 6


def test_a_setting_that_cannot_be_sent_is_one_sentence(folder):
    (folder / "mine.py").write_text(SOURCE.replace('"minimize")', '"minimize", incidental=["kinds"])'))
    mine = load_file(folder / "mine.py").mine
    with pytest.raises(
        ValueError, match=r"^The setting 'kinds' of the task 'mine' cannot be sent to a worker process: <f"
    ):
        SentTask.of(mine.using(kinds=lambda x: x))


def test_a_worker_parses_only_the_files_that_were_changed(folder, monkeypatch):
    sent = pickle.loads(pickle.dumps(send(load_file(folder / "mine.py").mine)))
    parsed = []
    monkeypatch.setattr(identity, "_dump", lambda tree: parsed.append(tree) or [])
    for text, count in {"STEPS = 7\n": 0, "STEPS = 7  # a comment\n": 1}.items():
        (folder / "beside.py").write_text(text)
        forget()
        monkeypatch.setattr(identity, "KNOWN", {})
        with contextlib.suppress(OtherTaskError):
            sent.load()
        assert len(parsed) == count
