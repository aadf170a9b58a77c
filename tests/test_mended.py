"""Faults that were found in use: each test failed before its mend, or holds what is said of what cannot be mended."""

from __future__ import annotations

import copy
import functools
import gc
import math
import warnings
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from _rules import RULES, TERMS, Loop, Net, balance, batch, given, same
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce import BalancedLoss, CompositeLoss, FixedLoss, attach

NEEDS_RANKS = [
    pytest.mark.dist,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]


def with_marks(function: Any) -> Any:
    for mark in NEEDS_RANKS:
        function = mark(function)
    return function


def sgd(lr: float = 0.05) -> Any:
    return functools.partial(torch.optim.SGD, lr=lr)


# What is trained, and its group


def test_a_tensor_hook_runs_while_a_balance_measures() -> None:
    """As in any backward pass: one that clips the gradient clips what is measured. Hooks of .grad do not run."""
    w, called = nn.Parameter(torch.ones(3)), []
    w.register_post_accumulate_grad_hook(called.append)
    plain, clipped = BalancedLoss(["a", "b"]), BalancedLoss(["a", "b"])
    plain(a=w.sum(), b=1000 * w.sum())
    w.register_hook(lambda gradient: gradient.clamp(-1, 1))
    clipped(a=w.sum(), b=1000 * w.sum())
    assert plain.coefficients().tolist() == pytest.approx([1, 1e-3])
    assert clipped.coefficients().tolist() != pytest.approx([1, 1e-3])
    assert called == []
    assert w.grad is None


@pytest.mark.parametrize("write", ["data", "copy_", "state"])
def test_what_is_written_into_the_exponents_shows_at_once(write: str) -> None:
    criterion = CompositeLoss(["a", "b"])
    criterion.coefficients(), criterion(torch.ones(2, requires_grad=True))
    if write == "data":
        criterion.exponents.data.fill_(3.0)  # as averaged weights are swapped in
    elif write == "copy_":
        with torch.no_grad():
            criterion.exponents.copy_(torch.tensor([3.0]))
    else:
        criterion.load_state_dict(CompositeLoss(["a", "b"], init=math.exp(3)).state_dict())
    leaf = torch.ones(2, requires_grad=True)
    criterion(leaf).backward()
    torch.testing.assert_close(criterion.coefficients(), leaf.grad)
    assert criterion.ratios()[1].item() == pytest.approx(math.exp(3), rel=1e-6)


def test_layer_wise_rates_ask_for_the_rate() -> None:
    net = Net()
    groups = [{"params": net.body.parameters(), "lr": 1e-5}, {"params": net.head.parameters(), "lr": 1e-3}]
    with pytest.raises(ValueError, match=r"different learning rates \(1e-05, 0.001\).*CompositeLoss\(terms, lr=1e-3\)"):
        attach(torch.optim.SGD(groups), CompositeLoss(TERMS, lr="model"))
    for rule, rate in ((CompositeLoss(TERMS, lr=0.5), 0.5), (BalancedLoss(TERMS), None)):
        optimizer = torch.optim.SGD(groups)
        group = attach(optimizer, rule).group
        assert (group and group["lr"]) == rate


def test_decay_is_not_accepted_where_nothing_pulls() -> None:
    for wrong in (
        lambda: BalancedLoss(TERMS, decay=3),
        lambda: attach(sgd()(Net().parameters()), FixedLoss({"a": 1, "b": 1}), decay=3),
    ):
        with pytest.raises(TypeError, match="decay"):
            wrong()


def test_ratios_where_the_base_has_0_are_infinite_or_0() -> None:
    assert FixedLoss({"a": 0, "b": 1, "c": 0}).ratios().tolist() == [1, math.inf, 0]
    assert "nan" not in str(FixedLoss({"a": 0, "b": 1, "c": 0}))


