"""The tasks of the arena: pure functions that can be stacked, honest splits, exact solutions, shared parameters."""

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap

from benchmarks.arena import rates
from benchmarks.arena.data import Pool, generator, missing, split
from benchmarks.arena.split import CHOOSING, JUDGED, JUDGING, WITH_SGD
from benchmarks.arena.task import with_base
from benchmarks.arena.tasks import (
    NAMES,
    _pde,
    _views,
    allen_cahn,
    burgers,
    charlm,
    features,
    forecast,
    get,
    helmholtz,
    inverse_heat,
    kdv,
    klein_gordon,
    pendulum,
    pseudo,
)
from trainonce.recipes import burgers as burgers_recipe
from trainonce.recipes import digits as digits_recipe

MNIST = {"mnist", "multimnist", "beta_vae", "contrastive", "features"}
FASHION = {"fashion", "multifashion", "useless", "pseudo", "denoise"}


def marks(name: str):
    needed = "mnist" if name in MNIST else "fashion" if name in FASHION else ""
    problem = missing(needed) if needed else ""
    return pytest.param(name, marks=pytest.mark.skipif(bool(problem), reason=problem))


every_task = pytest.mark.parametrize("name", list(map(marks, NAMES)))


@functools.cache
def data_of(name: str, seed: int):
    return get(name).data(seed)


def double(tensors):
    return {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}


def draw_of(name: str, seed: int):
    return get(name).draw(torch.Generator().manual_seed(seed))


def parameters_of(name: str, seed: int):
    torch.manual_seed(seed)
    return {k: v.detach().double() for k, v in get(name).model().named_parameters()}


def on(module, function: Callable) -> Callable:
    """A function of a net as a function of its parameters."""
    return lambda values, *rest: function(lambda *inputs: functional_call(module, values, inputs), *rest)


# Every task


def test_the_groups_are_apart():
    assert len(NAMES) == len(set(NAMES)) == 23
    assert set(NAMES) == set(CHOOSING) | set(JUDGED) | set(JUDGING)
    assert all(len(set(WITH_SGD) & set(group)) == 2 for group in (CHOOSING, JUDGED, JUDGING))


def test_an_unknown_task_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"digits, distillation.*got 'digit'"):
        get("digit")


@every_task
def test_says_what_it_is(name):
    task = get(name)
    assert task.name == name
    assert (task.sgd_lr is not None) == (name in WITH_SGD)
    names = list(parameters_of(name, 0))
    assert all(any(n.startswith(prefix) for n in names) for prefix in task.shared + task.last)
    assert all(n.startswith(task.shared) for n in names if n.startswith(task.last))


ANCHORS = dict.fromkeys(("burgers", "klein_gordon", "allen_cahn", "kdv"), "initial") | {"helmholtz": "boundary"}


@pytest.mark.parametrize("name", ANCHORS)
def test_the_base_of_an_equation_is_what_anchors_its_solution(name):
    task, first = get(name), get(name, "residual")
    assert (task.terms[0], task.base) == (ANCHORS[name], ANCHORS[name])
    assert (first.terms[0], first.base) == ("residual", None)  # the order of the first records, which name no base
    module, data, draw = task.model(), data_of(name, 0), draw_of(name, 0)
    losses = [dict(zip(one.terms, one.losses(module, data, draw).tolist(), strict=True)) for one in (task, first)]
    assert losses[0] == losses[1]


def test_the_base_is_put_first_and_the_other_terms_stay_in_order():
    task = get("klein_gordon")
    assert task.terms == ("initial", "residual", "boundary", "velocity")
    again = with_base(task)
    assert (again.terms, again.base) == (task.terms, task.base)
    assert get("digits", "consistency").terms[0] == get("digits", "consistency").base == "consistency"
    assert [get(name).base for name in NAMES if name not in ANCHORS] == [None] * 18
    with pytest.raises(ValueError, match="kdv has the terms residual, boundary, initial; got start"):
        get("kdv", "start")


@every_task
def test_seeds_have_data_of_the_same_shapes(name):
    one, two = data_of(name, 0), data_of(name, 1)
    assert {k: (v.shape, v.dtype) for k, v in one.items()} == {k: (v.shape, v.dtype) for k, v in two.items()}
    again = get(name).data(0)
    assert all(torch.equal(one[k], again[k]) for k in one)
    if name != "burgers":  # whose points are always the same
        assert not torch.equal(one["validation"], two["validation"])
        assert not torch.equal(one["test"], two["test"])


