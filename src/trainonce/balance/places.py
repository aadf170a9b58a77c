"""Where a balance measures: at the parameters that the terms share, found in the graph of their losses."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from torch import Tensor, nn

from trainonce import distributed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    #: At all parameters that the terms share, at the last layer of them, or at given ones.
    At: TypeAlias = Literal["all", "last"] | nn.Module | Iterable[Tensor]

#: Nodes of the graph that a second backward pass breaks, and what to do.
_REFUSED = {
    "GraphedBackward": (
        "The losses pass through a module made by torch.cuda.make_graphed_callables, which cannot be run backward "
        "twice: a balance would be NaN. Graph only what nothing is measured in, or name the output of the graphed "
        "module in the call: criterion(..., at=features)."
    ),
    "CheckpointFunctionBackward": (
        "The losses pass through torch.utils.checkpoint with use_reentrant=True, which forbids the extra backward "
        "passes that measure a balance. Pass use_reentrant=False to checkpoint."
    ),
}


class Places:
    """The parameters to measure at, and when they are looked for again."""

    def __init__(self, at: At) -> None:
        if isinstance(at, str) and at not in ("all", "last"):
            raise ValueError(
                "BalancedLoss measures at 'all' shared parameters, at the 'last' layer of them, or at a module or "
                f"parameters that you pass; got at={at!r}."
            )
        if not isinstance(at, (str, nn.Module)):
            several = isinstance(at, Iterable) and not isinstance(at, Tensor)
            at = list(at) if several else [at]  # type: ignore[list-item]
            if not at or not all(isinstance(one, Tensor) and one.requires_grad for one in at):
                raise TypeError("BalancedLoss needs parameters that require gradients as at=; got others, or none.")
        self.at = at
        self.measured = 0  # measurements so far
        self._found: list[Tensor] = []
        self._found_for: object = None
        self._look = 0  # the measurement that looks for them again
        self._kept = False  # whether the last ones were found for earlier losses

    @property
    def named(self) -> list[nn.Module | Tensor]:
        """The module or the parameters that the user named; none for those that are found."""
        if isinstance(self.at, str):
            return []
        return [self.at] if isinstance(self.at, nn.Module) else list(self.at)

    def find(
        self, losses: Sequence[Tensor], present: object, learned: Collection[Tensor], *, again: bool = False
    ) -> list[Tensor] | None:
        """Return the tensors to measure at; None where the losses reach nothing that the optimizer trains.

        They are looked for when other terms are ``present``, and when a layer was frozen or unfrozen, so that a resumed
        run measures at the same ones. Every measurement looks where no optimizer knows the layers, else after 2, 4, 8
        of them and so on, since the graph may have changed.
        """
        due = again or self.measured >= self._look or not learned or not self._found
        if due or self._found_for != (present, _trained(learned), _trained(self._found)):
            found = find(losses, self.at, learned)
            if found is None:
                return None
            self._look = 2 * max(1, self.measured)
            self._found, self._found_for = found, (present, _trained(learned), _trained(found))
            self._kept = False
        else:
            self._kept = True
        return self._found

    def forget(self) -> bool:
        """Look again the next time, and tell whether that may find others: these were found for earlier losses."""
        kept, self._kept = self._kept, False
        if kept:
            self._found = []
        return kept

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks for the shared parameters of its own model."""
        return self.__dict__ | {"_found": [], "_found_for": None, "_look": 0}

    def __repr__(self) -> str:
        return f"at {self.at}" if isinstance(self.at, str) else "at given parameters"


def _trained(parameters: Collection[Tensor]) -> tuple[bool, ...]:
    return tuple(parameter.requires_grad for parameter in parameters)


def copy_but(module: Any, kept: Sequence[object], memo: dict[int, Any]) -> Any:
    """Return a deep copy of a module, for its ``__deepcopy__``, that refers to the same ``kept`` objects."""
    memo |= {id(one): one for one in kept}
    twin = object.__new__(type(module))
    memo[id(module)] = twin
    twin.__setstate__(copy.deepcopy(module.__getstate__(), memo))
    for one in kept:
        del memo[id(one)]  # or a model that comes next in a tuple would share them with its copy
    return twin


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


def find(losses: Sequence[Tensor], at: At, learned: Collection[Tensor]) -> list[Tensor] | None:
    """Return the tensors to measure at: those that all losses reach, or that the first shares with any other.

    ``learned`` are the parameters of the attached optimizer, and others do not count: what passes through a frozen
    critic or another network's parameters is that network's concern. None where the losses reach none of ``learned``:
    they are no training of this optimizer's.
    """
    if not isinstance(at, str):
        named = at.parameters() if isinstance(at, nn.Module) else at
        given = [p for p in named if p.requires_grad]
        _refuse(set(), given)
        return given
    base, *others = [Leaves(loss) for loss in losses]
    known = set(learned)
    if known and not any(known & leaves.uses.keys() for leaves in (base, *others)):
        _refuse(set(), learned)  # sharded ones are not the graph's leaves
        return None
    _refuse(base.refused.union(*(other.refused for other in others)), learned)
    common = [leaf for leaf in base.uses if all(leaf in other.uses for other in others)]
    common = common or [leaf for leaf in base.uses if any(leaf in other.uses for other in others)]
    found = [leaf for leaf in common if leaf in known] or [leaf for leaf in common if isinstance(leaf, nn.Parameter)]
    if at == "all" or not found:
        return found
    last = max(base.uses[leaf] for leaf in [leaf for leaf in found if leaf.dim() > 1] or found)
    return [leaf for leaf in found if base.uses[leaf] >= last]  # the last matrix, its bias, and what norms follow


def _refuse(nodes: set[str], parameters: Collection[Tensor]) -> None:
    for name in sorted(nodes):
        raise RuntimeError(_REFUSED[name])
    if any(distributed.is_sharded(parameter) for parameter in parameters):
        raise RuntimeError(
            "A balance cannot be measured at sharded parameters: they exist during forward and backward only. "
            "Name a tensor that all terms are computed from in the call: criterion(..., at=features)."
        )
