"""A student of rank two over the (omega, alpha) plane: its equilibrium branch, and its test error over that of a
linear layer, beside the student of rank one.

Solutions from every named start, of rank two at accuracy 3e-2; the equilibrium has the
least training loss. The hybrid is also followed from point to point. Data: rank_two.csv.
"""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, MARKERS

ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
OMEGAS = (0.05, 0.15, 0.3, 0.45, 0.6)
#: omega, alpha, rank, branch, training loss, test error over that of the linear layer, replicon
Row = tuple[float, float, int, str, float, float, float]
SHOWN = {**COLOURS, "hybrid": "#CC79A7"}


def compute() -> None:
    rows: list[Row] = []
    edge: sa.Solution | None = None  # the hybrid at the largest alpha, followed in omega, and in alpha downwards
    for omega in OMEGAS:
        hybrid = edge
        for alpha in reversed(ALPHAS):
            one = sa.PositionalSemantic(alpha=alpha, omega=omega)
            two = sa.replace(one.layer(), student_rank=2)
            found = [sa.solve(one, start, accuracy=1e-4) for start in one.starts]
            rows.append(row_of(omega, alpha, 1, found))
            starts = [*two.starts, *([hybrid] if hybrid else [])]
            found = [sa.solve(two, start, accuracy=3e-2, tol=1e-3, max_iterations=60) for start in starts]
            rows.append(row_of(omega, alpha, 2, found))
            hybrid = next((s for s in found if s.converged and s.branch == "hybrid"), hybrid)
            edge = hybrid if alpha == ALPHAS[-1] else edge
    names = ("omega", "alpha", "rank", "branch", "train_loss", "error_ratio", "replicon")
    rows.sort()
    save_table("rank_two", dict(zip(names, zip(*rows, strict=True), strict=True)))


def row_of(omega: float, alpha: float, rank: int, found: list[sa.Solution]) -> Row:
    best = min((s for s in found if s.converged), key=lambda s: s.train_loss)
    ratio = best.test_error / best.linear_baseline
    return omega, alpha, rank, best.branch, best.train_loss, ratio, best.replicon


def draw() -> None:
    with (HERE / "rank_two.csv").open() as file:
        rows = list(csv.DictReader(file))
    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(6.8, 3.0), sharey=True, layout="constrained")
    bound = max(abs(np.log2(float(r["error_ratio"]))) for r in rows)
    for axes, rank in zip(panels, (1, 2), strict=True):
        part = [r for r in rows if int(r["rank"]) == rank]
        ratio = np.log2([float(r["error_ratio"]) for r in part]).reshape(len(OMEGAS), len(ALPHAS)).T
        image = axes.contourf(OMEGAS, ALPHAS, ratio, levels=np.linspace(-bound, bound, 21), cmap="PuOr_r")
        axes.contour(OMEGAS, ALPHAS, ratio, levels=[0.0], colors="black", linewidths=0.8)
        for branch in sorted({r["branch"] for r in part}):
            here = [r for r in part if r["branch"] == branch]
            axes.plot(
                [float(r["omega"]) for r in here], [float(r["alpha"]) for r in here], MARKERS.get(branch, "P"),
                color=SHOWN.get(branch), markeredgecolor="white", markersize=5, linestyle="", label=branch,
                clip_on=False,
            )  # fmt: skip
        axes.set(xlabel="share omega of the positional target", title=f"rank {rank}")
    panels[0].set_ylabel("sample complexity alpha")
    figure.colorbar(image, ax=panels, label="log2(test error / linear layer)", format="%.1f")
    handles = {h.get_label(): h for axes in panels for h in axes.get_legend_handles_labels()[0]}
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=4, frameon=False)
    save_picture("rank_two", figure)


if __name__ == "__main__":
    if not (HERE / "rank_two.csv").exists():
        compute()
    draw()
