"""The segmentation recipe from end to end, on generated streets and on miniatures of the real folders."""

import json
import math
import os
import re
import subprocess
import sys

import pytest
import torch
from _interruption import check_paused_as_straight
from _runs import torchrun, train

import trainonce
from trainonce import cli
from trainonce.recipes import RECIPES, load
from trainonce.recipes.segmentation import tasks, training
from trainonce.recipes.segmentation.data.made_up import write_acdc, write_camvid, write_cityscapes
from trainonce.recipes.segmentation.generated import streets as generated
from trainonce.recipes.segmentation.settings import Settings
from trainonce.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

TINY = {"size": (32, 64), "crop": (32, 32), "batch": 2, "steps": 4, "evaluations": 2, "limit": 4}


# Streets


def test_streets_train_and_leave_pictures_and_metrics(tmp_path):
    record, folder = train(tmp_path, tasks.streets, **TINY, keep_model=True)
    assert {"validation/miou", "test/miou", "day/miou", "test/iou road"} <= set(record.metrics)
    assert 0 <= record.metrics["test/miou"] <= 100
    assert [step for step, _ in record.reports] == [2]
    assert {p.name for p in (folder / "pictures").iterdir()} == {"test.png", "source.png"}
    assert "head.0.weight" in torch.load(folder / "network.pt", weights_only=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_norm": "frozen", "layers": "layer2, layer4", "distance": "l1", "over": "all", "align_corners": False},
        {"batch_norm": "batch", "schedule": "poly", "optimizer": "sgdw", "weight_decay": 2.0, "head_lr": 1.0},
        {"style": "caffe", "channels_last": False, "resident": False, "readers": 0, "check": False},
        {"protocol": "fog", "frame": (32, 48), "flip": 0.0, "graphed": True, "precision": "tf32", "optimizer": "adamw"},
    ],
)
def test_options_can_be_combined(tmp_path, settings):
    train(tmp_path, tasks.streets, **(TINY | settings))


def test_a_small_network_learns_the_streets(tmp_path):
    """The mean intersection over union by day, from what guessing the road everywhere gives to over twice that."""
    settings = {"size": (48, 96), "crop": (48, 64), "evaluations": 0, "lr": 0.05, "steps": 60, "limit": 40}
    learned = train(tmp_path, tasks.streets, "base", **settings)[0].metrics["day/miou"]
    day = generated.load(0, size=(48, 96)).limit(40).others["day"]
    road = [(day.label(i) == 2).float().mean().item() for i in range(40)]
    guessed = 100 * sum(road) / 40 / 7
    assert learned > 2 * guessed > 5


@pytest.mark.parametrize("resident", [True, False])
def test_a_paused_training_ends_as_if_it_had_not_been(tmp_path, resident, capsys):
    settings = TINY | {"steps": 7, "resident": resident, "readers": 0, "schedule": "poly"}
    settings |= {"optimizer": "adamw", "warmup": 2}
    check_paused_as_straight(tmp_path, tasks.streets, settings)


@pytest.mark.dist
def test_two_processes_with_one_scene_each_are_one_with_two(tmp_path):
    given = ["run", "streets", "--steps", "3", "--seed", "1", "--device", "cpu"]
    settings = {
        "size": "32,64",
        "crop": "32,32",
        "evaluations": 0,
        "batch_norm": "frozen",
        "limit": 6,
        "keep_model": True,
    }
    given += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    torchrun(tmp_path, *given, "--set", "batch=1", "--out", "two")
    for out, more in (("one", []), ("half", ["--set", "batch=1"]), ("start", ["--set", "lr=1e-12"])):
        alone = [sys.executable, "-m", "trainonce", *given, "--set", "batch=2", *more, "--out", out]
        done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    two, one = (json.loads((tmp_path / name / "trials.jsonl").read_text()) for name in ("two", "one"))
    assert two["coefficients"] == pytest.approx(one["coefficients"], rel=1e-4)
    paths = {name: next((tmp_path / name / "trials").glob("*/network.pt")) for name in ("one", "two", "half", "start")}
    networks = {name: torch.load(path, weights_only=True) for name, path in paths.items()}

    def apart(a, b):
        return sum((networks[a][name] - networks[b][name]).double().square().sum() for name in networks[a]).sqrt()

    # Rounding may decide a ReLU otherwise: 0.3 % of the way on one kind of processor, next to nothing on another.
    assert apart("one", "two") < 0.02 * apart("one", "start")
    assert apart("one", "half") > 0.2 * apart("one", "start")  # with the scenes of one process alone


