r"""Linear response of a layer to overlaps that a symmetry keeps at zero, without a derivative of g.

An overlap :math:`\delta m_k` or :math:`\delta\theta_k` moves the argument of g by
:math:`\delta\omega_k=\delta m_k+\delta\theta_k\rho_k^{-1/2}\eta_k`, and by Stein's lemma in :math:`\zeta`

.. math::
    \delta\hat m_l&=\alpha\textstyle\sum_k\mathbb E[g_l\,(s_k^{-1}\zeta_k)\cdot\delta m_k],\\
    \delta\hat\theta_l&=\alpha\textstyle\sum_k\mathbb E[g_l\,(s_k^{-1}\zeta_k)\cdot(\delta\theta_k\rho_k^{-1/2}\eta_k)\,
    \eta_l^\top]\rho_l^{-1/2}+\hat V_l\delta\theta_l\rho_l^{-1} .

Jumps of g are in it. Differences of averages see them only as points near a jump change sides, and are up to four times
as noisy (two tokens, 2,000 to 30,000 points). At every point g jumps by itself, so that a response is continuous in
the state but for the weight of a point: locate its zeros to a `tol` of 3e-4, not less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from statmech_attn.positional_semantic.gauge import OrderParameters
from statmech_attn.positional_semantic.layer_channel import symmetric_root
from statmech_attn.positional_semantic.layer_equations import LayerHats
from statmech_attn.theory import Array

__all__ = ["Noise", "noise_of", "response_of_hats"]


class Noise(NamedTuple):
    """Points of a channel average: weights (n,), the teacher's eta (n, L, t) and index rho^1/2 eta (n, L, t), the
    argument omega of g (n, L, r) and s^-1 zeta (n, L, r).
    """

    weights: Array
    eta: Array
    teacher: Array
    omega: Array
    push: Array


def noise_of(nodes: Array, weights: Array, x: OrderParameters, rho: Array) -> Noise:
    """The points (n, L (t + r)) of a rule at a state, eta of all tokens first, as in :func:`.layer_averages`."""
    L, r, t = x.theta.shape
    eta, zeta = nodes[:, : L * t].reshape(-1, L, t), nodes[:, L * t :].reshape(-1, L, r)
    root = symmetric_root(rho)
    slope = x.theta @ np.linalg.inv(root)
    s = symmetric_root(x.q - slope @ slope.transpose(0, 2, 1))
    push = np.asarray(np.linalg.solve(s, zeta[..., None])[..., 0], dtype=np.float64)
    omega = x.m + _each(slope, eta) + _each(s, zeta)
    return Noise(weights, eta, _each(root, eta), omega, push)


def _each(matrices: Array, x: Array) -> Array:
    """Matrices (L, a, b) applied token by token to x (n, L, b)."""
    return np.asarray(np.einsum("lab,nlb->nla", matrices, x))


def response_of_hats(alpha: float, rho: Array, noise: Noise, g: Array, direction: OrderParameters) -> LayerHats:
    """Derivative of the hats along m (L, r) and theta (L, r, t) of a direction, with V_hat itself and no q_hat.

    g (n, L, r) at the points. For directions that a symmetry of the state forbids: q_hat and V_hat do not change.
    """
    weighted = alpha * noise.weights[:, None, None] * g
    V = -np.einsum("nla,nlb->lab", weighted, noise.push)
    V = (V + V.transpose(0, 2, 1)) / 2
    scaled: Array = np.linalg.inv(symmetric_root(rho)).astype(np.float64)
    gain = np.einsum("nka,nka->n", noise.push, direction.m + _each(direction.theta @ scaled, noise.eta))
    theta = np.einsum("n,nla,nlt->lat", gain, weighted, noise.eta) @ scaled
    return LayerHats(
        q=np.zeros_like(V),
        m=np.einsum("n,nla->la", gain, weighted),
        theta=theta + V @ direction.theta @ np.linalg.inv(rho),
        V=V,
    )
