"""The loggers, with the packages themselves."""

import csv
import json
import subprocess
import sys

import pytest
import torch

import trainonce
from trainonce.integrations import loggers

NAMES = {"loss/fit", "loss/small", "coefficient/fit", "coefficient/small", "ratio/small", "reference"}


def train(*sinks, steps=6, every=2, start=0, criterion=None):
    """Train some steps, logged, and return the coefficients after each."""
    w = torch.nn.Parameter(torch.tensor([2.0]))
    criterion = criterion or trainonce.CompositeLoss(["fit", "small"], init=0.5, decay=0.5)
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion)
    found = {}
    with loggers.log(attachment, *sinks, every=every, start=start):
        for step in range(1, steps + 1):
            criterion(fit=(w - 3).square().sum(), small=w.square().sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
            found[step] = dict(zip(criterion.terms, criterion.coefficients().tolist(), strict=True))
    return found


RULES = {
    "exponent/small": trainonce.CompositeLoss(["fit", "small"]),
    "alignment/small": trainonce.BalancedLoss({"fit": 1.0, "small": 0.5}),
    None: trainonce.FixedLoss({"fit": 1.0, "small": 0.5}),
}


@pytest.mark.parametrize("more", RULES)
def test_any_function_is_a_sink_and_gets_every_second_step(more):
    seen = {}
    found = train(lambda values, step: seen.update({step: dict(values)}), criterion=RULES[more])
    assert sorted(seen) == [2, 4, 6]
    for step, values in seen.items():
        assert set(values) == NAMES | ({more} if more else set())
        assert values["coefficient/small"] == pytest.approx(found[step]["small"])
        assert isinstance(values["reference"], float)


def test_steps_without_the_criterion_are_no_rows():
    seen = []
    w, criterion = torch.nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["fit", "small"])
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = trainonce.attach(optimizer, criterion)
    with loggers.log(attachment, lambda values, step: seen.append((step, len(values))), every=2):
        for called in (False, False, True, False, True, False, False, True, True):
            (criterion(fit=w.sum(), small=w.sum()) if called else w.sum()).backward()
            optimizer.step()
    assert seen == [(2, 7), (4, 7)]


def test_a_resumed_training_counts_on(tmp_path):
    path = tmp_path / "losses.csv"
    for start in (0, 6):
        train(loggers.csv(path), steps=6, every=3, start=start)
    with path.open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["3", "6", "9", "12"]
    with pytest.raises(ValueError, match=r"^start is a number of optimizer steps"):
        train(loggers.csv(path), start=-1)


def test_csv(tmp_path):
    path = tmp_path / "new" / "losses.csv"
    found = train(loggers.csv(path))
    train(loggers.csv(path))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["step"] for row in rows] == ["2", "4", "6"] * 2
    assert float(rows[2]["coefficient/fit"]) == pytest.approx(found[6]["fit"])
    assert set(rows[0]) == {"step", "exponent/small", *NAMES}


def test_csv_does_not_mix_runs_of_other_terms(tmp_path):
    path = tmp_path / "losses.csv"
    path.write_text("step,loss/other\n1,2.0\n")
    with pytest.raises(ValueError, match="has the columns step, loss/other; this run logs step, coefficient/fit"):
        train(loggers.csv(path))
    assert path.read_text() == "step,loss/other\n1,2.0\n"


@pytest.mark.parametrize(("sinks", "every", "said"), [((), 1, "needs a sink"), ((print,), 0, "at least 1; got 0")])
def test_what_cannot_log_is_one_sentence(sinks, every, said):
    with pytest.raises(ValueError, match=said):
        train(*sinks, every=every)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        found = train(loggers.tensorboard(writer, prefix="weights/"))
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {f"weights/{name}" for name in NAMES | {"exponent/small"}}
    last = events.Scalars("weights/coefficient/small")[-1]
    assert (last.step, last.value) == (6, pytest.approx(found[6]["small"]))


@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        found = train(loggers.mlflow(mlflow))
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "coefficient/small")
    assert [point.step for point in history] == [2, 4, 6]
    assert history[-1].value == pytest.approx(found[6]["small"])


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="trainonce", settings=wandb.Settings(console="off")) as run:
        found = train(loggers.wandb(run))
        assert run.summary["coefficient/small"] == pytest.approx(found[6]["small"])
        assert run.summary["trainonce/step"] == 6
    assert list(tmp_path.rglob("*.wandb"))


def test_nothing_is_imported_that_is_not_asked_for():
    code = "import sys, json; from trainonce.integrations import loggers; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert not {"tensorboard", "mlflow", "wandb", "lightning", "transformers", "accelerate"} & set(loaded)