@pytest.mark.dist
def test_processes_examine_one_network(tmp_path):
    """Batch statistics differ between processes until an evaluation makes them those of the first."""
    (tmp_path / "examine.py").write_text(EXAMINED)
    given = ["run", "examine.py", "--steps", "3", "--device", "cpu", "--set", "size=32,64", "--set", "crop=32,32"]
    said = torchrun(tmp_path, *given, "--set", "limit=4", "--set", "batch=2", "--out", "two")
    found = re.findall(r"buffers (before|after) ([\d.]+) (\d+)", said)
    assert len(found) >= 4
    by_time = {}
    for when, norm, number in found:
        by_time.setdefault((when, number), set()).add(norm)
    assert all(len(norms) == 1 for (when, _), norms in by_time.items() if when == "after")
    assert any(len(norms) == 2 for (when, _), norms in by_time.items() if when == "before")


EXAMINED = """
import os
import torch
from trainonce.recipes.segmentation import evaluate, training
from trainonce.recipes.segmentation.tasks import streets  # the task of this file

real, calls = training.confusion_matrix, []


def report_buffers(network, *given):
    number = len(calls)
    calls.append(number)

    def say(when):
        norm = sum(b.double().norm() for b in network.buffers()).item()
        os.write(1, f"buffers {when} {norm:.12f} {number}\\n".encode())  # in one piece, whoever else writes

    say("before")
    found = real(network, *given)
    say("after")
    return found


training.confusion_matrix = report_buffers
"""


# Miniatures of the real folders


SMALL = {"backbone": "resnet-18", "frame": "48,96", "crop": "48,64", "readers": 1, "evaluations": 2}


def command(name, root, *more, code=0, **settings):
    sets = [part for key, value in (SMALL | settings).items() for part in ("--set", f"{key}={value}")]
    given = ["run", name, "--data-root", str(root), "--device", "cpu", "--workers", "0", *sets, *map(str, more)]
    assert cli.main(given) == code


@pytest.fixture
def miniature(tmp_path):
    root = tmp_path / "data"
    write_cityscapes(root / "cityscapes")
    write_acdc(root / "acdc")
    return root