@pytest.mark.parametrize("trains", [False, True])
def test_a_scheduler_built_before_attach(trains: bool) -> None:
    optimizer = sgd()(Net().parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    if trains:
        with pytest.raises(RuntimeError, match="scheduler was built on this optimizer before attach"):
            attach(optimizer, CompositeLoss(TERMS))
    else:
        attach(optimizer, BalancedLoss(TERMS))
        assert len(optimizer.param_groups) == 1


# Errors and memory


@pytest.mark.parametrize("rule", RULES)
def test_errors_name_the_rule(rule: str) -> None:
    criterion = RULES[rule](Net(), TERMS)
    name = type(criterion).__name__
    one = torch.ones((), requires_grad=True)
    for wrong in ([], [one], 7, {"fit": one, "fir": one, "size": one}):
        with pytest.raises((TypeError, ValueError), match=f"^{name} "):
            criterion(wrong)


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_never_trained_is_collected(rule: str, attached: bool) -> None:
    net = Net()
    made = []
    for _ in range(3):
        criterion = RULES[rule](net, TERMS)
        if attached:
            attach(sgd()(net.parameters()), criterion)
        made.append(weakref.ref(criterion))
    del criterion
    gc.collect()
    assert [one() for one in made] == [None] * 3


def test_a_balance_that_is_not_attached_does_not_count_calls() -> None:
    net, criterion = Net(), BalancedLoss(TERMS)
    with given() as warned:
        for number in range(300):
            criterion(net(batch(number)))
    assert (criterion.step, criterion._places.measured, warned) == (0, 1, ["NotAttached"])


def test_a_balance_outlives_its_optimizer() -> None:
    """As where a loop makes a new one: what it then lacks is a step."""
    loop = Loop(balance, sgd()).run(range(3))
    loop.optimizer = sgd()(loop.net.parameters())
    gc.collect()
    assert not loop.attachment.has_optimizer
    loop.run(range(3, 6))
    assert loop.criterion.step == 3


def test_two_criteria_share_an_optimizer() -> None:
    optimizer = sgd(0.01)(Net().parameters())
    groups = [attach(optimizer, rule).group for rule in (CompositeLoss(TERMS, lr=0.1), CompositeLoss(TERMS))]
    assert [(group["name"], group["lr"]) for group in groups] == [("loss_weights", 0.1), ("loss_weights_2", 0.01)]


def test_what_attach_refuses_it_leaves_as_it_was() -> None:
    net, criterion = Net(), CompositeLoss(TERMS, lr="model")
    rates = [{"params": [*net.parameters(), criterion.exponents], "lr": 0.1}, {"params": [nn.Parameter(torch.ones(1))]}]
    optimizer = torch.optim.SGD(rates, lr=0.2)
    with pytest.raises(ValueError, match="different learning rates"):
        attach(optimizer, criterion)
    assert any(p is criterion.exponents for p in optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("rule", RULES)
def test_a_batch_without_any_term_reaches_one_parameter_at_most(rule: str) -> None:
    """GradScaler wants one gradient; momentum and weight decay then move that parameter, and no other."""
    loop = Loop(RULES[rule], functools.partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5)).run(range(3))
    before = [parameter.detach().clone() for parameter in loop.net.parameters()]
    loop.run([3], lambda step: TERMS)
    moved = [p.numel() for p, q in zip(before, loop.net.parameters(), strict=True) if not torch.equal(p, q)]
    assert moved in ([], [1])


def test_micro_batches_with_terms_of_their_own_are_all_measured() -> None:
    """Each in the steps that measure, though none of them is in every first micro-batch."""
    net, criterion = Net(), BalancedLoss(TERMS)
    optimizer = sgd(0.0)(net.parameters())
    attach(optimizer, criterion)
    for step in range(40):
        for lacks in ("size", "far"):
            losses = net(batch(0))
            losses["size"] = losses["size"] * (1 if step < 20 else 1000)
            criterion(losses | {lacks: None}).backward()
        optimizer.step()
    whole = BalancedLoss(TERMS)
    whole(net(batch(0)) | {"size": net(batch(0))["size"] * 1000})
    torch.testing.assert_close(criterion.ratios(), whole.ratios(), rtol=0.05, atol=0)


# What a rule of one's own may get wrong


class Own(trainonce.LossWeighting):
    """Equal weights, and whatever a test adds."""

    def weigh(self) -> Tensor:
        return torch.ones(len(self.terms))


def test_what_is_trained_for_no_term_in_particular() -> None:
    class Rule(Own):
        def __init__(self) -> None:
            super().__init__(TERMS)
            self.add_trainable("steepness", [1.0, 2.0], per=None)

        def combine(self, batch: Any) -> Tensor:
            self.coefficients()  # which forgets nothing of the batch
            return super().combine(batch) * self.live("steepness").sum()

    criterion = Rule()
    criterion(
        fit=torch.tensor(2.0, requires_grad=True), far=None, size=torch.tensor(1.0, requires_grad=True)
    ).backward()
    assert criterion.steepness.grad.tolist() == [3, 3]


def test_reading_coefficients_within_a_call_keeps_absent_terms_at_0() -> None:
    class Rule(Own):
        def __init__(self) -> None:
            super().__init__(TERMS)
            self.add_trainable("weights", 1.0)

        def combine(self, batch: Any) -> Tensor:
            self.coefficients()
            return super().combine(batch) + self.live("weights").sum()

    criterion = Rule()
    criterion(
        fit=torch.tensor(2.0, requires_grad=True), far=None, size=torch.tensor(1.0, requires_grad=True)
    ).backward()
    assert criterion.weights.grad.tolist() == [1, 0, 1]


def test_coefficients_are_a_copy() -> None:
    class Rule(Own):
        def __init__(self) -> None:
            super().__init__(TERMS)
            self.add_state("kept", 1.0)

        def weigh(self) -> Tensor:
            return self.kept

    criterion = Rule()
    before = criterion.coefficients()
    criterion.kept.fill_(5.0)
    assert before.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("weigh", "found"),
    [
        (lambda self: torch.ones(2), r"shape \(2,\)"),
        (lambda self: torch.ones(3, 1), r"shape \(3, 1\)"),
        (lambda self: [1.0, 1.0, 1.0], "list"),
    ],
)
def test_coefficients_of_a_wrong_shape_are_refused_by_attach(weigh: Any, found: str) -> None:
    rule = type("Rule", (Own,), {"weigh": weigh})
    with pytest.raises(TypeError, match=rf"Rule.weigh\(\) must return a tensor of shape \(3,\), .*got {found}."):
        attach(sgd()(Net().parameters()), rule(TERMS))


