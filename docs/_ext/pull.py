"""Draws explanation/figures/pull.svg: python docs/_ext/pull.py"""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from trainonce import functional

FILE = Path(__file__).parents[1] / "explanation" / "figures" / "pull.svg"


def main():
    mu = torch.linspace(-6, 6, 400)
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    parts = {
        "both": ("negentropy", "softplus"),
        "negentropy": ("negentropy",),
        "softplus alone": ("softplus",),
    }
    for (name, chosen), colour, style in zip(
        parts.items(), ("#d9541a", "#888888", "#2a6f97"), ("-", "--", "-"), strict=True
    ):
        slope = [functional.regularizer_grad(value[None], chosen).item() for value in mu]
        axes.plot(mu, slope, style, color=colour, label=name, linewidth=2 if style == "-" else 1.3)
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.axvline(-1.2785, color="#d9541a", linewidth=0.8, linestyle=":")
    axes.annotate("settles here:\nratio 0.28", (-1.2785, 0), (-5.6, 0.32), color="#d9541a",
                  arrowprops={"arrowstyle": "->", "color": "#d9541a"})  # fmt: skip
    axes.set(xlabel="exponent μ of one auxiliary term", ylabel="slope of the regularizer")
    axes.text(5.9, -0.2, "above 0: pulls down, below 0: pulls up", ha="right", fontsize=8, color="#666666")
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FILE, metadata={"Date": None})


if __name__ == "__main__":
    main()
