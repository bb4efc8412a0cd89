r"""The global proximal operator of the attention loss, in its plain scalar form.

.. math:: \mathcal M(\omega)=\min_z\ \frac{|z-\omega|^2}{2V}+\ell(z),\qquad g=(z-\omega)/V=-\nabla\ell(z).

The loss has up to several wells, so the minimiser jumps: a local method is not enough. This module is the
readable reference: one point or one line at a time. :mod:`.channel` is the fast form that is tested against it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from statmech_attn.positional_semantic.attention import loss_derivatives
from statmech_attn.theory import Array

__all__ = ["local_minimum", "proximal_operator", "proximal_point"]


@njit(error_model="numpy")
def local_minimum(u, v, wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """Minimise |z - w|^2/(2 V) + loss(z) downhill from (u, v); return (u, v, minimum).

    Newton steps, with the Hessian shifted until it is positive definite and the step halved until the function
    decreases. Once the decrease to be gained is lost in round-off, two plain Newton steps finish.
    """
    value, lu, lv, luu, luv, lvv = loss_derivatives(u, v, t1, t2, sigma2)
    value += ((u - wu) ** 2 + (v - wv) ** 2) / (2.0 * V)
    plain = 0
    for _ in range(100):
        gu = lu + (u - wu) / V
        gv = lv + (v - wv) / V
        a = luu + 1.0 / V
        c = lvv + 1.0 / V
        smallest = 0.5 * (a + c) - math.sqrt(0.25 * (a - c) ** 2 + luv * luv)
        floor = 0.015 / V
        if smallest < floor:
            a += floor - smallest
            c += floor - smallest
        determinant = a * c - luv * luv
        du = -(c * gu - luv * gv) / determinant
        dv = -(a * gv - luv * gu) / determinant
        gain = -0.5 * (gu * du + gv * dv)
        # long steps would leave the basin of attraction
        step = min(1.0, 0.5 / (1e-300 + math.sqrt(du * du + dv * dv)))
        if gain <= 1e-13 * value:
            plain += 1
        while True:
            new_u = u + step * du
            new_v = v + step * dv
            new, lu, lv, luu, luv, lvv = loss_derivatives(new_u, new_v, t1, t2, sigma2)
            new += ((new_u - wu) ** 2 + (new_v - wv) ** 2) / (2.0 * V)
            if plain > 0 or new <= value - 1e-4 * step * gain or step < 1e-3:
                break
            step *= 0.5
        u, v, value = new_u, new_v, new
        if plain == 2:
            break
    return u, v, value


@njit(error_model="numpy")
def proximal_point(wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """Global minimiser and minimum (u, v, M) at one point, from nine starts on both sides of u = 0."""
    best_u, best_v, best = local_minimum(wu, wv, wu, wv, V, t1, t2, sigma2)
    for k in range(8):
        start = (0.15, 0.6, 1.2, 2.4)[k // 2]
        if k % 2:
            start = -start
        u, v, value = local_minimum(start, wv, wu, wv, V, t1, t2, sigma2)
        if value < best:
            best_u, best_v, best = u, v, value
    return best_u, best_v, best


@njit(error_model="numpy", cache=True)
def _proximal_points(wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    n = wu.size
    out = np.empty((3, n))
    for i in range(n):
        out[0, i], out[1, i], out[2, i] = proximal_point(wu[i], wv[i], V, t1[i], t2[i], sigma2)
    return out


def proximal_operator(omega: Array, V: float, target: Array, sigma: float = 0.5) -> tuple[Array, Array]:
    """Global proximal operator of the two-token attention loss (Cui et al. 2024).

    Parameters
    ----------
    omega : (n, 2) array
        Points, one column per token.
    V : float
        Width of the quadratic term, positive.
    target : (n, 2) array
        Diagonal (T_11, T_22) of the target attention at every point (rows that sum to one).
    sigma : float
        Standard deviation of the tokens, positive.

    Returns
    -------
    z : (n, 2) array
        The global minimisers of ``|z - omega|^2 / (2 V) + loss(z)``.
    minimum : (n,) array
        The minima (Moreau envelope).

    Raises
    ------
    ValueError
        If shapes differ, or `V` or `sigma` is not positive.

    Examples
    --------
    >>> z, minimum = proximal_operator([[0.5, -0.5]], V=10.0, target=[[0.6, 0.6]])
    >>> at_omega = 2 * 0.5**2 * (1 / (1 + np.exp(-0.5)) - 0.6) ** 2
    >>> bool(minimum[0] < at_omega)
    True
    """
    points = np.atleast_2d(np.asarray(omega, dtype=np.float64))
    targets = np.atleast_2d(np.asarray(target, dtype=np.float64))
    if points.ndim != 2 or points.shape[1] != 2 or targets.shape != points.shape:
        raise ValueError(f"omega and target must both have shape (n, 2), got {points.shape} and {targets.shape}")
    if not (V > 0 and sigma > 0):
        raise ValueError(f"V={V} and sigma={sigma} must be positive")
    wu = (points[:, 0] - points[:, 1]) / math.sqrt(2)
    wv = (points[:, 0] + points[:, 1]) / math.sqrt(2)
    u, v, minimum = _proximal_points(
        wu, wv, V, np.ascontiguousarray(targets[:, 0]), np.ascontiguousarray(targets[:, 1]), sigma**2
    )
    return np.column_stack([u + v, v - u]) / math.sqrt(2), minimum