@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (lambda rule: rule.add_state("kept", 1.0, per="terms"), "per='terms'; there are 'term', 'auxiliary' and None"),
        (lambda rule: rule.add_state("kept", [1.0, 2.0]), "kept needs 3 values, one per term"),
        (lambda rule: rule.add_state("scale", 1.0), "has an attribute 'scale' already"),
        (lambda rule: rule.add_count("terms", 0), "has an attribute 'terms' already"),
        (lambda rule: rule.add_count("seen", 0.5), "counts on the host, in whole numbers; got 0.5"),
        (lambda rule: rule.steer(torch.ones(()), torch.ones(3)), "trains nothing that could be steered"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declare: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError), match=f"Own.*{error}"):
        declare(Own(TERMS))


def test_columns_have_names_of_their_own() -> None:
    rule = type("Rule", (Own,), {"columns": lambda self: {"coefficient": torch.ones(3)}})
    with pytest.raises(ValueError, match=r"Rule.columns\(\) returns 'coefficient', which every rule shows"):
        rule(TERMS).log_dict()


def test_a_rule_observes_once_a_step() -> None:
    """So its coefficients stay within a step, which a history holds one row of."""
    seen: list[int] = []
    rule = type("Rule", (Own,), {"observe": lambda self, batch: seen.append(1)})
    Loop(lambda net, terms: rule(terms)).run(range(5), micro=4)
    assert len(seen) == 5


