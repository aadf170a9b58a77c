"""What every rule promises, whoever wrote it."""

from __future__ import annotations

import copy
import functools
import io
import math
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from _rules import (
    ADDS,
    RULES,
    TERMS,
    Loop,
    Net,
    Uncertainty,
    batch,
    given,
    moves,
    observes,
    same,
    some,
    tensors,
    trained_by,
    validation_of,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import trainonce
from trainonce import health
from trainonce.history import column_names

ALL = pytest.mark.parametrize("rule", RULES)
ORDER = ("fit", "size", "far")  # another order of the terms with the same base


# What a call returns, and what one reads


@ALL
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("lacks", [(), ("far",), ("fit",)])
def test_coefficients_are_what_multiplied_each_loss(rule: str, scale: float, lacks: tuple[str, ...]) -> None:
    loop = Loop(RULES[rule], scale=scale).run(range(7))
    losses = {term: loss for term, loss in loop.losses(7, lacks).items() if loss is not None}
    total = loop.criterion({term: losses.get(term) for term in TERMS})
    used = torch.stack(torch.autograd.grad(total, list(losses.values()), retain_graph=True))
    wanted = loop.criterion.coefficients()
    torch.testing.assert_close(used, wanted[[TERMS.index(term) for term in losses]], rtol=1e-6, atol=0)
    if rule not in ADDS:
        weighed = sum(c.item() * loss.item() for c, loss in zip(used, losses.values(), strict=True))
        assert total.item() == pytest.approx(weighed)


@ALL
def test_the_scale_reaches_the_model_and_not_what_is_trained(rule: str) -> None:
    plain, scaled = (Loop(RULES[rule], scale=scale) for scale in (1.0, 4.0))
    for loop in (plain, scaled):
        loop.backward(0)
    torch.testing.assert_close(scaled.net.head.weight.grad, 4 * plain.net.head.weight.grad)
    if trained_by(rule):
        own, other = (getattr(loop.criterion, loop.criterion.trainable).grad for loop in (plain, scaled))
        torch.testing.assert_close(own, other)
    torch.testing.assert_close(scaled.criterion.ratios(), plain.criterion.ratios())


@ALL
def test_what_one_reads(rule: str) -> None:
    loop = Loop(RULES[rule]).run(range(6))
    criterion = loop.criterion
    found, ratios = criterion.coefficients(), criterion.ratios()
    assert ratios[0] == 1
    torch.testing.assert_close(ratios, found / found[0])
    assert not found.requires_grad
    shown = {trained_by(rule).removesuffix("s"): getattr(criterion, trained_by(rule))} if trained_by(rule) else {}
    own = [f"{name}/{term}" for name, row in (shown | criterion.columns()).items() for term in TERMS[-len(row) :]]
    assert set(criterion.log_dict()) == {
        *(f"{kind}/{term}" for kind in ("loss", "coefficient") for term in TERMS),
        *("ratio/far", "ratio/size", "reference"),
        *own,
    }
    assert all(value.dim() == 0 and not value.requires_grad for value in criterion.log_dict().values())
    shown = str(criterion).splitlines()
    assert shown[0] == f"{type(criterion).__name__}("
    assert shown[1].split()[:3] == ["term", "coefficient", "ratio"]
    assert [line.split()[0] for line in shown[2:5]] == list(TERMS)
    assert shown[2].endswith("(base)")
    assert "nan" not in str(criterion)


@ALL
def test_the_reference_has_the_coefficients_of_the_start(rule: str) -> None:
    loop = Loop(RULES[rule])
    start, values = loop.criterion.start_coefficients(), torch.tensor([1.0, 2.0, 4.0])
    torch.testing.assert_close(loop.criterion.coefficients(), start)
    loop.run(range(4))
    torch.testing.assert_close(loop.criterion.reference(values), (start * values).sum())
    torch.testing.assert_close(
        loop.criterion.reference({"fit": values[0], "far": None, "size": values[2]}), start[0] + 4 * start[2]
    )


# History and replay


@ALL
@pytest.mark.parametrize("micro", [1, 2])
def test_a_history_holds_its_columns_and_replays(rule: str, micro: int, tmp_path: Any) -> None:
    history = trainonce.History(tmp_path / "run.jsonl")
    loop = Loop(RULES[rule], history=history)
    start = [float(row) for row in loop.criterion.coefficients()]
    loop.run(range(12), micro=micro)
    history.flush()
    columns = trainonce.History.load(history.path).columns()
    assert list(columns) == ["step", *column_names(loop.criterion)]
    assert columns["step"] == list(range(1, 13))
    assert [columns[f"coefficient/{term}"][0] for term in TERMS] == start or observes(rule)
    assert all(map(math.isfinite, (value for column in columns.values() for value in column)))
    # Within a step the coefficients stay, and they are those of the record.
    seen = torch.stack(loop.seen).reshape(12, micro, 3)
    assert same([seen[:, 0]] * micro, seen.unbind(1))
    assert torch.equal(history.coefficients().to(seen), seen[:, 0])

    again = Loop(lambda net, terms: trainonce.Replay(history.path)).run(range(12), micro=micro)
    assert torch.equal(torch.stack(again.seen).reshape(12, micro, 3), seen)
    assert same(again.net.parameters(), loop.net.parameters())


# Checkpoints


@ALL
@pytest.mark.parametrize("frozen", [(), (0, 9), (4, 9), (4, 99)], ids=["never", "before", "across", "ever"])
@pytest.mark.parametrize("cut", [2, 6])
def test_a_resumed_run_is_the_same_bit_for_bit(rule: str, frozen: tuple[int, ...], cut: int) -> None:
    """Also where it is frozen before the first measurement, and unfrozen after the cut."""

    def run(loop: Loop, steps: range) -> Loop:
        for step in steps:
            if frozen and step == frozen[0]:
                loop.criterion.freeze()
            if frozen and step == frozen[1]:
                loop.criterion.unfreeze()
            loop.run([step], some)
        return loop

    whole, before, after = (Loop(RULES[rule]) for _ in range(3))
    run(whole, range(14))
    file = io.BytesIO()
    torch.save(run(before, range(cut)).states(), file)
    file.seek(0)
    run(after.load(torch.load(file, weights_only=True)), range(cut, 14))
    assert same(after.numbers(), whole.numbers())
    assert torch.equal(after.criterion.coefficients(), whole.criterion.coefficients())
    assert after.criterion.frozen is whole.criterion.frozen is (frozen == (4, 99))


@ALL
def test_a_checkpoint_is_sorted_by_the_names_of_the_terms(rule: str) -> None:
    sgd = functools.partial(torch.optim.SGD, lr=0.01)  # an optimizer's own state has no names
    loop, other = (Loop(RULES[rule], sgd, terms=terms) for terms in (TERMS, ORDER))
    moved = [ORDER.index(term) for term in TERMS]
    other.load(loop.run(range(8), lambda step: ("far",) if step < 3 else ()).states())
    # A softmax of the same exponents sums them in another order, so its last bit may differ.
    torch.testing.assert_close(other.criterion.coefficients()[moved], loop.criterion.coefficients(), rtol=1e-6, atol=0)
    if rule != "replay":  # whose rows are not saved: those of the other order were recorded apart
        for each in (loop, other):
            each.run(range(8, 14))
        torch.testing.assert_close(other.criterion.coefficients()[moved], loop.criterion.coefficients())


@ALL
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_goes_on_as_the_original(rule: str, how: str) -> None:
    loop = Loop(RULES[rule]).run(range(6))
    model = nn.ModuleDict({"net": loop.net, "criterion": loop.criterion})
    with given() as warned:
        twin = copy.deepcopy(model) if how == "deepcopy" else pickle.loads(pickle.dumps(model))
    assert warned == (["ValidationNotCopied"] if rule == "balance-aligned" else [])
    if rule == "balance-aligned":
        twin["criterion"].validation = validation_of(twin["net"])
    assert twin["criterion"].attachment is None
    assert str(twin["criterion"]) == str(loop.criterion)
    kept = [value.clone() for value in tensors(twin["criterion"])]
    other = object.__new__(Loop)
    other.__dict__ |= loop.__dict__ | {"net": twin["net"], "model": twin["net"], "criterion": twin["criterion"]}
    other.optimizer = type(loop.optimizer)(other.net.parameters(), lr=0.02)
    trainonce.attach(other.optimizer, other.criterion)
    other.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
    loop.run(range(6, 10))
    assert same(tensors(twin["criterion"]), kept)  # nothing is shared
    other.run(range(6, 10))
    assert same(other.numbers(), loop.numbers())


@ALL
@pytest.mark.parametrize("change", ["half", "bfloat16", "double"])
def test_a_change_of_precision_keeps_the_coefficients(rule: str, change: str) -> None:
    loop = Loop(RULES[rule]).run(range(6))
    before = loop.criterion.coefficients()
    getattr(loop.criterion, change)()
    wide = torch.float64 if change == "double" else torch.float32
    assert {value.dtype for value in tensors(loop.criterion) if value.is_floating_point()} == {wide}
    torch.testing.assert_close(loop.criterion.coefficients().float(), before, rtol=1e-6, atol=0)
    if change != "double":  # the optimizer has a state in float32
        loop.run(range(6, 9))


def in_place(criterion: nn.Module) -> None:
    """Give memory as it comes to what is on the meta device, as Transformers' from_pretrained does."""
    for name, value in [*criterion.named_parameters(), *criterion.named_buffers()]:
        junk = torch.full_like(value, 77, device="cpu")
        setattr(criterion, name, nn.Parameter(junk) if isinstance(value, nn.Parameter) else junk)


@ALL
@pytest.mark.parametrize("how", ["to_empty", "from_pretrained"])
def test_the_meta_device_begins_at_the_start(rule: str, how: str) -> None:
    net = Net()
    fresh = RULES[rule](net, TERMS)
    with torch.device("meta"):
        criterion = RULES[rule](net, TERMS)
    criterion.to("meta")
    assert "meta" in str(criterion)
    with pytest.raises(RuntimeError, match="on the meta device"):
        trainonce.attach(torch.optim.SGD(net.parameters()), criterion)
    if how == "to_empty":
        criterion.to_empty(device="cpu").reset_parameters()
    else:
        in_place(criterion)
    assert same(tensors(criterion), tensors(fresh))
    assert same([criterion.get_extra_state()], [fresh.get_extra_state()])


@ALL
def test_a_reset_is_the_start(rule: str) -> None:
    loop = Loop(RULES[rule]).run(range(6))
    loop.criterion.reset_parameters()
    fresh = RULES[rule](loop.net, TERMS)
    assert same(tensors(loop.criterion), tensors(fresh))
    assert same([loop.criterion.get_extra_state()], [fresh.get_extra_state()])


# Batches that lack something


@ALL
@pytest.mark.parametrize("scaler", [False, True])
def test_batches_without_some_terms_or_any(rule: str, scaler: bool) -> None:
    loop = Loop(RULES[rule], torch.optim.SGD)
    grad = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=scaler)
    for step in range(12):
        loop.optimizer.zero_grad()
        total = loop.criterion(loop.losses(step, some(step)))
        grad.scale(total).backward()
        grad.step(loop.optimizer)
        grad.update()
        assert total.item() == 0 if some(step) == TERMS else total.item() > 0
    assert all(value.isfinite().all() for value in (*loop.net.parameters(), loop.criterion.coefficients()))
    assert torch.equal(loop.criterion.ratios()[:1], torch.ones(1))
    assert not any(value.isnan() for name, value in loop.criterion.log_dict().items() if "ratio" in name)


