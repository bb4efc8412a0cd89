r"""Quadrature rules of the channel integrals: the node counts behind ``accuracy=`` and their measured errors.

The columns of `TABLE`: accuracy the rule is meant for; Gauss-Legendre nodes of a teacher half axis (for every stretch
between the curves where the two-well region is born); trapezoid nodes on a half axis of zeta_v; midpoint nodes of a
whole zeta_u line; Gauss-Legendre nodes of a panel that starts at a jump; range in standard deviations; weight below
which lines are dropped; line defect above which a line is integrated again with finer panels.

Largest relative error of q_hat, m_hat, V_hat, theta_hat and E M at three states (semantic and positional at
alpha = 1.24, semantic at alpha = 2, omega = .3) against the last rule: 2e-5, 1e-6, 5e-7, 2e-7, 8e-8 (the differences
of the last two are at the level of the last rule itself). `tests/positional_semantic/test_channel.py` repeats this.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from statmech_attn.quadrature import extrapolation, gauss_legendre, midpoint, normal_trapezoid

__all__ = ["TABLE", "channel_rule", "rules_for"]

TABLE = (
    (1e-4, 8, 7, 20, 12, 5.0, 1e-9, 1e-7),
    (1e-5, 10, 8, 25, 15, 5.4, 1e-10, 1e-8),
    (1e-6, 12, 9, 29, 18, 5.8, 1e-11, 1e-9),
    (1e-7, 16, 12, 36, 24, 6.2, 1e-12, 1e-10),
    (1e-8, 20, 16, 44, 28, 6.6, 1e-13, 1e-11),
    (0.0, 26, 24, 54, 32, 7.0, 1e-14, 1e-12),
)


def rules_for(accuracy: float) -> tuple[int, ...]:
    """Rows of the table from the one meant for `accuracy` to the last; two at least, as one measures the other."""
    first = next(i for i, row in enumerate(TABLE) if row[0] <= accuracy)
    return tuple(range(min(first, len(TABLE) - 2), len(TABLE)))


@lru_cache
def channel_rule(level: int) -> tuple[Any, ...]:
    """Arrays of a row of the table, as :func:`.channel.channel_averages` takes them."""
    _, teacher, half_zeta, whole, panel, reach, negligible, tolerance = TABLE[level]
    return (
        gauss_legendre(teacher),
        reach,
        normal_trapezoid(half_zeta, reach),
        (_panels(whole, panel), _panels(2 * whole, 2 * panel)),
        negligible,
        tolerance,
    )


def _panels(whole: int, panel: int) -> tuple[Any, Any]:
    """(nodes, weights, extrapolation, Newton corrections) for a whole line and for a panel that starts at a jump."""
    pairs = []
    # v is only guessed where a whole line begins, and known to round-off at a jump
    for (nodes, weights), first in ((midpoint(whole), (5, 2)), (gauss_legendre(panel), (2, 1))):
        corrections = np.ones(nodes.size, dtype=np.int64)
        corrections[:2] = first
        pairs.append((nodes, weights, extrapolation(nodes, 4), corrections))
    return pairs[0], pairs[1]
