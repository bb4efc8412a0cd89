"""Phase diagram in the (omega, alpha) plane: train-loss difference as colour, every transition as a line.

The colour comes from a grid of branches, the lines from following located events in omega (no grid). Data beside the
picture: phase_diagram.npz (grid), phase_diagram_lines.csv (lines).

    python figures/phase_diagram.py [workers]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import statmech_attn as sa
from statmech_attn.plotting import plot_loss_difference
from statmech_attn.positional_semantic import linear_excess
from statmech_attn.store import replacing

HERE = Path(__file__).parent
OMEGAS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.42]


def lines() -> dict[str, sa.Line]:
    """Every line, followed from branches at one value of omega."""
    settings = {"accuracy": 1e-4}
    at_03, at_0, at_022 = (sa.PositionalSemantic(alpha=a, omega=w) for a, w in ((1.24, 0.3), (0.6, 0.0), (1.0, 0.22)))
    events = [sa.SymmetryBreaking("m"), sa.SymmetryBreaking("theta"), sa.Crossing(linear_excess, "linear")]
    semantic = sa.trace(at_03, "alpha", (0.6, 1.8), start="semantic", events=events, **settings)
    positional = sa.trace(at_03, "alpha", (0.05, 1.8), start="positional", **settings)
    island = sa.trace(at_0, "alpha", (0.05, 1.5), start="positional", **settings)
    turning = sa.trace(at_022, "alpha", (0.5, 2.5), start="positional", **settings)
    stable, birth, beats = semantic.events
    by_name = {event.name: event for event in island.events}
    upper = max((e for e in island.events if e.name == "symmetry breaking in m"), key=lambda e: e.parameter)
    fold = next(event for event in turning.events if event.name == "fold")
    start = {
        "coexistence": sa.coexistence(semantic, positional),
        "semantic beats linear": beats,
        "m-pitchfork": positional.events[0],
        "upper m-pitchfork": upper,
        "theta-pitchfork": birth,
        "semantic stable above": stable,
        "positional stable below": by_name["symmetry breaking in theta"],
        "positional fold": fold,
    }
    top = {"positional stable below": 0.26, "positional fold": 0.3, "upper m-pitchfork": 0.35}
    found = {}
    for name, event in start.items():
        high = top.get(name, OMEGAS[-1])
        at = [w for w in OMEGAS if w <= high]
        # a fold differentiates twice, the theta-pitchfork divides by theta: both need a finer rule
        accuracy = {"positional fold": 1e-5, "theta-pitchfork": 1e-6}.get(name, 1e-4)
        low = 0.15 if name == "positional fold" else 0.0  # below, it lies at alpha > 5
        at = [w for w in at if w >= low]
        found[name] = sa.critical_line(event, "omega", (low, high), at=at, accuracy=accuracy)
        print(name, found[name])
    return found


def write(found: dict[str, sa.Line], path: Path) -> None:
    """Lines as CSV."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["line", "omega", "alpha", "residual"])
        for name, line in found.items():
            rows = zip(line["omega"].tolist(), line["alpha"].tolist(), line.residual.tolist(), strict=True)
            writer.writerows([name, *row] for row in rows)


def read(path: Path) -> dict[str, np.ndarray]:
    """Lines from CSV: name -> (omega, alpha)."""
    found: dict[str, list[tuple[float, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["line"], []).append((float(row["omega"]), float(row["alpha"])))
    return {name: np.array(rows).T for name, rows in found.items()}


def draw(diagram: sa.PhaseDiagram, found: dict[str, np.ndarray]) -> None:
    """The picture."""
    plt.style.use(HERE / "style.mplstyle")
    figure, axes = plt.subplots(figsize=(5.6, 3.9))
    mesh = plot_loss_difference(axes, diagram, "semantic", "positional")
    figure.colorbar(mesh, label="(E_semantic - E_positional) / mean")
    looks = {
        "coexistence": ("black", "-", 2.4, "equal train loss, alpha_c"),
        "semantic beats linear": ("black", "--", 1.5, "semantic beats linear, alpha_l"),
        "theta-pitchfork": ("#D55E00", "-", 1.3, "semantic born"),
        "semantic stable above": ("#D55E00", "--", 1.3, "semantic stable above"),
        "m-pitchfork": ("#0072B2", "-", 1.3, "positional born"),
        "upper m-pitchfork": ("#0072B2", "-.", 1.3, "m-pitchfork, upper"),
        "positional stable below": ("#0072B2", "--", 1.3, "positional stable below"),
        "positional fold": ("#CC79A7", "-", 1.6, "positional fold"),
    }
    for name, (colour, style, width, label) in looks.items():
        axes.plot(*found[name], style, color=colour, linewidth=width, label=label)
    axes.set_xlim(0, 0.42)
    axes.set_ylim(0.03, 2.5)
    axes.set_xlabel("omega, share of the positional target")
    axes.set_ylabel("alpha, samples per dimension")
    axes.set_facecolor("0.92")
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(HERE / "phase_diagram.png")


def main(workers: int) -> None:
    if not (HERE / "phase_diagram_lines.csv").exists():
        write(lines(), HERE / "phase_diagram_lines.csv")
    if not (HERE / "phase_diagram.npz").exists():
        with sa.local_pool(workers) as executor:
            sa.phase_diagram(
                sa.PositionalSemantic(alpha=1.0), starts=("positional", "semantic"), executor=executor,
                checkpoint=HERE / "phase_diagram_checkpoint.npz", progress=True,
                alpha=np.linspace(0.05, 2.5, 50), omega=np.linspace(0.0, 0.42, 22),
            ).save(HERE / "phase_diagram.npz")  # fmt: skip
        (HERE / "phase_diagram_checkpoint.npz").unlink()
    draw(sa.load_diagram(HERE / "phase_diagram.npz"), read(HERE / "phase_diagram_lines.csv"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
