"""Statistical mechanics of attention: state equations, transitions, phase diagrams."""

from statmech_attn.continuation import Branch, Row, load_branch, locate, trace
from statmech_attn.events import Crossing, Fold, SymmetryBreaking, Transition
from statmech_attn.fixed_point import solve
from statmech_attn.positional_semantic import PositionalSemantic
from statmech_attn.stability import Stability, stability
from statmech_attn.theory import ConvergenceError, Solution, Status, Theory, replace

__version__ = "0.1.0"

__all__ = [
    "Branch",
    "ConvergenceError",
    "Crossing",
    "Fold",
    "PositionalSemantic",
    "Row",
    "Solution",
    "Stability",
    "Status",
    "SymmetryBreaking",
    "Theory",
    "Transition",
    "load_branch",
    "locate",
    "replace",
    "solve",
    "stability",
    "trace",
]
