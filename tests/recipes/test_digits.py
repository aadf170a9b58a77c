"""The digits recipe: honest splits, shifted tests, one loop for all criteria."""

import sys

import pytest
import torch
from _stores import balance, yoto

from trainonce.recipes import digits
from trainonce.study import Trial
from trainonce.study.rules import fixed


def test_a_seed_decides_the_data():
    one, again, other = digits.load(3), digits.load(3), digits.load(4)
    for a, b, c in zip(one, again, other, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        assert not torch.equal(a.source, c.source)


@pytest.mark.parametrize("seed", range(3))
def test_no_image_is_in_two_parts_and_none_is_lost(seed):
    data = digits.load(seed)
    sources = torch.cat([part.source for part in data]).tolist()
    assert sorted(sources) == list(range(1797))
    assert [len(part.labels) for part in data] == [120, 880, 350, 447]
    assert torch.bincount(data.labelled.labels).tolist() == [12] * 10
    for part in data:
        assert torch.equal(part.labels, digits.pool().labels[part.source])


def test_no_two_images_of_the_pool_are_equal():
    # or one of them could be in training and the other in the test part
    images = digits.pool().images
    assert len(images.unique(dim=0)) == len(images)


def moves(seen, clean):
    """For each image the offset, down and right, at which it fits best."""
    offsets = [(d, r) for d in (-1, 0, 1) for r in (-1, 0, 1)]
    errors = []
    for d, r in offsets:
        whole = [torch.full((len(clean),), v) for v in (d, r)]
        errors.append((seen - digits.shift(clean, *whole)).square().sum((1, 2)))
    return [offsets[i] for i in torch.stack(errors).argmin(0).tolist()]


def test_training_images_are_as_they_come_and_the_others_shifted_and_noisy():
    data, clean = digits.load(0), digits.pool().images
    for part in (data.labelled, data.unlabelled):
        assert torch.equal(part.images, clean[part.source])
    for part in (data.validation, data.test):
        found = moves(part.images, clean[part.source])
        assert (0, 0) not in found
        assert len(set(found)) == 8
        moved = digits.shift(clean[part.source], *torch.tensor(found).T)
        assert (part.images - moved).std().item() == pytest.approx(digits.NOISE, rel=0.02)


def test_shift_moves_whole_pixels_and_brings_in_zeros():
    image = torch.arange(1.0, 65.0).reshape(1, 8, 8)
    moved = digits.shift(image, torch.tensor([1]), torch.tensor([-1]))[0]
    assert torch.equal(moved[1:, :-1], image[0, :-1, 1:])
    assert moved[0].abs().sum() == 0
    assert moved[:, -1].abs().sum() == 0


def test_consistency_is_the_mean_of_both_divergences():
    a, b = torch.randn(5, 10, dtype=torch.float64), torch.randn(5, 10, dtype=torch.float64)
    p, q = torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
    kl = torch.distributions.kl_divergence
    torch.testing.assert_close(digits.consistency(a, b), (kl(p, q) + kl(q, p)).mean() / 2, rtol=1e-12, atol=0)
    assert digits.consistency(a, a).item() == 0


def test_each_term_trains_the_parts_it_should():
    torch.manual_seed(0)
    data, model = digits.load(0), digits.Model()
    terms = digits.losses(model, data.labelled, data.unlabelled.images[:32], torch.Generator().manual_seed(0))
    assert tuple(terms) == digits.TERMS
    parts = {"encoder": model.encoder[1].weight, "classes": model.classes[1].weight, "decoder": model.decoder[1].weight}
    reached = {}
    for name, value in terms.items():
        grads = torch.autograd.grad(value, list(parts.values()), retain_graph=True, allow_unused=True)
        reached[name] = {p for p, g in zip(parts, grads, strict=True) if g is not None and g.abs().max() > 0}
    assert reached == {
        "ce": {"encoder", "classes"},
        "consistency": {"encoder", "classes"},
        "reconstruction": {"encoder", "decoder"},
    }


def trained(tmp_path, point, seed=0, steps=300):
    trial = Trial(digits.digits.using(steps=steps), point, seed, dir=tmp_path)
    return digits.digits.using(steps=steps)(trial), trial


EQUAL = fixed((1.0, 1.0, 1.0))


@pytest.mark.parametrize("point", [EQUAL, yoto(init=1.0), balance()], ids=lambda rule: rule.plan)
def test_training_does_much_better_than_chance(point, tmp_path):
    found, trial = trained(tmp_path, point, steps=80)
    assert found["validation/accuracy"] > 40  # chance is 10
    assert found["test/accuracy"] > 40
    assert trial.reports[-1] == (80, {"accuracy": found["validation/accuracy"]})
    assert trial.not_aligned == ""


def test_a_seed_decides_the_result(tmp_path):
    runs = [trained(tmp_path / str(i), EQUAL, seed, 5)[0] for i, seed in enumerate((0, 0, 1))]
    assert runs[0] == runs[1] != runs[2]


def test_a_rule_that_cannot_move_trains_as_fixed_weights_do(tmp_path):
    """The loop cannot tell them apart: same batches, same views, same losses at every step."""
    columns = []
    for name, point in (("rule", yoto(init=0.5, lr=0.0)), ("fixed", fixed((1.0, 0.5, 0.5)))):
        metrics, trial = trained(tmp_path / name, point, seed=2, steps=20)
        columns.append(trial.history.columns() | metrics)
    learned, given = columns
    assert learned["step"] == given["step"] == list(range(1, 21))
    for name in (f"{kind}/{term}" for kind in ("loss", "coefficient") for term in digits.TERMS):
        assert learned[name] == pytest.approx(given[name], rel=1e-5)
    assert learned["test/accuracy"] == given["test/accuracy"]


def test_the_papers_rule_moves_and_fixed_weights_do_not(tmp_path):
    _, learner = trained(tmp_path / "rule", yoto(init=0.1), steps=10)
    rows = learner.history.coefficients()
    assert (rows[-1] - rows[0]).abs().min() > 0.001
    _, given = trained(tmp_path / "fixed", EQUAL, steps=10)
    assert given.history.coefficients().unique().numel() == 1


def test_training_leaves_the_global_random_state_alone(tmp_path):
    state = torch.get_rng_state()
    trained(tmp_path, EQUAL, steps=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch):
    digits.pool.cache_clear()
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as caught:
        digits.load(0)
    assert str(caught.value) == 'This needs scikit-learn, which is not installed: pip install "trainonce[demo]"'