@pytest.mark.parametrize("flat", [False, True])
def test_ciss_paper_runs_on_a_miniature(tmp_path, capsys, flat):
    root = tmp_path / "data"
    write_cityscapes(root / "cityscapes", labels="labelTrainIds" if flat else "labelIds")
    write_acdc(root / "acdc", flat=flat)
    command("ciss-paper", root, "--steps", 20, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert "validation/miou" in said
    assert "val/miou" in said
    (folder,) = (tmp_path / "out" / "trials").iterdir()
    assert (folder / "network.pt").exists()
    assert len((folder / "history.jsonl").read_text().splitlines()) == 21


def test_the_paper_is_the_paper():
    task = load("ciss-paper")
    settings = Settings(**task.settings)
    assert (settings.steps, settings.batch, settings.lr, settings.momentum) == (148_750, 1, 2.5e-4, 0.9)
    assert (settings.backbone, settings.crop, settings.schedule) == ("resnet-101", (1024, 1024), "constant")
    assert (settings.optimizer, settings.weight_decay, settings.head_lr) == ("sgd", 5e-4, 10.0)
    assert (settings.batch_norm, settings.frame, settings.bandwidth) == ("batch", (1024, 1920), 0.01)
    assert (task.yoto["lr"], task.yoto["decay"], task.yoto["regularizer"]) == (settings.lr, 0.05, "softplus")
    assert task.yoto["init"] == pytest.approx(0.0183156, rel=1e-5)
    assert settings.steps == 50 * 2975


@pytest.mark.parametrize("name", ["streets", "camvid", "ciss-paper"])
def test_the_exponents_learning_rate_is_always_explicit(name):
    factor = 10 if name == "camvid" else 1
    assert load(name).yoto["lr"] == factor * Settings(**load(name).settings).lr
    assert name in RECIPES


@pytest.mark.parametrize("protocol", ["day2dusk", "official"])
def test_camvid_runs_on_a_miniature(tmp_path, capsys, protocol):
    root = tmp_path / "data"
    write_camvid(root, layout="zip")
    more = {"backbone": "resnet-small", "weights": "", "frame": "", "crop": "32,48", "batch": 2, "protocol": protocol}
    command("camvid", root, "--steps", 2, "--out", tmp_path / "out", **more, precision="float32")
    said = capsys.readouterr().out
    assert "test/iou bicyclist" in said
    assert ("day/miou" in said) is (protocol == "day2dusk")


# The error when the data are not right


def complaint(capsys, *given, **more):
    command(*given, "--steps", 2, code=1, **more)
    return capsys.readouterr().err


def test_a_label_out_of_range_is_named(tmp_path, miniature, capsys):
    from PIL import Image

    path = sorted((miniature / "cityscapes").rglob("gtFine/train/*/aachen*_labelIds.png"))[0]
    wrong = Image.open(path).copy()
    wrong.putpixel((3, 3), 77)
    wrong.save(path)
    said = complaint(capsys, "ciss-paper", miniature, "--out", tmp_path / "out")
    assert f"The label {path} may hold the values" in said
    assert "it holds 77 (1 pixel)" in said
    assert "Traceback" not in said


def test_folders_may_be_links(tmp_path, miniature, capsys):
    (tmp_path / "linked" / "acdc").mkdir(parents=True)
    (tmp_path / "linked" / "cityscapes").symlink_to(miniature / "cityscapes")
    for name in ("rgb_anon", "gt"):
        folder = tmp_path / "linked" / "acdc" / name
        folder.mkdir()
        for condition in (miniature / "acdc" / name).iterdir():
            (folder / condition.name).symlink_to(condition)
        (folder / "loop").symlink_to(folder)
    command("ciss-paper", tmp_path / "linked", "--steps", 1, "--out", tmp_path / "out", keep_model=False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"protocol": "paper"}, "The protocol of ciss-paper is 'halves'; got 'paper'."),
        ({"layers": "layer9"}, "layers are among layer1, layer2, layer3, layer4; got layer9."),
        ({"backbone": "resnet-19"}, "backbone is one of"),
        ({"weights": "nowhere.pth"}, "There is no checkpoint file nowhere.pth."),
        ({"check": "maybe"}, "The setting check of the task 'ciss-paper' is yes or no, by default True; got 'maybe'."),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_stops_the_study(tmp_path, miniature, capsys, settings, said):
    error = complaint(capsys, "ciss-paper", miniature, "--out", tmp_path / "out", **settings)
    assert said in error
    assert "Traceback" not in error
    trials = tmp_path / "out" / "trials.jsonl"
    assert not trials.exists() or trials.read_text() == ""  # some mistakes are found before a folder is made


def test_a_corrupt_image_is_named(tmp_path, miniature, capsys):
    path = sorted((miniature / "acdc").rglob("*/train/*/*_rgb_anon.png"))[0]
    path.write_bytes(path.read_bytes()[:200])
    said = complaint(capsys, "ciss-paper", miniature, "--out", tmp_path / "out")
    assert f"The image {path} cannot be read" in said


def test_a_missing_label_is_named(tmp_path, miniature, capsys):
    path = sorted((miniature / "cityscapes").rglob("gtFine/train/*/aachen*_labelIds.png"))[0]
    path.unlink()
    said = complaint(capsys, "ciss-paper", miniature, "--out", tmp_path / "out")
    assert f"has no label: there is no {path}" in said


