r"""Softmax attention with fluctuating rows: the row mean field.

S_d sees A only through s = <A, G> and t = |A|^2, sums over rows of the weight of the target, a_i, and of
q_i = |A_i|^2, and the prior factorises over rows. For large L each row is an independent one in two conjugate fields,

.. math::
    s=n\langle a\rangle,\quad t=n\langle q\rangle+(L-n)\langle q\rangle_{\lambda_1=0},\quad
    \lambda_1=-\partial_sS_d,\quad\lambda_2=-\partial_tS_d,\quad
    \langle\cdot\rangle\propto E_{row}[\,\cdot\,e^{\lambda_1a+\lambda_2q}],

(n = L rows with a target for the cyclic boundary, L - 1 for the open one), stationary points of

.. math:: F=S_d+\lambda_1s+\lambda_2t-n\Lambda(\lambda_1,\lambda_2)-(L-n)\Lambda(0,\lambda_2),\qquad
    \Lambda=\ln E_{row}e^{\lambda_1a+\lambda_2q}.

A row has the target logit h ~ N(0, sigma_C^2 L/(L-1)) relative to the mean of the other L - 1, and
a = e^h/(e^h + Z), q = (e^{2h} + Q)/(e^h + Z)^2 with Z = sum e^{n_j}, Q = sum e^{2 n_j} over the centred others. The
average over h is a trapezoid sum (exponentially accurate), that over (Z, Q) runs over quasi-random backgrounds.
Leading order in 1/L; rows are exact.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from statmech_attn.copy_head.action import Sums, averaged_action, averaged_gradient
from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = [
    "Row",
    "fields",
    "point_on_curve",
    "potential",
    "relax_from_prior",
    "row_average",
    "slope",
    "state_at",
    "sums",
    "update",
]


class Row(NamedTuple):
    """ln of the partition function of a row in its fields, and mean and covariance of (a, q) under them."""

    log_partition: float
    mean: Array  # (2,)
    covariance: Array  # (2, 2)


@lru_cache(maxsize=32)
def backgrounds(context_length: int, variance: float, count: int) -> tuple[Array, Array]:
    """(Z, Q) of `count` quasi-random backgrounds (one scrambled Sobol sequence); `count` is a power of two."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    points = qmc.Sobol(context_length - 1, seed=20, bits=30).random_base2(count.bit_length() - 1)
    logits = math.sqrt(variance) * ndtri(np.clip(points, 2.0**-32, 1 - 2.0**-32))
    logits -= logits.mean(axis=1, keepdims=True)
    weights = np.exp(logits)
    return weights.sum(axis=1), np.sum(weights * weights, axis=1)


@njit(error_model="numpy", cache=True)
def _row(first, second, h, log_weight, Z, Q):  # type: ignore[no-untyped-def]
    """Sums for Row: 0 log of the partition function, 1-2 means, 3-5 second moments of (a, q)."""
    out = np.zeros(6)
    top = -math.inf
    e = np.exp(h)
    for sweep in range(2):  # the largest exponent first, so that no sum overflows
        for k in range(Z.size):
            for i in range(h.size):
                inverse = 1 / (e[i] + Z[k])
                a = e[i] * inverse
                q = (e[i] * e[i] + Q[k]) * inverse * inverse
                exponent = log_weight[i] + first * a + second * q
                if sweep == 0:
                    top = max(top, exponent)
                elif exponent > top - 40.0:
                    w = math.exp(exponent - top)
                    out[0] += w
                    out[1] += w * a
                    out[2] += w * q
                    out[3] += w * a * a
                    out[4] += w * a * q
                    out[5] += w * q * q
    out[1:] /= out[0]
    out[0] = top + math.log(out[0] / Z.size)
    return out


def row_average(context_length: int, variance: float, first: float, second: float, count: int) -> Row:
    """Averages over a softmax row of logits N(0, variance) under the weight exp(first a + second q).

    Parameters
    ----------
    context_length : int
        Length of the row.
    variance : float
        sigma_C^2.
    first, second : float
        Fields lambda_1, lambda_2 on the target's weight a and on q, the sum of squares.
    count : int
        Backgrounds, a power of two.

    Examples
    --------
    >>> row = row_average(16, 0.5, 0.0, 0.0, 256)
    >>> print(f"{row.log_partition + 0:.10f} {row.mean[0]:.3f}")  # without fields all tokens are alike: 1/16
    -0.0000000000 0.063
    """
    # Fields move the logit by at most what makes it dominate, ln of the background plus a few.
    deviation = math.sqrt(variance * context_length / (context_length - 1))
    Z, Q = backgrounds(context_length, variance, count)
    low, high = -9.0 * deviation, 9.0 * deviation + math.log(context_length) + 4.0
    step = deviation / 3
    h = low + step * np.arange(math.ceil((high - low) / step) + 1)
    log_weight = -h * h / (2 * deviation**2) + math.log(step / deviation / math.sqrt(2 * math.pi))
    log_partition, a, q, aa, aq, qq = _row(first, second, h, log_weight, Z, Q)
    covariance = np.array([[aa - a * a, aq - a * q], [aq - a * q, qq - q * q]])
    return Row(log_partition, np.array([a, q]), covariance)


