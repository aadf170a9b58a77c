"""Draw what gradient units do in one training of the digits recipe: losses, units and weights over its steps.

python benchmarks/units_figure.py --out docs/figures/units.png
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from trainonce import History
from trainonce.recipes.digits import TERMS, digits
from trainonce.study import Study, layout

if TYPE_CHECKING:
    from torch import Tensor

SHADES = {"ce": "#1a1c20", "consistency": "#D55E00", "reconstruction": "#2E86C8"}
PANELS = {
    "loss": "the losses, as they come",
    "unit": "their units: size of the gradient, base = 1",
    "weight": "their weights",
}


def train(seed: int) -> dict[str, Tensor]:
    """The history of one training in gradient units, on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(digits, Path(folder) / "study", seeds=[seed]).add("units")
        study.run(workers=0, device="cpu", show=False, report=False)
        (record,) = study.store.read().values()
        return History.load(study.store.folder(record.key) / layout.HISTORY).tensors()


def draw(columns: dict[str, Tensor]) -> Figure:
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    for axes, (kind, title) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for term in TERMS:
            values = columns.get(f"{kind}/{term}")
            if values is None:  # the base has no unit of its own
                axes.axhline(1, color=SHADES[term], linewidth=1.5)
            else:
                axes.plot(columns["step"], values, color=SHADES[term], linewidth=1.5, label=term)
        axes.set_yscale("log")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(fontsize=8, frameon=False)
    figure.axes[2].set_ylim(1e-2, 1.5)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FIGURE")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw(train(asked.seed)).savefig(asked.out, dpi=150)


if __name__ == "__main__":
    main()
