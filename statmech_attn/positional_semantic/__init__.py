"""Positional versus semantic learning in a solvable attention layer (Cui, Behrens, Krzakala, Zdeborova)."""

from statmech_attn.positional_semantic.model import PositionalSemantic
from statmech_attn.positional_semantic.observables import linear_baseline, linear_excess
from statmech_attn.positional_semantic.proximal import proximal_operator

__all__ = ["PositionalSemantic", "linear_baseline", "linear_excess", "proximal_operator"]
