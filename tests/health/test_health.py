"""Health: every warning from a loop that deserves it, exactly once, and none from a loop that does not."""

import copy
import math
import re
import warnings

import pytest
import torch
from torch import nn

import trainonce
from trainonce import BalancedLoss, CompositeLoss, FixedLoss, History, Replay, attach, distributed, health
from trainonce.health import watch

TERMS = ["fit", "small", "smooth"]


class Loop:
    """A small regression; ``scales`` multiply its three losses."""

    def __init__(self, criterion=None, *, scales=(1.0, 1.0, 1.0), lr=0.02):
        self.criterion = criterion or CompositeLoss(TERMS)
        self.model = nn.Linear(4, 2)
        self.scales = dict(zip(TERMS, scales, strict=True))
        self.data = torch.randn(16, 8, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.others = []

    def attach(self, *, history=None, **settings):
        """Attach; ``settings`` are the rule's."""
        for name, value in settings.items():
            setattr(self.criterion, name, value)
        attach(self.optimizer, self.criterion, history=history)
        return self

    def losses(self, t):
        x = self.data[t % 16]
        y = self.model(x)
        parts = {
            "fit": ((y - x[:, :2]) ** 2).mean() + 0.5,
            "small": (self.model.weight**2).mean() + 0.5,
            "smooth": (y[1:] - y[:-1]).abs().mean() + 0.5,
        }
        return {name: self.scales[name] * loss for name, loss in parts.items()}

    def run(self, steps, each=lambda t: None):
        for t in range(steps):
            self.optimizer.zero_grad()
            self.criterion(self.losses(t)).backward()
            self.optimizer.step()
            for optimizer in self.others:
                optimizer.step()
            each(t)


def everything_of(loop):
    return [*loop.model.parameters(), *loop.criterion.parameters()]


# One loop for each warning


def not_attached(tmp_path):
    Loop().run(250)


def never_stepped(tmp_path):
    loop = Loop().attach()
    attached = loop.optimizer
    loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.01)
    loop.run(1200)
    assert attached is not loop.optimizer


def never_called(tmp_path):
    loop = Loop().attach()
    for _ in range(100):
        loop.model(torch.ones(1, 4)).sum().backward()
        loop.optimizer.step()


def weight_decay(tmp_path):
    loop = Loop().attach(lr=0.1)
    for group in loop.optimizer.param_groups:
        group["weight_decay"] = 0.1
    loop.run(120)


def learning_rate_reset(tmp_path):
    loop = Loop().attach(lr=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(loop.optimizer, max_lr=0.01, total_steps=150)
    loop.run(120, lambda t: scheduler.step())


def collapsed(tmp_path):
    Loop(scales=(0.1, 4.0, 4.0)).attach(decay=0.0, lr=5.0).run(120)


def dead_weight(tmp_path):
    Loop(scales=(1.0, 50.0, 1.0)).attach(lr=0.7, decay=2.0).run(1010)


def dead_loss(tmp_path):
    Loop(scales=(1.0, 0.0, 1.0)).attach().run(120)


def other_scale(tmp_path):
    Loop(scales=(200.0, 1.0, 1.0), lr=1e-4).attach().run(120)


def nothing_shared(tmp_path):
    """A term on a parameter of its own; one whose gradient is 0 is no such term."""
    loop = Loop(BalancedLoss(TERMS))
    loop.own = nn.Parameter(torch.ones(3))
    loop.optimizer.add_param_group({"params": [loop.own]})
    losses = loop.losses
    loop.losses = lambda t: losses(t) | {"small": 0 * losses(t)["small"], "smooth": loop.own.square().sum()}
    loop.attach().run(120)


def validation_not_copied(tmp_path):
    loop = Loop()
    copy.deepcopy(BalancedLoss(TERMS, validation=lambda: loop.losses(0)["fit"]))


def low_precision(tmp_path):
    loop = Loop().attach()
    loop.criterion.exponents.data = loop.criterion.exponents.data.bfloat16()
    loop.run(5)


def skipped_term(tmp_path):
    loop = Loop(CompositeLoss(TERMS, nonfinite="skip")).attach()
    loop.scales["smooth"] = math.inf
    loop.run(5)


def no_saved_state(tmp_path):
    saved = nn.ModuleDict({"net": nn.Linear(2, 2)}).state_dict()
    model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(TERMS)})
    model.load_state_dict(saved)
    model.load_state_dict(saved)


def no_saved_names(tmp_path):
    criterion = CompositeLoss(TERMS, lr="model")
    criterion.load_state_dict({"exponents": torch.zeros(2)})
    criterion.load_state_dict({"exponents": torch.zeros(2)})


def history_lost(tmp_path):
    history = History(tmp_path / "runs" / "run.jsonl", block=2)
    loop = Loop().attach(history=history)
    history.path.unlink()
    history.path.parent.rmdir()
    loop.run(8)


