"""Order parameters at omega = 0.3: equilibrium, metastable and unstable states, with gradient descent at d = 1000.

Thick: equilibrium (least train loss); thin: metastable (potential stable); dotted: unstable. Points: gradient descent
from semantic (circles) and random (triangles) initialisation, mean and standard deviation, where the reference table is
at hand. Data: stability_<branch>.npz.

    python figures/stability.py [gradient_descent.csv]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, plot_branch

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "shared" / "reference" / "positional_semantic_gradient_descent_d1000.csv"
INTERVAL = (0.03, 2.5)
SIGMA = 0.5


def branches() -> dict[str, sa.Branch]:
    """The three branches, computed or read."""
    model = sa.PositionalSemantic(alpha=1.24, omega=0.3, sigma=SIGMA)
    found = {}
    for start in model.starts:
        path = HERE / f"stability_{start}.npz"
        if not path.exists():
            sa.trace(model, "alpha", INTERVAL, start=start, accuracy=1e-4, maximum_step=0.06).save(path)
        found[start] = sa.load_branch(path)
    return found


def draw(found: dict[str, sa.Branch], reference: Path) -> None:
    """The picture."""
    jump = sa.coexistence(found["semantic"], found["positional"]).parameter
    plt.style.use(HERE / "style.mplstyle")
    figure, pair = plt.subplots(1, 2, figsize=(6.6, 2.7), sharex=True)
    for axes, name, label in zip(pair, ("m", "theta"), ("positional overlap m", "semantic overlap theta"), strict=True):
        for start, branch in found.items():
            plot_branch(axes, branch, name, label=start)
            equilibrium = {"semantic": branch.parameter >= jump, "positional": branch.parameter <= jump}
            if start in equilibrium:
                x, y = branch.parameter[equilibrium[start]], branch[name][equilibrium[start]]
                axes.plot(x, y, "-", color=COLOURS[start], linewidth=3.5, alpha=0.45)
        axes.axvline(jump, color="0.6", linewidth=0.6, zorder=0)
        axes.set_ylabel(label)
        if reference.exists():
            rows = np.genfromtxt(reference, delimiter=",", names=True, dtype=None, encoding="utf-8")
            rows = rows[np.isclose(rows["omega"], 0.3)]
            # the table's theta is Q*.Q/d: the overlap of this package is sigma^2 times that
            factor = SIGMA**2 if name == "theta" else 1.0
            for start, marker in (("semantic", "o"), ("random", "^")):
                part = rows[rows["initialization"] == start]
                axes.errorbar(
                    part["alpha"], factor * np.abs(part[f"{name}_mean"]), factor * part[f"{name}_std"], fmt=marker,
                    color="0.35", markersize=2.5, elinewidth=0.6, label=f"gradient descent, {start}", zorder=4,
                )  # fmt: skip
    pair[0].set_xlim(0, INTERVAL[1])
    figure.legend(*pair[1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(HERE / "stability.png")


if __name__ == "__main__":
    draw(branches(), Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE)
