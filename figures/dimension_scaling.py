"""Finite-size corrections: L-BFGS on the semantic branch at alpha = 1.5, omega = 0.3, for d = 20 to 2000.

Means with standard errors against 1/d; exact Gram matrices. Lines: theory, and the fit of the larger dimensions that
`compare` extrapolates. Data: dimension_scaling.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, use_style

import statmech_attn as sa
from statmech_attn.positional_semantic import simulate

MODEL = sa.PositionalSemantic(alpha=1.5, omega=0.3)
SIZES = {20: 64, 50: 64, 100: 48, 200: 32, 500: 24, 1000: 16, 2000: 16}
FITTED = 200


def compute() -> None:
    runs = [run for d, seeds in SIZES.items() for run in simulate(MODEL, d, seeds, start="semantic")]
    solution = sa.solve(MODEL, "semantic")
    sa.compare(runs, solution).to_csv(HERE / "dimension_scaling.csv")
    fit = sa.compare([run for run in runs if run.dimension >= FITTED], solution)
    fit.to_csv(HERE / "dimension_scaling_fit.csv")
    print(fit)


def read(name: str) -> list[dict[str, str]]:
    with (HERE / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def draw() -> None:
    rows, fits = read("dimension_scaling"), read("dimension_scaling_fit")
    use_style()
    figure, panels = plt.subplots(1, 4, figsize=(7.4, 2.5), layout="constrained")
    titles = {
        "q": "self overlap",
        "theta": "semantic overlap",
        "train_loss": "training loss",
        "test_error": "test error",
    }
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        part = [r for r in rows if r["name"] == name and np.isfinite(float(r["dimension"]))]
        d, y = np.array([float(r["dimension"]) for r in part]), np.array([float(r["value"]) for r in part])
        axes.errorbar(
            1 / d, y, [float(r["error"]) for r in part], fmt="o", markersize=3, color="#D55E00", label="L-BFGS"
        )
        (limit,) = (r for r in fits if r["name"] == name and not np.isfinite(float(r["dimension"])))
        axes.errorbar(
            [4e-4], [float(limit["value"])], [float(limit["error"])], fmt="D", markersize=3.5, color="#0072B2",
            label=f"extrapolated from d >= {FITTED}",
        )  # fmt: skip
        axes.axhline(float(limit["theory"]), color="black", linewidth=0.8, label="theory")
        axes.set(xscale="log", xlabel="1/d", title=f"{title} (z = {float(limit['z']):+.1f})")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    save_picture("dimension_scaling", figure)


if __name__ == "__main__":
    if not (HERE / "dimension_scaling.csv").exists():
        compute()
    draw()
