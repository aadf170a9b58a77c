"""Draw what gradient balance does in one training of the digits recipe: losses, ratios and coefficients.

python benchmarks/balance_figure.py --out docs/figures/balance.png
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
    "ratio": "their ratios: the coefficient over the base's",
    "alignment": "of that, what alignment added (a factor)",
}


def train(seed: int) -> dict[str, Tensor]:
    """Return the history of one training, on the CPU, with the ratios beside it."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study(digits, Path(folder) / "study", seeds=[seed]).add("balance")
        study.run(workers=0, device="cpu", show=False)
        (record,) = study.store.read().values()
        return with_ratios(History.load(study.store.folder(record.key) / layout.HISTORY).tensors())


def with_ratios(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the ratios, and the factors that alignment added."""
    base = columns[f"coefficient/{TERMS[0]}"]
    found = {f"ratio/{term}": columns[f"coefficient/{term}"] / base for term in TERMS[1:]}
    return columns | found | {f"alignment/{term}": columns[f"alignment/{term}"].exp() for term in TERMS[1:]}


def draw(columns: dict[str, Tensor]) -> Figure:
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    for axes, (kind, title) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for term in TERMS:
            values = columns.get(f"{kind}/{term}")
            if values is None:  # the base, which the others are relative to
                axes.axhline(1, color=SHADES[term], linewidth=1.5)
            else:
                axes.plot(columns["step"], values, color=SHADES[term], linewidth=1.5, label=term)
        axes.set_yscale("log")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FIGURE")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw(train(asked.seed)).savefig(asked.out, dpi=150)


if __name__ == "__main__":
    main()