def test_a_crop_larger_than_the_scenes_is_named(tmp_path, miniature, capsys):
    said = complaint(capsys, "ciss-paper", miniature, "--out", tmp_path / "out", frame="", crop="512,512")
    assert "must have at least the 512x512 pixels" in said


def test_an_empty_folder_is_named(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    said = complaint(capsys, "ciss-paper", tmp_path / "data", "--out", tmp_path / "out")
    assert f"{tmp_path / 'data'} is empty" in said


def test_no_folder_at_all_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TRAINONCE_DATA", raising=False)
    assert cli.main(["run", "camvid", "--device", "cpu", "--workers", "0", "--out", str(tmp_path / "out")]) == 1
    assert "give its folder with --data-root, or in TRAINONCE_DATA" in capsys.readouterr().err


@pytest.mark.filterwarnings("always::UserWarning")
def test_a_file_that_breaks_during_training_does_not_end_it(tmp_path, miniature, capsys, monkeypatch):
    real = training.check

    def checked_then_broken(domains, *given, **more):
        real(domains, *given, **more)
        for scenes in (domains.source, domains.test):
            path = scenes.name(0)
            with open(path, "r+b") as file:
                file.truncate(100)

    monkeypatch.setattr(training, "check", checked_then_broken)
    command("ciss-paper", miniature, "--steps", 8, "--out", tmp_path / "out", readers=0)
    record = json.loads((tmp_path / "out" / "trials.jsonl").read_text())
    warnings = " ".join(record["warnings"])
    assert record["status"] == "done"
    assert "A scene cannot be read, and the next took its place" in warnings
    assert "left out of the metric" in warnings


@pytest.mark.skipif("TRAINONCE_DATA" not in os.environ, reason="TRAINONCE_DATA names no folder with camvid.zip")
def test_camvid_runs_on_the_real_images(tmp_path, capsys):
    root = os.environ["TRAINONCE_DATA"]
    more = {"backbone": "resnet-small", "weights": "", "frame": "", "size": "90,120", "crop": "64,64", "batch": 2}
    command("camvid", root, "--steps", 3, "--out", tmp_path / "out", **more, precision="float32")
    assert "day/miou" in capsys.readouterr().out


# Parts


def test_the_rate_falls_to_nothing():
    constant, poly = Settings(steps=10), Settings(steps=10, schedule="poly")
    assert [training.learning_rate_factor(s, constant) for s in (0, 5, 10)] == [1, 1, 1]
    assert [training.learning_rate_factor(s, poly) for s in (0, 5, 10)] == [1, pytest.approx(0.5**0.9), 0]


def test_the_rate_grows_in_the_warm_up_to_its_full_value():
    constant, poly = Settings(steps=10, warmup=4), Settings(steps=10, warmup=4, schedule="poly")
    assert [training.learning_rate_factor(s, constant) for s in (0, 1, 3, 4, 9)] == [0.25, 0.5, 1, 1, 1]
    assert [training.learning_rate_factor(s, poly) for s in (0, 1, 5)] == pytest.approx(
        [0.25, 0.5 * 0.9**0.9, 0.5**0.9]
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("sgdw", trainonce.SGDW), ("adamw", torch.optim.AdamW)]
)
def test_the_optimizer_is_the_one_that_was_asked_for(name, kind):
    settings = Settings(backbone="resnet-small", optimizer=name, lr=0.1, momentum=0.7, weight_decay=0.02)
    made = training.build_optimizer(training.build_network(3, settings, torch.device("cpu")), settings)
    assert type(made) is kind
    for group in made.param_groups:
        assert group["weight_decay"] == 0.02
        assert group["betas"] == (0.7, 0.999) if name == "adamw" else group["momentum"] == 0.7


