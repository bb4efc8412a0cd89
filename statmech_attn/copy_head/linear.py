r"""Linear attention: order parameters of A = C/L, its stationarity conditions and instabilities.

Cyclic boundary: :math:`A=m\frac{11^T}L+g(G-\frac{11^T}L)`, so that t = m^2 + (L-1) g^2, s = m + (L-1) g, r = L m^2,
u = L m. Open boundary: the first row has no target and its own sum f, :math:`f\,1^T/L`; rows 2..L are as above:
t = f^2/L + (L-1)(m^2/L + (1-1/L) g^2), s = (L-1)(m/L + (1-1/L) g), r = f^2 + (L-1) m^2, u = (L-1) m. Any further
component raises t or r at fixed s and u, so that for the joint maximum this is no ansatz but the exact reduction.

With W integrated out the other directions fluctuate. They enter through rho = |A1 - its mean part|^2 (L-1 Gaussian
modes, L-2 for the open boundary) and the rest tau (L^2-L-1 modes), t -> t + rho/L + tau, r -> r + rho:

.. math::
    S_4(x,\rho,\tau)=\tfrac12x^TKx+S_d(t,s,r,u)+\frac{L^2}{2\sigma_C^2}(\rho/L+\tau)
    -\frac{n_\rho}2\ln\rho-\frac{n_\tau}2\ln\tau

is minus the log density of (x, ln rho, ln tau): exact for the data-averaged action.

The state equations are alternating ridge regression, x = -(K + 2 S_t D_t + 2 S_r D_r)^{-1}(S_s s' + S_u u'), and
rho = n_rho/(L/sigma_C^2 + 2 S_t/L + 2 S_r), tau = n_tau/(L^2/sigma_C^2 + 2 S_t). Each is a descent direction divided by
a positive number, so a solution is a minimum of the action if and only if all eigenvalues of F' are below one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from statmech_attn.copy_head.action import Sums, averaged_action, averaged_gradient
from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = ["Forms", "bulk_at_zero", "descend", "forms", "hessian_at_zero", "potential", "project", "sums", "update"]


class Forms(NamedTuple):
    """Quadratic and linear forms of the coefficients x = (m, g) or (m, g, first)."""

    t: Array  # t = sum t_k x_k^2
    r: Array
    s: Array  # s = s . x
    u: Array
    prior: Array  # prior cost x . K x/2
    rho_modes: int
    tau_modes: int


@lru_cache(maxsize=256)
def forms(model: CopyHead) -> Forms:
    """Forms of the model's boundary and prior."""
    L, variance, uniform = model.context_length, model.logit_prior, model.uniform_prior
    n = model.target_rows
    t = np.array([n / L, n * (1 - 1 / L), 1 / L])
    r = np.array([n, 0.0, 1.0])
    s = np.array([n / L, n * (1 - 1 / L), 0.0])
    u = np.array([n, 0.0, 0.0])
    total = np.array([n, 0.0, 1.0])  # of L A over L: the uniform mode
    prior = np.diag(L**2 / variance * t)
    prior = prior - (1 / variance - 1 / uniform) * np.outer(total, total)
    keep = 2 if n == L else 3
    return Forms(t[:keep], r[:keep], s[:keep], u[:keep], prior[:keep, :keep], L + 1 - keep, L * L - L - 1)


def sums(model: CopyHead, state: Array) -> Sums:
    """t, s, r, u of a state (m, g, [first], [rho, tau])."""
    f = forms(model)
    x = state[: f.t.size]
    t, r = float(f.t @ (x * x)), float(f.r @ (x * x))
    if state.size > x.size:
        rho, tau = state[x.size :]
        t, r = t + rho / model.context_length + tau, r + rho
    return Sums(t, float(f.s @ x), r, float(f.u @ x))


def update(model: CopyHead, state: Array) -> Array:
    """F(state), see the module."""
    f, L, variance = forms(model), model.context_length, model.logit_prior
    d = averaged_gradient(model, sums(model, state))
    matrix = f.prior + np.diag(2 * d.t * f.t + 2 * d.r * f.r)
    x: Array = np.asarray(np.linalg.solve(matrix, -d.s * f.s - d.u * f.u), dtype=np.float64)
    if state.size == x.size:
        return x
    rho = f.rho_modes / (L / variance + 2 * d.t / L + 2 * d.r)
    tau = f.tau_modes / (L**2 / variance + 2 * d.t)
    return np.concatenate([x, [rho, tau]])


def descend(model: CopyHead, state: Array) -> Array:
    """Plain iteration of :func:`update` until it moves by less than 1e-4, at most 200 times."""
    for _ in range(200):
        new = update(model, state)
        moved = float(np.max(np.abs(new - state)))
        state = new
        if moved < 1e-4 * float(np.max(np.abs(state))):
            break
    return state


def potential(model: CopyHead, state: Array) -> float:
    """Action of the state: prior + S_d, with the entropy of the bulk where it fluctuates."""
    f, L = forms(model), model.context_length
    x = state[: f.t.size]
    value = float(x @ f.prior @ x) / 2 + averaged_action(model, sums(model, state))
    if state.size > x.size:
        rho, tau = state[x.size :]
        value += L**2 / (2 * model.logit_prior) * (rho / L + tau)
        value -= (f.rho_modes * np.log(rho) + f.tau_modes * np.log(tau)) / 2
    return value


def bulk_at_zero(model: CopyHead) -> tuple[float, float]:
    """(rho, tau) of the state without mean attention; (0, 0) for ensembles without bulk fluctuations."""
    if model.ensemble != "posterior":
        return 0.0, 0.0
    # With x = 0 the update of (rho, tau) is a decreasing map: average it with its argument until it stands still.
    f, variance = forms(model), model.logit_prior
    state = np.zeros(f.t.size + 2)
    state[-2:] = f.rho_modes * variance / model.context_length, f.tau_modes * variance / model.context_length**2
    for _ in range(200):
        new = 0.5 * (state + update(model, state))
        if np.max(np.abs(new[-2:] / state[-2:] - 1)) < 1e-14:
            break
        state = new
    return float(new[-2]), float(new[-1])


def hessian_at_zero(model: CopyHead) -> Array:
    """Hessian of the action in x at x = 0, the bulk at its own saddle; it turns singular at the pooling transition."""
    f = forms(model)
    rho, tau = bulk_at_zero(model)
    t, r = rho / model.context_length + tau, rho
    d = averaged_gradient(model, Sums(t, 0.0, r, 0.0))
    V, p, theta = model.vocabulary_size, model.signal, model.ridge
    gain = (V - 1) * np.outer(f.s, f.s) / (t + theta) + np.outer(f.u, f.u) / (r + theta)
    hessian: Array = f.prior + np.diag(2 * d.t * f.t + 2 * d.r * f.r) - p * gain
    return hessian


def project(model: CopyHead, A: Array) -> Array:
    """Coefficients (m, g) or (m, g, first) of the part of A in the span of the order parameters."""
    L, n = model.context_length, model.target_rows
    first = L - n
    rows = A.sum(axis=1)
    m = float(rows[first:].sum()) / n
    s = float(np.sum(A[np.arange(first, L), np.arange(first, L) - 1]))
    g = (s / n - m / L) / (1 - 1 / L)
    return np.array([m, g, float(rows[0])][: 2 + first])
