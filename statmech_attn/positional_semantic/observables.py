r"""Test error, linear baseline and stability indicators of the two-token model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from statmech_attn.positional_semantic.attention import FAST, loss_derivatives, teacher_attention
from statmech_attn.quadrature import normal_trapezoid

__all__ = ["linear_baseline", "linear_excess", "mean_loss"]


@njit(error_model="numpy", fastmath=FAST, cache=True)
def _mean_loss(m, theta, q, sigma, omega, a1, a2, nodes, weights):  # type: ignore[no-untyped-def]
    slope = theta / sigma
    s = math.sqrt(q - slope * slope)
    total = 0.0
    for i in range(nodes.size):
        for j in range(nodes.size):
            t1, t2 = teacher_attention(sigma * nodes[i], sigma * nodes[j], omega, a1, a2)
            inner = 0.0
            for k in range(nodes.size):
                u = math.sqrt(2.0) * m + slope * nodes[i] + s * nodes[k]
                line = 0.0
                for k2 in range(nodes.size):
                    v = slope * nodes[j] + s * nodes[k2]
                    value, _, _, _, _, _ = loss_derivatives(u, v, t1, t2, sigma * sigma)
                    line += weights[k2] * value
                inner += weights[k] * line
            total += weights[i] * weights[j] * inner
    return total


def mean_loss(
    m: float, theta: float, q: float, sigma: float, omega: float, a1: float, a2: float, half: int, reach: float
) -> float:
    """E loss(h*, omega): error of a fresh sample, no proximal operator (V does not enter).

    Tensor trapezoid rule with 2 half + 1 nodes an axis; the integrand is smooth, so it converges exponentially.
    """
    nodes, weights = normal_trapezoid(half, reach)
    return float(_mean_loss(m, theta, q, sigma, omega, a1, a2, nodes, weights))


def linear_baseline(sigma: float, omega: float) -> float:
    r"""Smallest test error of a linear layer, half of E tr (T - E T) Sigma (T - E T)^T.

    Half the mean squared error, as every error of this package. The fixed part of the target is linear, so only the
    teacher's softmax counts: :math:`\epsilon=\sigma^2(1-\omega)^2(\mathrm{Var}\,S_{11}+\mathrm{Var}\,S_{22})`.

    Examples
    --------
    >>> print(f"{2 * linear_baseline(0.5, 0.3):.6f}")
    0.003943
    """
    nodes, weights = normal_trapezoid(30, 7.0)
    h1, h2 = np.meshgrid(sigma * nodes, sigma * nodes)
    w = np.outer(weights, weights)
    s11 = 1 / (1 + np.exp(-h1 * (h1 - h2)))
    variance = np.sum(w * s11**2) - np.sum(w * s11) ** 2
    return float(2 * sigma**2 * (1 - omega) ** 2 * variance)


def linear_excess(row: Any) -> float:
    """Test error of a row or solution above that of the best linear layer; crosses zero where attention pays off.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> linear_excess(sa.solve(sa.PositionalSemantic(alpha=2.0, omega=0.3), start="semantic")) < 0
    True
    """
    return float(row.test_error - row.linear_baseline)
