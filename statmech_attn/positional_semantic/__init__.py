"""Positional versus semantic learning in a solvable attention layer (Cui, Behrens, Krzakala, Zdeborova).

Public names are loaded on first use, so that the command line's ``--help`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.positional_semantic.amp import Evolution, state_evolution
    from statmech_attn.positional_semantic.data import Instance, instance
    from statmech_attn.positional_semantic.layer import AttentionLayer
    from statmech_attn.positional_semantic.linear import LinearLayer, linear_layer
    from statmech_attn.positional_semantic.model import PositionalSemantic
    from statmech_attn.positional_semantic.observables import linear_baseline, linear_excess
    from statmech_attn.positional_semantic.proximal import proximal_operator
    from statmech_attn.positional_semantic.risk import Risk, expected_error
    from statmech_attn.positional_semantic.runs import Overlaps, Run, write_runs
    from statmech_attn.positional_semantic.spectrum import Spectrum
    from statmech_attn.positional_semantic.training import simulate, train

_HOME = {
    "AttentionLayer": "layer",
    "Evolution": "amp",
    "Instance": "data",
    "LinearLayer": "linear",
    "Overlaps": "runs",
    "PositionalSemantic": "model",
    "Risk": "risk",
    "Run": "runs",
    "Spectrum": "spectrum",
    "expected_error": "risk",
    "instance": "data",
    "linear_baseline": "observables",
    "linear_excess": "observables",
    "linear_layer": "linear",
    "proximal_operator": "proximal",
    "simulate": "training",
    "state_evolution": "amp",
    "train": "training",
    "write_runs": "runs",
}

__all__ = [
    "AttentionLayer",
    "Evolution",
    "Instance",
    "LinearLayer",
    "Overlaps",
    "PositionalSemantic",
    "Risk",
    "Run",
    "Spectrum",
    "expected_error",
    "instance",
    "linear_baseline",
    "linear_excess",
    "linear_layer",
    "proximal_operator",
    "simulate",
    "state_evolution",
    "train",
    "write_runs",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"statmech_attn.positional_semantic.{_HOME[name]}"), name)
    raise AttributeError(f"module 'statmech_attn.positional_semantic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
