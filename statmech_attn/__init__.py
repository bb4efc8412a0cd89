"""Statistical mechanics of attention: state equations, transitions, phase diagrams.

Public names are loaded on first use, so that importing the package (and the command line's ``--help``) is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.comparison import compare
    from statmech_attn.continuation import Branch, load_branch, locate, trace
    from statmech_attn.copy_head import CopyHead
    from statmech_attn.curve import Row
    from statmech_attn.diagram import PhaseDiagram, load_diagram, local_pool, phase_diagram
    from statmech_attn.events import Crossing, Fold, SymmetryBreaking, Transition
    from statmech_attn.fixed_point import solve
    from statmech_attn.linear_stability import Stability, stability
    from statmech_attn.multistart import solutions
    from statmech_attn.positional_semantic import AttentionLayer, PositionalSemantic, Spectrum
    from statmech_attn.positional_semantic.amp import amp
    from statmech_attn.positional_semantic.training import train
    from statmech_attn.store import load, save
    from statmech_attn.theory import ConvergenceError, Solution, Status, Theory, replace
    from statmech_attn.transitions import Line, coexistence, critical_line, switch
    from statmech_attn.verification import verify

__version__ = "0.1.0"

_HOME = {
    "AttentionLayer": "positional_semantic",
    "Branch": "continuation",
    "ConvergenceError": "theory",
    "Crossing": "events",
    "Fold": "events",
    "Line": "transitions",
    "PhaseDiagram": "diagram",
    "CopyHead": "copy_head",
    "PositionalSemantic": "positional_semantic",
    "Row": "curve",
    "Solution": "theory",
    "Spectrum": "positional_semantic",
    "Stability": "linear_stability",
    "Status": "theory",
    "SymmetryBreaking": "events",
    "Theory": "theory",
    "Transition": "events",
    "amp": "positional_semantic.amp",
    "coexistence": "transitions",
    "compare": "comparison",
    "critical_line": "transitions",
    "load": "store",
    "load_branch": "continuation",
    "load_diagram": "diagram",
    "local_pool": "diagram",
    "locate": "continuation",
    "phase_diagram": "diagram",
    "replace": "theory",
    "save": "store",
    "solutions": "multistart",
    "solve": "fixed_point",
    "stability": "linear_stability",
    "switch": "transitions",
    "trace": "continuation",
    "train": "positional_semantic.training",
    "verify": "verification",
}
_SUBPACKAGES = ("copy_head", "induction", "positional_semantic")

__all__ = [
    "AttentionLayer",
    "Branch",
    "ConvergenceError",
    "CopyHead",
    "Crossing",
    "Fold",
    "Line",
    "PhaseDiagram",
    "PositionalSemantic",
    "Row",
    "Solution",
    "Spectrum",
    "Stability",
    "Status",
    "SymmetryBreaking",
    "Theory",
    "Transition",
    "amp",
    "coexistence",
    "compare",
    "critical_line",
    "load",
    "load_branch",
    "load_diagram",
    "local_pool",
    "locate",
    "phase_diagram",
    "replace",
    "save",
    "solutions",
    "solve",
    "stability",
    "switch",
    "trace",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"statmech_attn.{_HOME[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"statmech_attn.{name}")
    raise AttributeError(f"module 'statmech_attn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_SUBPACKAGES])
