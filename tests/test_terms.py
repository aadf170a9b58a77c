"""Handing over losses: the ways that work, and one clear sentence for each that does not."""

import pytest
import torch

import trainonce


def loss(value, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


@pytest.fixture
def criterion():
    return trainonce.CompositeLoss(["ce", "invariance", "depth"], init={"invariance": 0.5, "depth": 0.5})


VALUES = {"ce": 1.0, "invariance": 3.0, "depth": 5.0}
TOTAL = 0.5 * 1 + 0.25 * 3 + 0.25 * 5


@pytest.mark.parametrize(
    "call",
    [
        lambda c, t: c(**t),
        lambda c, t: c(**dict(reversed(t.items()))),
        lambda c, t: c(t),
        lambda c, t: c(dict(reversed(t.items()))),
        lambda c, t: c(list(t.values())),
        lambda c, t: c(tuple(t.values())),
        lambda c, t: c(torch.stack(list(t.values()))),
    ],
    ids=["keywords", "reordered keywords", "dict", "reordered dict", "list", "tuple", "stacked"],
)
def test_ways_to_call(criterion, call):
    terms = {name: loss(value) for name, value in VALUES.items()}
    total = call(criterion, terms)
    assert total.shape == ()
    assert total.item() == pytest.approx(TOTAL)
    total.backward()
    assert [t.grad.item() for t in terms.values()] == pytest.approx([0.5, 0.25, 0.25])
    assert criterion.exponents.grad.tolist() == pytest.approx([0.25 * (3 - TOTAL), 0.25 * (5 - TOTAL)])


def test_any_name_works_in_a_dict():
    criterion = trainonce.CompositeLoss(["loss", "self", "a b/c", "losses"])
    assert criterion({name: loss(2.0) for name in criterion.terms}).item() == pytest.approx(2.0)


def test_mixed_precision_losses(criterion):
    terms = {"ce": loss(1.0), "invariance": loss(3.0, torch.bfloat16), "depth": loss(5.0, torch.float16)}
    total = criterion(terms)
    assert total.dtype == torch.float32
    total.backward()
    assert terms["invariance"].grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"invariance": None, "inv": 3.0},
            ValueError,
            (
                "CompositeLoss expects 'ce', 'invariance', 'depth'; got 'ce', 'depth', 'inv'. "
                "Did you mean 'invariance' for 'inv'?"
            ),
        ),
        ({"depth": None}, ValueError, "expects 'ce', 'invariance', 'depth'; got 'ce', 'invariance'. Missing: 'depth'."),
        ({"rays": 1.0}, ValueError, "got 'ce', 'invariance', 'depth', 'rays'. Not a term: 'rays'."),
        ({"depth": None, "detph": 1.0}, ValueError, "Did you mean 'depth' for 'detph'?"),
    ],
    ids=["prefix", "missing", "extra", "typo"],
)
def test_wrong_names(criterion, change, error, text):
    table = {name: value for name, value in (VALUES | change).items() if value is not None}
    with pytest.raises(error) as caught:
        criterion({name: loss(value) for name, value in table.items()})
    assert text in str(caught.value)
    with pytest.raises(error):
        criterion(**{name: loss(value) for name, value in table.items()})


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (torch.ones(4, requires_grad=True), ValueError, "The loss 'depth' must be a scalar; got shape (4,). Reduce it"),
        (torch.ones(1, requires_grad=True), ValueError, "The loss 'depth' must be a scalar; got shape (1,)."),
        (torch.tensor(3), TypeError, "The loss 'depth' must be a floating-point tensor; got torch.int64."),
        (torch.tensor(3.0), ValueError, "The loss 'depth' carries no gradient although gradients are on"),
        (3.0, TypeError, "The loss 'depth' must be a tensor that carries a gradient; got float 3.0."),
        (torch.ones((), device="meta", requires_grad=True), ValueError, "must be on one device; got 'ce' on cpu"),
    ],
    ids=["vector", "one element", "integer", "detached", "number", "device"],
)
def test_wrong_values(criterion, value, error, text):
    with pytest.raises(error) as caught:
        criterion(ce=loss(1.0), invariance=loss(1.0), depth=value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ([torch.ones(2, requires_grad=True)], {}, ValueError, "must have shape (3,), one scalar for each of 'ce'"),
        ([torch.ones(3, 1, requires_grad=True)], {}, ValueError, "got (3, 1)"),
        ([torch.ones(3)], {}, ValueError, "The stacked tensor of losses carries no gradient"),
        ([torch.ones(3, dtype=torch.int64)], {}, TypeError, "must be floating-point; got torch.int64"),
        ([torch.ones(3, requires_grad=True)], {"ce": loss(1.0)}, TypeError, "a stacked tensor alone"),
        ([{}], {"ce": loss(1.0)}, TypeError, "one way at a time"),
        ([[loss(1.0)]], {}, ValueError, "expects 3 losses in the order 'ce', 'invariance', 'depth'; got 1"),
        ([7], {}, TypeError, "takes keywords, a dict, a list or a stacked tensor; got int"),
        ([], {}, ValueError, "got nothing"),
        ([loss(1.0), loss(2.0)], {}, TypeError, "got 2 positional arguments. Write criterion([...])"),
    ],
)
def test_wrong_calls(criterion, args, kwargs, error, text):
    with pytest.raises(error) as caught:
        criterion(*args, **kwargs)
    assert text in str(caught.value)


def test_evaluation_needs_no_gradients(criterion):
    with torch.no_grad():
        assert criterion(torch.tensor(list(VALUES.values()))).item() == pytest.approx(TOTAL)
        assert criterion(**{k: torch.tensor(v) for k, v in VALUES.items()}).item() == pytest.approx(TOTAL)
    with torch.inference_mode():
        assert criterion(torch.tensor(list(VALUES.values()))).item() == pytest.approx(TOTAL)


def test_negative_losses(criterion):
    values = torch.tensor([-1.0, 3.0, -5.0], requires_grad=True)
    total = criterion(values)
    assert total.item() == pytest.approx(0.5 * -1 + 0.25 * 3 + 0.25 * -5)
    total.backward()
    expected = trainonce.functional.composite_grad(criterion.exponents.detach(), values.detach())
    torch.testing.assert_close(criterion.exponents.grad, expected)


@pytest.mark.parametrize(
    ("terms", "error", "text"),
    [
        ("ce", TypeError, "needs a list of term names, the base first; got the single string 'ce'"),
        ([], ValueError, "weighs two or more terms; got 0"),
        (["ce"], ValueError, "weighs two or more terms; got 1 ('ce')"),
        (["ce", "ce", "inv"], ValueError, "distinct term names; 'ce' appears more than once"),
        (["ce", ""], TypeError, "non-empty strings"),
        (["ce", " inv"], TypeError, "without surrounding space"),
        (["ce", 3], TypeError, "non-empty strings"),
        (["ce", "at"], ValueError, "cannot have a term named 'at'"),
    ],
)
def test_wrong_terms(terms, error, text):
    with pytest.raises(error) as caught:
        trainonce.CompositeLoss(terms)
    assert text in str(caught.value)
