"""A target that swaps the tokens, A = ((.3, .7), (.8, .2)), at omega = 0.3: overlaps and losses of every branch.

The rows of A differ, so that the exchange of tokens is no symmetry. No positional state is found: with queries equal to
keys a token attends to itself at least as much as to the one opposite to it. Data: other_target.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS

TARGET = ((0.3, 0.7), (0.8, 0.2))
ALPHAS = np.linspace(0.15, 4.0, 24)
COLUMNS = ("q", "m", "theta", "V", "train_loss", "test_error", "linear_baseline")


def compute() -> None:
    rows: list[tuple[str | float, ...]] = []
    for start in sa.PositionalSemantic.starts:
        for alpha in ALPHAS:
            model = sa.PositionalSemantic(alpha=float(alpha), omega=0.3, positional_target=TARGET)
            solution = sa.solve(model, start, accuracy=1e-4)
            if solution.converged:
                rows.append((start, float(alpha), *(abs(solution[name]) for name in COLUMNS)))
    save_table("other_target", dict(zip(("branch", "alpha", *COLUMNS), zip(*rows, strict=True), strict=True)))


def draw() -> None:
    with (HERE / "other_target.csv").open() as file:
        rows = list(csv.DictReader(file))
    use_style()
    figure, panels = plt.subplots(1, 4, figsize=(7.2, 2.4), layout="constrained")
    labels = ("self overlap q", "semantic overlap |theta|", "training loss", "test error")
    for axes, name, label in zip(panels, ("q", "theta", "train_loss", "test_error"), labels, strict=True):
        for branch in dict.fromkeys(r["branch"] for r in rows):
            part = [r for r in rows if r["branch"] == branch]
            axes.plot(
                [float(r["alpha"]) for r in part], [float(r[name]) for r in part], "-o", markersize=2,
                color=COLOURS[branch], label=branch,
            )  # fmt: skip
        axes.set(xlabel="alpha", title=label)
    line = panels[3].axhline(float(rows[0]["linear_baseline"]), color="0.4", linestyle="--", label="linear layer")
    handles = [*panels[0].get_legend_handles_labels()[0], line]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    save_picture("other_target", figure)


if __name__ == "__main__":
    if not (HERE / "other_target.csv").exists():
        compute()
    draw()
