"""CompositeLoss as a module: start, precision, absent and bad terms, printing, copies."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import trainonce
from trainonce import CompositeLoss, attach, distributed, health
from trainonce import functional as F
from trainonce.health import watch


def losses(*values, dtype=torch.float64):
    return [torch.tensor(v, dtype=dtype, requires_grad=True) for v in values]


# Start


@pytest.mark.parametrize("init", [1e-3, 0.1, 1.0, 10.0, 5])
def test_init_is_the_ratio_to_the_base(init):
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=init)
    assert criterion.exponents.dtype == torch.float32
    assert criterion.exponents.shape == (2,)
    assert isinstance(criterion.exponents, nn.Parameter)
    weights = criterion.weights
    assert not weights.requires_grad
    assert weights.sum().item() == pytest.approx(1)
    assert (weights[1:] / weights[0]).tolist() == pytest.approx([init, init], rel=1e-5)


def test_init_by_term():
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"c": 2.0, "b": 0.5})
    assert criterion.exponents.tolist() == pytest.approx([math.log(0.5), math.log(2)])


@pytest.mark.parametrize("init", [0, -1, math.nan, math.inf, "0.1", True])
def test_bad_init(init):
    with pytest.raises(ValueError, match="must be a positive number"):
        trainonce.CompositeLoss(["a", "b"], init=init)


def test_numpy_numbers_are_numbers():
    np = pytest.importorskip("numpy")
    assert trainonce.CompositeLoss(["a", "b"], init=np.float32(0.5)).exponents.item() == pytest.approx(math.log(0.5))
    assert trainonce.FixedLoss({"a": np.int64(1), "b": np.float64(3)}).weights.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("init", [{}, {"b": 1.0, "c": 1.0}, {"a": 1.0, "b": 1.0}])
def test_bad_init_names(init):
    with pytest.raises(ValueError, match="one value for each auxiliary term, expects 'b'"):
        trainonce.CompositeLoss(["a", "b"], init=init)


@pytest.mark.parametrize("init", [{"b": 0.5, "c": 2.0}, {"b": 1e308, "c": 1e308}, 1e-300])
def test_the_weights_of_init_without_the_device(init):
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=init).double()
    assert criterion._weights_of_init() == pytest.approx(criterion.weights.tolist(), rel=1e-12)


@pytest.mark.parametrize(("settings", "text"), [({"scale": 0}, "scale"), ({"nonfinite": "ignore"}, "nonfinite")])
def test_bad_settings(settings, text):
    with pytest.raises(ValueError, match=f"{text} must be"):
        trainonce.CompositeLoss(["a", "b"], **settings)


def test_many_terms():
    names = [f"t{i}" for i in range(1001)]
    criterion = trainonce.CompositeLoss(names, init=1.0)
    values = torch.rand(1001, requires_grad=True)
    total = criterion(values)
    total.backward()
    assert total.item() == pytest.approx(values.mean().item(), rel=1e-5)
    torch.testing.assert_close(
        criterion.exponents.grad, F.composite_grad(criterion.exponents.detach(), values.detach())
    )


# Precision and devices


@pytest.mark.parametrize(
    "cast",
    [
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.to(torch.float16),
        lambda m: m.to(dtype=torch.bfloat16),
        lambda m: m.type(torch.bfloat16),
        lambda m: m.to("cpu", torch.half),
    ],
)
def test_narrow_casts_leave_the_exponents_alone(cast):
    model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": trainonce.CompositeLoss(["a", "b"])})
    exponents = model["criterion"].exponents
    before = exponents.detach().clone()
    cast(model)
    assert model["net"].weight.dtype in (torch.float16, torch.bfloat16)
    assert model["criterion"].exponents is exponents
    assert exponents.dtype == torch.float32
    assert torch.equal(exponents, before)


def test_float64_is_honoured():
    criterion = trainonce.CompositeLoss(["a", "b"]).double()
    assert criterion.exponents.dtype == torch.float64
    assert criterion.exponents.item() == math.log(0.1)  # not rounded to float32 on the way
    criterion.half()
    assert criterion.exponents.dtype == torch.float64
    criterion.float()
    assert criterion.exponents.dtype == torch.float32
    moved = trainonce.CompositeLoss(["a", "b"])
    with torch.no_grad():
        moved.exponents.fill_(0.25)
    assert moved.double().exponents.item() == 0.25


def test_float64_default():
    torch.set_default_dtype(torch.float64)
    try:
        assert trainonce.CompositeLoss(["a", "b"]).exponents.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_float64_from_a_float32_start_whatever_the_default():
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.1)
    torch.set_default_dtype(torch.float64)
    try:
        assert criterion.double().exponents.item() == math.log(0.1)
    finally:
        torch.set_default_dtype(torch.float32)


def test_narrow_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert trainonce.CompositeLoss(["a", "b"]).exponents.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_meta_device():
    with torch.device("meta"):
        model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": trainonce.CompositeLoss(["a", "b"], init=0.5)})
    criterion = model["criterion"]
    assert criterion.exponents.is_meta
    assert "meta device" in repr(criterion)
    with pytest.raises(RuntimeError, match="meta device"):
        trainonce.attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1), criterion, decay=1.0)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert criterion.exponents.item() == pytest.approx(math.log(0.5))
    fixed = torch.device("meta")
    with fixed:
        other = trainonce.FixedLoss({"a": 1.0, "b": 3.0})
    other.to_empty(device="cpu").reset_parameters()
    assert other.weights.tolist() == [0.25, 0.75]


def test_precision_and_device_can_change_together():
    criterion = trainonce.CompositeLoss(["a", "b"]).to("meta", torch.bfloat16)
    assert criterion.exponents.is_meta
    assert criterion.exponents.dtype == torch.float32
    assert criterion.double().exponents.dtype == torch.float64


@pytest.mark.parametrize("loads_first", [False, True])
def test_a_parameter_in_place_of_one_on_the_meta_device_gets_the_start(loads_first):
    """As Transformers' from_pretrained does it where the file holds no exponents."""
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.5)
    if loads_first:
        criterion.load_state_dict(criterion.state_dict())
    criterion.to("meta").exponents = nn.Parameter(torch.full((1,), 7.0, dtype=torch.bfloat16))
    assert criterion.exponents.item() == pytest.approx(math.log(0.5))
    assert criterion.exponents.dtype == torch.float32


