"""Statistical mechanics of attention: state equations, transitions, phase diagrams."""

from statmech_attn.fixed_point import solve
from statmech_attn.positional_semantic import PositionalSemantic
from statmech_attn.theory import ConvergenceError, Solution, Status, Theory, replace

__version__ = "0.1.0"

__all__ = ["ConvergenceError", "PositionalSemantic", "Solution", "Status", "Theory", "replace", "solve"]
