"""The depth recipe from end to end on generated rooms."""

import json
import subprocess
import sys

import pytest
import torch
from _depth_networks import CPU, small
from _depth_settings import TINY
from _interruption import check_paused_as_straight
from _runs import torchrun, train

from trainonce.recipes.depth import evaluate, losses, tasks, training
from trainonce.recipes.depth.augmentation.letterbox import letterbox
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.losses import silog
from trainonce.recipes.depth.model import attention
from trainonce.recipes.depth.model.network import Prediction
from trainonce.recipes.depth.optimisation import learning_rate_factor, trainable_parameters
from trainonce.recipes.depth.settings import Settings
from trainonce.recipes.vision import output
from trainonce.study import Study

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning"),
    pytest.mark.filterwarnings("ignore::trainonce.recipes.depth.data.batches.UnreadableFrame"),
]


def test_rooms_train_and_leave_pictures_and_metrics(tmp_path):
    record, folder = train(tmp_path, tasks.rooms, **TINY, keep_model=True)
    metrics = {
        f"{name}/{metric}" for name in ("validation", "test") for metric in ("delta_1", "si_log", "f_a", "focal")
    }
    assert metrics <= set(record.metrics)
    assert 0 <= record.metrics["test/delta_1"] <= 100
    assert [step for step, _ in record.reports] == [2]
    assert {p.name for p in (folder / "pictures").iterdir()} == {"depth.png", "points.png"}
    assert "depth_module.heads.0.weight" in torch.load(folder / "network.pt", weights_only=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"parts": 2, "average": 0.9, "average_from": 0.0, "crossed": True, "rounding": "integer", "squared": True},
        {"encoder": "lite0", "shape": (32, 48), "attention": "nystrom", "resident": False, "readers": 0},
        {"shape": (), "pixels": (200, 400), "clip_exponents": True, "augment": False, "check": False, "points": 0},
        {"protocol": "mixed", "recompute": True, "clip": 0.0, "depths": (2, 1, 0)},
    ],
)
def test_options_can_be_combined(tmp_path, settings):
    train(tmp_path, tasks.rooms, **(TINY | settings))


@pytest.mark.filterwarnings("always:Views are")
def test_a_shape_in_other_than_whole_patches_is_a_warning(tmp_path):
    record, _ = train(tmp_path, tasks.rooms, **TINY | {"shape": (30, 40), "steps": 1, "evaluations": 0})
    warning = "UserWarning: Views are 28 pixels high and 42 wide: shape=30,40 in whole patches of 14."
    assert list(record.warnings) == [warning]


def test_a_frame_that_cannot_be_read_does_not_cost_the_pictures(tmp_path, monkeypatch):
    whole, torn = rooms.GeneratedFrames.frame, []

    def broken(self, index):
        if not torn:  # the first picture's
            torn.append((self.first, index))
            raise OSError("this frame is torn")
        return whole(self, index)

    monkeypatch.setattr(rooms.GeneratedFrames, "frame", broken)
    _, folder = train(tmp_path, tasks.rooms, **TINY | {"steps": 1, "evaluations": 0})
    assert torn[0][0] == 2100  # of the test
    assert {p.name for p in (folder / "pictures").iterdir()} == {"depth.png", "points.png"}


def test_pictures_that_fail_do_not_cost_the_training(tmp_path, monkeypatch):
    def no_point(*_):
        raise IndexError("there is no point")

    monkeypatch.setattr(training.pictures, "write_cloud", no_point)
    with pytest.warns(UserWarning, match="No pictures were written: there is no point"):
        output.write_or_warn({"No pictures were": lambda: training.pictures.write_cloud(None, tmp_path)})


def test_a_small_network_learns_what_rooms_are_like(tmp_path):
    """Of held-out rooms a quarter more pixels are right than of a network that says 2.5 m, and the focal length is
    off by two thirds of what it was."""
    settings = {"size": (48, 64), "shape": (48, 64), "encoder": "resnet-small", "dim": 64, "heads": 2, "batch": 8}
    settings |= {
        "limit": 64,
        "points": 0,
        "evaluations": 0,
        "augment": False,
        "check": False,
        "graphed": False,
        "average": 0,
    }
    before = train(tmp_path / "a", tasks.rooms, "uniform", **settings, steps=1, lr=1e-9)[0].metrics
    after = train(tmp_path / "b", tasks.rooms, "uniform", **settings, steps=60, lr=1e-3)[0].metrics
    assert after["test/delta_1"] > 1.25 * before["test/delta_1"] > 0
    assert after["test/si_log"] < 0.9 * before["test/si_log"]
    assert after["test/focal"] < 0.67 * before["test/focal"]


