"""What of the depth recipe only a GPU can show."""

import pytest
import torch
from _gpu import CUDA, MARKS

import trainonce
from trainonce.recipes.depth import training
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.losses import TERMS
from trainonce.recipes.depth.optimisation import build_optimizer, clip_gradients_
from trainonce.recipes.depth.settings import Settings

pytestmark = MARKS
SMALL = {"shape": (56, 84), "dim": 32, "heads": 2, "batch": 4, "lr": 1e-3}


def after(steps, **more):
    """The loss values of some steps, and the network's parameters after them."""
    settings = Settings(**SMALL | {"steps": max(1, steps)} | more)
    torch.manual_seed(0)
    network = training.build_network(settings, CUDA)
    steps_of = build_optimizer(network, settings)
    objective = training.build_objective(network, settings, CUDA)
    found = []
    for _, views in training.batches_from(rooms.load(0, (48, 64), (8, 1, 1)), settings, network.patch, 0, CUDA, 0):
        if not steps:
            break
        steps_of.zero_grad()
        with training.autocast(settings, CUDA):
            terms = objective(*views[:4])
        sum(terms.values()).backward()
        steps_of.step()
        found.append([terms[name].item() for name in TERMS])
    return torch.tensor(found), torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("encoder", ["vit-tiny", "lite0"])
def test_graphs_replay_what_would_have_been_computed(encoder):
    shape = (64, 96) if encoder == "lite0" else (56, 84)
    plain, graphed = (after(4, encoder=encoder, shape=shape, graphed=graphed) for graphed in (False, True))
    torch.testing.assert_close(plain[0], graphed[0], rtol=5e-3, atol=5e-4)
    apart, moved = (
        (plain[1] - graphed[1]).abs().mean(),
        (plain[1] - after(0, encoder=encoder, shape=shape)[1]).abs().mean(),
    )
    assert apart < 0.1 * moved


@pytest.mark.parametrize("more", [{"precision": "bfloat16"}, {"precision": "tf32"}, {"recompute": True}])
def test_precision_changes_little(more):
    plain, other = after(2), after(2, **more)
    torch.testing.assert_close(plain[0], other[0], rtol=0.05, atol=0.02)


def test_the_gpu_draws_what_the_cpu_draws():
    (images, depths, cameras), made = (rooms.frames(0, range(4), size=(48, 64), device=d) for d in ("cpu", CUDA))
    torch.testing.assert_close(made[2].cpu(), cameras)
    same = (made[1].cpu() - depths).abs() < 1e-3
    assert same.float().mean() > 0.995  # but for pixels at an edge
    assert (made[0].cpu().float() - images.float()).abs().mean() < 1


def test_nothing_on_the_step_path_waits_for_the_gpu():
    """After two steps torch raises at whatever makes the host wait."""
    settings = Settings(**SMALL | {"steps": 6})
    network = training.build_network(settings, CUDA)
    steps = build_optimizer(network, settings)
    criterion = trainonce.CompositeLoss(TERMS, decay=1.0).to(CUDA)
    trainonce.attach(steps, criterion)
    objective = training.build_objective(network, settings, CUDA)
    for step, views in training.batches_from(rooms.load(0, (48, 64), (8, 1, 1)), settings, network.patch, 0, CUDA, 0):
        torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
        try:
            steps.zero_grad()
            criterion(objective(*views[:4])).backward()
            clip_gradients_(network, criterion, settings)
            steps.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
