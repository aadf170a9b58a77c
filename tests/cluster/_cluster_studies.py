"""Studies for the tests on clusters, what they recorded, and what happens beside them."""

import threading
import time
from pathlib import Path

import _cluster_tasks

from trainonce.study import Study
from trainonce.study.store import Store


def make_study(out, notes, plans=("uniform",), seeds=2, **settings):
    made = Study(_cluster_tasks.steady.using(notes=str(notes), **settings), out, seeds=seeds)
    for plan in plans:
        made.add(plan)
    return made


def records(out):
    return Store(Path(out)).read_all()


def wait_for(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Meanwhile(threading.Thread):
    """Does something beside a study, and raises in the test what it raised."""

    def __init__(self, action):
        super().__init__(daemon=True)
        self.action, self.error = action, None

    def run(self):
        try:
            self.action()
        except BaseException as error:
            self.error = error

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.join(120)
        if self.error is not None:
            raise self.error