def test_a_small_network_tells_rooms_apart(tmp_path):
    """Four rooms are learned by heart: the error is less than half that of the best depth that is the same for all."""
    settings = {"size": (48, 64), "shape": (42, 56), "dim": 32, "heads": 2, "batch": 8, "frames": 4, "limit": 4}
    settings |= {"points": 0, "evaluations": 0, "augment": False, "check": False, "graphed": False}
    _, folder = train(tmp_path, tasks.rooms, "fixed(1,0.25,0.01)", **settings, steps=80, lr=1e-3)
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()[1:]]
    errors = [row["loss/depth"] for row in rows[-10:]]
    (frames,) = rooms.load(0, (48, 64), (4, 4, 4), "room").training.values()
    depths = torch.stack([frames.frame(i).depth for i in range(4)])
    same = depths.log().mean(0, keepdim=True).exp().expand_as(depths)
    assert sum(errors) / 10 < 0.5 * silog(same, depths).item()


VARIED = {"shape": (), "pixels": (3_000, 6_000)}


@pytest.mark.parametrize("more", [VARIED | {"resident": True}, VARIED | {"resident": False}, {"graphed": True}])
def test_a_paused_training_ends_as_if_it_had_not_been(tmp_path, more, capsys):
    settings = TINY | {"steps": 7, "readers": 0, "average": 0.9, "average_from": 0.2} | more
    check_paused_as_straight(tmp_path, tasks.rooms, settings)


@pytest.mark.parametrize("encoder", ["resnet-small", "lite0"])
def test_pretrained_batch_norms_train_in_flat_parameters_and_half_precision(monkeypatch, encoder):
    monkeypatch.setattr(training, "load_weights", lambda *_, **__: None)
    found = []
    for graphed in (False, True):
        more = {"encoder": encoder, "weights": "given", "shape": (32, 48), "precision": "bfloat16", "graphed": graphed}
        settings, device = Settings(**TINY | more | {"steps": 1, "limit": 0}), torch.device("cpu")
        torch.manual_seed(0)
        network = training.build_network(settings, device)
        ((_, views),) = training.batches_from(rooms.load(0, (30, 40), (6, 1, 1)), settings, 16, 0, device, 0)
        with training.autocast(settings, device):
            terms = training.build_objective(network, settings, device)(*views[:4])
        sum(terms.values()).backward()
        grads = [p.grad for parameters in trainable_parameters(network).values() for p in parameters]
        assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads)
        found.append(torch.stack(list(terms.values())))
    torch.testing.assert_close(found[0], found[1], rtol=0.02, atol=0.002)


def test_the_losses_have_the_settings_of_the_training():
    settings = Settings(**TINY | {"camera": "angles", "crossed": True, "rounding": "integer"})
    made = training.build_objective(small(), settings, CPU)
    assert (made.camera_error, made.crossed, made.rounding) == (losses.angle_error, True, "integer")


def test_parts_of_a_step_are_the_step():
    """Up to what the terms are means over: images and pairs, of which every part has the same number."""
    settings = Settings(**TINY | {"steps": 1, "limit": 0})
    sets = rooms.load(0, (30, 40), counts=(6, 1, 1))
    ((_, views),) = training.batches_from(sets, settings, 14, 0, torch.device("cpu"), 0)
    torch.manual_seed(0)
    objective = training.build_objective(
        training.build_network(settings, torch.device("cpu")), settings, torch.device("cpu")
    )
    gradients = []
    for count in (1, 2):
        objective.zero_grad()
        for part, _ in training.micro_batches(views, count):
            (sum(objective(*part[:4]).values()) / count).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in objective.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


