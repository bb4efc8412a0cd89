"""Overlaps and losses at omega = 0.3 against sample complexity: theory (lines) and simulations (mean, standard error).

L-BFGS at d = 1000, gradient descent at d = 500, message passing at d = 1000 on the semantic branch; on the positional
one it does not converge, for replica symmetry is unstable there. The risk has limiting Gram matrices, which takes most
finite-size corrections out; the seeds are the same for every alpha and method, so that neighbouring points share their
fluctuation. Below: z of simulation against theory. Data: theory_vs_simulation.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS
from statmech_attn.positional_semantic import simulate

NAMES = {
    "theta": "semantic overlap",
    "m": "positional overlap",
    "train_loss": "training loss",
    "test_error": "test error",
}
#: method -> dimension, seeds, alphas by branch, options
RUNS: dict[str, tuple[int, int, dict[str, tuple[float, ...]], dict[str, object]]] = {
    "lbfgs": (
        1000,
        8,
        {"semantic": (1.0, 1.5, 2.0, 2.5, 3.0), "positional": (1.0, 1.5, 2.0, 2.5, 3.0)},
        {"gram": "limit"},
    ),
    "gradient_descent": (500, 6, {"semantic": (1.25, 1.75, 2.25), "positional": (1.25, 2.25)}, {"gram": "limit"}),
    "amp": (1000, 6, {"semantic": (1.5, 2.0, 2.5, 3.0)}, {"damping": 0.6}),
}
MARKERS = {"lbfgs": "o", "gradient_descent": "s", "amp": "D"}
LABELS = {
    "lbfgs": "L-BFGS, d = 1000",
    "gradient_descent": "gradient descent, d = 500",
    "amp": "message passing, d = 1000",
}


def compute() -> None:
    rows: list[tuple[str, str, float, str, int, float, float, float, float]] = []
    for branch in ("semantic", "positional"):
        for alpha in np.linspace(0.85, 3.1, 10):
            solution = sa.solve(sa.PositionalSemantic(float(alpha), 0.3), branch, accuracy=1e-4)
            rows += [("theory", branch, float(alpha), n, 0, solution[n], 0.0, solution[n], 0.0) for n in NAMES]
        for method, (dimension, seeds, alphas, options) in RUNS.items():
            for alpha in alphas.get(branch, ()):
                model = sa.PositionalSemantic(alpha, 0.3)
                runs = simulate(model, dimension, seeds, method=method, start=branch, **options)
                comparison = sa.compare(runs, sa.solve(model, branch))
                for name in NAMES:
                    (mean,) = comparison.at(name)
                    rows.append((method, branch, alpha, name, mean.runs, mean.mean, mean.error, mean.theory, mean.z))
    names = ("method", "branch", "alpha", "name", "runs", "mean", "error", "theory", "z")
    save_table("theory_vs_simulation", dict(zip(names, zip(*rows, strict=True), strict=True)))


def draw() -> None:
    with (HERE / "theory_vs_simulation.csv").open() as file:
        rows = list(csv.DictReader(file))
    use_style()
    figure, panels = plt.subplots(
        2, 4, figsize=(7.4, 3.9), sharex=True, layout="constrained", gridspec_kw={"height_ratios": (2, 1)}
    )
    for (name, label), axes, below in zip(NAMES.items(), panels[0], panels[1], strict=True):
        for branch in ("semantic", "positional"):
            part = [r for r in rows if r["name"] == name and r["branch"] == branch]
            line = [r for r in part if r["method"] == "theory"]
            axes.plot(
                [float(r["alpha"]) for r in line], [abs(float(r["mean"])) for r in line], color=COLOURS[branch],
                label=f"theory, {branch}",
            )  # fmt: skip
            for method, marker in MARKERS.items():
                here = [r for r in part if r["method"] == method]
                x, sign = [float(r["alpha"]) for r in here], [-1 if float(r["theory"]) < 0 else 1 for r in here]
                y = [s * float(r["mean"]) for s, r in zip(sign, here, strict=True)]
                style = {"color": COLOURS[branch], "markersize": 3.2, "markerfacecolor": "white", "linestyle": ""}
                axes.errorbar(x, y, [float(r["error"]) for r in here], marker=marker, elinewidth=0.7, **style)
                below.plot(x, [s * float(r["z"]) for s, r in zip(sign, here, strict=True)], marker=marker, **style)
        axes.set_title(label)
        below.axhspan(-3, 3, color="0.92", zorder=0)
        below.axhline(0, color="0.5", linewidth=0.6)
        below.set_xlabel("alpha")
    panels[1, 0].set_ylabel("residual z")
    marks = [
        plt.Line2D(
            [], [], marker=m, color="0.3", markerfacecolor="white", linestyle="", markersize=3.5, label=LABELS[n]
        )
        for n, m in MARKERS.items()
    ]
    handles = [*panels[0, 0].get_legend_handles_labels()[0], *marks]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    save_picture("theory_vs_simulation", figure)


if __name__ == "__main__":
    if not (HERE / "theory_vs_simulation.csv").exists():
        compute()
    draw()
