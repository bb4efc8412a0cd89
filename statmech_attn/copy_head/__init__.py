"""Emergence of a copy head: actions, transitions, scaling laws, and simulations (Lavie et al., arXiv 2606.12058).

Public names are loaded on first use, so that the command line's ``--help`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.copy_head.action import (
        Sums,
        averaged_action,
        exact_action,
        mean_values,
        prior_cost,
        shift,
        sums_of,
    )
    from statmech_attn.copy_head.data import pair_counts, sample_tokens
    from statmech_attn.copy_head.model import CopyHead
    from statmech_attn.copy_head.observables import Measured, excess_coverage, measure
    from statmech_attn.copy_head.sampling import Chains, effective_sample_size, hmc, sample_reduced, sgld, split_rhat
    from statmech_attn.copy_head.scaling import (
        CriticalSamples,
        ScalingFit,
        closed_forms,
        critical_samples,
        scaling_exponents,
    )
    from statmech_attn.copy_head.training import Energy, Parameters, Trained, sweep, train, train_blocks

_HOME = {
    "Chains": "sampling",
    "CopyHead": "model",
    "CriticalSamples": "scaling",
    "Energy": "training",
    "Measured": "observables",
    "Parameters": "training",
    "ScalingFit": "scaling",
    "Sums": "action",
    "Trained": "training",
    "exact_action": "action",
    "averaged_action": "action",
    "closed_forms": "scaling",
    "critical_samples": "scaling",
    "effective_sample_size": "sampling",
    "excess_coverage": "observables",
    "hmc": "sampling",
    "mean_values": "action",
    "measure": "observables",
    "pair_counts": "data",
    "prior_cost": "action",
    "sample_reduced": "sampling",
    "sample_tokens": "data",
    "scaling_exponents": "scaling",
    "sgld": "sampling",
    "shift": "action",
    "split_rhat": "sampling",
    "sums_of": "action",
    "sweep": "training",
    "train": "training",
    "train_blocks": "training",
}

__all__ = [
    "Chains",
    "CopyHead",
    "CriticalSamples",
    "Energy",
    "Measured",
    "Parameters",
    "ScalingFit",
    "Sums",
    "Trained",
    "averaged_action",
    "closed_forms",
    "critical_samples",
    "effective_sample_size",
    "exact_action",
    "excess_coverage",
    "hmc",
    "mean_values",
    "measure",
    "pair_counts",
    "prior_cost",
    "sample_reduced",
    "sample_tokens",
    "scaling_exponents",
    "sgld",
    "shift",
    "split_rhat",
    "sums_of",
    "sweep",
    "train",
    "train_blocks",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"statmech_attn.copy_head.{_HOME[name]}"), name)
    raise AttributeError(f"module 'statmech_attn.copy_head' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
