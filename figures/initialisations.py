"""Where training ends: m against theta from random, semantic and positional starts, by gradient descent and Adam.

d = 400, omega = 0.3, eight instances a start; crosses: states of the theory, up to signs. Data: initialisations.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS
from statmech_attn.positional_semantic import simulate

ALPHAS = (1.24, 2.0)
STARTS = {
    "random": ("#009E73", "D"),
    "semantic": (COLOURS["semantic"], "o"),
    "positional": (COLOURS["positional"], "^"),
}
METHODS = {"gradient_descent": "gradient descent", "adam": "Adam"}


def compute() -> None:
    rows: list[tuple[float, str, str, float, float, float]] = []
    for alpha in ALPHAS:
        model = sa.PositionalSemantic(alpha, 0.3)
        for branch in ("semantic", "positional"):
            solution = sa.solve(model, branch)
            rows.append((alpha, "theory", branch, abs(solution["m"]), abs(solution["theta"]), solution.train_loss))
        for method in METHODS:
            for start in STARTS:
                for run in simulate(model, 400, 8, method=method, start=start):
                    m = abs(run.overlaps.m[0, 0] - run.overlaps.m[1, 0]) / 2
                    theta = abs(run.overlaps.theta.mean())
                    rows.append((alpha, method, start, float(m), float(theta), run.train_loss))
    names = ("alpha", "method", "start", "m", "theta", "train_loss")
    save_table("initialisations", dict(zip(names, zip(*rows, strict=True), strict=True)))


def draw() -> None:
    with (HERE / "initialisations.csv").open() as file:
        rows = list(csv.DictReader(file))
    use_style()
    figure, panels = plt.subplots(2, 2, figsize=(5.4, 4.6), sharex=True, sharey=True, layout="constrained")
    for row, alpha in zip(panels, ALPHAS, strict=True):
        for axes, (method, title) in zip(row, METHODS.items(), strict=True):
            for start, (colour, marker) in STARTS.items():
                here = [r for r in rows if float(r["alpha"]) == alpha and (r["method"], r["start"]) == (method, start)]
                axes.plot(
                    [float(r["theta"]) for r in here], [float(r["m"]) for r in here], marker, color=colour,
                    markersize=4, alpha=0.7, markeredgewidth=0, label=f"{start} start",
                )  # fmt: skip
            theory = [r for r in rows if float(r["alpha"]) == alpha and r["method"] == "theory"]
            axes.plot(
                [float(r["theta"]) for r in theory], [float(r["m"]) for r in theory], "x", color="black", markersize=9,
                label="theory",
            )  # fmt: skip
            axes.set_title(f"{title}, alpha = {alpha:g}")
        row[0].set_ylabel("positional overlap |m|")
    for axes in panels[1]:
        axes.set_xlabel("semantic overlap |theta|")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save_picture("initialisations", figure)


if __name__ == "__main__":
    if not (HERE / "initialisations.csv").exists():
        compute()
    draw()
