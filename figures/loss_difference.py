"""Train loss of the semantic minus the positional branch against alpha: the jump is where it crosses zero.

Where both are stable the one above zero is metastable: the circle is the transition, the ends of the solid stretch are
the limits of hysteresis. Data: loss_difference.csv.

    python figures/loss_difference.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import statmech_attn as sa
from statmech_attn.store import replacing

HERE = Path(__file__).parent
OMEGAS = (0.0, 0.1, 0.2, 0.3, 0.4)
ALPHAS = np.linspace(0.4, 2.5, 85)


def rows() -> list[tuple[float, float, float, bool, float]]:
    """(omega, alpha, relative loss difference, both stable, alpha_c)."""
    found = []
    for omega in OMEGAS:
        model = sa.PositionalSemantic(alpha=0.7, omega=omega)
        pair = [
            sa.trace(model, "alpha", (0.4, 2.5), start=start, at=ALPHAS, accuracy=1e-4, events=[])
            for start in ("semantic", "positional")
        ]
        critical = sa.coexistence(*pair).parameter
        for alpha in ALPHAS:
            states = [branch.at(float(alpha)) for branch in pair]
            # of several states the one of least train loss
            best = [min(s, key=lambda row: row.potential) for s in states if s]
            if len(best) == 2:
                one, two = best
                difference = (one.potential - two.potential) / (0.5 * (one.potential + two.potential))
                stable = one.stability.static and two.stability.static
                found.append((omega, float(alpha), difference, stable, critical))
    return found


def main() -> None:
    path = HERE / "loss_difference.csv"
    if not path.exists():
        with replacing(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["omega", "alpha", "relative_difference", "both_stable", "alpha_c"])
            writer.writerows((w, a, d, int(s), c) for w, a, d, s, c in rows())
    table = np.genfromtxt(path, delimiter=",", names=True)
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots(figsize=(3.4, 2.6))
    for k, omega in enumerate(OMEGAS):
        part = table[table["omega"] == omega]
        x, y, stable = part["alpha"], 100 * part["relative_difference"], part["both_stable"] == 1
        axes.plot(x, y, ":", color=f"C{k}")
        axes.plot(x, np.where(stable, y, np.nan), "-", color=f"C{k}", label=f"omega = {omega:g}")
        axes.plot(part["alpha_c"][0], 0, "o", color=f"C{k}", markersize=4, markerfacecolor="white", zorder=5)
    axes.axhline(0, color="0.5", linewidth=0.6, zorder=0)
    axes.set_xlabel("alpha")
    axes.set_ylabel("train loss, semantic - positional (%)")
    axes.legend()
    figure.savefig(HERE / "loss_difference.png")


if __name__ == "__main__":
    main()
