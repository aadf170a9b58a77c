"""The shared training loop: when it evaluates, saves and stops, and where it goes on."""

from types import SimpleNamespace

import pytest
import torch

from trainonce.recipes.vision.loop import load_states, run_steps


class Trial:
    """Takes the place of a trial and notes what it is given."""

    def __init__(self, prune_at=None):
        self.reports, self.saved, self._prune_at = [], [], prune_at

    def report(self, step, **metrics):
        self.reports.append((step, metrics))

    def should_prune(self):
        return bool(self.reports) and self.reports[-1][0] == self._prune_at

    def save(self, state):
        self.saved.append(state)


class Count:
    """A part with a state: how many steps it has seen."""

    steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def train(trial, count, first=0, steps=10, evaluations=0, keep_every=0):
    settings = SimpleNamespace(steps=steps, evaluations=evaluations, keep_every=keep_every)
    seen = []

    def train_step(step, batch):
        assert batch == f"batch {step}"
        seen.append(step)
        count.steps += 1

    batches = ((step, f"batch {step}") for step in range(first + 1, steps + 1))
    done = run_steps(trial, settings, {"count": count}, batches, train_step, lambda: {"error": float(count.steps)})
    return done, seen


@pytest.mark.parametrize(
    ("evaluations", "at"), [(0, []), (1, []), (2, [5]), (3, [3, 6, 9]), (4, [2, 4, 6, 8]), (99, list(range(1, 10)))]
)
def test_validation_is_reported_between_steps_and_not_after_the_last(evaluations, at):
    trial = Trial()
    assert train(trial, Count(), evaluations=evaluations) == (True, list(range(1, 11)))
    assert trial.reports == [(step, {"error": float(step)}) for step in at]


@pytest.mark.parametrize(("keep_every", "at"), [(0, []), (3, [3, 6, 9]), (5, [5]), (20, [])])
def test_checkpoints_are_saved_between_steps_and_not_after_the_last(keep_every, at):
    trial = Trial()
    train(trial, Count(), keep_every=keep_every)
    assert trial.saved == [{"step": step, "count": {"steps": step}} for step in at]


def test_a_pruned_trial_stops_at_once_and_saves_nothing_more():
    trial = Trial(prune_at=4)
    assert train(trial, Count(), evaluations=5, keep_every=2) == (False, [1, 2, 3, 4])
    assert [state["step"] for state in trial.saved] == [2]


def test_a_resumed_loop_goes_on_where_the_checkpoint_was():
    trial, count = Trial(), Count()
    train(trial, Count(), keep_every=4)
    first = load_states({"count": count}, trial.saved[0])
    assert (first, count.steps) == (4, 4)
    assert train(Trial(), count, first=first) == (True, list(range(5, 11)))
    assert count.steps == 10


def test_without_a_checkpoint_nothing_is_loaded():
    module = torch.nn.Linear(2, 2)
    before = module.weight.clone()
    assert load_states({"module": module}, None) == 0
    assert torch.equal(module.weight, before)