def test_gradnorm_says_where_it_cannot_measure() -> None:
    loop = Loop(RULES["gradnorm"])
    twin = copy.deepcopy(loop.criterion)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):  # at parameters of its own
        twin(loop.losses(0))
    with pytest.raises(ValueError, match="GradNorm needs parameters or tensors to measure at"):
        type(twin)(TERMS)(loop.losses(0))


# Settings are the constructor's, whatever a checkpoint holds


def test_fixed_weights_are_not_loaded() -> None:
    criterion = FixedLoss({"a": 1, "b": 5})
    criterion.load_state_dict(FixedLoss({"a": 1, "b": 0.1}).state_dict())
    assert criterion.coefficients().tolist() == [1, 5]


def test_names_and_weights_are_told_apart() -> None:
    with pytest.raises(TypeError, match=r"got a dict.*init=\{...\}"):
        CompositeLoss({"a": 1, "b": 0.1})


# A validation loss leaves no trace


class Noisy(Net):
    """With dropout and running statistics, and a part that is in evaluation mode throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*self.body, nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.still = nn.Dropout(0.5).eval()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.seen = self.body.training
        return super().forward(self.still(x))


@pytest.mark.parametrize("eval_mode", [True, False])
def test_a_validation_loss_disturbs_nothing(eval_mode: bool) -> None:
    """A travel of 1e-30 moves no coefficient: every number of the training stays."""

    def run(travel: float) -> tuple[Noisy, list[bool], Any]:
        torch.manual_seed(3)
        net, modes = Noisy(), []

        def validation() -> Tensor:
            found = net(batch(900))["fit"]
            modes.append(net.seen)
            return found

        criterion = BalancedLoss(TERMS, validation=validation, travel=travel, eval_mode=eval_mode)
        optimizer = sgd()(net.parameters())
        attach(optimizer, criterion)
        for number in range(20):
            optimizer.zero_grad()
            criterion(net(batch(number))).backward()
            optimizer.step()
        return net, modes, criterion

    plain, none, _ = run(0.0)
    net, modes, criterion = run(1e-30)
    assert none == []
    assert modes == [not eval_mode] * len(modes)
    assert criterion.square.item() > 0
    assert same(net.state_dict().values(), plain.state_dict().values())
    assert [module.training for module in net.modules()] == [module.training for module in plain.modules()]
    assert not net.still.training


def test_a_validation_loss_that_fails_leaves_the_modes_as_they_were() -> None:
    net = Noisy()

    def validation() -> Tensor:
        net(batch(0))
        raise KeyError("planted")

    criterion, state, mean = BalancedLoss(TERMS, validation=validation), torch.get_rng_state(), net.body[4].running_mean
    losses = net(batch(1))
    state, before = torch.get_rng_state(), mean.clone()
    with pytest.raises(KeyError, match="planted"):
        criterion(losses)
    assert net.body.training
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(net.body[4].running_mean, before)


@pytest.mark.parametrize("eval_mode", [True, False])
def test_a_validation_loss_may_set_modes_itself(eval_mode: bool) -> None:
    net = Noisy()

    def validation() -> Tensor:
        net.eval()
        found = net(batch(0))["fit"]
        net.train()
        return found

    BalancedLoss(TERMS, validation=validation, eval_mode=eval_mode)(net(batch(1)))
    assert all(module.training for module in net.modules() if module is not net.still)


def test_a_validation_loss_may_call_the_criterion() -> None:
    net = Net()
    criterion = BalancedLoss(TERMS, eval_mode=False)
    criterion.validation = lambda: criterion(net(batch(0)))
    criterion(net(batch(1)))
    assert criterion._places.measured == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.compile's, of global hooks
def test_a_compiled_model_has_a_validation_loss() -> None:
    def run(compile_loss: bool) -> list[Tensor]:
        """Measured where both compiled parts reach, as one graph has all of its parameters."""
        torch._dynamo.reset()
        torch.manual_seed(3)
        net = Net()
        model = torch.compile(net, backend="aot_eager")
        validate = model if compile_loss else net
        criterion = BalancedLoss(TERMS, steps=12, validation=lambda: validate(batch(900))["fit"])
        optimizer = sgd(0.01)(net.parameters())
        attach(optimizer, criterion)
        for number in range(12):
            optimizer.zero_grad()
            criterion(model(batch(number))).backward()
            optimizer.step()
        assert net.training
        return [*net.parameters(), criterion.alignment]

    for one, other in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(one, other)
    torch._dynamo.reset()


# In other people's frameworks


class LabelTensor(Tensor):
    """As PINA's: it knows its columns, which a loss has none of."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.stack, torch.dot, Tensor.unbind):
            raise AttributeError("_labels")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("rule", RULES)