def test_a_parameter_from_a_file_keeps_its_value_in_float32():
    criterion = trainonce.CompositeLoss(["a", "b"]).to("meta")
    found = nn.Parameter(torch.full((1,), 7.0, dtype=torch.bfloat16))
    found._is_hf_initialized = True
    criterion.exponents = found
    assert criterion.exponents.item() == 7.0
    assert criterion.exponents.dtype == torch.float32
    assert criterion.exponents.is_leaf


def test_other_parameters_are_taken_as_they_are():
    criterion = trainonce.CompositeLoss(["a", "b"])
    criterion.exponents = nn.Parameter(torch.full((1,), 7.0))
    assert criterion.exponents.item() == 7.0
    criterion.to("meta").exponents = nn.Parameter(torch.empty(1, dtype=torch.bfloat16, device="meta"))
    assert criterion.exponents.dtype == torch.bfloat16


def test_loading_into_the_meta_device_keeps_what_is_loaded():
    saved = trainonce.CompositeLoss(["a", "b", "c"], init={"b": 2.0, "c": 3.0}).state_dict()
    with torch.device("meta"):
        model = nn.ModuleDict({"criterion": trainonce.CompositeLoss(["a", "c", "b"], init=0.1)})
    model.load_state_dict({f"criterion.{name}": value for name, value in saved.items()}, assign=True)
    assert model["criterion"].exponents.exp().tolist() == pytest.approx([3.0, 2.0])


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (["a", "c", "b"], r"in this order; this criterion's are 'a', 'c', 'b'\. Give them in the checkpoint's order"),
        (["b", "a", "c"], "The checkpoint's base term is 'a'; this criterion's is 'b'"),
        (["a", "b"], "not in this criterion: 'c'"),
    ],
)
def test_names_alone_are_checked_too(terms, said):
    """Transformers' from_pretrained puts tensors in place and hands the rest over, without load_state_dict."""
    saved = trainonce.CompositeLoss(["a", "b", "c"]).get_extra_state()
    with pytest.raises(ValueError, match=said):
        trainonce.CompositeLoss(terms).set_extra_state(saved)


def test_other_device():
    criterion = trainonce.CompositeLoss(["a", "b"])
    with pytest.raises(ValueError, match=r"losses are on meta, the criterion is on cpu. Call criterion.to\('meta'\)"):
        criterion(torch.ones(2, device="meta", requires_grad=True))


# Scale and reference


