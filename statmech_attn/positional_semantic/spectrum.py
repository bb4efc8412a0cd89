r"""The joint law of token covariances, positional encodings and teacher in their common eigenbasis.

The covariances :math:`\Sigma_l` of the tokens share an eigenbasis :math:`e_i`. In it a direction carries the
eigenvalues :math:`\gamma_i^l` (of token l), the positional components :math:`\pi_i^l=\sqrt d\,e_i^\top p_l` and the
teacher's row :math:`\tau_i=Q_\star^\top e_i`; as d grows only their joint law :math:`\nu(\gamma,\pi,\tau)` counts (Cui
et al. 2024). It is kept as atoms of :math:`(\gamma,\pi)`, each with the mean and covariance of :math:`\tau`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from statmech_attn.quadrature import gauss_legendre
from statmech_attn.theory import Array

__all__ = ["Spectrum"]

Nested = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Spectrum:
    r"""Atoms of the joint law :math:`\nu(\gamma,\pi,\tau)`: K atoms, L tokens, teacher of rank t.

    Parameters
    ----------
    weights : (K,) sequence
        Shares of the d directions, positive; their sum is one.
    variances : (K, L) nested sequence
        Eigenvalue of the covariance of every token, not negative, and positive in some atom for every token.
    positions : (K, L) nested sequence
        Positional component of every token, sqrt(d) e_i.p_l.
    teacher_mean : (K, t) nested sequence
        Mean of the teacher's rows in an atom.
    teacher_covariance : (K, t, t) nested sequence
        Their covariance, symmetric and positive semidefinite.

    Raises
    ------
    ValueError
        For a wrong shape, or a value that no law has, by name.

    Examples
    --------
    >>> law = Spectrum.discrete([0.5, 0.5], [[0.1, 0.4], [0.4, 0.2]], [[1.4, -0.6], [0.4, -1.2]])
    >>> law.tokens, law.teacher_rank, law.token_variances.tolist()
    (2, 1, [0.25, 0.30000000000000004])
    """

    weights: tuple[float, ...]
    variances: Nested
    positions: Nested
    teacher_mean: Nested
    teacher_covariance: tuple[Nested, ...]

    def __post_init__(self) -> None:
        weights = _array("weights", self.weights, (None,))
        variances = _array("variances", self.variances, (weights.size, None))
        positions = _array("positions", self.positions, variances.shape)
        mean = _array("teacher_mean", self.teacher_mean, (weights.size, None))
        covariance = _array("teacher_covariance", self.teacher_covariance, (*mean.shape, mean.shape[1]))
        if not np.all(weights > 0) or abs(weights.sum() - 1) > 1e-9:
            raise ValueError(f"weights={self.weights!r} must be positive and sum to one")
        if np.any(variances < 0) or not np.all(variances.max(axis=0) > 0):
            raise ValueError(f"variances={self.variances!r} must not be negative, and every token needs a positive one")
        if not np.allclose(covariance, covariance.transpose(0, 2, 1), rtol=0, atol=1e-12 * np.abs(covariance).max()):
            raise ValueError(f"teacher_covariance={self.teacher_covariance!r} must be symmetric in every atom")
        smallest = np.linalg.eigvalsh(covariance).min()
        if smallest < -1e-12 * max(np.abs(covariance).max(), 1e-300):
            raise ValueError(
                f"teacher_covariance={self.teacher_covariance!r} must be positive semidefinite in every atom; "
                f"its smallest eigenvalue is {smallest:.3g}"
            )
        for name, value in (
            ("weights", weights),
            ("variances", variances),
            ("positions", positions),
            ("teacher_mean", mean),
            ("teacher_covariance", covariance),
        ):
            object.__setattr__(self, name, _tuples(value))
        sizes = np.linalg.eigvalsh(self.teacher_gram)
        if np.any(sizes[:, 0] <= 1e-12 * sizes[:, -1]):
            raise ValueError(
                "teacher_mean and teacher_covariance must give every token a non-degenerate teacher index; "
                f"the eigenvalues of its covariance are {sizes.tolist()}"
            )

    # ---- laws in use

    @classmethod
    def isotropic(cls, variance: float, positions: Sequence[float], teacher_rank: int = 1) -> Spectrum:
        """One atom: tokens N(0, variance I), positional vectors constant in space, teacher rows N(0, I)."""
        positions = _array("positions", positions, (None,)).tolist()
        return cls.discrete([1.0], [[variance] * len(positions)], [positions], teacher_rank=teacher_rank)

    @classmethod
    def discrete(
        cls,
        weights: npt.ArrayLike,
        variances: npt.ArrayLike,
        positions: npt.ArrayLike,
        teacher_mean: npt.ArrayLike | None = None,
        teacher_covariance: npt.ArrayLike | None = None,
        teacher_rank: int | None = None,
    ) -> Spectrum:
        """Atoms, with teacher rows N(0, I), of rank one unless told, where their moments are not given."""
        rank = 1 if teacher_rank is None else teacher_rank
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ValueError(f"teacher_rank={teacher_rank!r} must be an integer, at least 1")
        atoms = _array("weights", weights, (None,)).size
        for name, given, shape in (
            ("teacher_mean", teacher_mean, (atoms, None)),
            ("teacher_covariance", teacher_covariance, (atoms, None, None)),
        ):
            if given is not None:
                of_given = _array(name, given, shape).shape[-1]
                if teacher_rank not in (None, of_given):
                    raise ValueError(f"teacher_rank={teacher_rank!r} is not the rank {of_given} of {name}")
                rank = of_given
        if teacher_mean is None:
            teacher_mean = np.zeros((atoms, rank))
        if teacher_covariance is None:
            teacher_covariance = np.tile(np.eye(rank), (atoms, 1, 1))
        values: Any = (weights, variances, positions, teacher_mean, teacher_covariance)
        return cls(*values)

    @classmethod
    def density(
        cls,
        density: Callable[[float], float],
        interval: tuple[float, float],
        variances: Callable[[float], Sequence[float]],
        positions: Callable[[float], Sequence[float]],
        teacher_rank: int = 1,
        nodes: int = 32,
    ) -> Spectrum:
        r"""A law spread along one real variable x, as the nodes of a Gauss rule.

        The rule is Gauss-Legendre in the angle of x = mid - half cos(angle), which also integrates densities that
        begin or end like a square root or its inverse (Marchenko-Pastur, Wigner, arcsine).

        Parameters
        ----------
        density : callable
            Density of x, integrating to one.
        interval : (low, high)
            Its support.
        variances, positions : callable
            Values of every token at x, each a sequence of L numbers.
        teacher_rank : int
            Rank of a teacher with rows N(0, I).
        nodes : int
            Atoms.

        Raises
        ------
        ValueError
            If the density is negative or does not integrate to one to 1e-6, or nodes is not a positive integer.

        Examples
        --------
        >>> uniform = Spectrum.density(lambda x: 2.5, (0.1, 0.5), lambda x: (x, x), lambda x: (1.0, -1.0))
        >>> uniform.token_variances.round(12).tolist()
        [0.3, 0.3]
        """
        low, high = interval
        if not low < high:
            raise ValueError(f"interval={interval!r} must be (low, high) with low < high")
        if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or nodes < 1:
            raise ValueError(f"nodes={nodes!r} must be an integer, at least 1")
        angle, weight = gauss_legendre(nodes)
        x = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * angle)
        values = np.array([float(density(float(point))) for point in x])
        share = values * weight * np.pi * (high - low) / 2 * np.sin(np.pi * angle)
        if np.any(values < 0) or not abs(share.sum() - 1) < 1e-6:
            raise ValueError(
                f"density must not be negative and integrate to one over {interval!r}; with {nodes} nodes it gives "
                f"{share.sum():.9g}"
            )
        kept = share > 0
        return cls.discrete(
            share[kept] / share.sum(),
            [list(variances(float(point))) for point in x[kept]],
            [list(positions(float(point))) for point in x[kept]],
            teacher_rank=teacher_rank,
        )

    @classmethod
    def matrices(cls, covariances: npt.ArrayLike, positions: npt.ArrayLike, teacher: npt.ArrayLike) -> Spectrum:
        """The law of given matrices: d atoms in the common eigenbasis.

        Parameters
        ----------
        covariances : (L, d, d) array
            Token covariances, symmetric, positive semidefinite, commuting.
        positions : (L, d) array
            Positional vectors p_l.
        teacher : (d, t) array
            Teacher weights Q*.

        Raises
        ------
        ValueError
            For a covariance that is not symmetric, is indefinite, or does not commute with the others.
        """
        sigma = _array("covariances", covariances, (None, None, None))
        L, d = sigma.shape[:2]
        p = _array("positions", positions, (L, d))
        q = _array("teacher", teacher, (d, None))
        if sigma.shape[2] != d:
            raise ValueError(f"covariances must have shape (L, d, d), got {sigma.shape}")
        size = np.abs(sigma).max()
        for number, one in enumerate(sigma, 1):
            if not np.allclose(one, one.T, rtol=0, atol=1e-10 * size):
                raise ValueError(f"covariances: that of token {number} is not symmetric")
            if np.linalg.eigvalsh(one).min() < -1e-10 * size:
                raise ValueError(f"covariances: that of token {number} is indefinite")
        # a generic combination has the common eigenvectors for its own
        basis = np.linalg.eigh(np.tensordot(np.sqrt(np.arange(2, L + 2)), sigma, axes=1))[1]
        rotated = basis.T @ sigma @ basis
        diagonal = np.diagonal(rotated, axis1=1, axis2=2)
        if np.abs(rotated - diagonal[:, :, None] * np.eye(d)).max() > 1e-8 * size:
            raise ValueError("covariances must commute: they need a common eigenbasis")
        t = q.shape[1]
        return cls.discrete(
            np.full(d, 1 / d),
            np.maximum(diagonal.T, 0.0),
            np.sqrt(d) * basis.T @ p.T,
            basis.T @ q,
            np.zeros((d, t, t)),
        )

    # ---- sizes and moments

    @property
    def tokens(self) -> int:
        """L."""
        return len(self.variances[0])

    @property
    def teacher_rank(self) -> int:
        """t."""
        return len(self.teacher_mean[0])

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        """Weights, variances, positions, teacher mean and covariance as arrays."""
        return (
            np.array(self.weights),
            np.array(self.variances),
            np.array(self.positions),
            np.array(self.teacher_mean),
            np.array(self.teacher_covariance),
        )

    @cached_property
    def token_variances(self) -> Array:
        """(L,) trace of every covariance over d."""
        weights, variances, *_ = self.arrays
        return np.asarray(weights @ variances)

    @cached_property
    def teacher_gram(self) -> Array:
        r"""(L, t, t) :math:`\rho_l=\mathbb E\,\gamma^l\tau\tau^\top`, the covariance of the teacher's index."""
        weights, variances, _, mean, covariance = self.arrays
        second = covariance + mean[:, :, None] * mean[:, None, :]
        gram: Array = np.einsum("k,kl,kab->lab", weights, variances, second)
        return gram

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """For every token the number of its class: tokens of equal variances in all atoms share q, theta and V."""
        columns = list(zip(*self.variances, strict=True))
        distinct = list(dict.fromkeys(columns))
        return tuple(distinct.index(column) for column in columns)


def _array(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """A finite float array of the given shape (None: any positive size); ValueError names the parameter."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    fits = array.ndim == len(shape) and all(n > 0 and s in (None, n) for n, s in zip(array.shape, shape, strict=True))
    if not fits or not np.all(np.isfinite(array)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name}={value!r} must be a finite array of shape ({wanted})")
    return array


def _tuples(array: Any) -> Any:
    return tuple(_tuples(row) for row in array) if array.ndim > 1 else tuple(array.tolist())
