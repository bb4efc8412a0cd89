r"""Averages of the proximal operator over teacher and student noise, for any number of tokens and any ranks.

With independent normal :math:`\eta_l\in\mathbb R^t,\ \zeta_l\in\mathbb R^r` (Cui et al. 2024, teacher first),

.. math:: h_{\star l}=\rho_l^{1/2}\eta_l,\qquad\omega_l=m_l+\theta_l\rho_l^{-1/2}\eta_l+s_l\zeta_l,\qquad
    s_l=(q_l-\theta_l\rho_l^{-1}\theta_l^\top)^{1/2} .

Nodes come from :func:`statmech_attn.quadrature.normal_product` or :func:`~statmech_attn.quadrature.sobol_normals`.
Chunks of nodes are summed apart and then in order, so that the number of threads does not change a bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange

from statmech_attn.positional_semantic.attention import FAST
from statmech_attn.positional_semantic.layer_proximal import global_minimum, response, work_space
from statmech_attn.positional_semantic.row_attention import LANES, attend, layer_loss
from statmech_attn.theory import Array

__all__ = ["LayerChannel", "layer_averages"]


class LayerChannel(NamedTuple):
    """Averages over the channel noise, a token along the first axis of every array.

    Attributes
    ----------
    envelope, loss, test_error, two_wells : float
        E M, E loss at the minimiser, E loss at omega (without the proximal operator), share of points with two wells.
    g, g_g, g_zeta, g_eta : (L, r), (L, r, r), (L, r, r), (L, r, t) array
        E g_l, E g_l g_l^T, E g_l zeta_l^T, E g_l eta_l^T.
    derivative : (L, r, r) array
        E of the diagonal blocks of dg/domega, jumps left out.
    squares : (L, L, r, r, r, r) array
        E D_lk[a, c] D_lk[b, d], as [l, k, a, b, c, d], D the derivative of g.
    target, target_squares : (L, L) array
        E T and E T^2.
    """

    envelope: float
    loss: float
    test_error: float
    two_wells: float
    g: Array
    g_g: Array
    g_zeta: Array
    g_eta: Array
    derivative: Array
    squares: Array
    target: Array
    target_squares: Array


@njit(error_model="numpy", fastmath=FAST)
def _targets(h, omega, A, code, logits, T):  # type: ignore[no-untyped-def]
    """Write T = (1 - omega) act(h h^T) + omega A (L, L, LANES) at the teacher's index h (L t, LANES)."""
    L = T.shape[0]
    t = h.shape[0] // L
    for i in range(L):
        logits[:] = 0.0
        for j in range(L):
            for a in range(t):
                for p in range(LANES):
                    logits[j, p] += h[i * t + a, p] * h[j * t + a, p]
        attend(logits, code, T[i])
        for j in range(L):
            for p in range(LANES):
                T[i, j, p] = (1.0 - omega) * T[i, j, p] + omega * A[i, j]


@njit(error_model="numpy", fastmath=FAST)
def _linear(matrices, x, out):  # type: ignore[no-untyped-def]
    """Add matrices (L, k, n) applied to x (L n, LANES), token by token, to out (L k, LANES)."""
    L, k, n = matrices.shape
    for i in range(L):
        for a in range(k):
            for b in range(n):
                for p in range(LANES):
                    out[i * k + a, p] += matrices[i, a, b] * x[i * n + b, p]


