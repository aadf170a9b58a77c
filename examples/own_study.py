"""A study of your own task: is one training with a rule as good as a grid?

The task predicts how diabetes progresses, from scikit-learn's data of 442 patients. A network fits
its 150 training patients far too well, so a second loss asks for a smooth function. How strongly?

    pip install ".[demo]"
    python examples/own_study.py

It trains six choices of the weights with three seeds, in about half a minute on a CPU. It prints
a table and a sentence that answers the question, and writes out/own_study/report.html.
Stop it at any time: the same command then trains only what is missing.
"""

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import mse_loss

from trainonce import report
from trainonce.study import Study, task


def patients(seed, device):
    """The patients in random order, as (x, y) of each split: ten measurements, progression."""
    x, y = (torch.as_tensor(column).float() for column in load_diabetes(return_X_y=True))
    x, y = ((x - x.mean(0)) / x.std(0)).to(device), y[:, None].to(device)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    parts = zip(("train", "validation", "test"), order.tensor_split([150, 290]), strict=True)
    return {split: (x[part], y[part]) for split, part in parts}


@task(
    terms=["fit", "smooth"],  # the base first
    metric="error",
    direction="minimize",
    margin=1.0,  # the larger error that we would accept for one training instead of a grid
)
def diabetes(trial, *, steps=150, lr=3e-3):
    """Progression of diabetes in 442 patients: the fit, and the smoothness of the function."""
    data = patients(trial.seed, trial.device)
    x, y = data["train"]
    mean, deviation = y.mean(), y.std()
    hidden = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    net = nn.Sequential(hidden, nn.Linear(64, 1)).to(trial.device)

    def error(x, y):
        return mse_loss(mean + deviation * net(x), y).sqrt()

    # The plan's rule; one that aligns its weights with a validation loss takes it from here.
    criterion = trial.criterion(validation=lambda: error(*data["validation"]))
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    trial.attach(optimizer)
    for _ in trial.loop([net]):
        out = net(x)
        fit = mse_loss(out, (y - mean) / deviation)
        smooth = mse_loss(net(x + 0.5 * torch.randn_like(x)), out)
        optimizer.zero_grad()
        criterion(fit=fit, smooth=smooth).backward()
        optimizer.step()

    return {f"{split}/error": error(*data[split]) for split in ("validation", "test")}


def main(steps=150, seeds=3, out="out/own_study"):
    study = Study(diabetes.using(steps=steps), out, seeds=seeds)
    summary = study.add("yoto").add("balance").add("grid(0.1,1,10)").add("base").run()
    print(report.text(summary))
    print("Report:", report.write(study))


if __name__ == "__main__":
    main()