def test_a_training_clips_schedules_and_is_evaluated_as_its_average(tmp_path, monkeypatch):
    calls, swapped = [], []
    monkeypatch.setattr(training, "clip_gradients_", lambda *given: calls.append(given[2].clip))
    swap = training.EMA._swap

    def noted(average):
        swapped.append(average)
        swap(average)

    monkeypatch.setattr(training.EMA, "_swap", noted)
    settings = TINY | {"average": 0.9, "average_from": 0.0, "steps": 6}
    _, folder = train(tmp_path, tasks.rooms, **settings)
    assert calls == [1.0] * 6
    assert len(swapped) == 2 * 2  # one report and the end, there and back
    rates = [json.loads(line)["lr"] for line in (folder / "history.jsonl").read_text().splitlines()[1:]]
    assert rates == pytest.approx(
        [0.01 * learning_rate_factor(step, Settings(**settings)) for step in range(6)], rel=1e-5
    )
    assert rates[-1] < 0.5 * rates[0]


def test_a_training_is_by_its_seed_and_every_set_is_evaluated_as_the_average(tmp_path, monkeypatch):
    """Validation while it trains, all sets at its end; the metrics are those of the set that they are named after."""
    after_steps, seen, fed, step, feed = [], [], [], training.EMA.step, training.batches_from

    def note_step(average, number):
        step(average, number)
        after_steps.append((number, average._network.camera_module.places.detach().clone()))

    def note_evaluation(network, examined, settings, device, *, with_points=True):
        weight = network.camera_module.places.detach().clone()
        seen.append((examined.frames.name(0), len(examined.frames), with_points, weight))
        return dict.fromkeys(evaluate.METRICS, float(len(seen)))

    def note_feed(*given):
        fed.append((next(iter(given[0].training.values())).name(0), given[3]))
        return feed(*given)

    monkeypatch.setattr(training.EMA, "step", note_step)
    monkeypatch.setattr(training, "mean_metrics", note_evaluation)
    monkeypatch.setattr(training, "batches_from", note_feed)
    monkeypatch.setattr(training, "draw_pictures", lambda *_: None)
    settings = TINY | {"average": 0.9, "average_from": 0.0, "steps": 4, "frames": 5}
    study = Study(tasks.rooms.using(**settings), tmp_path, seeds=[3]).add("uniform")
    study.run(workers=0, show=False, device="cpu")
    (record,) = study.store.read().values()
    assert record.status == "done", record.error
    assert fed == [("room 3/0", 3)]
    validation, test = ("room 3/13", 6), ("room 3/121", 6)  # six of those from 5 on, and of those from 105 on
    assert [(*where, points) for *where, points, _ in seen] == [
        (*validation, False),
        (*validation, True),
        (*test, True),
    ]
    assert [(at, values) for at, values in record.reports] == [(2, {"delta_1": 1.0})]
    assert (record.metrics["validation/delta_1"], record.metrics["test/delta_1"]) == (2.0, 3.0)
    assert [number for number, _ in after_steps] == [1, 2, 3, 4]
    averages = [after_steps[0][1]]
    for count, (_, weight) in enumerate(after_steps[1:], start=2):
        averages.append(torch.lerp(averages[-1], weight, 1 - (1 + count) / (10 + count)))
    for (*_, weight), average in zip(seen, (averages[1], averages[3], averages[3]), strict=True):
        torch.testing.assert_close(weight, average)
    assert not torch.equal(averages[1], after_steps[1][1])


def test_a_training_in_parts_is_the_training(tmp_path, monkeypatch):
    """Adam and clipping hide the size of gradients, so they are looked at before both as well."""
    gradients, clip = [], training.clip_gradients_

    def note(network, criterion, settings):
        gradients.append([p.grad.clone() for part in (network, criterion) for p in part.parameters()])
        clip(network, criterion, settings)

    monkeypatch.setattr(training, "clip_gradients_", note)
    settings = TINY | {"steps": 3, "evaluations": 0, "keep_model": True, "points": 0}
    folders = [train(tmp_path / str(parts), tasks.rooms, **settings, parts=parts)[1] for parts in (1, 2)]
    whole, halves = gradients[0], gradients[3]  # of the first step
    for one, two in zip(whole, halves, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-3 * float(one.abs().max()) + 1e-9)
    one, two = (torch.load(folder / "network.pt", weights_only=True) for folder in folders)
    apart = [(two[name] - value).abs().mean().item() for name, value in one.items()]
    assert max(apart) < 5e-5  # a tenth of what a step may move a weight by


