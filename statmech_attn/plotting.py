"""Pictures: functions that take Axes and return Axes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from statmech_attn.fixed_point import solve
from statmech_attn.store import replacing
from statmech_attn.theory import Array, Solution, replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from statmech_attn.comparison import Comparison
    from statmech_attn.continuation import Branch
    from statmech_attn.diagram import PhaseDiagram

__all__ = [
    "plot_against",
    "plot_branch",
    "plot_comparison",
    "plot_loss_difference",
    "plot_transitions",
    "save_order_parameters",
    "scan",
]

# Okabe and Ito's colours, distinguishable by colour-blind readers
COLOURS = {"uninformed": "#000000", "positional": "#0072B2", "semantic": "#D55E00", "mixed": "#009E73"}
MARKERS = {"uninformed": "s", "positional": "^", "semantic": "o", "mixed": "D"}


def scan(theory: Any, parameter: str, values: Sequence[float] | Array, **settings: Any) -> dict[str, list[Solution]]:
    """Solutions from every named start of a theory at many values of a parameter, those that converged."""
    found: dict[str, list[Solution]] = {}
    for start in theory.starts:
        solutions = (solve(replace(theory, **{parameter: float(x)}), start, **settings) for x in values)
        found[start] = [s for s in solutions if s.converged]
    return found


def plot_against(axes: Axes, branches: Mapping[str, Sequence[Solution]], parameter: str, name: str) -> Axes:
    """Draw an order parameter or observable `name` of every branch against a parameter."""
    for branch, solutions in branches.items():
        if not solutions:
            continue
        x = [getattr(s.theory, parameter) for s in solutions]
        axes.plot(x, [s[name] for s in solutions], color=COLOURS.get(branch), label=branch)
    axes.set_xlabel(parameter)
    axes.set_ylabel(name.replace("_", " "))
    return axes


def save_order_parameters(theory: Any, path: str | os.PathLike[str], points: int = 24) -> None:
    """Write a picture of order parameters and potential of every branch against the theory's control parameter.

    The parameter (alpha, samples) runs from a twentieth of its value to twice the value.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"the picture {str(path)!r} must end in .png, .pdf or .svg")
    # the file is opened first: a folder that does not exist should not be found out after the work
    with replacing(path) as temporary:
        here = getattr(theory, theory.control)
        branches = scan(theory, theory.control, np.linspace(here / 20, 2 * here, points), accuracy=1e-4)
        potential = next(next(iter(s.observables)) for found in branches.values() for s in found)
        names = (*theory.order_parameters[:3], potential)
        figure = Figure(figsize=(2.25 * len(names), 2.8), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, name in zip(np.ravel(figure.subplots(1, len(names))), names, strict=True):
            plot_against(axes, branches, theory.control, name)
            axes.axvline(here, color="0.8", zorder=0)
        figure.axes[0].legend(frameon=False)
        figure.savefig(temporary, dpi=150)


def plot_branch(axes: Axes, branch: Branch, name: str, *, colour: str | None = None, label: str | None = None) -> Axes:
    """Draw a column of a branch against its parameter: solid where the potential is stable, dotted where not."""
    colour = colour or COLOURS.get(branch.start, "#009E73")
    column = branch[name]
    stable = branch.static
    # a segment is drawn as its less stable end
    ends = stable[:-1] & stable[1:]
    cuts = [0, *(np.flatnonzero(np.diff(ends.astype(int))) + 1).tolist(), len(ends)]
    for a, b in pairwise(cuts):
        if a < b:
            part = slice(a, b + 1)
            style = "-" if ends[a] else ":"
            axes.plot(branch.parameter[part], column[part], style, color=colour, label=label)
            label = None
    axes.set_xlabel(branch.parameter_name)
    axes.set_ylabel(name.replace("_", " "))
    return axes


def plot_comparison(
    axes: Axes, comparison: Comparison, name: str, *, colour: str | None = None, label: str | None = None
) -> Axes:
    """Draw means of a number against d^-1 or d^-1/2, their extrapolation (at zero), and the theory as a line."""
    limit, means = comparison[name], comparison.at(name)
    colour = colour or COLOURS.get(comparison.solution.branch, "#009E73")
    power = 0.5 if limit.law == "1/sqrt d" else 1.0
    x = np.array([m.dimension for m in means]) ** -power
    ends = np.array([0.0, x.max()])
    axes.errorbar(x, [m.mean for m in means], [m.error for m in means], fmt="o", color=colour, label=label)
    axes.errorbar([0.0], [limit.value], [limit.error], fmt="o", mfc="white", color=colour)
    axes.plot(ends, limit.value + limit.slope * ends, "--", lw=0.8, color=colour)
    axes.axhline(limit.theory, color="0.5", lw=0.8, zorder=0)
    axes.set_xlabel("1/√d" if power == 0.5 else "1/d")
    axes.set_ylabel(name.replace("_", " "))
    return axes


def plot_loss_difference(axes: Axes, diagram: PhaseDiagram, start: str, other: str) -> Any:
    """Colour the plane by the potential of one branch minus that of another, in units of their mean; the mesh drawn."""
    (first, a), (second, b) = diagram.axes.items()
    one, two = diagram.grid("potential", start), diagram.grid("potential", other)
    difference = (one - two) / (0.5 * (one + two))
    size = float(np.nanmax(np.abs(difference)))
    mesh = axes.pcolormesh(b, a, difference, cmap="PuOr_r", vmin=-size, vmax=size, shading="nearest", rasterized=True)
    axes.set_xlabel(second)
    axes.set_ylabel(first)
    return mesh


def plot_transitions(axes: Axes, diagram: PhaseDiagram) -> Axes:
    """Draw the located events of a diagram as lines over the slices; a line for every event of every branch."""
    table = diagram.transitions
    first, second = diagram.axes
    pairs = dict.fromkeys(zip(table["name"].tolist(), table["start"].tolist(), strict=True)) if table else {}
    for k, (name, start) in enumerate(pairs):
        rows = (table["name"] == name) & (table["start"] == start)
        style = {"color": "black", "linewidth": 2.0} if name == "coexistence" else {"color": f"C{k}", "marker": "."}
        label = f"{name} ({start.replace('|', ', ')})"
        # a branch may meet an event twice on a slice: points, joined only where there is one
        alone = np.array([np.sum(rows & (table[second] == v)) == 1 for v in table[second][rows]], dtype=bool)
        joined = np.where(alone, table[first][rows], np.nan)
        line = axes.plot(table[second][rows], joined, label=label, **style)[0]
        axes.plot(table[second][rows][~alone], table[first][rows][~alone], ".", color=line.get_color())
    axes.set_xlabel(second)
    axes.set_ylabel(first)
    return axes