@ALL
def test_nan_is_left_out_where_that_is_asked(rule: str) -> None:
    skipping, lacking = Loop(RULES[rule], nonfinite="skip"), Loop(RULES[rule])
    with given() as warned:
        for step in range(8):
            for loop, lost in ((skipping, torch.tensor(math.nan)), (lacking, None)):
                losses = loop.losses(step, ())
                if step in (0, 5):
                    losses["far"] = None if lost is None else losses["far"] * lost
                loop.optimizer.zero_grad()
                loop.criterion(losses).backward()
                loop.optimizer.step()
    assert warned == ["SkippedTerm"]
    assert same(skipping.numbers(), lacking.numbers())


@ALL
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_gradscaler_skips_moves_nothing(rule: str, fused: bool) -> None:
    loop = Loop(RULES[rule], functools.partial(torch.optim.AdamW, lr=0.02, fused=fused)).run(range(4))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loop.optimizer.zero_grad()
    scaler.scale(loop.criterion(loop.losses(4))).backward()
    before = loop.criterion.coefficients()
    loop.net.head.weight.grad.fill_(math.inf)
    scaler.step(loop.optimizer)
    scaler.update()
    rising = rule in ("balance", "balance-aligned") and fused  # a fused optimizer counts the step
    kept = slice(1) if rising else slice(None)
    torch.testing.assert_close(loop.criterion.coefficients()[kept], before[kept], rtol=1e-6, atol=0)