def test_losses_may_be_a_subclass_of_tensor(rule: str) -> None:
    plain, labelled = Loop(RULES[rule]), Loop(RULES[rule])
    plain.run(range(4))
    labelled.run(
        range(4),
        call=lambda losses: labelled.criterion({t: loss.as_subclass(LabelTensor) for t, loss in losses.items()}),
    )
    assert same(plain.numbers(), labelled.numbers())


def test_a_validation_loss_may_be_a_subclass_of_tensor() -> None:
    net = Net()
    criterion = BalancedLoss(TERMS, validation=lambda: net(batch(0))["fit"].as_subclass(LabelTensor))
    criterion(net(batch(1)))
    assert criterion.square.isfinite()


def test_validation_under_enable_grad_is_not_measured() -> None:
    """PINA, NeuroMANCER: the criterion follows the module into evaluation mode, gradients stay on."""
    loop = Loop(balance)
    for step in range(30):
        loop.run([step])
        measured = loop.criterion._places.measured
        loop.criterion.eval()
        with torch.enable_grad():
            for number in range(3):
                loop.criterion(loop.losses(100 + number))
        loop.criterion.train()
        assert loop.criterion._places.measured == measured
    assert same(loop.numbers(), Loop(balance).run(range(30)).numbers())


def test_tests_in_training_mode_with_the_net_frozen_are_not_measured() -> None:
    """DeepXDE tests with the parameters' requires_grad off, inputs on; nothing tells the criterion."""
    net, criterion = Net(), BalancedLoss(TERMS)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    attach(optimizer, criterion)

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = criterion(net(batch(closure.number)))
        total.backward()
        return total

    with given() as warned:
        for number in range(12):
            for parameter in net.parameters():
                parameter.requires_grad_(False)
            criterion(net(batch(500 + number).requires_grad_()))  # a test before the step of training
            for parameter in net.parameters():
                parameter.requires_grad_(True)
            closure.number = number
            optimizer.step(closure)
    twin = Loop(balance, functools.partial(torch.optim.Adam, lr=0.01))
    for number in range(12):
        twin.optimizer.step(lambda number=number: twin.backward(number))
    assert warned == []
    assert torch.equal(criterion.coefficients(), twin.criterion.coefficients())


def test_a_call_that_reaches_another_network_alone_is_not_measured() -> None:
    loop, other = Loop(balance), Net()
    loop.run(range(5))
    before = loop.numbers()
    loop.criterion.next = 0
    before = [*before[:-1], loop.criterion.get_extra_state()]
    loop.criterion(other(batch(5)))
    assert same(loop.numbers(), before)


def test_l_bfgs_measures_between_steps_and_does_not_rise_from_0() -> None:
    loop = Loop(balance, functools.partial(torch.optim.LBFGS, max_iter=3, lr=0.1))
    first: list[Tensor] = []
    for step in range(4):
        loop.seen.clear()
        loop.optimizer.step(lambda step=step: loop.backward(step))
        assert same(loop.seen[1:], loop.seen[:-1])
        first.append(loop.seen[0])
    assert (first[0][1:] > 0).all()
    assert not torch.equal(first[0], first[-1])


def test_a_gradient_of_0_is_not_nothing_shared() -> None:
    """A constraint that is met."""
    loop = Loop(balance)
    with given() as warned:
        loop.run(range(6), call=lambda losses: loop.criterion(losses | {"far": losses["far"].clamp(max=-1) + 2}))
    assert warned == []
    assert loop.criterion.coefficients()[1] == 1


