"""The store of a study: a folder with one line per finished trial, written so that no crash spoils what is there.

:mod:`trainonce.study.layout` names its files. A trial is known by its key, a hash of the task's source and settings,
the rule and the seed.
"""

from trainonce.study.store.folder import DamagedStore as DamagedStore
from trainonce.study.store.folder import Store as Store
from trainonce.study.store.lines import START as START
from trainonce.study.store.lines import Position as Position

__all__ = ["START", "DamagedStore", "Position", "Store"]
