"""Pictures: functions that take Axes and return Axes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from statmech_attn.fixed_point import solve
from statmech_attn.store import replacing
from statmech_attn.theory import Array, Solution, replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_against", "save_order_parameters", "scan"]

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
        y = [s[name] if name in s.theory.order_parameters else s.observables[name] for s in solutions]
        axes.plot(x, y, color=COLOURS.get(branch), label=branch)
    axes.set_xlabel(parameter)
    axes.set_ylabel(name.replace("_", " "))
    return axes


def save_order_parameters(theory: Any, path: str | os.PathLike[str], points: int = 24) -> None:
    """Write a picture of the order parameters of every branch against alpha, from alpha/20 to 2 alpha."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"the picture {str(path)!r} must end in .png, .pdf or .svg")
    branches = scan(theory, "alpha", np.linspace(theory.alpha / 20, 2 * theory.alpha, points), accuracy=1e-4)
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, 4), (*theory.order_parameters[:3], "train_loss"), strict=True):
        plot_against(axes, branches, "alpha", name)
        axes.axvline(theory.alpha, color="0.8", zorder=0)
    figure.axes[0].legend(frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