def _total(model: CopyHead, fields: Array, count: int) -> Row:
    """The rows together: the sum of their logs of partition functions, mean and covariance of (s, t)."""
    L, n = model.context_length, model.target_rows
    row = row_average(L, model.logit_prior, fields[0], fields[1], count)
    total = Row(n * row.log_partition, n * row.mean, n * row.covariance)
    if n == L:
        return total
    other = row_average(L, model.logit_prior, 0.0, fields[1], count)
    only_t = np.array([0.0, 1.0])
    return Row(
        total.log_partition + other.log_partition,
        total.mean + only_t * other.mean,
        total.covariance + np.outer(only_t, only_t) * other.covariance,
    )


def sums(model: CopyHead, state: Array) -> Sums:
    """t, s, r, u of a state (s, t)."""
    return Sums(float(state[1]), float(state[0]), model.context_length, model.target_rows)


def fields(model: CopyHead, state: Array) -> Array:
    """(lambda_1, lambda_2) of a state."""
    d = averaged_gradient(model, sums(model, state))
    return np.array([-d.s, -d.t])


def update(model: CopyHead, state: Array, count: int) -> Array:
    """F(s, t): the sums that rows take in the fields of the state."""
    return _total(model, fields(model, state), count).mean


def potential(model: CopyHead, state: Array, count: int) -> float:
    """F of the module, up to the constant J channel."""
    field = fields(model, state)
    constant = averaged_action(model, Sums(0.0, 0.0, model.context_length, model.target_rows))
    value = averaged_action(model, sums(model, state)) - constant + float(field @ state)
    return value - _total(model, field, count).log_partition


def _hessian(model: CopyHead, state: Array) -> Array:
    """Second derivatives of S_d in (s, t)."""
    s, x = state[0], state[1] + model.ridge
    V, p = model.vocabulary_size, model.signal
    ss, st = -p * (V - 1) / x, p * (V - 1) * s / x**2
    tt = -p * (V - 1) * s * s / x**3 - model.determinant * V * (V - 1) / (2 * x**2)
    return np.array([[ss, st], [st, tt]])


def slope(model: CopyHead, state: Array, count: int) -> Array:
    """F'(state), minus the covariance of the rows times the Hessian of S_d."""
    return -_total(model, fields(model, state), count).covariance @ _hessian(model, state)


def relax_from_prior(model: CopyHead, count: int) -> Array:
    """The pooling state, roughly: half steps of :func:`update` from rows without fields."""
    state = _total(model, np.zeros(2), count).mean
    for _ in range(200):
        new = 0.5 * (state + update(model, state, count))
        if np.max(np.abs(new / state - 1)) < 1e-5:
            break
        state = new
    return state


def state_at(model: CopyHead, guess: Array, count: int) -> Array:
    """The stationary state near a guess by Newton's method, stable or not; nan if it does not converge."""
    state = guess
    for _ in range(40):
        field = fields(model, state)
        total = _total(model, field, count)
        miss = total.mean - state
        if np.max(np.abs(miss) / state) < 1e-12:
            return state
        step = np.linalg.solve(np.eye(2) + total.covariance @ _hessian(model, state), miss)
        state = state + step * min(1.0, 0.3 / float(np.max(np.abs(step) / state)))
    return np.full(2, np.nan)


def point_on_curve(model: CopyHead, s: float, guess: tuple[float, float], count: int) -> tuple[float, float]:
    """(t, P) of the stationary point with a given s, by Newton's method from a guess; nan if it does not converge.

    As for equal rows, the stationary points form a curve P(s).
    """
    from statmech_attn.theory import replace

    t, log_samples = guess[0], math.log(guess[1])
    for _ in range(40):
        here = replace(model, samples=math.exp(log_samples))
        state = np.array([s, t])
        field = fields(here, state)
        total = _total(here, field, count)
        miss = total.mean - state
        if np.max(np.abs(miss) / state) < 1e-12:
            return t, here.samples
        # d fields/d ln P: p grows as P, theta falls as 1/P
        V, p, theta, x = here.vocabulary_size, here.signal, here.ridge, t + here.ridge
        by_samples = np.array(
            [
                field[0] * (1 + theta / x),
                -p * (V - 1) * (s / x) ** 2 / 2 * (1 + 2 * theta / x)
                - here.determinant * V * (V - 1) * theta / (2 * x * x),
            ]
        )
        matrix = total.covariance @ np.column_stack([-_hessian(here, state)[:, 1], by_samples]) - [[0, 0], [1, 0]]
        step = np.linalg.solve(matrix, -miss)
        length = min(1.0, 0.3 / max(abs(step[0]) / t, abs(step[1])))
        t, log_samples = t + length * step[0], log_samples + length * step[1]
    return math.nan, math.nan
