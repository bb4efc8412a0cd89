r"""State equations of the two-token model: prior side, hats, and the training loss.

Order parameters (q, m, theta, V); conjugates (hats) summed over the two tokens; rho = sigma^2,
:math:`D=\lambda+\sigma^2\hat V`, p the strength of the positional vectors (Cui et al. 2024, replica-symmetric saddle
point, in teacher-first form):

.. math::
    q=\sigma^2(\sigma^2\hat q+p^2\hat m^2+\sigma^2\rho\hat\theta^2)/D^2,\quad m=p^2\hat m/D,\quad
    \theta=\sigma^2\rho\hat\theta/D,\quad V=\sigma^2/D,

.. math::
    \hat q=\alpha\,\mathbb E|g|^2,\quad\hat m=\alpha\sqrt2\,\mathbb E g_u,\quad
    \hat V=-\alpha\,\mathbb E[g\cdot\zeta]/s,\quad
    \hat\theta=\alpha\,\mathbb E[g\cdot\eta]/\sqrt\rho+\theta\hat V/\rho .

V_hat stands in its Stein form: the derivative of g would miss the jumps of the proximal operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from statmech_attn.positional_semantic.attention import effective_target
from statmech_attn.positional_semantic.channel import channel_averages
from statmech_attn.positional_semantic.rules import channel_rule
from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.positional_semantic.model import PositionalSemantic

__all__ = ["Hats", "channel", "free_energy", "hats", "prior"]


class Hats(NamedTuple):
    """Conjugate order parameters and the mean Moreau envelope E M (without the constant of the target rows)."""

    q: float
    m: float
    theta: float
    V: float
    envelope: float


class Channel(NamedTuple):
    """Averages over teacher and student noise, as :func:`.channel.channel_averages` returns them."""

    g_u: float
    g_g: float
    g_zeta: float
    g_eta: float
    envelope: float
    trace: float
    delta: float
    smooth: float
    jump_probability: float
    mass_defect: float
    negative_weight: float
    lines: float
    scalar_lines: float


def channel(model: PositionalSemantic, state: Array, level: int) -> Channel:
    """Channel averages at a feasible state under a row of the table of rules.

    Symmetry-odd averages vanish by symmetry and are set to zero: on the part of the teacher plane that is integrated
    they would not. The plane can be folded twice if m = 0 or theta = 0, once otherwise, and once less if the two rows
    of the target differ.
    """
    q, m, theta, V = state
    a1, a2, _ = effective_target(model.positional_target)
    quadrants = 2 if m != 0 and theta != 0 else 1
    if a1 != a2 and model.omega > 0:
        quadrants *= 2
    q = theta**2 / model.sigma**2 + _noise(q, theta, model.sigma**2)
    out = channel_averages(m, theta, q, V, model.sigma**2, model.omega, a1, a2, quadrants, channel_rule(level))
    if m == 0:
        out[0] = 0.0
    if theta == 0:
        out[3] = 0.0
    return Channel(*out)


def _noise(q: float, theta: float, rho: float) -> float:
    """q - theta^2/rho, at least 1e-20 rho: where a strong penalty drives q to zero, m in its units would round off."""
    return max(q - theta**2 / rho, 1e-20 * rho)


def hats(model: PositionalSemantic, state: Array, averages: Channel) -> Hats:
    """Conjugates of a state from its channel averages."""
    q, _, theta, _ = state
    rho = model.sigma**2
    s = np.sqrt(_noise(q, theta, rho))
    V_hat = -model.alpha * averages.g_zeta / s
    return Hats(
        q=model.alpha * averages.g_g,
        m=model.alpha * np.sqrt(2) * averages.g_u,
        theta=model.alpha * averages.g_eta / model.sigma + theta * V_hat / rho,
        V=V_hat,
        envelope=averages.envelope,
    )


def prior(model: PositionalSemantic, h: Hats) -> Array:
    """State (q, m, theta, V) from the conjugates."""
    s2 = model.sigma**2
    p2 = model.positional_strength**2
    D = model.regularization + s2 * h.V
    return np.array(
        [
            s2 * (s2 * h.q + p2 * h.m**2 + s2**2 * h.theta**2) / D**2,
            p2 * h.m / D,
            s2**2 * h.theta / D,
            s2 / D,
        ]
    )


def free_energy(model: PositionalSemantic, state: Array, h: Hats) -> float:
    r"""Training loss per dimension: minimum over the weights of the regularised loss, divided by d (minus Phi).

    :math:`\mathcal E=\frac12(\hat qV-\hat Vq)+m\hat m+\theta\hat\theta-
    (\sigma^2\hat q+p^2\hat m^2+\sigma^2\rho\hat\theta^2)/(2D)+\alpha\,\mathbb E M`.
    """
    q, m, theta, V = state
    s2 = model.sigma**2
    D = model.regularization + s2 * h.V
    b2 = s2 * h.q + model.positional_strength**2 * h.m**2 + s2**2 * h.theta**2
    constant = effective_target(model.positional_target)[2] * s2 * model.omega**2
    return float(
        0.5 * (h.q * V - h.V * q) + m * h.m + theta * h.theta - 0.5 * b2 / D + model.alpha * (h.envelope + constant)
    )
