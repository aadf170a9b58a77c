"""The distillation recipe: honest splits, a biased teacher, one loop for all criteria."""

import math

import pytest
import torch
from _tasks import FakeTrial

import trainonce
from trainonce.recipes import digits
from trainonce.recipes import distillation as recipe
from trainonce.recipes.distillation import TEMPERATURE, TERMS, accuracy, distillation


def trial_with(criterion=None, seed=0, **more):
    return FakeTrial(criterion or fixed(), seed, **more)


@pytest.fixture(autouse=True)
def _one_thread():
    """The matrices are small: a second thread only waits, and on a busy machine long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fixed(ce=1.0, distillation=0.1):
    return trainonce.FixedLoss({"ce": ce, "distillation": distillation})


# Data


def test_a_seed_decides_the_data():
    one, again, other = recipe.load(3), recipe.load(3), recipe.load(4)
    for a, b, c in zip(one, again, other, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        assert not torch.equal(a.source, c.source)


@pytest.mark.parametrize("seed", range(3))
def test_no_image_is_in_two_parts_and_none_is_lost(seed):
    data = recipe.load(seed)
    assert sorted(torch.cat([part.source for part in data]).tolist()) == list(range(1797))
    assert [len(part.labels) for part in data] == [372, 20, 500, 450, 455]
    for part in data:
        assert torch.equal(part.labels, digits.pool().labels[part.source])


def test_the_archive_is_short_of_four_digits_and_the_labels_are_even():
    data = recipe.load(0)
    assert torch.bincount(data.archive.labels).tolist() == [60] * 6 + [3] * 4
    assert torch.bincount(data.labelled.labels).tolist() == [2] * 10
    for part in (data.unlabelled, data.validation, data.test):
        assert torch.bincount(part.labels).min() > 15


def test_training_images_are_as_they_come_and_the_others_noisy():
    data, clean = recipe.load(0), digits.pool().images
    for part in (data.archive, data.labelled, data.unlabelled):
        assert torch.equal(part.images, clean[part.source])
    for part in (data.validation, data.test):
        assert (part.images - clean[part.source]).std().item() == pytest.approx(digits.NOISE, rel=0.02)


# The teacher


def test_a_seed_decides_the_teacher():
    advice = recipe.advice.__wrapped__
    one, again, other = advice(3, steps=5), advice(3, steps=5), advice(4, steps=5)
    assert one.shape == (500, 10)
    assert not one.requires_grad
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_the_teacher_is_good_at_what_it_saw_often_and_bad_at_the_rest():
    labels, said = recipe.load(0).unlabelled.labels, recipe.advice(0).argmax(1)
    often = labels < 6
    assert (said == labels)[often].double().mean() > 0.9
    assert (said == labels)[~often].double().mean() < 0.7


# Losses


def test_distillation_is_the_divergence_of_the_softened_outputs():
    student, teacher = torch.randn(2, 7, 10, dtype=torch.float64).unbind()
    p, q = (torch.distributions.Categorical(logits=logits / TEMPERATURE) for logits in (teacher, student))
    expected = TEMPERATURE**2 * torch.distributions.kl_divergence(p, q).mean()
    assert expected > 0.1
    torch.testing.assert_close(recipe.distillation_loss(student, teacher), expected, rtol=1e-12, atol=0)
    assert recipe.distillation_loss(teacher + 3, teacher).item() == pytest.approx(0, abs=1e-12)


def test_distillation_by_hand():
    even, one_sided = torch.zeros(1, 2), torch.tensor([[TEMPERATURE * math.log(3), 0.0]])  # 1/2 : 1/2 and 3/4 : 1/4
    divergence = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert recipe.distillation_loss(one_sided, even).item() == pytest.approx(16 * divergence, rel=1e-5)


def test_the_terms_see_their_own_images_with_noise():
    data, teacher, student = recipe.load(0), recipe.advice(0), recipe.network(32, seed=0)
    images = data.unlabelled.images[:40]
    found = recipe.losses(student, data.labelled, images, teacher[:40], torch.Generator().manual_seed(5))
    noise = digits.NOISE * torch.randn(60, 8, 8, generator=torch.Generator().manual_seed(5))
    logits = student(torch.cat([data.labelled.images, images]) + noise)
    right = logits.log_softmax(1)[torch.arange(20), data.labelled.labels]
    p = (teacher[:40] / TEMPERATURE).softmax(1)
    divergences = (p * (p.log() - (logits[20:] / TEMPERATURE).softmax(1).log())).sum(1)
    assert tuple(found) == TERMS
    assert found["ce"].item() == pytest.approx(-right.mean().item(), rel=1e-5)
    assert found["distillation"].item() == pytest.approx(16 * divergences.mean().item(), rel=1e-4)


def test_both_terms_reach_every_parameter():
    data, student = recipe.load(0), recipe.network(32, seed=0)
    rng = torch.Generator().manual_seed(0)
    for term, value in recipe.losses(student, data.labelled, data.unlabelled.images, recipe.advice(0), rng).items():
        grads = torch.autograd.grad(value, list(student.parameters()), retain_graph=True)
        assert all(grad.abs().max() > 0 for grad in grads), term


# Metric


def test_accuracy_counts_the_images_that_get_their_own_digit():
    logits = torch.eye(10)[[1, 2, 3, 4]]
    part = digits.Part(torch.zeros(4, 8, 8), torch.tensor([1, 2, 3, 9]), torch.arange(4))
    model = torch.nn.Module()
    model.forward = lambda images: logits
    assert accuracy(model, part) == 75


# Task


def test_the_task_says_what_it_is():
    assert (distillation.terms, distillation.metric, distillation.direction) == (TERMS, "accuracy", "maximize")
    assert (distillation.select_key, distillation.report_key) == ("validation/accuracy", "test/accuracy")
    assert distillation.settings == {"steps": 300, "lr": 0.01}
    assert len(distillation.about) > 20


@pytest.mark.parametrize("criterion", [fixed, lambda: trainonce.CompositeLoss(TERMS, init=0.1)])
def test_a_short_training_does_much_better_than_chance(criterion):
    before = accuracy(recipe.network(32, seed=0), recipe.load(0).test)
    assert before < 30
    trial = trial_with(criterion())
    found = distillation.using(steps=81)(trial)
    assert set(found) == {"validation/accuracy", "test/accuracy"}
    assert min(found.values()) > 60
    assert [step for step, _ in trial.reports] == list(range(3, 82, 3))
    assert trial.reports[-1][1]["accuracy"] == found["validation/accuracy"]


def test_a_mix_does_better_than_either_term_alone():
    found = {}
    for name, weights in {"labels": (1, 0), "mix": (1, 0.1), "teacher": (0, 1)}.items():
        runs = [distillation(trial_with(fixed(*weights), seed)) for seed in (0, 1)]
        found[name] = sum(run["validation/accuracy"] for run in runs) / len(runs)
    assert found["mix"] > max(found["labels"], found["teacher"]) + 2


def test_a_seed_decides_the_result():
    runs = [distillation.using(steps=5)(trial_with(seed=seed)) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_a_rule_that_cannot_move_trains_as_fixed_weights_do():
    """The loop cannot tell them apart: same start, same batches, same noise."""
    columns = []
    for criterion in (trainonce.CompositeLoss(TERMS, init=0.5, lr=0.0, decay=0.0), fixed(2 / 3, 1 / 3)):
        history = trainonce.History()
        columns.append(distillation.using(steps=20)(trial_with(criterion, history=history)) | history.columns())
    learned, given = columns
    for name in (f"{kind}/{term}" for kind in ("loss", "coefficient") for term in TERMS):
        assert len(given[name]) == 20
        assert learned[name] == pytest.approx(given[name], rel=1e-4)
    assert learned["test/accuracy"] == given["test/accuracy"]


def test_the_papers_rule_moves():
    criterion = trainonce.CompositeLoss(TERMS, init=1.0)
    start = criterion.coefficients()
    distillation.using(steps=10)(trial_with(criterion))
    assert (criterion.coefficients() - start).abs().min() > 0.005


def test_training_leaves_the_global_random_state_alone():
    recipe.advice.cache_clear()
    state = torch.get_rng_state()
    distillation.using(steps=2)(trial_with())
    assert torch.equal(torch.get_rng_state(), state)
