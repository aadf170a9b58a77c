"""Where the units are measured: the parameters that the terms share, found in the graph of their losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainonce import distributed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trainonce.units.settings import Shared

#: Nodes of the graph that a second backward pass breaks, and what to do.
_REFUSED = {
    "GraphedBackward": (
        "The losses pass through a module made by torch.cuda.make_graphed_callables, which cannot be run backward "
        "twice: gradient units would be NaN. Graph only what no unit is measured in, call criterion.share(features) "
        "with the output of the graphed module, or use units='raw'."
    ),
    "CheckpointFunctionBackward": (
        "The losses pass through torch.utils.checkpoint with use_reentrant=True, which forbids the extra backward "
        "passes that measure gradient units. Pass use_reentrant=False to checkpoint."
    ),
}


class Leaves:
    """The leaves that a loss reaches, each with the place of its last use in the forward pass."""

    def __init__(self, loss: Tensor) -> None:
        self.uses: dict[Tensor, int] = {}
        self.refused: set[str] = set()
        start = _start(loss)
        if start is None:  # the loss is itself a parameter
            self.uses[loss] = 0
            return
        waiting, seen = [start], {start}
        while waiting:
            node = waiting.pop()
            name = type(node).__name__
            if name in _REFUSED:
                self.refused.add(name)
            for edge in node.next_functions:
                following = _past_ddp(*edge)
                leaf = getattr(following, "variable", None)
                if leaf is not None:
                    self.uses[leaf] = max(self.uses.get(leaf, -1), node._sequence_nr())
                elif following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)


def _past_ddp(node: Any, output: int) -> Any:
    """The node; where DistributedDataParallel passes all outputs of a model through one, what this output came from."""
    if type(node).__name__ != "_DDPSinkBackward":
        return node
    before = sum(node.needs_input_grad[1 : 1 + output])  # the wrapper comes first, and outputs may be no tensors
    return [source for source, _ in node.next_functions if source is not None][before]


def _start(loss: Tensor) -> Any:
    """The node that computed a loss; of one in a stacked tensor, the node before they were stacked."""
    node: Any = loss.grad_fn
    if type(node).__name__ == "UnbindBackward0":
        stacked = node.next_functions[0][0]
        if type(stacked).__name__ == "StackBackward0":
            node, output = stacked.next_functions[loss.output_nr]
            return _past_ddp(node, output)
    return _past_ddp(node, loss.output_nr)


def find(losses: Sequence[Tensor], shared: Shared, learned: Collection[Tensor]) -> list[Tensor]:
    """The tensors to measure at: those that all losses reach, or that the first, the base, shares with any other.

    ``learned`` are the parameters of the attached optimizer. Others count only if it holds none of the shared ones:
    what passes through a frozen critic or another network's parameters is that network's concern.
    """
    if not isinstance(shared, str):
        named = shared.parameters() if isinstance(shared, nn.Module) else shared
        given = [p for p in named if p.requires_grad]
        _refuse(set(), given)
        return given
    base, *others = [Leaves(loss) for loss in losses]
    _refuse(base.refused.union(*(other.refused for other in others)), learned)
    known = set(learned)
    common = [leaf for leaf in base.uses if all(leaf in other.uses for other in others)]
    common = common or [leaf for leaf in base.uses if any(leaf in other.uses for other in others)]
    found = [leaf for leaf in common if leaf in known] or [leaf for leaf in common if isinstance(leaf, nn.Parameter)]
    if shared == "all" or not found:
        return found
    last = max(base.uses[leaf] for leaf in [leaf for leaf in found if leaf.dim() > 1] or found)
    return [leaf for leaf in found if base.uses[leaf] >= last]  # the last matrix, its bias, and what norms follow


def _refuse(nodes: set[str], parameters: Collection[Tensor]) -> None:
    for name in sorted(nodes):
        raise RuntimeError(_REFUSED[name])
    if any(distributed.is_sharded(parameter) for parameter in parameters):
        raise RuntimeError(
            "Gradient units cannot be measured at sharded parameters: they exist during forward and backward only. "
            "Call criterion.share(features) before criterion(...), with a tensor that all terms are computed from."
        )
