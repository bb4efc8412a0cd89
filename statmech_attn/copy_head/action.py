r"""Action of an attention matrix with the values integrated out, for given data and averaged over data.

With one-hot sequences X_mu (L x V), target Y = G X, output f = A X W, W_ij ~ N(0, sigma_W^2) and the likelihood
:math:`\exp[-\frac1{2\kappa L}\sum_\mu\|Y_\mu-f(X_\mu)\|^2]`, Bayesian linear regression in W gives

.. math::
    S(A)=-\ln p_0(A)+\frac{\lambda V}2\ln\det\Big(I+\frac{\sigma_W^2}{\kappa L}R\Big)
    -\frac1{2\kappa L}\mathrm{tr}\,B^T\Big(R+\frac{\kappa L}{\sigma_W^2}I\Big)^{-1}B,\qquad
    R=\sum_\mu X^TA^TAX,\quad B=\sum_\mu X^TA^TGX ,

lambda = 1 for W integrated out, 0 for the joint maximum over W. Tokens are iid uniform, so
:math:`\mathbb E X^TMX=\frac{\mathrm{tr}M}V(I-J)+\frac{1^TM1}VJ` with :math:`J=11^T/V`, and the data average depends on
A through t = |A|^2, s = <A, G>, r = |A1|^2, u = (A1).(G1) alone; theta = kappa L V/(sigma_W^2 P):

.. math::
    S_d=\lambda\Big[\frac{V(V-1)}2\ln(1+\frac t\theta)+\frac V2\ln(1+\frac r\theta)\Big]
    -\frac P{2\kappa LV}\Big[\frac{(V-1)s^2}{t+\theta}+\frac{u^2}{r+\theta}\Big].

Model: Lavie, Fischer, Lekov, Van Maele, Ringel, Helias, "Phase Transitions in Attention: A Bayesian Theory of Copy Head
Emergence", arXiv 2606.12058. The parametrisation is a reconstruction from first principles: all scaling laws
stated there follow from it, but it is not known to be the authors' own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = [
    "Sums",
    "averaged_action",
    "averaged_gradient",
    "exact_action",
    "mean_values",
    "prior_cost",
    "shift",
    "sums_of",
]


class Sums(NamedTuple):
    """What the data-averaged action sees of A, or its derivatives in these: t = |A|^2, s = <A, G>, r = |A1|^2, u."""

    t: float
    s: float
    r: float
    u: float


def shift(context_length: int, boundary: str) -> Array:
    """G, the (L, L) target attention: G[i, i - 1] = 1; the first row wraps around ("cyclic") or is zero ("open")."""
    G = np.roll(np.eye(context_length), -1, axis=1)
    if boundary == "open":
        G[0] = 0.0
    return G


def sums_of(model: CopyHead, A: Array) -> Sums:
    """The four sums of an (L, L) attention matrix.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> head = sa.CopyHead(context_length=4, vocabulary_size=2, samples=10)
    >>> sums_of(head, shift(4, "cyclic"))
    Sums(t=4.0, s=4.0, r=4.0, u=4.0)
    """
    A = _square(model, A)
    G = shift(model.context_length, model.boundary)
    rows = A.sum(axis=1)
    return Sums(float(np.sum(A * A)), float(np.sum(A * G)), float(rows @ rows), float(rows @ G.sum(axis=1)))


def averaged_action(model: CopyHead, sums: Sums) -> float:
    """S_d, the data average of the action without its prior part."""
    t, s, r, u = sums
    V, theta = model.vocabulary_size, model.ridge
    fit = model.signal * ((V - 1) * s * s / (t + theta) + u * u / (r + theta)) / 2
    if not model.determinant:
        return -fit
    return V * (V - 1) / 2 * math.log1p(t / theta) + V / 2 * math.log1p(r / theta) - fit


def averaged_gradient(model: CopyHead, sums: Sums) -> Sums:
    """Derivatives of S_d in t, s, r and u."""
    V, theta, p, lam = model.vocabulary_size, model.ridge, model.signal, model.determinant
    t, s, r, u = sums
    w, w_mean = s / (t + theta), u / (r + theta)
    return Sums(
        t=lam * V * (V - 1) / (2 * (t + theta)) + p * (V - 1) * w * w / 2,
        s=-p * (V - 1) * w,
        r=lam * V / (2 * (r + theta)) + p * w_mean * w_mean / 2,
        u=-p * w_mean,
    )


def mean_values(model: CopyHead, sums: Sums) -> tuple[float, float]:
    """(w_perp, w_J): the mean of the values given A is W = w_perp (I - J) + w_J J."""
    return sums.s / (sums.t + model.ridge), sums.u / (sums.r + model.ridge)


def prior_cost(model: CopyHead, A: Array) -> float:
    """-ln p_0 of the most probable logits that give A, up to its constant.

    Linear: the logits L A have variance sigma_C^2 and a uniform mode of variance v_m. Softmax: the row-centred
    logarithm of A, the logits of least norm; the volume element of the map from logits to A is *not* included, as
    optimisers and samplers move in logits (the density on the simplex has the further factor prod_ij 1/A_ij).

    Raises
    ------
    ValueError
        For a softmax attention matrix outside the open simplex.
    """
    A = _square(model, A)
    if model.attention == "linear":
        C = model.context_length * A
        uniform = float(C.sum()) / model.context_length
        return float(
            np.sum(C * C) / (2 * model.logit_prior) - uniform**2 / 2 * (1 / model.logit_prior - 1 / model.uniform_prior)
        )
    if not (np.all(A > 0) and np.allclose(A.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
        raise ValueError(
            f"A must have positive rows that sum to one for softmax attention; smallest entry {A.min():.3g}, "
            f"row sums from {A.sum(axis=1).min():.9g} to {A.sum(axis=1).max():.9g}"
        )
    logits = np.log(A)
    logits -= logits.mean(axis=1, keepdims=True)
    return float(np.sum(logits * logits) / (2 * model.logit_prior))


def exact_action(model: CopyHead, A: Array, pairs: Array) -> float:
    """S(A) for given data (:func:`.data.pair_counts`), exact; its lambda is that of the ensemble.

    Parameters
    ----------
    model : CopyHead
        Sizes and variances; ``samples`` is not used, the data has its own.
    A : (L, L) array
        Attention matrix.
    pairs : (L, V, L, V) array
        How often token v stands at i together with w at j.

    Returns
    -------
    float
        For the posterior, minus the log density of A (in logits) up to a constant independent of A.

    Examples
    --------
    >>> import numpy as np, statmech_attn as sa
    >>> from statmech_attn.copy_head import exact_action, pair_counts, sample_tokens
    >>> head = sa.CopyHead(context_length=4, vocabulary_size=2, samples=10, attention="linear")
    >>> pairs = pair_counts(sample_tokens(head, np.random.default_rng(0)), 2)
    >>> print(f"{exact_action(head, shift(4, 'cyclic'), pairs):.3f}")
    20.720
    """
    R, B = normal_equations(model, A, pairs)
    ridge = model.kappa * model.context_length / model.value_prior
    explained = float(np.sum(B * np.linalg.solve(R + ridge * np.eye(len(R)), B)))
    value = prior_cost(model, A) - explained / (2 * model.kappa * model.context_length)
    if model.determinant:
        value += model.vocabulary_size / 2 * float(np.linalg.slogdet(np.eye(len(R)) + R / ridge)[1])
    return value


def normal_equations(model: CopyHead, A: Array, pairs: Array) -> tuple[Array, Array]:
    """(R, B): second moments of the attended tokens A X, and of these with the target G X, both (V, V)."""
    A = _square(model, A)
    G = shift(model.context_length, model.boundary)
    R: Array = np.einsum("ij,ivjw->vw", A.T @ A, pairs, optimize=True)
    B: Array = np.einsum("ij,ivjw->vw", A.T @ G, pairs, optimize=True)
    return R, B


def _square(model: CopyHead, A: Array) -> Array:
    A = np.asarray(A, dtype=np.float64)
    L = model.context_length
    if A.shape != (L, L) or not np.all(np.isfinite(A)):
        raise ValueError(f"A of shape {A.shape} must be a finite ({L}, {L}) matrix, the context length squared")
    return A