@pytest.mark.parametrize("scale", [0.5, 2.0, 11.0])
def test_scale_acts_on_the_model_and_not_on_the_exponents(scale):
    plain, scaled = (trainonce.CompositeLoss(["a", "b"], scale=s).double() for s in (1.0, scale))
    gradients = []
    for criterion in (plain, scaled):
        a, b = losses(1.0, 3.0)
        total = criterion(a=a, b=b)
        total.backward()
        gradients.append((total.item(), a.grad.item(), b.grad.item(), criterion.exponents.grad.item()))
    (value, a, b, mu), scaled_values = gradients
    assert scaled_values == pytest.approx((scale * value, scale * a, scale * b, mu), rel=1e-12)
    assert f"scale {scale:g}" in repr(scaled)


def test_scale_keeps_the_loss_a_user_comes_from():
    """Weights 1 and 10, as a plain sum, and as weights that sum to 1 with scale 11."""
    a, b = losses(0.7, 0.2)
    assert trainonce.FixedLoss({"a": 1, "b": 10}, scale=11).double()(a=a, b=b).item() == pytest.approx(0.7 + 10 * 0.2)


def test_reference_keeps_its_meaning():
    criterion = trainonce.CompositeLoss(["a", "b"], init=1.0, scale=2.0).double()
    with pytest.raises(RuntimeError, match="call the criterion first"):
        criterion.reference()
    with torch.no_grad():
        criterion.exponents.fill_(5.0)
    criterion(losses(1.0, 3.0))
    assert criterion.reference().item() == 4.0
    assert not criterion.reference().requires_grad
    assert criterion.reference(a=torch.tensor(1.0), b=torch.tensor(5.0)).item() == 6.0
    with torch.no_grad():
        criterion(torch.tensor([100.0, 100.0], dtype=torch.float64))
    assert criterion.reference().item() == 4.0  # evaluation is not a training call
    criterion([losses(1.0)[0], None])
    assert criterion.reference().item() == 1.0
    criterion(losses(math.nan, 1.0))
    assert math.isnan(criterion.reference().item())  # a bad loss is not hidden


def test_reference_of_stacked_losses_carries_no_gradient():
    criterion = trainonce.CompositeLoss(["a", "b"], init=1.0)
    assert not criterion.reference(torch.tensor([1.0, 3.0], requires_grad=True)).requires_grad


def test_reference_follows_precision_and_device():
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.1)
    values = torch.tensor([1.0, 3.0], dtype=torch.float64)
    assert criterion.reference(values).item() == pytest.approx(1.3 / 1.1, rel=1e-6)
    kept = criterion._start
    criterion.reference(values)
    assert criterion._start is kept  # computed once
    criterion.double()
    assert criterion.reference(values).item() == pytest.approx(1.3 / 1.1, rel=1e-15)
    assert criterion.reference(values.to("meta")).is_meta


def test_log_dict():
    criterion = trainonce.CompositeLoss(["a", "b"], init=1.0)
    assert set(criterion.log_dict()) == {"weight/a", "weight/b", "exponent/b"}
    criterion([losses(1.0)[0], None])
    log = criterion.log_dict()
    assert set(log) == {"weight/a", "weight/b", "exponent/b", "loss/a", "loss/b", "reference"}
    assert log["loss/a"].item() == 1.0
    assert math.isnan(log["loss/b"].item())
    assert not any(value.requires_grad for value in log.values())


# Absent terms


def test_absent_term():
    """Its exponent gets exactly no gradient; the others keep their weights and compare with what is there."""
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"b": 0.5, "c": 2.0}).double()
    lam = criterion.weights
    a, b = losses(1.0, 4.0)
    total = criterion(a=a, b=b, c=None)
    total.backward()
    assert total.item() == pytest.approx((lam[0] * 1 + lam[1] * 4).item(), rel=1e-14)
    assert (a.grad.item(), b.grad.item()) == pytest.approx((lam[0].item(), lam[1].item()), rel=1e-14)
    assert criterion.exponents.grad[1].item() == 0.0
    mean = (lam[0] * 1 + lam[1] * 4) / (lam[0] + lam[1])
    assert criterion.exponents.grad[0].item() == pytest.approx((lam[1] * (4 - mean)).item(), rel=1e-12)


