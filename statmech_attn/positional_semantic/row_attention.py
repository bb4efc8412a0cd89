r"""The attention loss of any number of tokens and any rank, with gradient and Hessian, on lanes of points.

.. math:: \ell(z)=\tfrac12\sum_{il}c_l\,(S_{il}-T_{il})^2,\qquad S_{i\cdot}=\mathrm{act}(a_{i\cdot}),\quad
    a_{ij}=z_i\cdot z_j,

with z an L x r index and c_l the variance of token l (Cui et al. 2024, the limit of the squared error). With
:math:`B_{ij}=\partial\ell/\partial a_{ij}` and :math:`H^i=\partial^2\ell/\partial a_{i\cdot}\partial a_{i\cdot}`,

.. math:: \nabla_{z_k}\ell=\sum_j(B_{kj}+B_{jk})z_j ,

and the Hessian is the sum over rows of the Jacobian of a_i on both sides of H^i, plus B + B^T between tokens.

Kernels work on LANES points at once, the point along the last axis of every array: the inner loops then vectorise and
the bookkeeping of small matrices is paid once for all of them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from statmech_attn.positional_semantic.attention import FAST, exp
from statmech_attn.theory import Array

__all__ = ["CODES", "LANES", "attend", "attention", "layer_loss", "loss_derivatives", "loss_space"]

#: Row activations by name; kernels know their number.
CODES = {"softmax": 0, "sigmoid": 1, "linear": 2}
#: Points that kernels treat at once.
LANES = 64


def attention(logits: Array, activation: str) -> Array:
    """Rows of attention of (..., L, L) logits."""
    if activation == "softmax":
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    if activation == "sigmoid":
        return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)))
    return logits


@njit(error_model="numpy", fastmath=FAST)
def attend(logits, code, S):  # type: ignore[no-untyped-def]
    """Write the attention S (L, LANES) of one row of logits (L, LANES)."""
    L = logits.shape[0]
    if code == 0:
        largest = np.empty(LANES)
        total = np.zeros(LANES)
        for p in range(LANES):
            largest[p] = logits[0, p]
        for j in range(1, L):
            for p in range(LANES):
                largest[p] = max(largest[p], logits[j, p])
        for j in range(L):
            for p in range(LANES):
                S[j, p] = exp(max(logits[j, p] - largest[p], -690.0))
                total[p] += S[j, p]
        for p in range(LANES):
            total[p] = 1.0 / total[p]
        for j in range(L):
            for p in range(LANES):
                S[j, p] *= total[p]
    elif code == 1:
        for j in range(L):
            for p in range(LANES):
                S[j, p] = 1.0 / (1.0 + exp(min(max(-logits[j, p], -690.0), 690.0)))
    else:
        S[:] = logits


@njit(error_model="numpy", fastmath=FAST)
def _row_derivatives(S, T, c, code, value, B, u, H):  # type: ignore[no-untyped-def]
    """Add the loss of a row S against its target T (L, LANES); write its derivatives by the logits, B and H."""
    L = S.shape[0]
    for j in range(L):
        for p in range(LANES):
            error = S[j, p] - T[j, p]
            B[j, p] = c[j] * error
            value[p] += 0.5 * c[j] * error * error
    if code == 0:
        mean = np.zeros(LANES)
        total = np.zeros(LANES)
        for j in range(L):
            for p in range(LANES):
                mean[p] += S[j, p] * B[j, p]
                u[j, p] = S[j, p] * (c[j] * S[j, p] + B[j, p])
                total[p] += u[j, p]
        for p in range(LANES):
            total[p] += mean[p]
        for j in range(L):
            for k in range(j):
                for p in range(LANES):
                    x = total[p] * S[j, p] * S[k, p] - u[j, p] * S[k, p] - S[j, p] * u[k, p]
                    H[j, k, p] = x
                    H[k, j, p] = x
            for p in range(LANES):
                s = S[j, p]
                H[j, j, p] = total[p] * s * s + u[j, p] * (1.0 - 2.0 * s) - mean[p] * s
        for j in range(L):
            for p in range(LANES):
                B[j, p] = S[j, p] * (B[j, p] - mean[p])
        return
    H[:] = 0.0
    for j in range(L):
        for p in range(LANES):
            s = S[j, p]
            slope = s * (1.0 - s) if code == 1 else 1.0
            bend = slope * (1.0 - 2.0 * s) if code == 1 else 0.0
            H[j, j, p] = c[j] * slope * slope + B[j, p] * bend
            B[j, p] *= slope


@njit(error_model="numpy", fastmath=FAST)
def _row_logits(z, i, L, r, logits):  # type: ignore[no-untyped-def]
    for j in range(L):
        for p in range(LANES):
            logits[j, p] = z[i * r, p] * z[j * r, p]
        for a in range(1, r):
            for p in range(LANES):
                logits[j, p] += z[i * r + a, p] * z[j * r + a, p]


@njit(error_model="numpy", fastmath=FAST)
def layer_loss(z, T, c, code, value, space):  # type: ignore[no-untyped-def]
    """Write the loss at z (L r, LANES) against targets T (L, L, LANES) into `value` (LANES,)."""
    logits, S = space[0], space[1]
    L = T.shape[0]
    r = z.shape[0] // L
    value[:] = 0.0
    for i in range(L):
        _row_logits(z, i, L, r, logits)
        attend(logits, code, S)
        for j in range(L):
            for p in range(LANES):
                value[p] += 0.5 * c[j] * (S[j, p] - T[i, j, p]) ** 2


@njit(error_model="numpy", fastmath=FAST)
def loss_derivatives(z, T, c, code, value, gradient, hessian, space):  # type: ignore[no-untyped-def]
    """Add loss, gradient (L r, LANES) and lower triangle of the Hessian (L r, L r, LANES) at z to what is there."""
    logits, S, B, u, P, H = space
    L = T.shape[0]
    r = z.shape[0] // L
    for i in range(L):
        _row_logits(z, i, L, r, logits)
        attend(logits, code, S)
        _row_derivatives(S, T[i], c, code, value, B, u, H)
        for j in range(L):
            for a in range(r):
                for p in range(LANES):
                    gradient[i * r + a, p] += B[j, p] * z[j * r + a, p]
                for p in range(LANES):
                    gradient[j * r + a, p] += B[j, p] * z[i * r + a, p]
                for p in range(LANES):
                    P[j * r + a, p] = H[j, 0, p] * z[a, p]
                for k in range(1, L):
                    for p in range(LANES):
                        P[j * r + a, p] += H[j, k, p] * z[k * r + a, p]
                row, column = max(i, j) * r + a, min(i, j) * r + a
                factor = 2.0 if i == j else 1.0
                for p in range(LANES):
                    hessian[row, column, p] += factor * B[j, p]
        for k in range(L):
            for a in range(r):
                for j in range(k + 1):
                    for b in range(r if j < k else a + 1):
                        # between tokens k and j, from the row of token i
                        for p in range(LANES):
                            hessian[k * r + a, j * r + b, p] += H[k, j, p] * z[i * r + a, p] * z[i * r + b, p]
                        if k == i:
                            for p in range(LANES):
                                hessian[k * r + a, j * r + b, p] += P[j * r + a, p] * z[i * r + b, p]
                        if j == i:
                            for p in range(LANES):
                                hessian[k * r + a, j * r + b, p] += z[i * r + a, p] * P[k * r + b, p]
        for a in range(r):
            for b in range(a + 1):
                for k in range(L):
                    for p in range(LANES):
                        hessian[i * r + a, i * r + b, p] += z[k * r + a, p] * P[k * r + b, p]


@njit(error_model="numpy")
def loss_space(L, r):  # type: ignore[no-untyped-def]
    """Work space of :func:`loss_derivatives` and :func:`layer_loss`."""
    return (
        np.empty((L, LANES)),
        np.empty((L, LANES)),
        np.empty((L, LANES)),
        np.empty((L, LANES)),
        np.empty((L * r, LANES)),
        np.empty((L, L, LANES)),
    )
