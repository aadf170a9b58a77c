"""Fixed and replayed weights under the interface of learned ones: a loop cannot tell them apart."""

import io
import math

import pytest
import torch
from torch import nn

import trainonce
from trainonce import CompositeLoss, FixedLoss, History, ReplayLoss, attach, replay

TERMS = ["fit", "small", "smooth"]
BATCHES = 20


def build(dtype=torch.float32):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)
    return model, torch.randn(BATCHES, 8, 4, dtype=dtype)


def losses_of(model, x):
    y = model(x)
    return {
        "fit": ((y - x[:, :2]) ** 2).mean() + 0.1,
        "small": sum((p**2).mean() for p in model.parameters()),
        "smooth": (y[1:] - y[:-1]).abs().mean() + 0.1,
    }


def train(criterion, steps=30, *, freeze_at=None, history=None, dtype=torch.float32, accumulate=1, lr=None):
    """One loop for every kind of criterion; nothing in it asks which kind it is."""
    model, data = build(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    attachment = attach(optimizer, criterion, decay=1.0, history=history, lr=lr)
    factors = [lambda t: 0.98**t, lambda t: 0.95**t]  # one for each group
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
    log = []
    for t in range(steps):
        if t == freeze_at:
            criterion.freeze()
        optimizer.zero_grad()
        for i in range(accumulate):
            (criterion(losses_of(model, data[(t + i) % BATCHES])) / accumulate).backward()
        nn.utils.clip_grad_norm_(trainonce.model_parameters(model), 1.0)
        optimizer.step()
        schedule.step()
        log.append(criterion.log_dict() | criterion.as_dict())
        with torch.no_grad():
            criterion(losses_of(model, data[0]))
    assert attachment.group["name"] == "loss_weights"
    return model, optimizer, log


def recorded(steps=30, **options):
    history = History()
    model, _, _ = train(CompositeLoss(TERMS, init=0.5), steps, history=history, **options)
    return history, model


def same(first, second):
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


KINDS = {
    "learned": lambda: CompositeLoss(TERMS, init=0.5),
    "fixed": lambda: FixedLoss({"fit": 1, "small": 0.5, "smooth": 0.5}),
    "fixed, auxiliary 0": lambda: FixedLoss({"fit": 1, "small": 0, "smooth": 0.5}),
    "fixed, base 0": lambda: FixedLoss({"fit": 0, "small": 0, "smooth": 2}),
    "replay": lambda: replay(recorded(10)[0]),
}


@pytest.fixture(params=KINDS)
def criterion(request):
    return KINDS[request.param]()


# The shared loop


def test_one_loop_for_all(criterion):
    start = criterion.weights
    history = History()
    model, optimizer, log = train(criterion, freeze_at=20, history=history)
    assert len(optimizer.param_groups) == 2
    assert optimizer.param_groups[1]["params"] == [criterion.exponents]
    assert set(log[0]) == {
        *TERMS,
        *(f"{kind}/{term}" for kind in ("loss", "weight") for term in TERMS),
        *(f"exponent/{term}" for term in TERMS[1:]),
        "reference",
    }
    assert list(criterion.as_dict()) == TERMS
    assert sum(criterion.as_dict().values()) == pytest.approx(1, abs=1e-6)
    assert len({tuple(step[t] for t in TERMS) for step in log[20:]}) == 1  # frozen
    assert criterion.frozen
    columns = history.columns()
    assert columns["step"] == list(range(1, 31))
    assert columns["loss/fit"] == [step["loss/fit"].item() for step in log]
    assert columns["weight/small"] == [start[1].item(), *(step["small"] for step in log[:-1])]
    assert not any(math.isnan(x) for column in columns.values() for x in column)
    shown = repr(criterion)
    assert all(term in shown for term in TERMS)
    assert "(base)" in shown
    assert "nan" not in shown or criterion.as_dict()["fit"] == 0
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_reference_has_one_meaning_throughout(criterion):
    start, values = criterion.weights, torch.tensor([1.0, 2.0, 4.0])
    with torch.no_grad():
        before = criterion.reference(values)
    train(criterion)
    with torch.no_grad():
        assert criterion.reference(values).item() == before.item() == pytest.approx((start * values).sum().item())


@pytest.mark.parametrize("moved", ["half", "bfloat16", "double"])
def test_a_change_of_precision_does_not_change_the_weights(criterion, moved):
    train(criterion, 5)
    before = criterion.weights
    getattr(criterion, moved)()
    assert criterion.exponents.dtype == (torch.float64 if moved == "double" else torch.float32)
    torch.testing.assert_close(criterion.weights.float(), before, rtol=1e-6, atol=0)


def test_resuming_mid_run_is_bit_identical(criterion, request):
    again = KINDS[request.node.callspec.params["criterion"]]()
    whole, _, _ = train(criterion, 14)
    half, optimizer, _ = train(again, 7)
    saved = io.BytesIO()
    torch.save([half.state_dict(), optimizer.state_dict(), again.state_dict()], saved)
    saved.seek(0)
    parts = torch.load(saved, weights_only=True)

    third = KINDS[request.node.callspec.params["criterion"]]()
    model, data = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    attach(optimizer, third, decay=1.0)
    for part, state in zip((model, optimizer, third), parts, strict=True):
        part.load_state_dict(state)
    for t in range(7, 14):
        optimizer.param_groups[0]["lr"] = 0.01 * 0.98**t
        optimizer.param_groups[1]["lr"] = 0.01 * 0.95**t
        optimizer.zero_grad()
        third(losses_of(model, data[t])).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert same(model, whole)
    assert same(third, criterion)


# FixedLoss


@pytest.mark.parametrize("weights", [(1, 10, 0), (0, 3, 1), (0, 0, 7), (0.25, 0.5, 0.25), (1e-8, 1, 1e8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fixed_is_the_plain_weighted_sum_exactly(weights, dtype):
    criterion = FixedLoss(dict(zip(TERMS, weights, strict=True))).to(dtype)
    normal = torch.tensor([w / math.fsum(weights) for w in weights], dtype=dtype)
    assert torch.equal(criterion.weights, normal)
    leaf = torch.tensor([1.7, 0.3, 2.9], dtype=dtype, requires_grad=True)
    total = criterion(list(leaf.unbind()))
    assert torch.equal(total, torch.dot(normal, leaf))
    total.backward()
    assert torch.equal(leaf.grad, normal)
    scaled = FixedLoss(dict(zip(TERMS, weights, strict=True)), scale=sum(weights)).to(dtype)
    plain = sum(w * v for w, v in zip(weights, leaf.tolist(), strict=True))
    assert scaled(leaf).item() == pytest.approx(plain, rel=3e-7)


def test_fixed_trains_as_the_plain_sum_bit_for_bit():
    model, data = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    weights = torch.tensor([2.0, 0.0, 1.0]) / 3
    for t in range(20):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * 0.98**t
        optimizer.zero_grad()
        torch.dot(weights, torch.stack(list(losses_of(model, data[t]).values()))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert same(model, train(FixedLoss({"fit": 2, "small": 0, "smooth": 1}), 20)[0])


def test_a_weight_of_0_shows_as_minus_infinity():
    assert FixedLoss({"a": 1, "b": 0}).exponents.tolist() == [-math.inf]
    assert FixedLoss({"a": 0, "b": 1, "c": 0}).exponents.tolist() == [math.inf, -math.inf]
    assert FixedLoss({"a": 1, "b": math.e}).exponents.tolist() == pytest.approx([1.0])


def test_precision_gained_early_is_exact_and_loaded_weights_stay():
    criterion = FixedLoss({"a": 1, "b": 2}).double()
    assert criterion.weights.tolist() == [1 / 3, 2 / 3]
    loaded = FixedLoss({"a": 1, "b": 2})
    loaded.load_state_dict(FixedLoss({"a": 3, "b": 1}).state_dict())
    assert loaded.double().weights.tolist() == [0.75, 0.25]


def test_an_absent_term_leaves_the_other_weights_alone():
    criterion = FixedLoss({"a": 1, "b": 2, "c": 5})
    leaf = torch.ones((), requires_grad=True)
    assert criterion(a=leaf, b=None, c=3 * leaf).item() == pytest.approx(1 / 8 + 15 / 8)


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (["a", "b"], TypeError, "needs a dict of weights by term, base first; got list"),
        ({"a": 1}, ValueError, "weighs two or more terms; got 1"),
        ({"a": 1, "b": -1}, ValueError, "weights of at least 0; got -1 for 'b'"),
        ({"a": 1, "b": math.nan}, ValueError, "weights of at least 0; got nan for 'b'"),
        ({"a": 1, "b": math.inf}, ValueError, "weights of at least 0; got inf for 'b'"),
        ({"a": 1, "b": True}, ValueError, "weights of at least 0; got True for 'b'"),
        ({"a": 1, "b": "2"}, ValueError, "weights of at least 0; got '2' for 'b'"),
        ({"a": 0, "b": 0.0}, ValueError, "at least one weight above 0; all are 0"),
    ],
)
def test_fixed_errors(weights, error, words):
    with pytest.raises(error, match=words):
        FixedLoss(weights)


# Replay


def weights_used(criterion, **options):
    history = History()
    train(criterion, history=history, **options)
    return history.weights()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("through_file", [False, True])
def test_a_replayed_run_is_the_run_bit_for_bit(tmp_path, dtype, accumulate, through_file):
    history = History(tmp_path / "run.jsonl")
    criterion = CompositeLoss(TERMS, init=0.37).to(dtype)
    model, _, log = train(criterion, history=history, dtype=dtype, accumulate=accumulate)
    history.flush()
    replayed = replay(history.path if through_file else history)
    assert replayed.weights.dtype == dtype
    recorded_weights = history.weights()
    assert torch.equal(replayed.weights, recorded_weights[0])
    assert len(recorded_weights.unique(dim=0)) == 30
    again = History()
    second_model, _, second_log = train(replayed, history=again, dtype=dtype, accumulate=accumulate)
    assert torch.equal(again.weights(), recorded_weights)
    assert same(second_model, model)
    assert [s["reference"] for s in second_log] == [s["reference"] for s in log]


def test_the_first_row_is_not_normalised_again():
    for i in range(20):
        rows = torch.softmax(torch.tensor([[0.0, 0.1 * i, -0.3 * i]]), dim=-1)
        assert torch.equal(ReplayLoss(tuple(TERMS), rows).weights, rows[0])


def test_the_last_row_holds():
    history, _ = recorded(5)
    used = weights_used(replay(history), steps=9)
    assert torch.equal(used[:5], history.weights())
    assert torch.equal(used[5:], history.weights()[4:].expand(4, -1))


@pytest.mark.parametrize("fused", [False, True])
def test_only_real_steps_move_the_schedule(fused):
    history, _ = recorded(6)
    criterion = replay(history)
    model, data = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=fused)
    attach(optimizer, criterion, decay=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    positions = []
    for t in range(6):
        optimizer.zero_grad()
        scaler.scale(criterion(losses_of(model, data[t]))).backward()
        assert torch.equal(criterion.weights, history.weights()[int(criterion.position)])
        if t in (1, 2):
            next(model.parameters()).grad[0, 0] = math.inf
        scaler.step(optimizer)
        scaler.update()
        positions.append(int(criterion.position))
    assert positions == [1, 1, 1, 2, 3, 4]


def test_a_graph_made_before_the_step_can_still_go_backward():
    history, _ = recorded(5)
    for criterion in (CompositeLoss(TERMS), replay(history)):
        model, data = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        attach(optimizer, criterion, decay=1.0)
        leaf = torch.ones(3, requires_grad=True)
        used, early = criterion.weights, criterion(leaf)
        criterion(losses_of(model, data[0])).backward()
        optimizer.step()
        early.backward()
        assert torch.equal(leaf.grad, used)
        assert not torch.equal(leaf.grad, criterion.weights)


def test_freeze_and_reset():
    criterion = replay(recorded(8)[0])
    start = criterion.weights
    train(criterion, 6, freeze_at=3)
    assert int(criterion.position) == 3
    criterion.unfreeze()
    assert not criterion.exponents.requires_grad
    criterion.reset_parameters()
    assert torch.equal(criterion.weights, start)
    assert int(criterion.position) == 0


def test_a_schedule_with_holes_is_refused(tmp_path):
    history = History(tmp_path / "run.jsonl")
    train(CompositeLoss(TERMS), 5, history=history)
    history.flush()
    lines = history.path.read_text().splitlines(keepends=True)
    history.path.write_text("".join(lines[:3] + lines[4:]))
    with pytest.raises(ValueError, match="The history lacks step 3"):
        replay(history.path)
    late = History(step=10)
    train(CompositeLoss(TERMS), 2, history=late)
    with pytest.raises(ValueError, match="The history lacks step 1"):
        replay(late)


def test_replay_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no history file"):
        replay(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="at least one step"):
        replay(History())
    with pytest.raises(ValueError, match=r"one row of 2 weights for each step.*got shape \(4, 3\)"):
        ReplayLoss(("a", "b"), torch.ones(4, 3))
    with pytest.raises(ValueError, match="needs finite weights"):
        ReplayLoss(("a", "b"), torch.tensor([[0.5, 0.5], [math.nan, 0.5]]))


def test_a_replay_survives_the_meta_device():
    schedule = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    criterion = trainonce.ReplayLoss(("a", "b"), schedule)
    criterion.to("meta").to_empty(device="cpu")
    criterion.reset_parameters()
    assert criterion.weights.tolist() == [0.25, 0.75]


# In place of buffers on the meta device, as Transformers' from_pretrained does it


def put_in_place(criterion, first="fixed", **from_file):
    """Give tensors to a criterion on the meta device: those that a file holds, and memory as it comes."""
    names = dict(criterion.named_buffers()) | dict(criterion.named_parameters())
    for name in sorted(names, key=lambda name: name != first):
        value = from_file.get(name, torch.full_like(names[name], 77, device="cpu"))
        value = nn.Parameter(value) if name == "exponents" else value
        if name in from_file:
            value._is_hf_initialized = True
        setattr(criterion, name, value)


@pytest.mark.parametrize("first", ["fixed", "exponents"])
def test_fixed_weights_that_no_file_holds_are_those_given(first):
    criterion = trainonce.FixedLoss({"a": 1.0, "b": 3.0}).to("meta")
    put_in_place(criterion, first)
    assert criterion.weights.tolist() == [0.25, 0.75]
    assert criterion.exponents.tolist() == pytest.approx([math.log(3)])
    assert not criterion.exponents.requires_grad


@pytest.mark.parametrize("first", ["fixed", "exponents"])
def test_fixed_weights_of_a_file_are_kept_in_float32(first):
    criterion = trainonce.FixedLoss({"a": 1.0, "b": 3.0}).to("meta")
    saved = {"fixed": torch.tensor([0.5, 0.5]), "exponents": torch.zeros(1)}
    put_in_place(criterion, first, **{name: value.to(torch.bfloat16) for name, value in saved.items()})
    assert criterion.weights.tolist() == [0.5, 0.5]
    assert criterion.exponents.tolist() == [0.0]
    assert {p.dtype for p in (criterion.fixed, criterion.exponents)} == {torch.float32}


def test_a_schedule_that_no_file_holds_is_the_one_given():
    criterion = trainonce.ReplayLoss(("a", "b"), torch.tensor([[0.25, 0.75], [0.5, 0.5]])).to("meta")
    put_in_place(criterion)
    assert criterion.position.tolist() == [0]
    assert criterion.position.dtype == torch.int64
    assert criterion.weights.tolist() == [0.25, 0.75]
    criterion._after_step(None)
    assert criterion.weights.tolist() == [0.5, 0.5]


def test_loading_into_the_meta_device_keeps_what_is_loaded():
    saved = trainonce.FixedLoss({"a": 1.0, "b": 3.0}).state_dict()
    criterion = trainonce.FixedLoss({"a": 1.0, "b": 1.0}).to("meta")
    criterion.load_state_dict(saved, assign=True)
    assert criterion.weights.tolist() == [0.25, 0.75]


def test_a_history_is_replayed_by_a_model_that_is_made_on_the_meta_device(tmp_path):
    w, history = nn.Parameter(torch.ones(1)), History(tmp_path / "history.jsonl")
    criterion, optimizer = trainonce.CompositeLoss(["a", "b"]), torch.optim.SGD([w], lr=0.1)
    trainonce.attach(optimizer, criterion, decay=1.0, history=history)
    criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
    optimizer.step()
    history.flush()
    for source in (history, tmp_path / "history.jsonl"):
        with torch.device("meta"):
            found = replay(source)
        put_in_place(found)
        assert found.weights.tolist() == pytest.approx([1 / 1.1, 0.1 / 1.1])
    with pytest.raises(ValueError, match="A schedule on the meta device has no weights"):
        trainonce.ReplayLoss(("a", "b"), torch.ones(1, 2, device="meta"))