def test_the_exponent_of_an_absent_term_gets_a_gradient_of_exactly_zero():
    criterion = trainonce.CompositeLoss(["a", "b", "c"]).double()
    for _ in range(50):
        with torch.no_grad():
            criterion.exponents.normal_()
        criterion.exponents.grad = None
        criterion([*losses(*torch.rand(2).tolist()), None]).backward()
        assert criterion.exponents.grad[1].item() == 0.0


def test_equal_losses_do_not_move_when_one_is_absent():
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=1.0).double()
    criterion([*losses(2.0, 2.0), None]).backward()
    assert criterion.exponents.grad.abs().max().item() < 1e-15


@pytest.mark.parametrize("absent", ["a", "b"])
def test_absent_with_one_auxiliary_term(absent):
    criterion = trainonce.CompositeLoss(["a", "b"]).double()
    values = dict(zip("ab", losses(1.0, 4.0), strict=True)) | {absent: None}
    criterion(values).backward()
    # A zero, and not None: every rank then has a gradient to average.
    assert criterion.exponents.grad.abs().item() < 1e-16


def test_validation_in_inference_mode_before_training():
    """What is kept between calls must serve backward, also if it was first needed where no gradients are."""
    criterion = trainonce.CompositeLoss(["a", "b", "c"])
    with torch.inference_mode():
        criterion(torch.ones(3))
        criterion([torch.tensor(1.0), None, torch.tensor(2.0)])
        criterion.reference(a=torch.tensor(1.0), b=None, c=torch.tensor(1.0))
    criterion(losses(1.0, 2.0, 3.0)).backward()
    criterion([losses(1.0)[0], None, losses(2.0)[0]]).backward()
    assert criterion.exponents.grad[1].item() != 0.0


def test_all_terms_absent():
    """Zero and a zero gradient, so that a rank with such a batch still takes part in the step."""
    criterion = trainonce.CompositeLoss(["a", "b"])
    total = criterion(a=None, b=None)
    total.backward()
    assert total.item() == 0.0
    assert criterion.exponents.grad.item() == 0.0
    assert criterion.reference(a=None, b=None).item() == 0.0


@pytest.mark.parametrize("nonfinite", ["propagate", "skip", "raise"])
def test_all_terms_absent_at_exponents_of_zero(nonfinite):
    criterion = trainonce.CompositeLoss(["a", "b"], init=1.0, nonfinite=nonfinite)
    criterion(losses(1.0, 2.0))
    total = criterion(a=None, b=None)
    total.backward()
    assert (total.item(), criterion.exponents.grad.item()) == (0.0, 0.0)
    assert math.isnan(criterion.log_dict()["loss/a"].item())  # the last call is this one


@pytest.mark.parametrize(
    "criterion", [trainonce.FixedLoss({"a": 1.0, "b": 0.0}), trainonce.CompositeLoss(["a", "b"], init=1e-60)]
)
def test_only_a_term_of_weight_0_is_there(criterion):
    value = losses(3.0, dtype=torch.float32)[0]
    total = criterion(a=None, b=value)
    total.backward()
    assert total.item() == 0.0
    assert value.grad.item() == 0.0


def test_many_terms_with_one_absent_take_few_operators():
    names = [f"t{i}" for i in range(500)]
    criterion = trainonce.CompositeLoss(names)
    values = torch.rand(500).clone().requires_grad_().unbind()
    batch = [None, *values[1:]]
    criterion(batch)

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as operators:
        criterion(batch)
    assert operators.count < 40


# Bad values


def test_nonfinite_propagates_by_default():
    criterion = trainonce.CompositeLoss(["a", "b"])
    a, b = losses(1.0, math.nan)
    total = criterion(a=a, b=b)
    total.backward()
    assert math.isnan(total.item())
    assert a.grad.item() == pytest.approx(criterion.weights[0].item())  # the model's gradient is the plain sum's


def test_nonfinite_raise():
    criterion = trainonce.CompositeLoss(["a", "b"], nonfinite="raise")
    with pytest.raises(FloatingPointError, match="losses 'b' are not finite"):
        criterion(losses(1.0, math.inf))
    criterion(losses(1.0, 2.0))


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_nonfinite_raise_names_the_bad_term_wherever_it_is(at, stacked):
    values = [1.0, 2.0, 3.0]
    values[at] = math.nan
    given = torch.tensor(values, requires_grad=True) if stacked else losses(*values)
    with pytest.raises(FloatingPointError, match=f"losses '{'abc'[at]}' are not finite"):
        trainonce.CompositeLoss(["a", "b", "c"], nonfinite="raise")(given)


