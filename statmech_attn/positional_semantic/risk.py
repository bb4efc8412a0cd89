r"""Empirical risk of an attention layer with its gradient, and the expected error of a fresh sample.

With :math:`A=xx^\top/d`, :math:`B=x\tilde x^\top/d`, :math:`C=\tilde x\tilde x^\top/d` (L x L for every sample,
:math:`\tilde x=x+p`) the squared error is
:math:`\frac1{2d}|Tx-S\tilde x|^2=\frac12\mathrm{tr}(TAT^\top-2TBS^\top+SCS^\top)`; so its derivative by the student's
attention is :math:`G=SC-TB`, and only :math:`h=\tilde xQ/\sqrt d` and the gradient
:math:`\frac1{\sqrt d}\sum_\mu\tilde x_\mu^\top\phi_\mu+\lambda Q` are products of size d:
:math:`\phi=(K+K^\top)h` with the derivative K by the logits, :math:`S\odot(G-\mathrm{rowsum}(S\odot G))` for softmax.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from statmech_attn.positional_semantic.data import Instance
from statmech_attn.positional_semantic.row_attention import attention
from statmech_attn.theory import Array

__all__ = ["Quadratic", "Risk", "expected_error", "quadratic"]


class Quadratic(NamedTuple):
    """Squared error of every sample as a quadratic form of attention: constant - tr D S^T + tr S C S^T / 2.

    Attributes
    ----------
    constant : float
        Summed over samples.
    cross : (n, L, L) array
        D = T B.
    gram : (n, L, L) array
        C.
    """

    constant: float
    cross: Array
    gram: Array

    def error(self, S: Array) -> tuple[float, Array]:
        """Error of attention S, summed over samples, and its derivative."""
        SC = S @ self.gram
        return self.constant + float(np.sum((0.5 * SC - self.cross) * S)), SC - self.cross


def quadratic(data: Instance) -> Quadratic:
    """The quadratic form of the training samples, with the Gram matrices that the instance asks for."""
    d, T = data.dimension, data.target
    if data.gram == "limit":
        c = data.variances.mean(axis=1)
        return Quadratic(0.5 * float(np.sum(T * T * c)), T * c, np.broadcast_to(np.diag(c), T.shape))
    A = data.tokens @ data.tokens.transpose(0, 2, 1) / d
    shift = data.tokens @ data.positions.T / d
    B = A + shift
    C = B + shift.transpose(0, 2, 1) + data.positions @ data.positions.T / d
    return Quadratic(0.5 * float(np.sum((T @ A) * T)), T @ B, C)


def logit_slope(S: Array, G: Array, activation: str) -> Array:
    """Derivative by the logits of a function whose derivative by attention S is G."""
    if activation == "softmax":
        slope = S * G
        return np.asarray(slope - S * slope.sum(axis=-1, keepdims=True))
    return np.asarray(G * S * (1 - S)) if activation == "sigmoid" else G


class Risk:
    r"""The risk :math:`\sum_\mu\frac1{2d}|Tx_\mu-S\tilde x_\mu|^2+\frac\lambda2|Q|^2` of given data.

    Examples
    --------
    >>> import numpy as np, statmech_attn as sa
    >>> from statmech_attn.positional_semantic.data import instance
    >>> data = instance(sa.PositionalSemantic(alpha=2.0), dimension=50)
    >>> value, gradient = Risk(data)(np.zeros((50, 1)))
    >>> bool(np.all(gradient == 0)), gradient.shape
    (True, (50, 1))
    """

    def __init__(self, data: Instance) -> None:
        self.data = data
        self.form = quadratic(data)
        n, L, d = data.tokens.shape
        self.shape = (d, data.layer.student_rank)
        self._flat = data.tokens.reshape(n * L, d)

    def __call__(self, Q: Array) -> tuple[float, Array]:
        """Risk and gradient at weights Q, (d, r); ValueError for another shape."""
        if Q.shape != self.shape:
            raise ValueError(f"weights of shape {Q.shape} must have shape {self.shape}")
        data, (n, L, d) = self.data, self.data.tokens.shape
        activation, penalty = data.layer.student_activation, data.layer.regularization
        h = ((self._flat @ Q).reshape(n, L, -1) + data.positions @ Q) / np.sqrt(d)
        S = attention(h @ h.transpose(0, 2, 1), activation)
        value, G = self.form.error(S)
        slope = logit_slope(S, G, activation)
        phi = (slope + slope.transpose(0, 2, 1)) @ h
        gradient = self._flat.T @ phi.reshape(n * L, -1) + data.positions.T @ phi.sum(axis=0)
        return value + 0.5 * penalty * float(np.sum(Q * Q)), gradient / np.sqrt(d) + penalty * Q


#: Sobol points of an expected error, a power of two, and independent scrambles.
POINTS, SCRAMBLES = 2**11, 8


def expected_error(data: Instance, weights: Array | None = None, mixing: Array | None = None) -> tuple[float, float]:
    r"""Error :math:`\frac1{2d}\mathbb E|Tx-S\tilde x|^2` of a fresh sample, and its standard error.

    Given the indices :math:`y_l=U^\top x_l`, :math:`U=(Q_\star,Q)/\sqrt d`, tokens are normal with known mean and
    variance, so that the error is an average over the L (t + r) indices alone: taken over scrambled Sobol points, the
    standard error from independent scrambles.

    Parameters
    ----------
    data : Instance
        Teacher and covariances; its ``gram`` says whether the Gram matrices are those of the tokens or their limit.
    weights : (d, r) array, optional
        Q of an attention layer.
    mixing : (L, L) array, optional
        Instead of it a fixed matrix in the place of attention, as in a linear layer.

    Raises
    ------
    ValueError
        For weights and mixing both or neither, or one of a wrong shape.
    """
    if (weights is None) == (mixing is None):
        raise ValueError("either weights or mixing must be given")
    L, rank = len(data.variances), data.layer.student_rank
    for name, given, shape in (("weights", weights, (data.dimension, rank)), ("mixing", mixing, (L, L))):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} of shape {given.shape} must have shape {shape}")
    teacher = data.teacher
    d, t = teacher.shape
    Q = np.zeros((d, 0)) if weights is None else weights
    U = np.concatenate([teacher, Q], axis=1) / np.sqrt(d)
    covariance = np.einsum("id,ld,jd->lij", U.T, data.variances, U.T)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    layer, shift = data.layer, data.positions @ Q / np.sqrt(d)
    averages = []
    for repeat in range(SCRAMBLES):
        # scrambles of their own for every seed, so that the error of a mean over seeds falls with their number
        scramble = np.random.default_rng([data.seed, d, 2, repeat])
        sobol = qmc.Sobol(L * U.shape[1], seed=scramble).random(POINTS)
        normal = ndtri(np.clip(sobol, 1e-12, 1 - 1e-12)).reshape(POINTS, L, -1)
        y = np.einsum("nlj,lij->nli", normal, root)
        h = y[..., t:] + shift
        T = layer.targets(y[..., :t])
        S = attention(h @ h.transpose(0, 2, 1), layer.student_activation) if mixing is None else mixing
        A, B, C = _mean_grams(data, U, covariance, y)
        averages.append(0.5 * np.mean(np.sum((T @ A) * T - 2 * (T @ B) * S + (S @ C) * S, axis=(1, 2))))
    return float(np.mean(averages)), float(np.std(averages, ddof=1) / np.sqrt(SCRAMBLES))


def _mean_grams(data: Instance, U: Array, covariance: Array, y: Array) -> tuple[Array, Array, Array]:
    """Means of x x^T/d, x (x+p)^T/d, (x+p)(x+p)^T/d of fresh tokens, given their indices y (points, L, t + r)."""
    d = data.dimension
    diagonal = np.diag(data.variances.mean(axis=1))
    if data.gram == "limit":
        return diagonal, diagonal, diagonal
    lift = np.einsum("ld,dj,ljk->ldk", data.variances, U, np.linalg.pinv(covariance, rcond=1e-12, hermitian=True))
    means = np.einsum("ldi,kdj->lkij", lift, lift) / d  # E x_l = lift_l y_l
    explained = np.einsum("llij,lij->l", means, covariance)
    A = np.einsum("nli,lkij,nkj->nlk", y, means, y, optimize=True) + diagonal - np.diag(explained)
    shift = np.einsum("nli,ldi,kd->nlk", y, lift, data.positions, optimize=True) / d
    C = A + shift + shift.transpose(0, 2, 1) + data.positions @ data.positions.T / d
    return A, A + shift, C
