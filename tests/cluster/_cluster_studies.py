"""Studies for the tests on clusters, and what they recorded."""

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
