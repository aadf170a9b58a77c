"""What the results of a task depend on, as data that can be hashed: its code, and the values it was made with.

:mod:`~trainonce.study.identity.code` says what counts of a function, :mod:`~trainonce.study.identity.source` what of a
file, :mod:`~trainonce.study.identity.imports` which files, and :mod:`~trainonce.study.identity.values` what of a value.
"""

from trainonce.study.identity.code import bytes_of as bytes_of
from trainonce.study.identity.code import code_of as code_of
from trainonce.study.identity.code import files_of as files_of
from trainonce.study.identity.code import hash_of as hash_of
from trainonce.study.identity.code import hash_of_file as hash_of_file
from trainonce.study.identity.values import Describer as Describer
from trainonce.study.identity.values import UnstableError as UnstableError
from trainonce.study.identity.values import differences as differences

__all__ = ["Describer", "UnstableError", "bytes_of", "code_of", "differences", "files_of", "hash_of", "hash_of_file"]
