"""Many trials of a task side by side in one process, as one batched model in which each is as if alone."""

from typing import TYPE_CHECKING

from trainonce import lazy as _lazy

if TYPE_CHECKING:
    from trainonce.study.stacked.stackable import Stackable as Stackable
    from trainonce.study.stacked.stackable import stack as stack
else:
    __getattr__, __dir__ = _lazy.exports(__name__, dict.fromkeys(("Stackable", "stack"), "stackable"))

__all__ = ["Stackable", "stack"]
