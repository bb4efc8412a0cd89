r"""Averages of the proximal operator over teacher and student noise, for any number of tokens and any ranks.

With independent normal :math:`\eta_l\in\mathbb R^t,\ \zeta_l\in\mathbb R^r` (Cui et al. 2024, teacher first),

.. math:: h_{\star l}=\rho_l^{1/2}\eta_l,\qquad\omega_l=m_l+\theta_l\rho_l^{-1/2}\eta_l+s_l\zeta_l,\qquad
    s_l=(q_l-\theta_l\rho_l^{-1}\theta_l^\top)^{1/2} .

Nodes come from :func:`statmech_attn.quadrature.normal_product` or :func:`~statmech_attn.quadrature.sobol_normals`.
Chunks of nodes are summed apart and then in order, so that the number of threads does not change a bit.

Where the proximal operator jumps from one well to another, of minima M and M + gap, a sum over nodes would jump with
the state. The exchange is softened: the second well enters with a share p(gap/width), half where the minima are equal,
with :math:`p(0)=\tfrac12,\ p(1)=p'(1)=0` and :math:`\int_0^1xp\,dx=0`. As p - 1/2 is odd in the gap the averages change
in the second order of the width only, and by the last condition hardly in that order. M becomes
:math:`M-\mathrm{width}\int_{\mathrm{gap/width}}^1p`. The width is no larger than a share of the stiffness of the wells,
which vanishes where one of them does: it leaves the sum before it ceases to be.

The mean derivative is that of g on the nodes, several times more precise, as long as nothing jumps; the form of Stein,
:math:`\mathbb E g_l\zeta_l^\top s_l^{-1}`, which sees the jumps, takes over as soon as more than a few nodes do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange

from statmech_attn.positional_semantic.attention import FAST
from statmech_attn.positional_semantic.layer_proximal import ROUND_OFF, deepest_wells, response, settle, work_space
from statmech_attn.positional_semantic.row_attention import LANES, attend, layer_loss
from statmech_attn.theory import Array

__all__ = ["LayerChannel", "layer_averages"]

#: Sums of single numbers: M, loss at omega, two wells, square of the jumps.
SCALARS = 4
#: Width of the exchange of two wells over their stiffness, the energy that the curvature of one gives the other.
STIFF = 0.25


class LayerChannel(NamedTuple):
    """Averages over the channel noise, a token along the first axis of every array.

    Attributes
    ----------
    envelope, loss, test_error, two_wells : float
        E M, E loss at the minimiser, E loss at omega (without the proximal operator), share of points with two wells.
    g, g_g, g_eta : (L, r), (L, r, r), (L, r, t) array
        E g_l, E g_l g_l^T, E g_l eta_l^T.
    derivative : (L, r, r) array
        E of the diagonal blocks of dg/domega, jumps included.
    squares : (L, L, r, r, r, r) array
        E D_lk[a, c] D_lk[b, d], as [l, k, a, b, c, d], D the derivative of g, jumps left out.
    target, target_squares : (L, L) array
        E T and E T^2.
    """

    envelope: float
    loss: float
    test_error: float
    two_wells: float
    g: Array
    g_g: Array
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
def _stiffness(hessian, x, y, out):  # type: ignore[no-untyped-def]
    """Write (x - y)^T hessian (x - y) (LANES,), from the lower triangle."""
    n = x.shape[0]
    out[:] = 0.0
    for i in range(n):
        for j in range(i + 1):
            both = 1.0 if i == j else 2.0
            for p in range(LANES):
                out[p] += both * hessian[i, j, p] * (x[i, p] - y[i, p]) * (x[j, p] - y[j, p])


@njit(error_model="numpy")
def _soften(gap, width, share, near, minimum):  # type: ignore[no-untyped-def]
    """Write the share of the second well by the gap (LANES,) and a weight of nearness; lower the minimum."""
    for p in range(LANES):
        share[p], near[p] = 0.0, 0.0
        if gap[p] < width[p]:
            x = gap[p] / width[p]
            y = x * x
            share[p] = 0.5 - x * (45.0 - y * (50.0 - 21.0 * y)) / 32.0
            near[p] = (1.0 - y) ** 2
            minimum[p] -= width[p] * (5.0 - 32.0 * x + y * (45.0 - y * (25.0 - 7.0 * y))) / 64.0


@njit(error_model="numpy", fastmath=FAST)
def _field(precision, z, w, difference, g):  # type: ignore[no-untyped-def]
    """Write g = V^-1 (z - w)."""
    for i in range(z.shape[0]):
        for p in range(LANES):
            difference[i, p] = z[i, p] - w[i, p]
    g[:] = 0.0
    _linear(precision, difference, g)


@njit(error_model="numpy")
def _add_field(out, weight, one, g, zeta, eta, r, t):  # type: ignore[no-untyped-def]
    """Add g, g g^T, g zeta^T, g eta^T of LANES nodes to the sums."""
    L = g.shape[0] // r
    at = 0
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


@njit(error_model="numpy")
def _add_rest(out, weight, one, D, T, r):  # type: ignore[no-untyped-def]
    """Add derivative, squares, target and target_squares of LANES nodes to the sums."""
    L = T.shape[0]
    at = 0
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
def _sums(nodes, weights, root, m, slope, s, precision, c, omega, A, codes, patterns, width, size):  # type: ignore[no-untyped-def]
    """Sums over nodes (n, L (t + r)): eta of all tokens, then zeta."""
    n = nodes.shape[0]
    L, r, t = slope.shape
    groups = (n + LANES - 1) // LANES
    tasks = 64
    partial = np.zeros((tasks, size))
    for task in prange(tasks):
        out = partial[task]
        field, rest = out[SCALARS:], out[SCALARS + L * r * (1 + 2 * r + t) :]
        space = work_space(L, r)
        eta, zeta = np.empty((L * t, LANES)), np.empty((L * r, LANES))
        h, w = np.empty((L * t, LANES)), np.empty((L * r, LANES))
        z, g = np.empty((L * r, LANES)), np.empty((L * r, LANES))
        other, other_g = np.empty((L * r, LANES)), np.empty((L * r, LANES))
        T = np.empty((L, L, LANES))
        D = np.empty((L * r, L * r, LANES))
        column = np.empty((L * r, LANES))
        weight, one = np.empty(LANES), np.ones(LANES)
        second, gap, share = np.empty(LANES), np.empty(LANES), np.empty(LANES)
        stiffness, near, local = np.empty(LANES), np.empty(LANES), np.empty(LANES)
        scalars = np.empty((SCALARS, LANES))
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
            layer_loss(w, T, c, codes[0], scalars[1], space[4])
            z[:] = w
            deepest_wells(z, other, w, precision, T, c, codes[0], patterns, scalars[0], second, space)
            exchanges = False
            for p in range(LANES):
                scalars[2, p] = 1.0 if second[p] < np.inf else 0.0
                scalars[3, p] = 0.0
                exchanges = exchanges or second[p] - scalars[0, p] < width
            if exchanges:
                settle(other, w, precision, T, c, codes[0], False, ROUND_OFF, gap, space)
                for p in range(LANES):
                    if second[p] == np.inf or space[2][1][p] > 0.0:
                        gap[p] = np.inf
                _stiffness(space[1][0], other, z, stiffness)
            settle(z, w, precision, T, c, codes[0], False, ROUND_OFF, scalars[0], space)
            response(precision, space[1][2], column, D)
            _add_rest(rest, weight, one, D, T, r)
            _field(precision, z, w, column, g)
            if exchanges:
                _stiffness(space[1][0], other, z, near)
                for p in range(LANES):
                    gap[p] -= scalars[0, p]
                    local[p] = 1.0 / (1.0 / width + (1.0 / near[p] + 1.0 / stiffness[p]) / STIFF)
                _soften(gap, local, share, near, scalars[0])
                _field(precision, other, w, column, other_g)
                for i in range(L * r):
                    for p in range(LANES):
                        scalars[3, p] += near[p] * (g[i, p] - other_g[i, p]) * (z[i, p] - other[i, p])
            for i in range(SCALARS):
                out[i] += _mean(weight, scalars[i], one)
            if exchanges:
                for p in range(LANES):
                    share[p] *= weight[p]
                    weight[p] -= share[p]
                _add_field(field, share, one, other_g, zeta, eta, r, t)
            _add_field(field, weight, one, g, zeta, eta, r, t)
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
    mixture: tuple[float, Array],
    codes: tuple[int, int],
    patterns: Array,
    width: float,
    stein: bool,
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
    mixture : (float, (L, L) array)
        omega and A.
    codes : (int, int)
        Activations of student and teacher, as in :mod:`.row_attention`.
    patterns : (k, L r) array
        Starts of the proximal operator.
    width : float
        Gap of the minima of two wells over which their exchange is softened.
    stein : bool
        Whether the mean derivative is E g zeta^T s^-1, the form that sees jumps, even where there are none.
    """
    q, m, theta, V = overlaps
    L, r, t = theta.shape
    root = symmetric_root(rho)
    slope = np.ascontiguousarray(theta @ np.linalg.inv(root))
    s = symmetric_root(q - slope @ slope.transpose(0, 2, 1))
    shapes = [(L, r), (L, r, r), (L, r, r), (L, r, t), (L, r, r), (L, L, r, r, r, r), (L, L), (L, L)]
    sizes = [math.prod(shape) for shape in shapes]
    total = _sums(
        nodes, weights, root, m, slope, s, np.linalg.inv(V), c, *mixture, codes, patterns, width, SCALARS + sum(sizes)
    )
    arrays = [
        x.reshape(shape) for x, shape in zip(np.split(total[SCALARS:], np.cumsum(sizes)[:-1]), shapes, strict=True)
    ]
    envelope, test_error, two_wells, exchange = total[:SCALARS].tolist()
    g, g_g, g_zeta, g_eta, derivative, squares, target, target_squares = arrays
    quadratic = float(np.sum(V * g_g))
    # share of the jumps in g^2, against what a few nodes make of it
    jumps = (exchange / quadratic) ** 2
    many = 1.0 if stein else jumps / (jumps + 0.1 / len(nodes))
    if many > 0:
        derivative = (1 - many) * derivative + many * g_zeta @ np.linalg.inv(s)
    loss = envelope - 0.5 * quadratic
    return LayerChannel(
        envelope, loss, test_error, two_wells, g, g_g, g_eta, derivative, squares, target, target_squares
    )


def symmetric_root(matrices: Array) -> Array:
    """Symmetric square roots of (n, k, k) positive semidefinite matrices; what is negative counts as zero."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1))
