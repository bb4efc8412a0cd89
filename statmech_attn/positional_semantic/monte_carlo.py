"""The channel averages by Monte Carlo: an independent check of the quadrature, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from statmech_attn.positional_semantic import state_equations as equations
from statmech_attn.positional_semantic.attention import effective_target, teacher_attention
from statmech_attn.positional_semantic.model import PositionalSemantic
from statmech_attn.positional_semantic.proximal import proximal_point
from statmech_attn.theory import Array

__all__ = ["MonteCarlo", "monte_carlo_hats"]


@njit(error_model="numpy", cache=True)
def _moments(normals, mean, slope, s, V, sigma, omega, a1, a2):  # type: ignore[no-untyped-def]
    """First and second moments over samples of g_u, |g|^2, g.zeta, g.eta, M and loss at the minimiser."""
    first = np.zeros(6)
    second = np.zeros(6)
    values = np.empty(6)
    for i in range(normals.shape[1]):
        eta_u, eta_v, zeta_u, zeta_v = normals[0, i], normals[1, i], normals[2, i], normals[3, i]
        t1, t2 = teacher_attention(sigma * eta_u, sigma * eta_v, omega, a1, a2)
        wu = mean + slope * eta_u + s * zeta_u
        wv = slope * eta_v + s * zeta_v
        u, v, minimum = proximal_point(wu, wv, V, t1, t2, sigma * sigma)
        gu = (u - wu) / V
        gv = (v - wv) / V
        values[0] = gu
        values[1] = gu * gu + gv * gv
        values[2] = gu * zeta_u + gv * zeta_v
        values[3] = gu * eta_u + gv * eta_v
        values[4] = minimum
        values[5] = minimum - 0.5 * V * values[1]
        for k in range(6):
            first[k] += values[k]
            second[k] += values[k] * values[k]
    return first, second


def monte_carlo_hats(
    model: PositionalSemantic, state: Array, samples: int, seed: int
) -> tuple[equations.Hats, equations.Hats]:
    """Conjugates of a feasible state by plain Monte Carlo with the global proximal operator, point by point.

    Parameters
    ----------
    model : PositionalSemantic
    state : (4,) array
        (q, m, theta, V).
    samples : int
        Number of samples, at least 2; about 5 microseconds each.
    seed : int
        Seed of the generator.

    Returns
    -------
    hats, standard_errors : Hats
        Symmetry-odd hats of a symmetric state are zero.
    """
    if samples < 2:
        raise ValueError(f"samples={samples!r} must be at least 2")
    q, m, theta, V = state.tolist()
    slope = theta / model.sigma
    s = math.sqrt(q - slope**2)
    a1, a2, _ = effective_target(model.positional_target)
    normals = np.random.default_rng(seed).standard_normal((4, samples))
    first, second = _moments(normals, math.sqrt(2) * m, slope, s, V, model.sigma, model.omega, a1, a2)
    mean = first / samples
    error = np.sqrt((second / samples - mean**2) / (samples - 1))
    if m == 0:
        mean[0] = error[0] = 0.0
    if theta == 0:
        mean[3] = error[3] = 0.0
    V_hat, V_error = -model.alpha * mean[2] / s, model.alpha * error[2] / s
    return (
        equations.Hats(
            q=model.alpha * mean[1],
            m=model.alpha * math.sqrt(2) * mean[0],
            theta=model.alpha * mean[3] / model.sigma + theta * V_hat / model.sigma**2,
            V=V_hat,
            envelope=mean[4],
        ),
        equations.Hats(
            q=model.alpha * error[1],
            m=model.alpha * math.sqrt(2) * error[0],
            # g.eta and g.zeta of a sample are taken as independent; exact where theta = 0
            theta=math.hypot(model.alpha * error[3] / model.sigma, theta * V_error / model.sigma**2),
            V=V_error,
            envelope=error[4],
        ),
    )


@dataclass(frozen=True)
class MonteCarlo(PositionalSemantic):
    """The model with its channel averages over a fixed sample: ``model.under("monte_carlo", samples=..., seed=...)``.

    The error of a solution is estimated from an independent sample four times as large.
    """

    samples: int = 100_000
    seed: int = 0

    settings: ClassVar[Mapping[str, Any]] = {"tol": 1e-6, "accuracy": math.inf}

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        """(samples, seed) of the sample, then of the one that gives the error."""
        return ((self.samples, self.seed), (4 * self.samples, self.seed + 1))

    def hats(self, state: Array, rule: Any) -> equations.Hats:
        """Conjugates as sample averages."""
        return monte_carlo_hats(self, state, *rule)[0]

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        """Training loss only."""
        return {"train_loss": self.potential(state, rule)}