@ALL
def test_evaluation_notes_nothing(rule: str) -> None:
    """Also with gradients on, as frameworks for differential equations validate."""
    loop = Loop(RULES[rule], history=trainonce.History()).run(range(5))
    before, logged = loop.numbers(), loop.criterion.log_dict()
    loop.criterion.eval()
    for number in range(50, 60):
        loop.criterion(loop.losses(number, some(number)))
    loop.criterion.train()
    with torch.no_grad():
        loop.criterion(loop.losses(60))
    loop.criterion.reference(torch.ones(3))
    assert same(loop.numbers(), before)
    assert same(loop.criterion.log_dict().values(), logged.values())
    whole = Loop(RULES[rule], history=trainonce.History()).run(range(8))
    loop.run(range(5, 8))
    assert same(loop.numbers(), whole.numbers())
    assert loop.attachment.history.columns() == whole.attachment.history.columns()


# Steps


@ALL
def test_a_closure_is_the_same_as_without(rule: str) -> None:
    plain = Loop(RULES[rule]).run(range(10), some)
    closed = Loop(RULES[rule])
    for step in range(10):
        closed.optimizer.step(lambda step=step: closed.backward(step, some(step)))
    assert same(closed.numbers(), plain.numbers())
    assert closed.attachment.steps == plain.attachment.steps == 10


