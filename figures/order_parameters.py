"""Order parameters, training loss and test error against alpha on the three branches at omega = .3.

Lines: converged solutions (errors below the line width). Points: the tables published with the paper (Cui, Behrens,
Krzakala, Zdeborova, arXiv 2402.03902), reproduced here with the authors' own nodes and iteration; where they leave
the lines, 12 x 12 nodes are too few for the jumps of the proximal operator.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, MARKERS, plot_against, scan

NAMES = ("q", "m", "theta", "V", "train_loss", "test_error")
LABELS = {"q": "self overlap q", "m": "positional overlap m", "theta": "semantic overlap θ", "V": "variance V",
          "train_loss": "training loss / d", "test_error": "test error"}  # fmt: skip


def main() -> None:
    use_style()
    model = sa.PositionalSemantic(alpha=1.0, omega=0.3)
    # the semantic branch is born at alpha = .72 like a square root
    grid = np.unique(np.concatenate([np.linspace(0.02, 2.0, 45), 0.7195 + 0.2 * np.linspace(0, 1, 12) ** 2]))
    branches = scan(model, "alpha", grid)
    rows = [
        {"branch": branch, "alpha": s.theory.alpha} | {name: s[name] for name in NAMES}
        for branch, solutions in branches.items()
        for s in solutions
    ]
    save_table("order_parameters", {key: [row[key] for row in rows] for key in rows[0]})

    published = {
        branch: [sa.solve(sa.replace(model, alpha=a), branch, rule="published") for a in np.linspace(0.12, 2, 15)]
        for branch in ("positional", "semantic")
    }
    figure, grid_of_axes = plt.subplots(2, 3, figsize=(7.0, 4.0))
    for axes, name in zip(grid_of_axes.flat, NAMES, strict=True):
        plot_against(axes, branches, "alpha", name)
        for branch, solutions in published.items():
            x = [s.theory.alpha for s in solutions]
            y = [s[name] for s in solutions]
            axes.plot(x, y, MARKERS[branch], color=COLOURS[branch], mfc="none", ms=3, label=f"{branch}, 12 nodes")
        axes.set(xlabel="sample complexity α", ylabel=LABELS[name])
    axes.axhline(branches["uninformed"][0].linear_baseline, color="0.6", ls=":", label="linear layer")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=6)
    save_picture("order_parameters", figure)


if __name__ == "__main__":
    main()
