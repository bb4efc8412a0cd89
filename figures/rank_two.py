"""A student of rank two over the (omega, alpha) plane: its equilibrium branch, and its test error over that of a
linear layer, beside the student of rank one; and the lines where they change.

Points: solutions from every named start, of rank two at accuracy 1e-2, the hybrid also followed from point to point
(under Stein's rules where it does not converge); the equilibrium has the least training loss. Lines: rank one, equal
training losses of positional and semantic (phase_diagram_lines.csv); rank two, where the hybrid is born out of the
positional branch, the pitchfork in theta of its second column. Data: rank_two.csv, rank_two_line.csv.
"""

from __future__ import annotations

import csv
from concurrent.futures import ProcessPoolExecutor

import matplotlib.pyplot as plt
import numpy as np
from common import HERE, save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, MARKERS

ALPHAS = (0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
OMEGAS = (0.05, 0.15, 0.3, 0.45, 0.6)
#: omega, alpha, rank, branch, training loss, test error over that of the linear layer, replicon
Row = tuple[float, float, int, str, float, float, float]
SHOWN = {**COLOURS, "hybrid": "#CC79A7"}


def two_columns(alpha: float, omega: float) -> sa.AttentionLayer:
    return sa.replace(sa.PositionalSemantic(alpha=alpha, omega=omega).layer(), student_rank=2)


def column(omega: float) -> list[Row]:
    """All alphas at one omega, downwards."""
    rows: list[Row] = []
    hybrid: list[sa.Solution] = []
    for alpha in reversed(ALPHAS):
        one, two = sa.PositionalSemantic(alpha=alpha, omega=omega), two_columns(alpha, omega)
        rows.append(row_of(omega, alpha, 1, [sa.solve(one, start, accuracy=1e-4) for start in one.starts]))
        starts = [*two.starts, *hybrid]
        found = [sa.solve(two, start, accuracy=1e-2, tol=1e-4, max_iterations=100) for start in starts]
        found += [
            sa.solve(two.under("stein"), s, accuracy=1e-2, tol=1e-4, max_iterations=100)
            for s in found
            if s.status.kind == "iteration limit" and s.branch == "hybrid"
        ]
        rows.append(row_of(omega, alpha, 2, found))
        hybrid = [s for s in found if s.converged and s.branch == "hybrid"][:1] or hybrid
        print(*rows[-2:], [f"{s.start}: {s.status.kind}, {s.branch}" for s in found], sep="\n", flush=True)
    return rows


def row_of(omega: float, alpha: float, rank: int, found: list[sa.Solution]) -> Row:
    best = min((s for s in found if s.converged), key=lambda s: s.train_loss)
    ratio = best.test_error / best.linear_baseline
    return omega, alpha, rank, best.branch, best.train_loss, ratio, best.replicon


def compute() -> None:
    with ProcessPoolExecutor(2) as workers:
        rows = sorted(row for part in workers.map(column, OMEGAS) for row in part)
    names = ("omega", "alpha", "rank", "branch", "train_loss", "error_ratio", "replicon")
    save_table("rank_two", dict(zip(names, zip(*rows, strict=True), strict=True)))


def compute_line() -> None:
    """Birth of the hybrid, under Stein's rules: the pitchfork in theta_21 of the positional branch."""
    layer = two_columns(0.58, 0.3).under("stein")
    positional = sa.solve(layer, "positional", accuracy=3e-3, tol=1e-6)
    events = [sa.SymmetryBreaking("theta_21")]
    branch = sa.trace(layer, "alpha", (0.5, 0.65), positional, accuracy=3e-3, tol=1e-4, events=events)
    print(*branch.events, sep="\n", flush=True)
    # tol: the weight of a point that changes wells; above omega = .48 they are too many for these rules
    line = sa.critical_line(branch.events[0], "omega", (0.0, 0.475), accuracy=3e-3, tol=1e-3, at=[0.1, 0.2, 0.3, 0.4])
    print(line, flush=True)
    save_table("rank_two_line", {"omega": line["omega"], "alpha": line["alpha"], "residual": line.residual})


def read(name: str) -> list[dict[str, str]]:
    with (HERE / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def draw() -> None:
    rows = read("rank_two")
    use_style()
    figure, panels = plt.subplots(1, 2, figsize=(6.8, 3.2), sharey=True, layout="constrained")
    bound = max(abs(np.log2(float(r["error_ratio"]))) for r in rows)
    lines = {
        1: ([r for r in read("phase_diagram_lines") if r["line"] == "coexistence"], "equal training losses"),
        2: (read("rank_two_line"), "birth of the hybrid"),
    }
    for (rank, (line, name)), style, axes in zip(lines.items(), ("--", "-"), panels, strict=True):
        part = [r for r in rows if int(r["rank"]) == rank]
        ratio = np.log2([float(r["error_ratio"]) for r in part]).reshape(len(OMEGAS), len(ALPHAS)).T
        image = axes.contourf(OMEGAS, ALPHAS, ratio, levels=np.linspace(-bound, bound, 21), cmap="PuOr_r")
        axes.contour(OMEGAS, ALPHAS, ratio, levels=[0.0], colors="black", linewidths=0.8, linestyles=":")
        axes.plot(
            [float(r["omega"]) for r in line], [float(r["alpha"]) for r in line], style, color="black", label=name
        )
        for branch in sorted({r["branch"] for r in part}):
            here = [r for r in part if r["branch"] == branch]
            axes.plot(
                [float(r["omega"]) for r in here], [float(r["alpha"]) for r in here], MARKERS.get(branch, "P"),
                color=SHOWN.get(branch), markeredgecolor="white", markersize=5, linestyle="", label=branch,
                clip_on=False,
            )  # fmt: skip
        axes.set(
            xlabel="share omega of the positional target", title=f"rank {rank}",
            xlim=(OMEGAS[0], OMEGAS[-1]), ylim=(ALPHAS[0], ALPHAS[-1]),
        )  # fmt: skip
    panels[0].set_ylabel("sample complexity alpha")
    figure.colorbar(image, ax=panels, label="log2(test error / linear layer)", format="%.1f")
    handles = {h.get_label(): h for axes in panels for h in axes.get_legend_handles_labels()[0]}
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=3, frameon=False)
    save_picture("rank_two", figure)


if __name__ == "__main__":
    if not (HERE / "rank_two.csv").exists():
        compute()
    if not (HERE / "rank_two_line.csv").exists():
        compute_line()
    draw()
