"""Statistical mechanics of attention: state equations, transitions, phase diagrams.

Public names are loaded on first use, so that importing the package (and the command line's ``--help``) is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.fixed_point import solve
    from statmech_attn.positional_semantic import PositionalSemantic
    from statmech_attn.store import load, save
    from statmech_attn.theory import ConvergenceError, Solution, Status, Theory, replace

__version__ = "0.1.0"

_HOME = {
    "ConvergenceError": "theory",
    "PositionalSemantic": "positional_semantic",
    "Solution": "theory",
    "Status": "theory",
    "Theory": "theory",
    "load": "store",
    "replace": "theory",
    "save": "store",
    "solve": "fixed_point",
}
_SUBPACKAGES = ("induction", "positional_semantic")

__all__ = [
    "ConvergenceError",
    "PositionalSemantic",
    "Solution",
    "Status",
    "Theory",
    "load",
    "replace",
    "save",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"statmech_attn.{_HOME[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"statmech_attn.{name}")
    raise AttributeError(f"module 'statmech_attn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_SUBPACKAGES])
