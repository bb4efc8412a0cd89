"""Gauss and trapezoid rules as plain arrays (nodes, weights)."""

from __future__ import annotations

import numpy as np

from statmech_attn.theory import Array

__all__ = ["extrapolation", "gauss_legendre", "midpoint", "normal_trapezoid"]


def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Gauss-Legendre rule on [0, 1]: exact for polynomials of degree 2 n - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


def midpoint(n: int) -> tuple[Array, Array]:
    """Midpoint rule on [0, 1]; converges exponentially where the integrand vanishes at both ends."""
    return (np.arange(n) + 0.5) / n, np.full(n, 1 / n)


def normal_trapezoid(n: int, reach: float) -> tuple[Array, Array]:
    """2 n + 1 equally spaced nodes on [-reach, reach] for the standard normal weight; weights sum to one.

    For an analytic integrand the error falls like exp(-2 (pi n / reach)^2) plus the tail beyond `reach`.

    Examples
    --------
    >>> x, w = normal_trapezoid(8, 5.2)
    >>> print(f"{w @ x**4:.6f}")
    2.999977
    """
    nodes = np.linspace(-reach, reach, 2 * n + 1)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def extrapolation(nodes: Array, order: int) -> Array:
    """Coefficients that extrapolate a function to each node from its values at the `order` nodes before it.

    The point 0 counts as a node before the first. Row k holds the Lagrange coefficients for node k, the nearest
    predecessor first, padded with zeros.
    """
    points = np.concatenate([[0.0], nodes])
    table = np.zeros((nodes.size, order))
    for k, x in enumerate(nodes):
        known = points[: k + 1][::-1][:order]
        for j, p in enumerate(known):
            others = np.delete(known, j)
            table[k, j] = np.prod((x - others) / (p - others))
    return table
