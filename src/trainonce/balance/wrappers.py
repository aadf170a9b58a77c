"""Wrappers: extra forward and backward passes that DDP and FSDP2 do not take for the training's own."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from trainonce import distributed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Without these DDP would broadcast buffers in forward, which the graph of the training may need as they are; begin to
# wait for gradients anew; and take a backward pass for the first one of a static graph.
_DDP = {
    "require_backward_grad_sync": False,
    "require_forward_param_sync": False,
    "_static_graph_delay_allreduce_enqueued": True,
}
# FSDP2 would reduce gradients, and free parameters that the rest of the training's forward or backward needs.
_FSDP = {"reduce_grads": False, "reshard_after_backward": False}


class Wrappers:
    """The DistributedDataParallel and FSDP2 modules of this process."""

    def __init__(self, ddp: Iterable[Any] = (), fsdp: Iterable[Any] = ()) -> None:
        self._ddp = [weakref.ref(wrapper) for wrapper in ddp]
        self._fsdp = [weakref.ref(module) for module in fsdp]

    @classmethod
    def find(cls) -> Wrappers:
        """Return those that are there now; without a process group there are none."""
        if not distributed.has_ranks():
            return cls()
        fsdp = sys.modules.get("torch.distributed.fsdp")
        sharded = [] if fsdp is None else distributed.instances(fsdp.FSDPModule)
        return cls(distributed.instances(DistributedDataParallel), sharded)

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Run forward and backward passes, and leave the wrappers as they were."""
        states = {id(state): state for module in _alive(self._fsdp) if (state := module._get_fsdp_state())}
        with contextlib.ExitStack() as stack:
            for wrapper in _alive(self._ddp):
                stack.enter_context(_changed(wrapper, **_DDP))
            for state in states.values():
                stack.enter_context(_changed(state._state_ctx, post_backward_final_callback_queued=True))
                stack.enter_context(_changed(state, _training_state=state._training_state))
                for group in state._fsdp_param_groups:
                    stack.enter_context(_sharded_as_before(group))
                    stack.enter_context(_changed(group, **_FSDP, _training_state=group._training_state))
            yield


def _alive(references: Iterable[weakref.ref[Any]]) -> Iterator[Any]:
    return (found for reference in references if (found := reference()) is not None)


@contextlib.contextmanager
def _changed(owner: Any, **values: object) -> Iterator[None]:
    """Set those of the attributes that are there, and put them back."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    vars(owner).update({name: values[name] for name in before})
    try:
        yield
    finally:
        vars(owner).update(before)


@contextlib.contextmanager
def _sharded_as_before(group: Any) -> Iterator[None]:
    """Free what a backward pass has gathered."""
    whole = group.is_unsharded
    try:
        yield
    finally:
        if group.is_unsharded and not whole:
            group.reshard()
