"""Genealogy of the branches in alpha: where each is born, from which, and where it is stable.

Columns: omega = 0.1 (the positional branch is an island between two pitchforks), 0.22 (its upper pitchfork is met from
above: the branch turns back at a fold) and 0.3 (beyond the tip of the line of folds, at omega = 0.241, the branch runs
on; the upper pitchfork bears a second, unstable positional branch).
Solid: no direction of the potential is unstable; dotted: some are. Data: bifurcation_<omega>_<k>.npz.

    python figures/bifurcation.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import statmech_attn as sa
from statmech_attn.plotting import COLOURS, plot_branch

HERE = Path(__file__).parent
INTERVAL = (0.03, 3.0)
OMEGAS = (0.1, 0.22, 0.3)


def genealogy(omega: float) -> list[sa.Branch]:
    """The uninformed branch and every branch that pitchforks give birth to, each curve once."""
    model = sa.PositionalSemantic(alpha=0.6, omega=omega)
    branches = [sa.trace(model, "alpha", INTERVAL, start="uninformed", accuracy=1e-4, maximum_step=0.06)]
    seen: list[tuple[str, float]] = []
    for parent in branches:  # grows while it is walked through
        for event in parent.events:
            birth = (event.name, round(event.parameter, 3))
            if event.name == "fold" or birth in seen:
                continue
            seen.append(birth)
            arm, _ = sa.switch(event, INTERVAL, accuracy=1e-4, maximum_step=0.06)
            branches.append(arm)
            # a branch may end in another pitchfork: it need not be followed from there as well
            seen += [(e.name, round(e.parameter, 3)) for e in arm.events if _is_end(arm, e)]
    return branches


def _is_end(branch: sa.Branch, event: sa.Transition) -> bool:
    return any(abs(event.parameter - p) < 1e-6 for p in branch.parameter[[0, -1]])


def kind(branch: sa.Branch) -> str:
    """Name of what is broken in the middle of a branch."""
    return branch.theory.branch(branch.state[len(branch) // 2])


def draw(found: dict[float, list[sa.Branch]]) -> None:
    """The picture."""
    plt.style.use(HERE / "style.mplstyle")
    figure, grid = plt.subplots(2, len(found), figsize=(7.0, 3.6), sharex=True, sharey="row")
    for column, (omega, branches) in zip(grid.T, found.items(), strict=True):
        for axes, name in zip(column, ("m", "theta"), strict=True):
            labelled = set()
            for branch in branches:
                label = kind(branch)
                plot_branch(axes, branch, name, colour=COLOURS[label], label=None if label in labelled else label)
                labelled.add(label)
                for event in branch.events:
                    y = event.states[0][branch.theory.order_parameters.index(name)]
                    marker = "v" if event.name == "fold" else "o"
                    axes.plot(event.parameter, y, marker, color="black", markersize=3.5, zorder=5)
            axes.set_xlabel("")
            axes.set_ylabel("")
        column[0].set_title(f"omega = {omega:g}")
        column[1].set_xlabel("alpha")
        column[1].set_xlim(0, INTERVAL[1])
    grid[0, 0].set_ylabel("positional overlap m")
    grid[1, 0].set_ylabel("semantic overlap theta")
    grid[1, 0].legend()
    figure.savefig(HERE / "bifurcation.png")


def main() -> None:
    found = {}
    for omega in OMEGAS:
        files = sorted(HERE.glob(f"bifurcation_{omega:g}_*.npz"))
        if files:
            found[omega] = [sa.load_branch(file) for file in files]
            continue
        found[omega] = genealogy(omega)
        for k, branch in enumerate(found[omega]):
            branch.save(HERE / f"bifurcation_{omega:g}_{k}.npz")
            print(kind(branch), branch)
    draw(found)


if __name__ == "__main__":
    main()
