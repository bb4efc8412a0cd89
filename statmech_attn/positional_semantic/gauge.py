r"""Rotations that leave the layer as it is: of the student's rank space, and of the teacher's where its law allows.

The student sees Q only through :math:`QQ^\top`, so :math:`Q\to QR` with :math:`R\in O(r)` takes a state into an
equivalent one, :math:`(q,m,\theta,V)\to(R^\top qR,R^\top m,R^\top\theta,R^\top VR)`; where the law of the teacher's
rows is invariant under :math:`R'\in O(t)`, so does :math:`\theta\to\theta R'`. Solutions come in orbits: F' has an
eigenvalue one for every generator that moves the state (a flat direction), which says nothing about stability.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import expm

from statmech_attn.positional_semantic.spectrum import Spectrum
from statmech_attn.theory import Array

__all__ = ["OrderParameters", "generators", "invariants", "moved", "rotated", "signs"]


class OrderParameters(NamedTuple):
    """Order parameters, a token along the first axis: q (L, r, r), m (L, r), theta (L, r, t), V (L, r, r)."""

    q: Array
    m: Array
    theta: Array
    V: Array


def rotated(x: OrderParameters, R: Array, teacher: Array) -> OrderParameters:
    """The state in a frame rotated by R (r, r) on the student's and `teacher` (t, t) on the teacher's side.

    Examples
    --------
    >>> x = OrderParameters(np.eye(2)[None], np.array([[1.0, 0.0]]), np.zeros((1, 2, 1)), np.eye(2)[None])
    >>> rotated(x, np.array([[0.0, -1.0], [1.0, 0.0]]), np.eye(1)).m.tolist()
    [[0.0, -1.0]]
    """
    return OrderParameters(R.T @ x.q @ R, x.m @ R, R.T @ x.theta @ teacher, R.T @ x.V @ R)


def moved(x: OrderParameters, student: Array, teacher: Array) -> OrderParameters:
    """Velocity of a state under the generators `student` (r, r) and `teacher` (t, t), both antisymmetric."""
    return OrderParameters(
        x.q @ student - student @ x.q,
        x.m @ student,
        x.theta @ teacher - student @ x.theta,
        x.V @ student - student @ x.V,
    )


def generators(rank: int, spectrum: Spectrum) -> list[tuple[Array, Array]]:
    """Pairs (student, teacher) of antisymmetric generators: of O(r), and of O(t) where the law of tau is invariant."""
    _, _, _, mean, covariance = spectrum.arrays
    none = np.zeros((rank, rank)), np.zeros((spectrum.teacher_rank, spectrum.teacher_rank))
    pairs = [(E, none[1]) for E in _planes(rank)]
    for E in _planes(spectrum.teacher_rank):
        if np.allclose(mean @ E, 0, atol=1e-12) and np.allclose(E.T @ covariance + covariance @ E, 0, atol=1e-12):
            pairs.append((none[0], E))
    return pairs


def _planes(n: int) -> Iterator[Array]:
    for a, b in itertools.combinations(range(n), 2):
        E = np.zeros((n, n))
        E[a, b], E[b, a] = -1.0, 1.0
        yield E


def rotation(coefficients: Array, pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Rotations of student and teacher that a combination of generators makes."""
    student = sum((a * s for a, (s, _) in zip(coefficients, pairs, strict=True)), np.zeros_like(pairs[0][0]))
    teacher = sum((a * t for a, (_, t) in zip(coefficients, pairs, strict=True)), np.zeros_like(pairs[0][1]))
    return np.asarray(expm(student)), np.asarray(expm(teacher))


def signs(rank: int, spectrum: Spectrum) -> list[tuple[Array, Array]]:
    """Sign flips (r,), (t,) of student columns and of teacher columns that the law of tau allows, but the identity."""
    _, _, _, mean, covariance = spectrum.arrays
    found = []
    for flips in itertools.product((1.0, -1.0), repeat=spectrum.teacher_rank):
        d = np.array(flips)
        if not (np.allclose(mean * d, mean, atol=1e-12) and np.allclose(d[:, None] * covariance * d, covariance)):
            continue
        found += [(np.array(e), d) for e in itertools.product((1.0, -1.0), repeat=rank)]
    return [(e, d) for e, d in found if not (np.all(e > 0) and np.all(d > 0))]


def invariants(x: OrderParameters) -> dict[str, float]:
    """Numbers of a state that no rotation changes, by name.

    For every token eigenvalues of q, singular values of theta; for every pair of tokens m_k.m_l. Of a finite-size
    simulation the last carry a bias of order 1/d, the variance of m.

    Examples
    --------
    >>> x = OrderParameters(np.array([[[0.2]]]), np.array([[0.3]]), np.array([[[-0.1]]]), np.array([[[1.0]]]))
    >>> invariants(x)
    {'q_1 eigenvalue 1': 0.2, 'theta_1 singular value 1': 0.1, 'm_1.m_1': 0.09}
    """
    found: dict[str, float] = {}
    for token, (q, theta) in enumerate(zip(x.q, x.theta, strict=True), 1):
        values = np.linalg.eigvalsh(q)[::-1]
        found |= {f"q_{token} eigenvalue {a}": float(v) for a, v in enumerate(values, 1)}
        singular = np.linalg.svd(theta, compute_uv=False)
        found |= {f"theta_{token} singular value {a}": float(v) for a, v in enumerate(singular, 1)}
    for j, k in itertools.combinations_with_replacement(range(len(x.m)), 2):
        found[f"m_{j + 1}.m_{k + 1}"] = float(x.m[j] @ x.m[k])
    return found