def test_what_is_seen_is_given_back_at_the_frame_s_size():
    """A network that is right about the fitted image is right about the frame."""
    frame = rooms.frame(0, 1, size=(30, 50))
    settings = Settings(**TINY | {"shape": (56, 56)})

    class Right(torch.nn.Module):
        patch = 14

        def forward(self, images):
            fitted, _ = letterbox(frame.image[None], frame.depth[None], frame.camera[None], (56, 56))
            torch.testing.assert_close(images, fitted.images)
            return Prediction(fitted.depths.clamp(min=0.1), fitted.cameras, None, None)

    depth, camera = evaluate.predict(Right(), evaluate.stack_frames([frame], torch.device("cpu")), settings)
    torch.testing.assert_close(camera[0], frame.camera, rtol=1e-4, atol=1e-3)
    assert depth[0].shape == frame.depth.shape
    assert (depth[0] / frame.depth).median() == pytest.approx(1, abs=0.01)
    assert ((depth[0] / frame.depth).log().abs() < 0.05).float().mean() > 0.85


def test_a_diverged_training_is_recorded_as_diverged(tmp_path):
    study = Study(tasks.rooms.using(**TINY | {"lr": 1e9, "clip": 0.0}), tmp_path, seeds=1).add("uniform")
    study.run(workers=0, show=False, device="cpu")
    (record,) = study.store.read().values()
    assert record.status == "diverged"


@pytest.mark.dist
@pytest.mark.parametrize("graphed", [False, True])
def test_two_processes_with_one_frame_each_are_one_with_two(tmp_path, graphed):
    given = ["run", "rooms", "--steps", "3", "--seed", "1", "--device", "cpu"]
    settings = TINY | {"evaluations": 0, "keep_model": True, "points": 0, "graphed": graphed, "average": 0}
    for key in ("steps", "batch"):
        settings.pop(key)
    written = {key: ",".join(map(str, v)) if isinstance(v, tuple) else v for key, v in settings.items()}
    given += [part for key, value in written.items() for part in ("--set", f"{key}={value}")]
    torchrun(tmp_path, *given, "--set", "batch=2", "--out", "two")
    alone = [sys.executable, "-m", "trainonce", *given, "--set", "batch=4", "--out", "one"]
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    two, one = (json.loads((tmp_path / name / "trials.jsonl").read_text()) for name in ("two", "one"))
    assert two["coefficients"] == pytest.approx(one["coefficients"], rel=1e-4)
    assert two["metrics"]["test/delta_1"] == pytest.approx(one["metrics"]["test/delta_1"], abs=1.0)
    (first,), (second,) = (list((tmp_path / name / "trials").glob("*/network.pt")) for name in ("one", "two"))
    networks = [torch.load(path, weights_only=True) for path in (first, second)]
    apart = max((networks[1][name] - value).abs().max().item() for name, value in networks[0].items())
    assert apart < 3 * 3 * 5e-4 / 10  # three steps of Adam move a weight by up to three learning rates


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated:DeprecationWarning")  # dynamo's own
def test_compiled_blocks_train_as_plain_ones(tmp_path, monkeypatch):
    """Whole blocks, in training and in evaluation; without the compiler's code, which takes long to make."""
    compiled = []

    def compile_eagerly(module, **given):
        compiled.append(module)
        compile_as_usual(module, backend="aot_eager", fullgraph=True, **given)

    compile_as_usual = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", compile_eagerly)
    monkeypatch.setattr(attention, "LARGE", 1)  # as at the paper's size
    monkeypatch.setattr(attention, "MAX_HEAD_DIM", 16)
    plain, compiling = (
        train(tmp_path / name, tasks.rooms, **TINY, compile=name == "compiled", attention="nystrom")[0]
        for name in ("plain", "compiled")
    )
    assert {type(module).__name__ for module in compiled} == {
        "ViTBlock",
        "Block",
        "ConvBlock",
        "MLP",
        "Harmonics",
    }
    assert not any(module.inner in compiled for module in compiled if hasattr(module, "inner"))
    assert compiling.coefficients == pytest.approx(plain.coefficients, rel=1e-5)
    assert compiling.metrics == pytest.approx(plain.metrics, rel=1e-3)
