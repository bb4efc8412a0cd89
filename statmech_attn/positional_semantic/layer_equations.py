r"""State equations of the general layer: hats, prior side, training loss, stability of replica symmetry.

For every token l (Cui et al. 2024, general replica-symmetric result), with the averages of :mod:`.layer_channel`,

.. math:: \hat q_l=\alpha\mathbb E g_lg_l^\top,\quad\hat m_l=\alpha\mathbb E g_l,\quad
    \hat V_l=-\alpha\,\mathrm{sym}\,\mathbb E[g_l\zeta_l^\top]s_l^{-1},\quad
    \hat\theta_l=\alpha\mathbb E[g_l\eta_l^\top]\rho_l^{-1/2}+\hat V_l\theta_l\rho_l^{-1},

and over the atoms of the spectrum, :math:`\Lambda=\lambda+\sum_l\gamma^l\hat V_l`,
:math:`b=\sum_l(\pi^l\hat m_l+\gamma^l\hat\theta_l\tau)`, :math:`N=\sum_l\gamma^l\hat q_l`,
:math:`W=\Lambda^{-1}(\mathbb E bb^\top+N)\Lambda^{-1}`,

.. math:: q_l=\mathbb E\gamma^lW,\quad V_l=\mathbb E\gamma^l\Lambda^{-1},\quad m_l=\mathbb E\pi^l\Lambda^{-1}b,\quad
    \theta_l=\mathbb E\gamma^l\Lambda^{-1}b\tau^\top .
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from statmech_attn.positional_semantic.gauge import OrderParameters
from statmech_attn.positional_semantic.layer_channel import LayerChannel, symmetric_root
from statmech_attn.positional_semantic.spectrum import Spectrum
from statmech_attn.theory import Array

__all__ = ["LayerHats", "layer_free_energy", "layer_hats", "layer_prior", "layer_replicon", "virial"]


class LayerHats(NamedTuple):
    """Conjugate order parameters of every token: q (L, r, r), m (L, r), theta (L, r, t), V (L, r, r)."""

    q: Array
    m: Array
    theta: Array
    V: Array


def layer_hats(alpha: float, x: OrderParameters, rho: Array, averages: LayerChannel) -> LayerHats:
    """Conjugates of a state from its channel averages."""
    root = symmetric_root(rho)
    V = -alpha * (averages.derivative + averages.derivative.transpose(0, 2, 1)) / 2
    return LayerHats(
        q=alpha * averages.g_g,
        m=alpha * averages.g,
        theta=alpha * averages.g_eta @ np.linalg.inv(root) + V @ x.theta @ np.linalg.inv(rho),
        V=V,
    )


class _Atoms(NamedTuple):
    """Of every atom: Lambda^-1, E b, E b tau^T, E b b^T + N, W."""

    inverse: Array
    b: Array
    b_tau: Array
    second: Array
    W: Array


def _atoms(regularization: float, spectrum: Spectrum, h: LayerHats) -> _Atoms | None:
    """None where Lambda is not positive definite."""
    _, variances, positions, mean, covariance = spectrum.arrays
    r = h.V.shape[-1]
    precision = regularization * np.eye(r) + np.tensordot(variances, h.V, axes=1)
    if not np.all(np.isfinite(precision)) or not np.all(np.linalg.eigvalsh(precision) > 0):
        return None
    inverse: Array = np.linalg.inv(precision).astype(np.float64)
    teacher = np.tensordot(variances, h.theta, axes=1)
    b = positions @ h.m + (teacher @ mean[:, :, None])[:, :, 0]
    b_tau = b[:, :, None] * mean[:, None, :] + teacher @ covariance
    second = (
        b[:, :, None] * b[:, None, :]
        + teacher @ covariance @ teacher.transpose(0, 2, 1)
        + np.tensordot(variances, h.q, axes=1)
    )
    return _Atoms(inverse, b, b_tau, second, inverse @ second @ inverse)


def layer_prior(regularization: float, spectrum: Spectrum, h: LayerHats) -> OrderParameters:
    """State from the conjugates; not a number where the local curvature is not positive."""
    atoms = _atoms(regularization, spectrum, h)
    if atoms is None:
        return OrderParameters(*(np.full_like(x, np.nan) for x in h))
    weights, variances, positions, *_ = spectrum.arrays
    by_token = (weights[:, None] * variances).T
    return OrderParameters(
        q=np.tensordot(by_token, atoms.W, axes=1),
        m=np.einsum("k,kl,kab,kb->la", weights, positions, atoms.inverse, atoms.b),
        theta=np.tensordot(by_token, atoms.inverse @ atoms.b_tau, axes=1),
        V=np.tensordot(by_token, atoms.inverse, axes=1),
    )


def layer_free_energy(
    alpha: float, regularization: float, spectrum: Spectrum, x: OrderParameters, h: LayerHats, envelope: float
) -> float:
    r"""Training loss per dimension.

    :math:`\mathcal E=\sum_l[\frac12\mathrm{tr}\,\hat q_lV_l-\frac12\mathrm{tr}\,\hat V_lq_l+\hat m_l\cdot m_l+
    \mathrm{tr}\,\hat\theta_l^\top\theta_l]-\frac12\mathbb E\,\mathrm{tr}\,\Lambda^{-1}(bb^\top+N)+\alpha\,\mathbb E M`.
    """
    atoms = _atoms(regularization, spectrum, h)
    if atoms is None:
        return float("nan")
    pairs = 0.5 * np.sum(h.q * x.V) - 0.5 * np.sum(h.V * x.q) + np.sum(h.m * x.m) + np.sum(h.theta * x.theta)
    prior = 0.5 * spectrum.arrays[0] @ np.einsum("kab,kba->k", atoms.inverse, atoms.second)
    return float(pairs - prior + alpha * envelope)


def virial(alpha: float, regularization: float, spectrum: Spectrum, h: LayerHats, loss: float) -> float:
    r"""Training loss as :math:`\alpha\,\mathbb E\,\ell(z)+\frac\lambda2\mathbb E\,\mathrm{tr}\,W`, at solutions only.

    It equals the free energy there for any quadrature, and nowhere else: what tells a false solution from a true one.
    """
    atoms = _atoms(regularization, spectrum, h)
    if atoms is None:
        return float("nan")
    return float(alpha * loss + 0.5 * regularization * spectrum.arrays[0] @ np.einsum("kaa->k", atoms.W))


def layer_replicon(
    alpha: float, regularization: float, spectrum: Spectrum, h: LayerHats, averages: LayerChannel
) -> float:
    r"""Growth factor of a difference between replicas over a step; below one where replica symmetry is stable.

    Spectral radius on L symmetric r x r matrices of
    :math:`\delta q\to\delta\hat q_l=\alpha\mathbb E\sum_kD_{lk}\,\delta q_kD_{lk}^\top\to
    \delta q_l=\mathbb E_\nu\gamma^l\Lambda^{-1}(\sum_k\gamma^k\delta\hat q_k)\Lambda^{-1}`. Jumps of the
    proximal operator are left out; with one it is infinite.
    """
    atoms = _atoms(regularization, spectrum, h)
    if atoms is None:
        return float("nan")
    weights, variances, *_ = spectrum.arrays
    L, r = h.m.shape
    n = L * r * r
    channel = alpha * averages.squares.transpose(0, 2, 3, 1, 4, 5).reshape(n, n)
    prior = np.einsum(
        "n,nl,nk,nac,nbd->labkcd", weights, variances, variances, atoms.inverse, atoms.inverse, optimize=True
    ).reshape(n, n)
    swap = np.einsum("lk,ac,bd->lbakcd", np.eye(L), np.eye(r), np.eye(r)).reshape(n, n)
    symmetric = (np.eye(n) + swap) / 2
    return float(np.max(np.abs(np.linalg.eigvals(symmetric @ prior @ channel @ symmetric))))
