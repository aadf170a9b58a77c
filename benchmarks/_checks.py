"""What only a GPU can show: no host synchronisation, and the whole step in a CUDA graph."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import TYPE_CHECKING, Any

import torch
from _methods import attached, static, training_step
from _models import Problem, make
from _timing import Clock, Entry, median_interval, run_rounds

import trainonce

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from _timing import Step


def check_cuda(device: torch.device, options: argparse.Namespace) -> list[dict[str, Any]]:
    """No host synchronisation in a whole step, and the whole step in a CUDA graph. Prints PASS or FAIL for each."""
    problem = make("mlp", 4, device, options.seed)
    kinds = {"default": {}, "capturable": {"capturable": True}, "fused": {"fused": True}}
    rows = [checked("a read-back is noticed (control)", lambda: _control(problem))]
    for kind, settings in kinds.items():
        for history in (False, True):
            for sampled in (False, True):
                name = f"no host sync: AdamW {kind}"
                name += ", History" * history + ", health samples" * sampled
                rows.append(checked(name, lambda s=settings, h=history, n=sampled: no_sync(problem, s, h, n)))
    for warm_up in (3, 10, 11):  # a health sample is taken at step 10 and looked at from step 11 on
        name = f"CUDA graph of the whole step after {warm_up} eager steps equals eager"
        rows.append(checked(name, lambda n=warm_up: same_in_graph(problem, n)))
    rows.append(checked("time of the step in a CUDA graph", lambda: time_graph(problem, options)))
    return rows


def checked(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        result, detail = "PASS", check()
    except Exception as error:  # whatever goes wrong is the finding
        result, detail = "FAIL", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(f"{result}  {name}{': ' if detail else ''}{detail}")
    return {"check": name, "result": result, "detail": detail}


@contextlib.contextmanager
def syncs_are_errors() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _control(problem: Problem) -> str:
    """Without it a debug mode that sees nothing would pass everything."""
    _, losses = problem.losses(problem.next_batch())
    try:
        with syncs_are_errors():
            losses[0].item()
    except RuntimeError:
        return ""
    raise AssertionError("set_sync_debug_mode did not notice .item()")


def no_sync(problem: Problem, settings: dict[str, bool], history: bool, sampled: bool) -> str:
    """Steps 6 to 150 hold the health samples of steps 10 and 100 and blocks of history; steps 31 to 90 no sample."""
    problem = problem.fresh()
    record = trainonce.History(block=16) if history else None
    optimizer, weigh = attached(problem, record, **settings)
    step = training_step(problem, optimizer, weigh)
    begin, end = (5, 150) if sampled else (30, 90)
    for _ in range(begin):
        step()
    with syncs_are_errors(), event_waits() as waits:
        for _ in range(begin, end):
            step()
    if record is not None and len(record) != end:
        raise AssertionError(f"the history holds {len(record)} of {end} steps")
    # The debug mode does not see a wait for an event, so these are counted. A block of 16 short steps may be one.
    return f"{waits[0]} waits for an event in {end - begin} steps" if waits[0] else ""


@contextlib.contextmanager
def event_waits() -> Iterator[list[int]]:
    """Counts the calls of Event.synchronize that really had to wait."""
    count, original = [0], torch.cuda.Event.synchronize

    def counted(event: torch.cuda.Event) -> None:
        count[0] += not event.query()
        original(event)

    torch.cuda.Event.synchronize = counted
    try:
        yield count
    finally:
        torch.cuda.Event.synchronize = original


def same_in_graph(problem: Problem, warm_up: int, replays: int = 50) -> str:
    """The exponents after replays of the captured step against as many eager steps, and against those without decay."""
    graph, exponents = capture(problem, warm_up)
    for _ in range(replays):
        graph.replay()
    eager, _ = eager_exponents(problem, warm_up + replays)
    undecayed, _ = eager_exponents(problem, warm_up + replays, decay=0.0)
    torch.cuda.synchronize()
    apart = (exponents - eager).abs().max().item()
    effect = (undecayed - eager).abs().max().item()
    if not apart <= 2e-6 or not effect > 1e-3:
        raise AssertionError(f"exponents differ by {apart:.2e} from eager; decay accounts for {effect:.2e}")
    return f"largest difference {apart:.1e} after {replays} replays; decay moved them by {effect:.1e}"


def one_batch(problem: Problem) -> Problem:
    """A graph reads the same memory at each replay."""
    return Problem(copy.deepcopy(problem.model), problem.batches[:1], problem.autocast)


def eager_exponents(problem: Problem, steps: int, decay: float = 2.0) -> tuple[torch.Tensor, Step]:
    problem = one_batch(problem)
    optimizer, weigh = attached(problem, decay=decay, lr="model", capturable=True)
    step = training_step(problem, optimizer, weigh)
    for _ in range(steps):
        step()
    return optimizer.param_groups[-1]["params"][0].detach(), step


def capture(problem: Problem, warm_up: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    problem = one_batch(problem)
    optimizer, weigh = attached(problem, lr="model", capturable=True)
    graph = captured(training_step(problem, optimizer, weigh), warm_up)
    return graph, optimizer.param_groups[-1]["params"][0].detach()


def captured(step: Step, warm_up: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def time_graph(problem: Problem, options: argparse.Namespace) -> str:
    """Ours and the static sum, eager and captured, interleaved; AdamW capturable in all four."""
    clock = Clock(problem.device)
    graph, _ = capture(problem, 20)
    _, eager = eager_exponents(problem, 20)
    plain, plain_captured = (static(one_batch(problem), capturable=True) for _ in range(2))
    for _ in range(20):
        plain()
    steps = {
        "static eager": plain,
        "ours eager": eager,
        "static graph": captured(plain_captured, 20).replay,
        "ours graph": graph.replay,
    }
    entries = [Entry(name, step) for name, step in steps.items()]
    run_rounds(entries, clock, min(options.seconds, 5.0), random.Random(options.seed))
    times = {e.name: median_interval(t * 1e6 for t in e.times.values()) for e in entries}
    return "; ".join(f"{name} {t.value:.1f} us [{t.low:.1f}, {t.high:.1f}]" for name, t in times.items())