@ALL
def test_l_bfgs_holds_the_coefficients_within_a_step(rule: str) -> None:
    """What the optimizer trains it cannot hold: frozen it can."""
    optimizer = functools.partial(torch.optim.LBFGS, max_iter=4)
    make = RULES[rule]
    if trained_by(rule):
        with pytest.raises(TypeError, match=r"LBFGS cannot train the .*Call criterion.freeze\(\) first"):
            Loop(make, optimizer)
        make = lambda net, terms: RULES[rule](net, terms).freeze()  # noqa: E731
    loop = Loop(make, optimizer, history=trainonce.History())
    first = loop.criterion.coefficients()
    for step in range(4):
        loop.seen.clear()
        loop.optimizer.step(lambda step=step: loop.backward(step))
        assert len(loop.seen) > 1
        assert same(loop.seen[1:], loop.seen[:-1])
    if trained_by(rule):
        assert torch.equal(loop.criterion.coefficients(), first)
        with pytest.raises(RuntimeError, match="frozen when attach was called"):
            loop.criterion.unfreeze()
    assert loop.attachment.steps == len(loop.attachment.history) == 4


@ALL
def test_a_sum_made_before_a_step_can_still_go_backward(rule: str) -> None:
    loop = Loop(RULES[rule]).run(range(2))
    leaf = torch.ones(3, requires_grad=True)
    loop.criterion.eval()
    used, early = loop.criterion.coefficients(), loop.criterion(leaf)
    loop.criterion.train()
    loop.run(range(2, 4))
    early.backward()
    torch.testing.assert_close(leaf.grad, used)