@njit(error_model="numpy")
def _mean(weight, x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for p in range(LANES):
        total += weight[p] * x[p] * y[p]
    return total


@njit(error_model="numpy")
def _add(out, weight, one, scalars, g, zeta, eta, D, T, r, t):  # type: ignore[no-untyped-def]
    """Add what LANES nodes contribute to the sums, in the order of LayerChannel."""
    L = T.shape[0]
    at = 0
    for x in scalars:
        out[at] += _mean(weight, x, one)
        at += 1
    for i in range(L * r):
        out[at] += _mean(weight, g[i], one)
        at += 1
    for other in (g, zeta):
        for i in range(L):
            for a in range(r):
                for b in range(r):
                    out[at] += _mean(weight, g[i * r + a], other[i * r + b])
                    at += 1
    for i in range(L):
        for a in range(r):
            for b in range(t):
                out[at] += _mean(weight, g[i * r + a], eta[i * t + b])
                at += 1
    for i in range(L):
        for a in range(r):
            for b in range(r):
                out[at] += _mean(weight, D[i * r + a, i * r + b], one)
                at += 1
    for i in range(L):
        for k in range(L):
            for a in range(r):
                for b in range(r):
                    for e in range(r):
                        for f in range(r):
                            out[at] += _mean(weight, D[i * r + a, k * r + e], D[i * r + b, k * r + f])
                            at += 1
    for i in range(L):
        for j in range(L):
            out[at] += _mean(weight, T[i, j], one)
            out[at + L * L] += _mean(weight, T[i, j], T[i, j])
            at += 1


@njit(error_model="numpy", parallel=True, cache=True)
def _sums(nodes, weights, root, m, slope, s, precision, c, omega, A, codes, patterns, size):  # type: ignore[no-untyped-def]
    """Sums over nodes (n, L (t + r)): eta of all tokens, then zeta."""
    n = nodes.shape[0]
    L, r, t = slope.shape
    groups = (n + LANES - 1) // LANES
    tasks = 64
    partial = np.zeros((tasks, size))
    for task in prange(tasks):
        space = work_space(L, r)
        eta, zeta = np.empty((L * t, LANES)), np.empty((L * r, LANES))
        h, w = np.empty((L * t, LANES)), np.empty((L * r, LANES))
        z, g = np.empty((L * r, LANES)), np.empty((L * r, LANES))
        T = np.empty((L, L, LANES))
        D = np.empty((L * r, L * r, LANES))
        column = np.empty((L * r, LANES))
        weight, one = np.empty(LANES), np.ones(LANES)
        scalars = np.empty((4, LANES))
        for group in range(task * groups // tasks, (task + 1) * groups // tasks):
            for p in range(LANES):
                mu = min(group * LANES + p, n - 1)
                weight[p] = weights[mu] if group * LANES + p < n else 0.0
                for i in range(L * t):
                    eta[i, p] = nodes[mu, i]
                for i in range(L * r):
                    zeta[i, p] = nodes[mu, L * t + i]
                    w[i, p] = m[i // r, i % r]
            h[:] = 0.0
            _linear(root, eta, h)
            _linear(slope, eta, w)
            _linear(s, zeta, w)
            _targets(h, omega, A, codes[1], space[4][0], T)
            z[:] = w
            global_minimum(z, w, precision, T, c, codes[0], patterns, scalars[0], scalars[3], space)
            response(precision, space[1][2], column, D)
            layer_loss(z, T, c, codes[0], scalars[1], space[4])
            layer_loss(w, T, c, codes[0], scalars[2], space[4])
            for i in range(L * r):
                for p in range(LANES):
                    z[i, p] -= w[i, p]
            g[:] = 0.0
            _linear(precision, z, g)
            scalars[3] -= 1.0
            _add(partial[task], weight, one, scalars, g, zeta, eta, D, T, r, t)
    total = np.zeros(size)
    for task in range(tasks):
        total += partial[task]
    return total


def layer_averages(
    nodes: Array,
    weights: Array,
    overlaps: tuple[Array, Array, Array, Array],
    rho: Array,
    c: Array,
    target: tuple[float, Array],
    codes: tuple[int, int],
    patterns: Array,
) -> LayerChannel:
    """Channel averages at a feasible state.

    Parameters
    ----------
    nodes, weights : (n, L (t + r)), (n,) array
        Standard normal nodes (eta of all tokens, then zeta) and their weights, which sum to one.
    overlaps : tuple
        q (L, r, r), m (L, r), theta (L, r, t), V (L, r, r).
    rho, c : (L, t, t), (L,) array
        Covariance of the teacher's index, variance of the tokens.
    target : (float, (L, L) array)
        omega and A.
    codes : (int, int)
        Activations of student and teacher, as in :mod:`.row_attention`.
    patterns : (k, L r) array
        Starts of the proximal operator.
    """
    q, m, theta, V = overlaps
    L, r, t = theta.shape
    root = symmetric_root(rho)
    slope = np.ascontiguousarray(theta @ np.linalg.inv(root))
    s = symmetric_root(q - slope @ slope.transpose(0, 2, 1))
    shapes = [(L, r), (L, r, r), (L, r, r), (L, r, t), (L, r, r), (L, L, r, r, r, r), (L, L), (L, L)]
    sizes = [math.prod(shape) for shape in shapes]
    total = _sums(
        nodes, weights, root, m, slope, s, np.linalg.inv(V), c, target[0], target[1], codes, patterns, 4 + sum(sizes)
    )
    arrays = [x.reshape(shape) for x, shape in zip(np.split(total[4:], np.cumsum(sizes)[:-1]), shapes, strict=True)]
    return LayerChannel(*total[:4].tolist(), *arrays)


def symmetric_root(matrices: Array) -> Array:
    """Symmetric square roots of (n, k, k) positive semidefinite matrices; what is negative counts as zero."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1))
