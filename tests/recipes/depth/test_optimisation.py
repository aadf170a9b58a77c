"""Learning rates, parameter groups, clipping, the average of weights, and parameters laid end to end."""

import pytest
import torch
from _depth_networks import CPU, small

import trainonce
from trainonce.recipes.depth import training
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.losses import TERMS
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.optimisation import EMA, build_optimizer, clip_gradients_, learning_rate_factor
from trainonce.recipes.depth.settings import Settings


def test_the_rate_is_constant_and_then_falls():
    settings = Settings(steps=100, constant=0.25, lowest=0.01)
    assert {learning_rate_factor(s, settings) for s in range(26)} == {1.0} != {learning_rate_factor(26, settings)}
    assert learning_rate_factor(62, settings) == pytest.approx(0.5154, abs=1e-3)
    assert learning_rate_factor(100, settings) == pytest.approx(0.01)
    assert learning_rate_factor(50, Settings(steps=100, constant=1.0)) == 1.0


def test_groups():
    network = small()
    made = build_optimizer(network, Settings(lr=1e-3, encoder_lr=0.1, weight_decay=0.1))
    known = {id(p): g for g in made.param_groups for p in g["params"]}
    named = {name: known[id(p)] for name, p in network.named_parameters()}
    assert len(named) == len(known)
    rates = {name.startswith("encoder."): g["lr"] for name, g in named.items()}
    assert rates == {True: pytest.approx(1e-4), False: 1e-3}
    free = {"encoder.cls_token", "encoder.pos_embed", "levels", "camera_module.places", "encoder.norm1"}
    for name, parameter in network.named_parameters():
        assert named[name]["weight_decay"] == (0.0 if parameter.ndim < 2 or name in free else 0.1), name


@pytest.mark.parametrize("inside", [False, True])
def test_the_exponents_are_clipped_only_if_asked_for(inside):
    network, criterion = small(), trainonce.CompositeLoss(["a", "b", "c"])
    weight = network.depth_module.heads[0].bias
    for parameter in (weight, *criterion.parameters()):
        parameter.grad = torch.full_like(parameter, 10.0)
    clip_gradients_(network, criterion, Settings(clip=1.0, clip_exponents=inside))
    assert (weight.grad.item() < 0.99) is inside
    assert (criterion.exponents.grad.max().item() < 10) is inside


def follow(average, weight, steps):
    """What the average shows after each of some steps, in which a weight becomes the number of the step."""
    shown = []
    for step in steps:
        weight.data.fill_(float(step))
        average.step(step)
        with average:
            shown.append(weight.item())
    return shown


def test_the_average_begins_after_its_part_of_the_steps():
    network = small()
    weight = network.depth_module.heads[0].bias
    average = EMA(network, Settings(average=0.5, average_from=0.5, steps=8))
    assert follow(average, weight, range(1, 7)) == pytest.approx([1, 2, 3, 4, 4.75, (4 * 4.75 + 9 * 6) / 13])


def test_a_loaded_average_goes_on_as_if_it_had_not_stopped():
    networks = small(), small()
    first, second = (EMA(network, Settings(average=0.9, average_from=0.0, steps=8)) for network in networks)
    weights = [network.depth_module.heads[0].bias for network in networks]
    follow(first, weights[0], range(1, 4))
    second.load_state_dict(first.state_dict())
    second._kept = [values.clone() for values in second._kept]  # as from a file
    assert follow(second, weights[1], range(4, 7)) == follow(first, weights[0], range(4, 7))


def test_the_average_is_one_and_is_given_back():
    network = small()
    weight = network.depth_module.heads[0].bias
    average = EMA(network, Settings(average=0.5, average_from=0.0, steps=10))
    expected = None
    for step in range(1, 5):
        weight.data.fill_(float(step))
        average.step(step)
        stays = min(0.5, (1 + step) / (10 + step))
        expected = float(step) if expected is None else stays * expected + (1 - stays) * step
    with average as shown:
        assert shown.depth_module.heads[0].bias.item() == pytest.approx(expected)
    assert weight.item() == 4.0
    other = EMA(network, Settings(average=0.5, steps=10))
    other.load_state_dict(average.state_dict())
    with other:
        assert weight.item() == pytest.approx(expected)


@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_laid_end_to_end_are_trained_alike(frozen):
    """Without a GPU, graphed means that, and no graphs."""
    (plain, network), (flat, other) = (_trained(graphed, frozen) for graphed in (False, True))
    assert network.flat is None
    assert other.flat is not None
    torch.testing.assert_close(flat, plain, rtol=1e-5, atol=1e-6)
    assert plain[0].tolist() != plain[-1].tolist()
    expected, found = network.state_dict(), other.state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert (found[name] - value).abs().mean() < 2e-5, name  # a fiftieth of what a step may move a weight by


def _trained(graphed, frozen):
    """The loss terms of some steps on rooms, and the network after them."""
    settings = Settings(shape=(28, 42), dim=32, heads=2, steps=3, batch=4, graphed=graphed, lr=1e-3)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patched:
        if frozen:
            patched.setattr(training, "UniDepth", _frozen)
        network = training.build_network(settings, CPU)
    before = network.encoder.patch_embed["proj"].weight.clone()
    steps, objective = build_optimizer(network, settings), training.build_objective(network, settings, CPU)
    criterion, average, found = trainonce.CompositeLoss(TERMS), EMA(network, settings), []
    for step, views in training.batches_from(rooms.load(0, (30, 40), (4, 1, 1)), settings, network.patch, 0, CPU, 0):
        steps.zero_grad()
        terms = objective(*views[:4])
        sum(terms.values()).backward()
        clip_gradients_(network, criterion, settings)
        steps.step()
        average.step(step)
        found.append(torch.stack([terms[name].detach() for name in TERMS]))
    assert torch.equal(before, network.encoder.patch_embed["proj"].weight) is frozen
    return torch.stack(found), network


def _frozen(*given, **more):
    network = UniDepth(*given, **more)
    network.encoder.patch_embed.requires_grad_(False)
    return network