def history_damaged(tmp_path):
    history = History(tmp_path / "run.jsonl")
    Loop().attach(history=history).run(4)
    history.flush()
    lines = history.path.read_text().splitlines()
    history.path.write_text("\n".join([*lines[:2], "x", "y", *lines[3:]]) + "\n")
    History.load(history.path)


def ranks_differ(tmp_path):
    """As if another rank were there whose exponents are off by a little; the real two-rank runs are elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        loop = Loop().attach()
        patch.setattr(distributed, "is_distributed", lambda group=None: True)
        patch.setattr(distributed, "check_placement", lambda criterion: None)
        patch.setattr(distributed, "average_", lambda tensor, group=None: None)
        patch.setattr(distributed, "broadcast_", lambda tensor, group=None: None)
        patch.setattr(distributed, "rank_difference", lambda tensor, group=None: torch.full_like(tensor, 1e-3))
        loop.run(120)


def not_finite(tmp_path):
    loop = Loop(scales=(math.nan, 1.0, 1.0)).attach()
    loop.run(1010)


LOOPS = [
    (health.NotAttached, not_attached, "called 100 times in training, but it is attached to no optimizer"),
    (
        health.NeverStepped,
        never_stepped,
        r"called 1000 times since the optimizer it is attached to last stepped \(0 steps\)",
    ),
    (health.NeverCalled, never_called, "has stepped 100 times, but the criterion attached to it was never called"),
    (health.WeightDecay, weight_decay, "has weight_decay=0.1"),
    (health.LearningRateReset, learning_rate_reset, "2.5 times the model's was asked for, it is at 1 times"),
    (health.Collapsed, collapsed, r"The term 'fit' has 99\.\d\d% of the sum of the coefficients"),
    (health.DeadTerm, dead_weight, r"The term 'small' no longer takes part: its coefficient fell to \d\.\de-\d\d"),
    (health.DeadTerm, dead_loss, "The term 'small' no longer takes part: its loss is exactly 0"),
    (health.OtherScale, other_scale, r"differ in scale by \d{3}x: 'fit' is \d+, '\w+' is 0\.\d+"),
    (health.NothingShared, nothing_shared, "No parameter is reached by both the base and 'smooth'"),
    (health.ValidationNotCopied, validation_not_copied, "A copy of the criterion has no validation loss"),
    (health.RanksDiffer, ranks_differ, r"differ between ranks by up to 0\.001"),
    (health.NotFinite, not_finite, r"The exponents are \[nan, nan\]"),
    (health.LowPrecision, low_precision, "reach the loss as torch.bfloat16"),
    (health.SkippedTerm, skipped_term, "The losses 'smooth' were not finite"),
    (health.NoSavedState, no_saved_state, "nothing for the CompositeLoss 'criterion'"),
    (health.NoSavedNames, no_saved_names, "in the order 'fit', 'small', 'smooth'"),
    (health.HistoryLost, history_lost, r"run\.jsonl \(No such file or directory\)"),
    (health.HistoryDamaged, history_damaged, r"2 lines of .*run\.jsonl could not be read"),
]


def given_by(loop, *arguments):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        loop(*arguments)
    return given


@pytest.mark.parametrize(("category", "loop", "words"), LOOPS, ids=lambda v: getattr(v, "__name__", ""))
def test_each_warning_is_given_exactly_once_by_the_loop_that_deserves_it(category, loop, words, tmp_path):
    given = given_by(loop, tmp_path)
    assert [w.category for w in given] == [category]
    text = str(given[0].message)
    assert re.search(words, text), text
    assert text.endswith(f" Run `trainonce explain {category.topic()}` for the fix.")
    assert given[0].filename == __file__  # the user's line, not one of the library or of torch


def test_every_warning_has_a_loop_above():
    assert {category for category, _, _ in LOOPS} == set(health.HealthWarning.__subclasses__())


@pytest.mark.parametrize("category", [health.OtherScale, health.HealthWarning])
def test_a_warning_is_silenced_by_its_class_or_parent(category):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=category)
        other_scale(None)
    assert given == []


# No false alarms: here every warning is an error


@pytest.mark.slow
@pytest.mark.parametrize("init", [1e-3, 0.1, 3.0])
def test_a_thousand_healthy_steps(init):
    loop = Loop(CompositeLoss(TERMS, init=init)).attach()
    start = loop.criterion.coefficients()
    loop.run(1100)
    assert not torch.equal(loop.criterion.coefficients(), start)


def test_a_tiny_init_that_falls_a_little_has_not_collapsed():
    criterion = CompositeLoss(["a", "b"], init=1e-3, decay=1.0, regularizer="softplus")
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    attach(optimizer, criterion)
    begin = criterion.coefficients()[0].item()
    for _ in range(120):
        optimizer.zero_grad()
        criterion(a=(w**2).mean() + 1, b=(w - 1).abs().mean() + 2).backward()
        optimizer.step()
    assert 0.99 < begin < criterion.coefficients()[0].item()


def healthy_variants():
    def warm_up(loop):
        loop.attach(lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(loop.optimizer, lambda t: min(1, t / 50))
        loop.run(150, lambda t: schedule.step())

    def one_cycle(loop):
        loop.attach(lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(loop.optimizer, max_lr=[0.02, 0.1], total_steps=200)
        loop.run(150, lambda t: schedule.step())

    def rate_of_0_with_a_schedule(loop):
        loop.attach(lr=0.0)
        schedule = torch.optim.lr_scheduler.StepLR(loop.optimizer, 10)
        loop.run(50, lambda t: schedule.step())

    def frozen_from_the_start(loop):
        loop.attach()
        loop.criterion.freeze()
        loop.run(1010)

    def frozen_and_released(loop):
        loop.attach()
        loop.criterion.freeze()
        loop.run(998)
        loop.criterion.unfreeze()
        loop.run(10)

    def frozen_without_an_optimizer(loop):
        loop.criterion.freeze()
        loop.run(150)

    def loaded_between_steps(loop):
        loop.attach()
        loop.run(10)
        loop.criterion.load_state_dict(CompositeLoss(TERMS, init=1.0).state_dict())
        loop.run(150)

    def absent_now_and_then(loop):
        loop.attach()
        whole = loop.losses
        loop.losses = lambda t: whole(t) | ({"small": None} if t % 3 == 0 else {})
        loop.run(150)

    def zero_now_and_then(loop):
        loop.attach()
        whole = loop.losses
        loop.losses = lambda t: whole(t) | ({"small": 0 * whole(t)["small"]} if t == 9 else {})
        loop.run(1010)

    def validation_without_training(loop):
        with torch.no_grad():
            for t in range(300):
                loop.criterion(loop.losses(t))

    def moved_between_precisions(loop):
        loop.run(2)
        loop.criterion.double()
        loop.attach()
        loop.run(150)

    return [value for value in locals().values() if callable(value)]


@pytest.mark.slow
@pytest.mark.parametrize("variant", healthy_variants(), ids=lambda f: f.__name__)
def test_no_false_alarm(variant):
    assert given_by(variant, Loop()) == []


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda w=w: FixedLoss(dict(zip(TERMS, w, strict=True)))
            for w in ((1, 1, 1), (1, 0, 0), (0, 1, 0), (1, 1e-6, 1))
        ),
        lambda: BalancedLoss(TERMS),
        lambda: BalancedLoss({"fit": 1e-3, "small": 1.0, "smooth": 1e3}),
        lambda: Replay(recorded()),
    ],
)
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (1.0, 1e4, 1e-4), (1.0, 1000.0, 0.0)])
def test_scales_are_the_papers_rules_concern_alone(make, scales):
    assert given_by(Loop(make(), scales=scales, lr=1e-6).attach().run, 150) == []


def recorded():
    history = History()
    Loop().attach(history=history).run(20)
    return history


@pytest.mark.parametrize(
    ("step", "losses", "expected"),
    [(10, [99.0, -1.0], []), (10, [-100.0, 1.0], [health.OtherScale]), (1, [-100.0, 1.0], [])],
)
def test_the_limit_of_other_scales(step, losses, expected):
    """An untrained model's consistency is near 0 and says nothing yet."""
    sample = watch.Sample(step, [0.5, 0.5], [0.0], losses)
    assert [category for category, _ in watch.diagnose(("a", "b"), sample, [0.5, 0.5], set())] == expected


def test_the_checks_ask_the_device_at_few_steps(monkeypatch):
    made = []

    class Counted(trainonce.readback.Readback):
        def __init__(self, tensor):
            made.append(loop.criterion.attachment.steps)
            super().__init__(tensor)

    monkeypatch.setattr(watch, "Readback", Counted)
    loop = Loop().attach()
    loop.run(1010)
    assert made == [1, 10, 100, 1000]


def test_no_warning_stops_a_compiled_graph():
    criterion = CompositeLoss(TERMS)
    criterion.exponents.data = criterion.exponents.data.bfloat16()
    compiled = torch.compile(criterion, fullgraph=True, backend="eager")
    assert compiled(torch.ones(3, requires_grad=True)).item() == pytest.approx(1.0)


def test_a_loop_that_gives_all_groups_one_rate_gets_a_warning():
    """The rate of a hand-written schedule, set for every group."""
    loop = Loop().attach(lr=0.2)

    def schedule(t):
        for group in loop.optimizer.param_groups:
            group["lr"] = 0.02 * 0.99**t

    given = given_by(loop.run, 12, schedule)
    assert [w.category for w in given] == [health.LearningRateReset]
