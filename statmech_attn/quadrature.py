"""Gauss, trapezoid and quasi-Monte Carlo rules as plain arrays (nodes, weights)."""

from __future__ import annotations

import numpy as np

from statmech_attn.theory import Array

__all__ = ["extrapolation", "gauss_legendre", "midpoint", "normal_product", "normal_trapezoid", "sobol_normals"]


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


def normal_product(n: int, reach: float, dimension: int, negligible: float) -> tuple[Array, Array]:
    """Product of trapezoid rules for independent standard normals, without nodes of negligible weight.

    Parameters
    ----------
    n, reach
        As in :func:`normal_trapezoid`, for every axis.
    dimension : int
        Number of axes.
    negligible : float
        Nodes whose weight is below this share of the largest are left out; the weights kept sum to one.

    Returns
    -------
    nodes, weights : (k, dimension), (k,) array

    Examples
    --------
    >>> x, w = normal_product(8, 5.2, 2, 1e-8)
    >>> len(w), f"{w @ (x[:, 0] ** 2 * x[:, 1] ** 2):.4f}"
    (257, '1.0000')
    """
    axis, weight = normal_trapezoid(n, reach)
    # built axis by axis, so that the full product is never stored
    nodes, weights = np.zeros((1, 0)), np.ones(1)
    bound = negligible * weight.max() ** dimension
    for rest in range(dimension - 1, -1, -1):
        weights = np.outer(weights, weight).ravel()
        nodes = np.column_stack([np.repeat(nodes, axis.size, axis=0), np.tile(axis, len(nodes))])
        kept = weights * weight.max() ** rest > bound
        nodes, weights = nodes[kept], weights[kept]
    return nodes, weights / weights.sum()


def sobol_normals(exponent: int, dimension: int, seed: int) -> tuple[Array, Array]:
    """2^exponent scrambled Sobol points, mapped to independent standard normals, with equal weights.

    Rules of different seeds are independent: their spread measures the error of each.

    Raises
    ------
    ValueError
        For more axes than Sobol's tables have.

    Examples
    --------
    >>> x, w = sobol_normals(10, 3, seed=0)
    >>> x.shape, bool(abs(w @ x[:, 0]) < 1e-3)
    ((1024, 3), True)
    """
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    if not 1 <= dimension <= Sobol.MAXDIM:
        raise ValueError(f"dimension={dimension!r} must lie between 1 and {Sobol.MAXDIM}")
    uniform = Sobol(dimension, scramble=True, seed=seed).random_base2(exponent)
    nodes: Array = ndtri(np.clip(uniform, 2.0**-54, 1 - 2.0**-53))
    return nodes, np.full(len(nodes), 1 / len(nodes))


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