@pytest.mark.parametrize(("absent", "bad"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
def test_nonfinite_raise_names_the_bad_term_beside_an_absent_one(absent, bad):
    given = losses(1.0, 2.0, 3.0)
    given[absent], given[bad] = None, losses(math.inf)[0]
    with pytest.raises(FloatingPointError, match=f"losses '{'abc'[bad]}' are not finite"):
        trainonce.CompositeLoss(["a", "b", "c"], nonfinite="raise")(given)


@pytest.mark.parametrize("absent", [None, 0, 1, 2])
@pytest.mark.parametrize("bad", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_nonfinite_skip_is_the_call_without_the_bad_terms(bad, absent):
    """Value, weights, gradients and the logged losses are those of a call with None in their place."""
    init = {"b": 0.5, "c": 0.25}
    skipping = trainonce.CompositeLoss(["a", "b", "c"], init=init, nonfinite="skip").double()
    plain = trainonce.CompositeLoss(["a", "b", "c"], init=init).double()
    given, good = losses(1.0, 2.0, 4.0), losses(1.0, 2.0, 4.0)
    for at in bad:
        given[at], good[at] = losses(math.inf)[0], None
    if absent is not None:
        given[absent] = good[absent] = None
    named = [f"'{'abc'[at]}'" for at in bad if at != absent]
    if named:
        with pytest.warns(health.SkippedTerm, match=f"losses {', '.join(named)} were not finite"):
            total = skipping(given)
    else:
        total = skipping(given)
    expected = plain(good)
    total.backward(), expected.backward()
    assert total.item() == pytest.approx(expected.item())
    assert skipping.exponents.grad.tolist() == pytest.approx(plain.exponents.grad.tolist())
    for one, other in zip(given, good, strict=True):
        if other is not None:
            assert one.grad.item() == pytest.approx(other.grad.item())
        elif one is not None:
            assert one.grad is None
    seen, wanted = ({name: value.item() for name, value in c.log_dict().items()} for c in (skipping, plain))
    assert seen == pytest.approx(wanted, nan_ok=True)


def test_nonfinite_skip_cannot_reach_the_others():
    """sqrt at 0 has an infinite slope: even a zero gradient sent back through it would poison the shared weight."""
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    criterion = trainonce.CompositeLoss(["a", "b"], nonfinite="skip").double()
    lam = criterion.weights
    good, bad = ((w - 1) ** 2).sum(), (w.sqrt() / w).sum()
    with pytest.warns(health.SkippedTerm, match="'b' were not finite"):
        total = criterion(a=good, b=bad)
    total.backward()
    assert w.grad.item() == pytest.approx(-2 * lam[0].item())
    assert criterion.exponents.grad.item() == 0.0
    assert math.isnan(criterion.log_dict()["loss/b"].item())
    poisoned = torch.autograd.grad(torch.where(torch.tensor(False), (w.sqrt() / w).sum(), 0.0) + (w**2).sum(), w)[0]
    assert math.isnan(poisoned.item())  # what masking without cutting the graph would have given


def test_nonfinite_skip_and_raise_name_the_right_term_where_another_is_absent():
    names = ["a", "b", "c", "d"]
    batch = {"a": None, "b": losses(math.nan)[0], "c": losses(2.0)[0], "d": losses(3.0)[0]}
    criterion = trainonce.CompositeLoss(names, nonfinite="skip").double()
    with pytest.warns(health.SkippedTerm, match="'b' were not finite"):
        total = criterion(batch)
    assert total.item() == pytest.approx((criterion.weights[2] * 2 + criterion.weights[3] * 3).item())
    with pytest.raises(FloatingPointError, match="losses 'b' are not finite"):
        trainonce.CompositeLoss(names, nonfinite="raise")(batch)


def test_nonfinite_evaluation_is_not_the_last_training_call():
    criterion = trainonce.CompositeLoss(["a", "b"], init=1.0, nonfinite="skip")
    criterion(losses(1.0, 3.0))
    with torch.no_grad(), pytest.warns(health.SkippedTerm):
        criterion(torch.tensor([math.nan, math.nan]))
    assert criterion.reference().item() == 2.0


def test_nonfinite_skip_of_all_terms():
    criterion = trainonce.CompositeLoss(["a", "b"], nonfinite="skip")
    with pytest.warns(health.SkippedTerm):
        total = criterion(losses(math.nan, math.inf))
    total.backward()
    assert total.item() == 0.0
    assert criterion.exponents.grad.item() == 0.0
    fixed = trainonce.FixedLoss({"a": 1.0, "b": 0.0}, nonfinite="skip")
    with pytest.warns(health.SkippedTerm):
        fixed(losses(math.nan, math.inf)).backward()


# Printing and copying


def test_print():
    criterion = trainonce.CompositeLoss(["ce", "invariance"], init=0.1)
    text = str(criterion)
    assert text.splitlines() == [
        "CompositeLoss(",
        "  term        weight  ratio to base  exponent",
        "  ce          0.9091              1         0 (base)",
        "  invariance  0.0909            0.1   -2.3026",
        ")",
    ]
    assert criterion.as_dict() == pytest.approx({"ce": 1 / 1.1, "invariance": 0.1 / 1.1})


def test_a_copy_is_not_attached():
    criterion = trainonce.CompositeLoss(["a", "b"])
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=1.0)
    criterion(losses(1.0, 2.0, dtype=torch.float32))
    for other in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert other.attachment is None
        assert torch.equal(other.exponents, criterion.exponents)
        assert other.terms == criterion.terms
        assert not other.exponents._post_accumulate_grad_hooks
        assert other._training_calls == 0
    assert criterion.attachment is not None


def test_a_copy_warns_again():
    criterion = trainonce.CompositeLoss(["a", "b"], nonfinite="skip")
    for each in (criterion, copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        with pytest.warns(health.SkippedTerm):
            each(losses(1.0, math.nan))
    with pytest.warns(health.SkippedTerm):
        copy.deepcopy(criterion)(losses(1.0, math.nan))


def test_freeze_without_an_optimizer():
    criterion = trainonce.CompositeLoss(["a", "b"]).freeze()
    criterion(losses(1.0, 2.0)).backward()
    assert criterion.exponents.grad is None
    assert criterion.frozen
    criterion.unfreeze()
    criterion(losses(1.0, 2.0)).backward()
    assert criterion.exponents.grad is not None


@pytest.mark.parametrize("freeze_first", [False, True])
def test_a_frozen_attached_criterion_keeps_its_loss_and_gets_a_gradient_of_exactly_zero(freeze_first):
    """A zero, and not None: every rank then has a gradient to average."""
    criterion = trainonce.CompositeLoss(["a", "b"], init=3.0).double()
    expected = criterion(losses(1.0, 2.0)).item()
    if freeze_first:
        criterion.freeze()
    trainonce.attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), criterion, decay=1.0)
    total = criterion.freeze()(losses(1.0, 2.0))
    total.backward()
    assert total.item() == expected
    assert criterion.exponents.grad.item() == 0.0
    assert criterion.unfreeze() is criterion


def test_loading_leaves_it_to_the_user_whether_the_exponents_get_gradients():
    criterion = trainonce.CompositeLoss(["a", "b"])
    criterion.exponents.requires_grad_(False)
    criterion.load_state_dict(trainonce.CompositeLoss(["a", "b"]).state_dict())
    assert not criterion.exponents.requires_grad


# The first training call, with several ranks


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_training_call_checks_the_placement_and_starts_averaging(compiled, monkeypatch):
    torch._dynamo.reset()
    criterion = CompositeLoss(["a", "b"])
    attachment = attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), criterion, decay=1.0)
    done = []
    monkeypatch.setattr(distributed, "is_distributed", lambda group=None: True)
    monkeypatch.setattr(distributed, "check_placement", lambda checked: done.append(checked))
    monkeypatch.setattr(attachment, "start_averaging", lambda: done.append("averaging"))
    call = torch.compile(criterion, backend="eager", fullgraph=True) if compiled else criterion
    with torch.no_grad():
        call(torch.ones(2))
    assert done == []  # validation is no training call
    for _ in range(3):
        call(torch.ones(2, requires_grad=True)).backward()
    assert done == [criterion, "averaging"]
    torch._dynamo.reset()


def test_counting_calls_has_no_part_in_averaging(monkeypatch):
    criterion = CompositeLoss(["a", "b"])
    attachment = attach(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), criterion, decay=1.0)
    monkeypatch.setattr(distributed, "is_distributed", lambda group=None: True)
    monkeypatch.setattr(distributed, "check_placement", lambda checked: pytest.fail("the watch checked the placement"))
    monkeypatch.setattr(attachment, "start_averaging", lambda: pytest.fail("the watch started averaging"))
    watch.CallWatch().count(criterion, eager=True)
