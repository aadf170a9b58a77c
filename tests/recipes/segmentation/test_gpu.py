"""What of the segmentation recipe only a GPU can show."""

import dataclasses

import pytest
import torch
from _gpu import CUDA, MARKS

import trainonce
from trainonce.recipes.segmentation import training
from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.segmentation.generated.streets import load
from trainonce.recipes.segmentation.losses import TERMS
from trainonce.recipes.segmentation.settings import Settings

pytestmark = MARKS
DOMAINS = load(0, size=(64, 128)).limit(6)


def after(steps, **more):
    """The loss values of some steps, and the network's parameters after them."""
    settings = Settings(**{"crop": (64, 64), "batch": 2, "steps": max(1, steps), "lr": 0.01} | more)
    torch.manual_seed(0)
    network = training.build_network(7, settings, CUDA)
    optimizer = training.build_optimizer(network, settings)
    losses = training.build_losses(network, settings, CUDA)
    found = []
    for _, batch in training.batches_from(DOMAINS, settings, 0, CUDA, 0, (0, 1)):
        if not steps:
            break
        optimizer.zero_grad()
        with training.autocast(settings, CUDA):
            terms = losses(*batch)
        (terms["ce"] + terms["invariance"]).backward()
        optimizer.step()
        found.append([terms["ce"].item(), terms["invariance"].item()])
    return torch.tensor(found), torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("batch_norm", ["trained", "batch", "frozen"])
@pytest.mark.parametrize("backbone", ["resnet-small", "lite0"])
def test_graphs_replay_what_would_have_been_computed(backbone, batch_norm):
    """Sums on a GPU differ in their last bits from run to run, and after a few steps of training more than that."""
    given = {"backbone": backbone, "batch_norm": batch_norm, "lr": 0.001}
    plain, again, graphed = (after(4, **given, graphed=graphed) for graphed in (False, False, True))
    torch.testing.assert_close(plain[0][:2], graphed[0][:2], rtol=1e-4, atol=1e-5)
    moved, noise, apart = ((plain[1] - other[1]).abs().mean() for other in (after(0, **given), again, graphed))
    assert apart < 0.02 * moved + 3 * noise


@pytest.mark.parametrize("more", [{"precision": "bfloat16"}, {"precision": "tf32"}, {"channels_last": False}])
def test_precision_and_layout_change_little(more):
    plain, other = after(2), after(2, **more)
    torch.testing.assert_close(plain[0], other[0], rtol=0.05, atol=0.05)


def test_nothing_on_the_step_path_waits_for_the_gpu():
    settings = Settings(crop=(64, 64), batch=2, steps=6)
    network = training.build_network(7, settings, CUDA)
    optimizer, losses = training.build_optimizer(network, settings), training.build_losses(network, settings, CUDA)
    criterion = trainonce.CompositeLoss(TERMS, decay=0.05, lr=1e-3).to(CUDA)
    trainonce.attach(optimizer, criterion, history=trainonce.History())
    seen = []
    try:
        for step, batch in training.batches_from(DOMAINS, settings, 0, CUDA, 0, (0, 1)):
            if step == 3:
                torch.cuda.set_sync_debug_mode("error")
            optimizer.zero_grad()
            criterion(losses(*batch)).backward()
            optimizer.step()
            seen.append(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert seen == [1, 2, 3, 4, 5, 6]


def test_the_gpu_stylises_as_the_cpu_does():
    image, style = torch.rand(2, 1, 3, 90, 120) * 255
    torch.testing.assert_close(
        stylise(image.cuda(), style.cuda(), 0.05).cpu(), stylise(image, style, 0.05), rtol=0, atol=0.01
    )


def test_scenes_read_on_the_way_arrive_whole():
    one, two = (
        [
            [tensor.cpu() for tensor in batch]
            for _, batch in training.batches_from(
                DOMAINS, dataclasses.replace(Settings(crop=(64, 64), steps=3), **more), 0, CUDA, 0, (0, 1)
            )
        ]
        for more in ({"resident": True}, {"resident": False, "readers": 2})
    )
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
