r"""Softmax attention with equal rows: the logit gap beta, the curve P(beta) of its stationary points, its transitions.

The n rows that have a target (n = L cyclic, L - 1 open; the first open row is uniform) attend the copied token with a
logit higher by beta: :math:`A=(1-a)\frac{11^T}L+aG`, a = (e^beta - 1)/(e^beta - 1 + L),
t = 1 + n(1-1/L) a^2, s = n/L + n(1-1/L) a, r = L, u = n, and

.. math:: S(\beta)=\tfrac n{2\sigma_C^2}(1-\tfrac1L)\beta^2+S_d(t,s,L,n),\qquad
    \frac{da}{d\beta}=\frac{(1-a)(1+(L-1)a)}L .

Stationarity at given beta is a cubic in 1/P with one positive root, so the stationary points form a curve P(beta):
where it rises they are minima, where it falls they are barriers, and its maximum and minimum are the spinodals of
pooling and copying.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from statmech_attn.copy_head.action import Sums, averaged_gradient
from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = ["Folds", "action_at", "folds", "gap", "parameters", "sample_curve", "states_at", "sums", "update", "weight"]


class Folds(NamedTuple):
    """Spinodals of the curve P(beta) and coexistence; nan where there is no first-order transition."""

    beta_pooling: float  # where pooling ends
    pooling_spinodal: float
    beta_copy: float  # where copying begins
    copy_spinodal: float
    coexistence: float


def weight(beta: float, context_length: int) -> float:
    """a, the weight of G in A beyond the uniform part."""
    return -math.expm1(-beta) / (1 + (context_length - 1) * math.exp(-beta))


def gap(a: float, context_length: int) -> float:
    """beta of a weight a in (-1/(L-1), 1).

    Examples
    --------
    >>> print(f"{weight(gap(0.25, 24), 24):.12f}")
    0.250000000000
    """
    return math.log1p(context_length * a / (1 - a))


def sums(model: CopyHead, beta: float) -> Sums:
    """t, s, r, u of a logit gap."""
    L, n = model.context_length, model.target_rows
    a = weight(beta, L)
    N = n * (1 - 1 / L)
    return Sums(1 + N * a * a, n / L + N * a, L, n)


def update(model: CopyHead, beta: float) -> float:
    """F(beta) = -sigma_C^2 (2 a S_t + S_s) da/dbeta."""
    L = model.context_length
    a = weight(beta, L)
    d = averaged_gradient(model, sums(model, beta))
    return -model.logit_prior * (2 * a * d.t + d.s) * (1 - a) * (1 + (L - 1) * a) / L


@njit(error_model="numpy", cache=True)
def _samples(beta, L, n, V, variance, kappa, ridge, lam):  # type: ignore[no-untyped-def]
    """P at which beta is stationary; ridge = theta P.

    With x = 1/P: (beta/sigma^2 + lam V(V-1) a a'/(t + theta)) (t + theta)^2 = P k a' s (t - a s + theta) with
    theta = ridge x is increasing and convex in x > 0, so Newton from above converges monotonically.
    """
    e = math.exp(-beta)
    a = -math.expm1(-beta) / (1 + (L - 1) * e)
    rest = L * e / (1 + (L - 1) * e)  # 1 - a
    slope = rest * (1 + (L - 1) * a) / L
    N = n * (1 - 1 / L)
    t, s = 1 + N * a * a, n / L + N * a
    k = slope * s * (V - 1) / (kappa * L * V)
    b, entropy = beta / variance, lam * V * (V - 1) * a * slope
    c3 = b * ridge * ridge
    c2 = 2 * b * t * ridge + entropy * ridge
    c1 = b * t * t + entropy * t - k * ridge
    c0 = -k * (rest + (1 - n / L) * a)  # t - a s = 1 - a n/L
    x = 2 * max((-c0 / c3) ** (1 / 3), math.sqrt(abs(c1) / c3))
    for _ in range(100):
        step = (((c3 * x + c2) * x + c1) * x + c0) / ((3 * c3 * x + 2 * c2) * x + c1)
        x -= step
        if not abs(step) > 1e-15 * x:
            break
    return 1 / x


@njit(error_model="numpy", cache=True)
def _action(beta, P, L, n, V, variance, kappa, ridge, lam):  # type: ignore[no-untyped-def]
    """S(beta) without the J channel, which is constant."""
    a = -math.expm1(-beta) / (1 + (L - 1) * math.exp(-beta))
    N = n * (1 - 1 / L)
    t, s, theta = 1 + N * a * a, n / L + N * a, ridge / P
    value = N * beta * beta / (2 * variance) - P * (V - 1) * s * s / (2 * kappa * L * V * (t + theta))
    return value + lam * V * (V - 1) / 2 * math.log1p(t / theta)


@njit(error_model="numpy", cache=True)
def _curve(beta, parameters):  # type: ignore[no-untyped-def]
    out = np.empty(beta.size)
    for i in range(beta.size):
        out[i] = _samples(beta[i], *parameters)
    return out


@njit(error_model="numpy", cache=True)
def _extremum(low, high, sign, parameters):  # type: ignore[no-untyped-def]
    """Golden section for the maximum of sign P(beta) in (low, high)."""
    golden = (math.sqrt(5.0) - 1) / 2
    x, y = high - golden * (high - low), low + golden * (high - low)
    fx, fy = sign * _samples(x, *parameters), sign * _samples(y, *parameters)
    for _ in range(60):
        if fx > fy:
            high, y, fy = y, x, fx
            x = high - golden * (high - low)
            fx = sign * _samples(x, *parameters)
        else:
            low, x, fx = x, y, fy
            y = low + golden * (high - low)
            fy = sign * _samples(y, *parameters)
    return 0.5 * (low + high)


@njit(error_model="numpy", cache=True)
def _gap_at(P, low, high, sign, parameters):  # type: ignore[no-untyped-def]
    """beta in (low, high), where sign P(beta) rises, of a given P (bisection)."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        if sign * _samples(middle, *parameters) < sign * P:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


@njit(error_model="numpy", cache=True)
def _folds(beta, parameters):  # type: ignore[no-untyped-def]
    """(beta_pooling, beta_copy, P*) from the first rise and fall of P along an increasing grid."""
    P = _curve(beta, parameters)
    top = 1
    while top < beta.size - 1 and P[top + 1] > P[top]:
        top += 1
    bottom = top
    while bottom < beta.size - 1 and P[bottom + 1] < P[bottom]:
        bottom += 1
    if bottom >= beta.size - 1:
        return math.nan, math.nan, math.nan
    first = _extremum(beta[top - 1], beta[top + 1], 1.0, parameters)
    second = _extremum(beta[bottom - 1], beta[bottom + 1], -1.0, parameters)
    low, high = _samples(second, *parameters), _samples(first, *parameters)
    if not low < high:
        return math.nan, math.nan, math.nan
    for _ in range(60):
        middle = math.sqrt(low * high)
        pool = _gap_at(middle, 0.0, first, 1.0, parameters)
        copy = _gap_at(middle, second, beta[-1], 1.0, parameters)
        if _action(copy, middle, *parameters) > _action(pool, middle, *parameters):
            low = middle
        else:
            high = middle
    return first, second, math.sqrt(low * high)


def parameters(model: CopyHead) -> tuple[float, ...]:
    """Arguments of the kernels: L, n, V, sigma_C^2, kappa, theta P, lambda."""
    return (
        float(model.context_length),
        float(model.target_rows),
        float(model.vocabulary_size),
        model.logit_prior,
        model.kappa,
        model.ridge * model.samples,
        float(model.determinant),
    )


def _grid(model: CopyHead) -> Array:
    return np.linspace(1e-3, math.log(model.context_length) + 12.0, 400)


def sample_curve(model: CopyHead, beta: Array) -> Array:
    """P(beta), the number of samples at which each positive logit gap is stationary (``model.samples`` is not used).

    Examples
    --------
    >>> import numpy as np, statmech_attn as sa
    >>> head = sa.CopyHead(context_length=24, vocabulary_size=8, samples=1, noise=4.0, value_variance=0.25)
    >>> print(sample_curve(head, np.array([0.3, 1.0, 2.5])).round(1))
    [1433.7 1475.2 1477.1]
    """
    beta = np.asarray(beta, dtype=np.float64)
    if not np.all(beta > 0):
        raise ValueError(f"beta={beta!r} must be positive")
    return np.asarray(_curve(beta, parameters(model)))


def folds(model: CopyHead) -> Folds:
    """Spinodals and coexistence of the joint maximum (map) or of the projected action."""
    arguments = parameters(model)
    first, second, coexistence = _folds(_grid(model), arguments)
    if math.isnan(first):
        return Folds(*(5 * [math.nan]))
    return Folds(first, _samples(first, *arguments), second, _samples(second, *arguments), coexistence)


def watershed(model: CopyHead) -> float:
    """The logit gap that parts pooling from copying: where ln P(beta) falls most steeply or rises least."""
    beta = _grid(model)
    slope = np.diff(np.log(_curve(beta, parameters(model))))
    i = int(np.argmin(slope))
    return float(0.5 * (beta[i] + beta[i + 1]))


def states_at(model: CopyHead) -> Array:
    """All stationary logit gaps at ``model.samples``, in increasing order: one, or pooling, barrier and copying."""
    arguments = parameters(model)
    beta = np.concatenate([[1e-12], _grid(model)])
    above = _curve(beta, arguments) > model.samples
    return np.array(
        [
            _gap_at(model.samples, beta[i], beta[i + 1], 1.0 if above[i + 1] else -1.0, arguments)
            for i in np.flatnonzero(above[1:] != above[:-1])
        ]
    )


def action_at(model: CopyHead, beta: float) -> float:
    """S(beta), up to the constant J channel."""
    return float(_action(beta, model.samples, *parameters(model)))