@every_task
def test_parts_do_not_overlap(name):
    data = data_of(name, 0)
    sources = [v for k, v in data.items() if k.startswith("source/")]
    if name == "charlm":  # texts, made one after the other by the same generator
        windows = [set(map(tuple, data[part].unfold(0, 200, 200).tolist())) for part in charlm.SIZES]
        assert not windows[0] & windows[1]
        assert not windows[0] & windows[2]
        assert not windows[1] & windows[2]
        return
    rows = sources or [data[part] for part in ("train", "validation", "test") if part in data]
    together = torch.cat(rows)
    assert len(rows) >= 2
    assert len(together.unique(dim=0)) == len(together)


@every_task
def test_draws_depend_on_the_generator_alone(name):
    torch.manual_seed(1)
    one = draw_of(name, 3)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    two, other = draw_of(name, 3), draw_of(name, 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert not all(torch.equal(one[k], other[k]) for k in one)
    assert "held" in one
    assert all(v.device.type == "cpu" for v in one.values())


@every_task
def test_two_seeds_times_two_points_equal_four_alone(name):
    task, module = get(name), get(name).model()
    seeds = [0, 1]
    data = [double(data_of(name, seed)) for seed in seeds]
    draws = [double(draw_of(name, seed)) for seed in seeds]
    parameters = [[parameters_of(name, 2 * seed + point) for point in (0, 1)] for seed in seeds]
    stacked = {k: torch.stack([torch.stack([p[k] for p in row]) for row in parameters]) for k in parameters[0][0]}
    many_data, many_draws = ({k: torch.stack([x[k] for x in xs]) for k in xs[0]} for xs in (data, draws))

    def both(function, *more):
        one = on(module, lambda net, data, draw: function(net, data, *(more or (draw,))))
        mapped = vmap(vmap(one, in_dims=(0, None, None)))(stacked, many_data, many_draws)
        alone = [[one(p, data[s], draws[s]) for p in parameters[s]] for s in seeds]
        return mapped, torch.stack([torch.stack(row) for row in alone])

    mapped, alone = both(task.losses)
    assert mapped.shape == (2, 2, len(task.terms))
    assert mapped.isfinite().all()
    torch.testing.assert_close(mapped, alone)
    mapped, alone = both(task.held_out)
    assert mapped.shape == (2, 2)
    torch.testing.assert_close(mapped, alone)
    mapped, alone = both(task.score, "validation")
    assert mapped.shape == (2, 2)
    torch.testing.assert_close(mapped, alone, check_dtype=False)


@every_task
def test_stacked_gradients_equal_those_alone(name):
    task, module = get(name), get(name).model()
    parameters = [parameters_of(name, point) for point in (0, 1)]
    stacked = {k: torch.stack([p[k] for p in parameters])[None] for k in parameters[0]}
    data, draw = double(data_of(name, 0)), double(draw_of(name, 0))
    total = grad(on(module, lambda net, data, draw: task.losses(net, data, draw).sum()))
    many = ({k: v[None] for k, v in x.items()} for x in (data, draw))
    mapped = vmap(vmap(total, in_dims=(0, None, None)))(stacked, *many)
    for i, one in enumerate(parameters):
        for k, gradient in total(one, data, draw).items():
            torch.testing.assert_close(mapped[k][0, i], gradient)


@every_task
def test_shared_parameters_are_those_that_every_term_reaches(name):
    task, module = get(name), get(name).model()
    data, draw = double(data_of(name, 0)), double(draw_of(name, 0))
    reached = jacrev(on(module, task.losses))(parameters_of(name, 0), data, draw)
    by_all = {
        k for k, rows in reached.items() if rows.flatten(1).abs().amax(1).gt(1e-12).all()
    }  # not what is left of two that cancel
    assert by_all == {k for k in reached if k.startswith(task.shared)}


@every_task
def test_the_held_out_loss_reaches_the_shared_parameters(name):
    task, module = get(name), get(name).model()
    data, draw = double(data_of(name, 0)), double(draw_of(name, 0))
    found = grad(on(module, task.held_out))(parameters_of(name, 0), data, draw)
    assert all(gradient.abs().max() > 0 for k, gradient in found.items() if k.startswith(task.shared))


@every_task
def test_equal_weights_lower_the_losses_in_20_steps(name):
    task, module = get(name), get(name).model()
    parameters = {k: v.float().requires_grad_() for k, v in parameters_of(name, 0).items()}
    optimizer = torch.optim.Adam(parameters.values(), lr=task.lr, betas=task.betas)
    losses = on(module, task.losses)
    data, draw = data_of(name, 0), draw_of(name, 0)
    before = losses(parameters, data, draw).sum()
    for _ in range(20):
        optimizer.zero_grad()
        losses(parameters, data, draw).sum().backward()
        optimizer.step()
    assert losses(parameters, data, draw).sum() < before


# Images


def test_a_split_takes_test_images_from_those_to_test_and_as_many_labels_of_each_class():
    labels = torch.arange(300) % 10
    parts = split(Pool(torch.zeros(300, 4), labels, 200), generator("x", 0), 50, validation=60, test=70)
    assert {k: len(v) for k, v in parts.items()} == {"labelled": 50, "validation": 60, "test": 70}
    assert (parts["test"] >= 200).all()
    assert (parts["validation"] < 200).all()
    assert labels[parts["labelled"]].bincount().tolist() == [5] * 10


def test_a_missing_file_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINONCE_DATA", raising=False)
    assert missing("mnist") == ("The arena reads mnist.npz from the folder that TRAINONCE_DATA names; it is not set.")
    monkeypatch.setenv("TRAINONCE_DATA", str(tmp_path))
    assert missing("mnist").endswith(f"{tmp_path} has no such file.")


def test_shifts_are_those_of_the_recipe():
    images, moves = torch.arange(9 * 64.0).reshape(9, 64), torch.arange(9)
    expected = digits_recipe.shift(images.reshape(-1, 8, 8), moves // 3 - 1, moves % 3 - 1)
    assert torch.equal(_views.shift(images, moves, 1), expected.flatten(1))
    drawn = _views.draw_moves(500, 1, generator("x", 0))
    assert drawn.unique().tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


def test_rotations_are_by_right_angles():
    images = torch.arange(36.0).reshape(4, 9)
    turned = _views.rotate(images, torch.arange(4), _views.rotations(3))
    assert all(torch.equal(turned[i].reshape(3, 3), images[i].reshape(3, 3).rot90(i)) for i in range(4))


@pytest.mark.skipif(bool(missing("mnist")), reason=missing("mnist"))
def test_the_teacher_of_features_mixes_up_three_digits_and_knows_the_others():
    data = data_of("features", 0)
    answers, labels = data["answers"].argmax(1), data["unlabelled_y"]
    mixed_up = torch.isin(labels, torch.tensor([*features.TAKEN_FOR]))
    assert (answers == labels)[~mixed_up].float().mean() > 0.9
    assert (answers == labels)[mixed_up].float().mean() < 0.3
    torch.testing.assert_close(data["features"].std(), torch.tensor(1.0))


@pytest.mark.parametrize(("logits", "entropy", "balance"), [(torch.zeros(10), 1, 0), (100 * torch.eye(10)[3], 0, 1)])
def test_entropy_and_balance_are_smallest_at_different_ends(logits, entropy, balance):
    count = pseudo.LABELLED + pseudo.BATCH
    data = {"labelled": torch.zeros(pseudo.LABELLED, 4), "unlabelled": torch.zeros(pseudo.BATCH, 4)}
    data["labelled_y"] = torch.zeros(pseudo.LABELLED, dtype=torch.long)
    draw = {"batch": torch.arange(pseudo.BATCH), "noise": torch.zeros(count, 4)}
    _, *found = pseudo.losses(lambda *_: logits.expand(count, 10), data, draw)
    torch.testing.assert_close(torch.stack(found), math.log(10) * torch.tensor([entropy, balance]), atol=1e-5, rtol=0)


# Differential equations


def uniform(count: int):
    return torch.rand(count, 2, dtype=torch.float64, generator=generator("points", 0))


def second_derivatives(function: Callable, points: torch.Tensor):
    """u, its gradient and the diagonal of its second derivatives at each point, by autograd."""

    def alone(point):
        return function(point[None])[0]

    second = vmap(lambda p: jacrev(grad(alone))(p).diagonal())(points)
    return vmap(alone)(points), vmap(grad(alone))(points), second


def test_the_solution_of_helmholtz_solves_it():
    points = 2 * uniform(50) - 1
    u, _, second = second_derivatives(helmholtz.solution, points)
    torch.testing.assert_close(second.sum(1) + u, helmholtz.source(points))
    assert helmholtz.solution(double(draw_of("helmholtz", 0))["boundary"]).abs().max() < 1e-12


def test_the_solution_of_klein_gordon_solves_it():
    points = uniform(50)
    u, _, second = second_derivatives(klein_gordon.solution, points)
    torch.testing.assert_close(second[:, 0] - second[:, 1] + u**3, klein_gordon.source(points))
    start = double(draw_of("klein_gordon", 0))["initial"]
    _, first, _ = second_derivatives(klein_gordon.solution, start)
    assert first[:, 0].abs().max() < 1e-12


def test_the_solution_of_burgers_solves_it():
    points = uniform(20) * torch.tensor([0.8, 1.6]) + torch.tensor([0.1, -0.8])
    burgers_recipe.gauss_hermite(96)  # keeps its tensors, which must not be those of a transform
    u, first, second = second_derivatives(lambda p: burgers_recipe.exact(p[:, 0], p[:, 1]), points)
    residual = first[:, 0] + u * first[:, 1] - burgers_recipe.VISCOSITY * second[:, 1]
    torch.testing.assert_close(residual, torch.zeros_like(residual), atol=1e-9, rtol=0)


def test_the_solution_of_kdv_solves_it():
    def along_x(function):
        return lambda point: grad(function)(point)[1]

    def u(point):
        return kdv.solution(point[None])[0]

    def residual(point):
        third = along_x(along_x(along_x(u)))(point)
        return grad(u)(point)[0] + u(point) * along_x(u)(point) + kdv.DISPERSION * third

    points = uniform(50) * torch.tensor([1, 2]) - torch.tensor([0, 1])
    torch.testing.assert_close(vmap(residual)(points), torch.zeros(50).double(), atol=1e-9, rtol=0)
    assert kdv.solution(points).max() > 2


def test_the_reference_of_allen_cahn_solves_it():
    u, step = allen_cahn.reference(), allen_cahn.END / allen_cahn.TIMES
    waves = torch.fft.rfftfreq(allen_cahn.PLACES, 2 / allen_cahn.PLACES, dtype=torch.float64) * 2 * math.pi
    in_time = (u[2:] - u[:-2]) / (2 * step)
    second = torch.fft.irfft(-(waves**2) * torch.fft.rfft(u[1:-1]))
    residual = in_time - allen_cahn.DIFFUSION * second - allen_cahn.REACTION * (u - u**3)[1:-1]
    assert residual.norm() < 1e-3 * in_time.norm()
    assert torch.equal(u[0], allen_cahn.beginning(torch.linspace(-1, 1, allen_cahn.PLACES + 1).double()[:-1]))


def test_the_solution_of_inverse_heat_solves_it():
    diffusivity, amplitudes = torch.tensor(0.04).double(), torch.tensor([1.0, -0.5, 0.3, 0.2]).double()
    u = functools.partial(inverse_heat.solution, diffusivity=diffusivity, amplitudes=amplitudes)
    _, first, second = second_derivatives(u, uniform(50) * torch.tensor([1, 2]) - torch.tensor([0, 1]))
    torch.testing.assert_close(first[:, 0], diffusivity * second[:, 1])


def test_the_swing_loses_the_energy_that_friction_takes():
    angle = pendulum.swing(torch.tensor(2.0), torch.tensor(0.3))
    step = pendulum.LENGTH / pendulum.STEPS
    speed = (angle[2:] - angle[:-2]) / (2 * step)
    energy = speed**2 / 2 - torch.cos(angle[1:-1])
    lost = pendulum.FRICTION * torch.trapezoid(speed**2, dx=step)
    torch.testing.assert_close(energy[0] - energy[-1], lost, rtol=1e-4, atol=0)
    assert lost > 0.3


def test_the_motion_of_the_pendulum_is_that_of_autograd():
    torch.manual_seed(0)
    net, times = pendulum.model().double(), uniform(20)[:, :1]

    def angle(time):
        return net(time[None] / pendulum.LENGTH)[0]  # as a function of time in the units of the equation

    motion = net(times, "motion").unbind(-1)
    expected = (angle, lambda t: grad(angle)(t)[0], lambda t: jacrev(grad(angle))(t)[0, 0])
    for found, function in zip(motion, expected, strict=True):
        torch.testing.assert_close(found, vmap(function)(pendulum.LENGTH * times))


def test_derivatives_of_kdv_carried_forward_are_those_of_autograd():
    torch.manual_seed(0)
    net, points = kdv.model().double(), uniform(20)

    def u(point):
        return net(point[None])[0]

    third = vmap(jacrev(jacrev(jacrev(u))))(points)[:, 1, 1, 1]
    first = vmap(grad(u))(points)
    expected = torch.stack([net(points), first[:, 0], first[:, 1], third], -1)
    torch.testing.assert_close(net(points, "flow"), expected)


def test_the_flow_of_inverse_heat_is_that_of_autograd():
    torch.manual_seed(0)
    net, points = inverse_heat.model().double(), uniform(20)
    _, first, second = second_derivatives(net, points)
    residual = first[:, 0] - inverse_heat.GUESS * second[:, 1]
    torch.testing.assert_close(net(points, "flow"), torch.stack([residual, first[:, 0]], -1), rtol=1e-6, atol=1e-6)


def test_the_ends_of_allen_cahn_meet_in_a_periodic_field():
    draw = double(draw_of("allen_cahn", 0))

    def net(points, what="u"):
        u, slope = torch.sin(math.pi * points[:, 1]), math.pi * torch.cos(math.pi * points[:, 1])
        return torch.stack([u, 0 * u, slope, 0 * u], -1) if what == "jet" else u

    assert allen_cahn.losses(net, {}, draw)[1] < 1e-24


def test_the_series_does_not_depend_on_the_steps_of_its_solver():
    state = torch.tensor([[1.0, 2.0, 20.0]]).double()
    step = forecast.STEP / forecast.PARTS
    twice = forecast.advance(forecast.advance(state, step / 2), step / 2)
    torch.testing.assert_close(forecast.advance(state, step), twice, atol=1e-6, rtol=0)
    series = forecast.runs(50, generator("x", 0))
    assert 15 < series.abs().max() < 22  # where the attractor ends


def test_the_sides_of_helmholtz_are_all_four():
    boundary = draw_of("helmholtz", 0)["boundary"]
    on_side = [(boundary[:, i] == end).sum().item() for i in (0, 1) for end in (-1, 1)]
    assert on_side == [helmholtz.EDGE] * 4
    assert boundary.abs().max() <= 1


@pytest.mark.parametrize("task", [helmholtz, klein_gordon])
def test_derivatives_carried_forward_are_those_of_autograd(task):
    torch.manual_seed(0)
    net, points = task.model().double(), uniform(20)
    u, first, second = second_derivatives(net, points)
    jet = _pde.Jet(*net(points, "jet").unbind(-1))
    inner = 2 if task is klein_gordon else 1  # its coordinates are centred first
    torch.testing.assert_close(jet.u, u)
    torch.testing.assert_close(inner * jet.first, first[:, 0])
    torch.testing.assert_close(inner * jet.second, first[:, 1])
    factors = (1, -1) if task is klein_gordon else (1, 1)
    torch.testing.assert_close(jet.operator, second @ torch.tensor(factors, dtype=torch.float64))


def test_burgers_has_the_losses_of_its_recipe():
    torch.manual_seed(0)
    net, draw = burgers.model(), draw_of("burgers", 0)
    batch = burgers_recipe.Batch(draw["inside"], draw["boundary"], draw["initial"])
    expected = burgers_recipe.losses(net, batch)
    task = get("burgers")
    assert task.terms == burgers_recipe.TERMS
    found = dict(zip(task.terms, task.losses(net, {}, draw), strict=True))
    torch.testing.assert_close(found, expected)


# Language


def test_verbs_agree_with_their_subject():
    singular = {word + "s" for word in charlm.words("verb", 20)}
    plural = set(charlm.words("verb", 20))
    rng, seen = generator("x", 0), [0, 0]
    for _ in range(200):
        words = charlm.sentence(rng).rstrip(". ").split()
        if words[2] == "that":
            continue
        many = words[1].endswith("s")
        seen[many] += 1
        assert words[2] in (plural if many else singular)
    assert min(seen) > 20


# Learning rates


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_rates_train_as_torch_does(optimizer):
    task = get("regression")
    score = rates.train(task, [1e-3, 1e-2], [0, 1], optimizer=optimizer, steps=4)("validation")
    torch.manual_seed(1)
    model, rng = task.model(), torch.Generator().manual_seed(rates.OFFSET + 1)
    step = torch.optim.Adam if optimizer == "adam" else functools.partial(torch.optim.SGD, momentum=0.9)
    made = step(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, 4)
    for _ in range(4):
        made.zero_grad()
        task.losses(model, data_of("regression", 1), task.draw(rng)).mean().backward()
        made.step()
        schedule.step()
    torch.testing.assert_close(score[1, 1], task.score(model, data_of("regression", 1), "validation").detach())