def test_a_training_is_by_its_seed_and_reports_each_set_under_its_name(tmp_path, monkeypatch):
    """Validation while it trains; then every set but those that are trained on."""
    seen, fed, feed = [], [], training.batches_from

    def note_evaluation(network, scenes, classes, settings, device):
        seen.append((scenes._scenes.name(0), len(scenes._scenes)))
        wrong = torch.zeros(classes, classes, dtype=torch.int64)
        wrong[0, 0], wrong[0, 1] = len(seen), 10 - len(seen)  # one of two classes is right in so many tenths
        return wrong

    def note_feed(domains, settings, seed, *given):
        fed.append((domains.source.name(0), domains.style.name(0), seed))
        return feed(domains, settings, seed, *given)

    monkeypatch.setattr(training, "confusion_matrix", note_evaluation)
    monkeypatch.setattr(training, "batches_from", note_feed)
    monkeypatch.setattr(training, "draw_pictures", lambda *_: None)
    settings = TINY | {"check": False, "schedule": "poly", "warmup": 2}
    study = Study(tasks.streets.using(**settings), tmp_path, seeds=[3]).add("yoto")
    study.run(workers=0, show=False, device="cpu")
    (record,) = study.store.read().values()
    assert record.status == "done", record.error
    history = (study.store.folder(record.key) / "history.jsonl").read_text().splitlines()[1:]
    base, factors = tasks.streets.yoto["lr"], [0.5, 0.75**0.9, 0.5**0.9, 0.25**0.9]
    assert [json.loads(line)["lr"] for line in history] == pytest.approx([base * factor for factor in factors])
    assert fed == [("street 3/25 day", "street 3/207 night", 3)]  # of 200 and 60
    validation = ("street 3/267 night", 4)  # of 60, and of 120 and 60 for the others
    assert seen == [validation, validation, ("street 3/335 night", 4), ("street 3/447 day", 4)]
    assert record.reports == ((2, {"miou": pytest.approx(5)}),)
    found = [record.metrics[f"{name}/miou"] for name in ("validation", "test", "day")]
    assert found == pytest.approx([10, 15, 20])
    first, second, *others = (value for name, value in record.metrics.items() if name.startswith("test/iou "))
    assert (first, second) == pytest.approx((30, 0))
    assert all(math.isnan(value) for value in others)


def test_the_head_has_its_own_rate_and_frozen_parameters_are_left_out():
    settings = Settings(lr=0.1, head_lr=10.0, batch_norm="frozen")
    network = training.build_network(3, settings, torch.device("cpu"))
    encoder, head = training.build_optimizer(network, settings).param_groups
    assert (encoder["lr"], head["lr"]) == (0.1, 1.0)
    assert all(p.requires_grad for group in (encoder, head) for p in group["params"])
    assert len(head["params"]) == 8


def test_no_pictures_are_no_reason_to_lose_a_training(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ImportError("no matplotlib")

    monkeypatch.setattr(training.pictures, "write_panel", broken)
    with pytest.warns(UserWarning, match="No pictures were written: no matplotlib"):
        record, _ = train(tmp_path, tasks.streets, **TINY)
    assert record.status == "done"


def test_a_full_disk_is_no_reason_to_lose_a_training(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("PytorchStreamWriter failed writing file: No space left")

    monkeypatch.setattr(training.torch, "save", full)
    with pytest.warns(UserWarning, match="The network was not written: .* No space left"):
        record, folder = train(tmp_path, tasks.streets, **TINY, keep_model=True)
    assert record.status == "done"
    assert not (folder / "network.pt").exists()


def test_a_balance_trains_the_recipe(tmp_path):
    settings = TINY | {"check": False, "steps": 20, "evaluations": 0}
    study = Study(tasks.streets.using(**settings), tmp_path, seeds=[3]).add("balance")
    study.run(workers=0, show=False, device="cpu")
    (record,) = study.store.read().values()
    assert record.status == "done", record.error
    assert record.coefficients[0] == 0.5
    assert record.ratios[1] != 1
    assert record.fraction == 1.0