# Ranks


def skip_on_one_rank(rule: str) -> tuple[list[float], list[float]]:
    """All losses of the second rank are NaN in the middle step, under DistributedDataParallel."""
    torch.manual_seed(0)
    net = Net()
    model = DistributedDataParallel(net)
    criterion = RULES[rule](net, TERMS, nonfinite="skip")
    optimizer = sgd(0.01)(net.parameters())
    attach(optimizer, criterion)
    rank = dist.get_rank()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trainonce.health.SkippedTerm)
        for step in range(3):
            losses = model(batch(step, rank))
            if step == 1 and rank == 1:
                losses = {term: loss * math.nan for term, loss in losses.items()}
            criterion(losses).backward()
            optimizer.step()
            optimizer.zero_grad()
    return criterion.coefficients().tolist(), [p.sum().item() for p in net.parameters()]


@with_marks
@pytest.mark.parametrize("rule", RULES)
def test_a_rank_whose_losses_are_all_nan_takes_part(ranks: Any, rule: str) -> None:
    first, second = ranks(skip_on_one_rank, rule)
    assert first == second
    assert all(map(math.isfinite, [*first[0], *first[1]]))


def one_global_batch(aligned: bool) -> tuple[list[list[float]], float]:
    """The coefficients of a balance; on a rank with its half of each batch."""
    net = Net().double()
    model: nn.Module = net
    part = slice(None)
    if dist.is_initialized():
        model, part = DistributedDataParallel(net), slice(dist.get_rank() * 8, dist.get_rank() * 8 + 8)
    criterion = BalancedLoss(TERMS, steps=12).double()
    if aligned:
        criterion.validation = lambda: net(batch(900).double()[part])["fit"]
    optimizer = sgd(0.01)(net.parameters())
    attach(optimizer, criterion)
    path = []
    for step in range(12):
        optimizer.zero_grad()
        criterion(model(batch(step).double()[part])).backward()
        path.append(criterion.coefficients().tolist())
        optimizer.step()
    return path, sum(p.sum().item() for p in net.parameters())


@with_marks
@pytest.mark.parametrize("aligned", [False, True])
def test_a_balance_does_not_depend_on_the_number_of_ranks(ranks: Any, aligned: bool) -> None:
    first, second = ranks(one_global_batch, aligned)
    expected = one_global_batch(aligned)
    assert first == second
    torch.testing.assert_close(torch.tensor(first[0]), torch.tensor(expected[0]), rtol=1e-9, atol=0)
    assert first[1] == pytest.approx(expected[1], rel=1e-9)


def wrapped_later(dummy: int) -> int:
    """How often DDP reduced: the balance was measured before the model was wrapped."""
    net, calls = Net(), []
    criterion = BalancedLoss(TERMS)
    optimizer = sgd(0.01)(net.parameters())
    attach(optimizer, criterion)
    criterion(net(batch(0, dist.get_rank())))
    model = DistributedDataParallel(net, static_graph=True)

    def reduce(state, bucket):  # DDP checks annotations, and not as text
        calls.append(1)
        work = dist.all_reduce(bucket.buffer() / 2, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, reduce)
    criterion.next = 0
    for step in range(4):
        criterion(model(batch(step, dist.get_rank()))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return len(calls)


@with_marks
def test_a_wrapper_made_after_the_first_measurement_is_noticed(ranks: Any) -> None:
    assert ranks(wrapped_later, 0) == [4, 4]


# Freezing


@pytest.mark.parametrize("rule", ["balance", "balance-aligned"])
def test_frozen_before_the_first_measurement_it_is_measured_once(rule: str) -> None:
    loop = Loop(RULES[rule])
    loop.criterion.freeze()
    loop.run([0])
    first = loop.criterion.coefficients()
    loop.run(range(1, 10))
    assert torch.equal(loop.criterion.coefficients(), first)
    assert (first[1:] != 1).all()
    assert (first > 0).all()
