"""Test error of the equilibrium state against sample complexity, for several omega, sigma and regularisations.

The equilibrium is the converged branch of least training loss; dashed: the best linear layer. Data: slices.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, MARKERS

SLICES = {"omega": (0.0, 0.1, 0.3, 0.5), "sigma": (0.4, 0.5, 0.6), "regularization": (0.003, 0.01, 0.03)}
ALPHAS = np.linspace(0.2, 3.0, 15)


def compute() -> None:
    rows: list[tuple[str, float, float, str, float, float]] = []
    for name, values in SLICES.items():
        for value in values:
            for alpha in ALPHAS:
                model = sa.replace(sa.PositionalSemantic(alpha=float(alpha), omega=0.3), **{name: value})
                found = [s for s in (sa.solve(model, start, accuracy=1e-4) for start in model.starts) if s.converged]
                if found:
                    best = min(found, key=lambda s: s.train_loss)
                    rows.append((name, value, float(alpha), best.branch, best.test_error, best.linear_baseline))
    names = ("parameter", "value", "alpha", "branch", "test_error", "linear_baseline")
    save_table("slices", dict(zip(names, zip(*rows, strict=True), strict=True)))


def draw() -> None:
    with (HERE / "slices.csv").open() as file:
        rows = list(csv.DictReader(file))
    use_style()
    figure, panels = plt.subplots(1, 3, figsize=(7.2, 2.8), layout="constrained")
    for axes, (name, values) in zip(panels, SLICES.items(), strict=True):
        for value, shade in zip(values, np.linspace(0.75, 0.1, len(values)), strict=True):
            part = [r for r in rows if r["parameter"] == name and float(r["value"]) == value]
            alpha = [float(r["alpha"]) for r in part]
            axes.plot(alpha, [float(r["test_error"]) for r in part], color=str(shade), label=f"{value:g}")
            axes.plot(alpha, [float(r["linear_baseline"]) for r in part], "--", color=str(shade), linewidth=0.6)
            for branch in ("uninformed", "positional", "semantic"):
                here = [r for r in part if r["branch"] == branch]
                axes.plot(
                    [float(r["alpha"]) for r in here], [float(r["test_error"]) for r in here], MARKERS[branch],
                    color=COLOURS[branch], markersize=2.6,
                )  # fmt: skip
        axes.set(xlabel="sample complexity alpha", yscale="log")
        axes.legend(title=name, fontsize=6, title_fontsize=6, loc="lower left", framealpha=0.9)
    panels[0].set_ylabel("test error")
    marks = [
        plt.Line2D([], [], marker=MARKERS[b], color=COLOURS[b], linestyle="", markersize=3, label=b)
        for b in ("uninformed", "positional", "semantic")
    ]
    figure.legend(
        handles=[*marks, plt.Line2D([], [], color="0.4", linestyle="--", linewidth=0.6, label="linear layer")],
        loc="outside lower center", ncols=4, frameon=False,
    )  # fmt: skip
    save_picture("slices", figure)


if __name__ == "__main__":
    if not (HERE / "slices.csv").exists():
        compute()
    draw()