@ALL
@pytest.mark.parametrize("closure", [False, True])
def test_frozen_coefficients_stay(rule: str, closure: bool) -> None:
    loop = Loop(RULES[rule]).run(range(4))
    before = loop.criterion.freeze().coefficients()
    for step in range(4, 12):
        if closure:
            loop.optimizer.step(lambda step=step: loop.backward(step))
        else:
            loop.run([step], some)
    assert torch.equal(loop.criterion.coefficients(), before)
    assert "frozen" in str(loop.criterion)
    loop.criterion.unfreeze()
    loop.run(range(12, 20))
    assert torch.equal(loop.criterion.coefficients(), before) is not moves(rule)


class Reads(TorchDispatchMode):
    """Counts what makes the host wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        return func(*args, **(kwargs or {}))


@ALL
def test_no_step_reads_back_from_the_device(rule: str) -> None:
    loop = Loop(RULES[rule], functools.partial(torch.optim.SGD, lr=0.01))
    with Reads() as reads:
        loop.run(range(9), lambda step: ("far",) if step == 3 else ())
    assert reads.count == 0


@pytest.mark.slow
@ALL
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's, at a graph break
def test_compiled_is_eager(rule: str) -> None:
    torch._dynamo.reset()
    plain, compiled = Loop(RULES[rule]), Loop(RULES[rule])
    call = torch.compile(compiled.criterion, backend="aot_eager", fullgraph=not observes(rule))
    plain.run(range(6), lambda step: ("far",) if step == 4 else ())
    compiled.run(range(6), lambda step: ("far",) if step == 4 else (), call=call)
    for one, other in zip(compiled.numbers(), plain.numbers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch._dynamo.reset()


# Ranks


def on_ranks(rule: str, scaled: bool) -> tuple[list[list[float]], list[float], list[int]]:
    """Both ranks have losses of their own; the second lacks terms in some steps, and all of them in one."""
    loop = Loop(RULES[rule])
    rank = dist.get_rank()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=scaled)
    path = []
    for step in range(10):
        loop.optimizer.zero_grad()
        losses: dict[str, Tensor | None] = loop.losses(step, some(step) if rank else ())
        total = loop.criterion(losses)
        scaler.scale(total).backward()
        scaler.step(loop.optimizer)
        scaler.update()
        path.append(loop.criterion.coefficients().tolist())
    state = [v for value in tensors(loop.criterion) for v in value.detach().double().flatten().tolist()]
    return path, state, loop.criterion.get_extra_state().tolist()


@pytest.mark.dist
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@ALL
@pytest.mark.parametrize("scaled", [False, True])
def test_the_state_is_the_same_on_all_ranks(ranks: Any, rule: str, scaled: bool) -> None:
    first, second = ranks(on_ranks, rule, scaled)
    assert str(first) == str(second)  # NaN is equal to NaN
    assert all(map(math.isfinite, first[0][-1]))
    assert (first[0][0] != first[0][-1]) is moves(rule)


# A rule that adds terms of its own to the sum


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_what_is_live_has_the_gradient_of_the_present_terms(scale: float) -> None:
    criterion = Uncertainty(TERMS, scale=scale)
    losses = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    criterion(fit=losses[0], far=None, size=losses[2]).backward()
    expected = 1 - torch.exp(torch.tensor(-0.5)) * torch.tensor([1.0, 0.0, 3.0])
    expected[1] = 0
    torch.testing.assert_close(criterion.log_variances.grad, expected)
    assert criterion.log_variances.grad[1].item() == 0
    attached = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(attached, criterion)
    criterion.freeze()(losses).backward()
    assert criterion.log_variances.grad.tolist() == [0, 0, 0]
    assert "log_variance/far" in criterion.log_dict()


# Never attached


@ALL
def test_a_rule_that_is_not_attached_says_so(rule: str) -> None:
    net = Net()
    criterion = RULES[rule](net, TERMS)
    with given() as warned:
        for step in range(120):
            criterion(net(batch(step)))
    assert warned == (["NotAttached"] if criterion.follows_steps else [])
    assert health.NotAttached.topic() == "not-attached"
