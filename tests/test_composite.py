"""CompositeLoss: start, precision, scale, absent and bad terms, printing."""

import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import trainonce
from trainonce import health


def losses(*values, dtype=torch.float64):
    return [torch.tensor(v, dtype=dtype, requires_grad=True) for v in values]


# Start


@pytest.mark.parametrize("init", [1e-3, 0.1, 1.0, 10.0, 5])
def test_init_is_the_ratio_to_the_base(init):
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init=init)
    assert criterion.exponents.dtype == torch.float32
    assert criterion.coefficients().sum().item() == pytest.approx(1)
    assert criterion.ratios().tolist() == pytest.approx([1, init, init], rel=1e-5)


def test_init_by_term():
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"c": 2.0, "b": 0.5})
    assert criterion.exponents.tolist() == pytest.approx([math.log(0.5), math.log(2)])


def test_the_papers_own_numbers():
    for system, ratio, decay in (("unidepth", 0.1, 20.0), ("ciss", math.exp(-4), 200.0)):
        criterion = trainonce.CompositeLoss.as_printed(["a", "b"], system)
        assert criterion.ratios()[1].item() == pytest.approx(ratio)
        assert (criterion.decay, criterion.regularizer) == (decay, ("negentropy", "softplus"))
    assert trainonce.CompositeLoss.as_printed(["a", "b"], "ciss", decay=1).decay == 1
    for nothing in ({}, {"lr": None}, {"travel": None}):
        assert trainonce.CompositeLoss.as_printed(["a", "b"], "ciss", **nothing).pace is None
    assert trainonce.CompositeLoss.as_printed(["a", "b"], "ciss", travel=0.1).pace == 0.1
    with pytest.raises(ValueError, match="the systems 'unidepth', 'ciss'; got 'cis'"):
        trainonce.CompositeLoss.as_printed(["a", "b"], "cis")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        *(({"init": init}, "must be a positive number") for init in (0, -1, math.nan, math.inf, "0.1", True)),
        *(
            ({"init": init}, "for each auxiliary term, expects 'b'")
            for init in ({}, {"b": 1, "c": 1}, {"a": 1, "b": 1})
        ),
        *(({"decay": decay}, "decay must be a number of at least 0") for decay in (-1, math.nan, math.inf, "2", True)),
        ({"lr": -0.1}, "lr must be"),
        ({"lr": "0.1"}, "lr must be a number of at least 0, or 'model' for the model's rate; got '0.1'"),
        ({"regularizer": ["entropy"]}, "regularizer takes a list of any of 'negentropy', 'softplus'; got 'entropy'"),
        ({"scale": 0}, "scale must be"),
        ({"nonfinite": "ignore"}, "nonfinite must be"),
    ],
)
def test_bad_settings(settings, text):
    with pytest.raises(ValueError, match=text):
        trainonce.CompositeLoss(["a", "b"], **settings)


def test_numpy_numbers_are_numbers():
    np = pytest.importorskip("numpy")
    assert trainonce.CompositeLoss(["a", "b"], init=np.float32(0.5)).exponents.item() == pytest.approx(math.log(0.5))
    assert trainonce.FixedLoss({"a": np.int64(1), "b": np.float64(3)}).weights.tolist() == [1, 3]


# Precision and devices


def test_float64_is_honoured():
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.1).double()
    assert criterion.exponents.item() == math.log(0.1)  # not rounded to float32 on the way
    assert criterion.half().exponents.dtype == torch.float64
    assert criterion.float().exponents.dtype == torch.float32
    moved = trainonce.CompositeLoss(["a", "b"])
    with torch.no_grad():
        moved.exponents.fill_(0.25)
    assert moved.double().exponents.item() == 0.25


@pytest.mark.parametrize(("default", "own"), [(torch.float64, torch.float64), (torch.bfloat16, torch.float32)])
def test_default_dtypes(default, own):
    torch.set_default_dtype(default)
    try:
        assert trainonce.CompositeLoss(["a", "b"]).exponents.dtype == own
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("from_file", [False, True])
def test_a_parameter_in_place_of_one_on_the_meta_device(from_file):
    """As Transformers' from_pretrained does it: the start where the file holds nothing, in float32."""
    criterion = trainonce.CompositeLoss(["a", "b"], init=0.5).to("meta")
    found = nn.Parameter(torch.full((1,), 7.0, dtype=torch.bfloat16))
    if from_file:
        found._is_hf_initialized = True
    criterion.exponents = found
    assert criterion.exponents.item() == (7.0 if from_file else pytest.approx(math.log(0.5)))
    assert criterion.exponents.dtype == torch.float32
    assert criterion.exponents.is_leaf


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


# Absent terms


def test_absent_term():
    """Its exponent gets exactly no gradient; the others keep their weights and compare with what is there."""
    criterion = trainonce.CompositeLoss(["a", "b", "c"], init={"b": 0.5, "c": 2.0}).double()
    lam = criterion.coefficients()
    a, b = losses(1.0, 4.0)
    total = criterion(a=a, b=b, c=None)
    total.backward()
    assert total.item() == pytest.approx((lam[0] * 1 + lam[1] * 4).item(), rel=1e-14)
    assert (a.grad.item(), b.grad.item()) == pytest.approx((lam[0].item(), lam[1].item()), rel=1e-14)
    assert criterion.exponents.grad[1].item() == 0.0
    mean = (lam[0] * 1 + lam[1] * 4) / (lam[0] + lam[1])
    assert criterion.exponents.grad[0].item() == pytest.approx((lam[1] * (4 - mean)).item(), rel=1e-12)


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


@pytest.mark.parametrize("nonfinite", ["propagate", "skip", "raise"])
def test_all_terms_absent(nonfinite):
    """Zero and a zero gradient, so that a rank with such a batch still takes part in the step."""
    criterion = trainonce.CompositeLoss(["a", "b"], nonfinite=nonfinite)
    criterion(losses(1.0, 2.0))
    total = criterion(a=None, b=None)
    total.backward()
    assert (total.item(), criterion.exponents.grad.item()) == (0.0, 0.0)
    assert math.isnan(criterion.log_dict()["loss/a"].item())  # the last call is this one
    assert criterion.reference(a=None, b=None).item() == 0.0


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
    assert a.grad.item() == pytest.approx(criterion.coefficients()[0].item())  # the model's gradient is the plain sum's


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
    lam = criterion.coefficients()
    good, bad = ((w - 1) ** 2).sum(), (w.sqrt() / w).sum()
    with pytest.warns(health.SkippedTerm, match="'b' were not finite"):
        total = criterion(a=good, b=bad)
    total.backward()
    assert w.grad.item() == pytest.approx(-2 * lam[0].item())
    assert criterion.exponents.grad.item() == 0.0
    assert math.isnan(criterion.log_dict()["loss/b"].item())
    poisoned = torch.autograd.grad(torch.where(torch.tensor(False), (w.sqrt() / w).sum(), 0.0) + (w**2).sum(), w)[0]
    assert math.isnan(poisoned.item())  # what masking without cutting the graph would have given


# Printing and freezing


def test_print():
    assert str(trainonce.CompositeLoss(["ce", "invariance"], init=0.1)).splitlines() == [
        "CompositeLoss(",
        "  term        coefficient  ratio  exponent",
        "  ce               0.9091      1           (base)",
        "  invariance      0.09091    0.1    -2.303",
        ")",
    ]


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
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    trainonce.attach(optimizer, criterion)
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
