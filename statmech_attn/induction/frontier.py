"""How much repetition is enough: the Pareto frontier of frequency and reliability.

From labelled points (frequency f, reliability r, emerged or not): the smallest points that emerged, the
points that contradict them, and a monotone boundary

    logit P = w0 + w1 ln f + w2 ln r,    w1, w2 >= 0

Aoyama, Wilcox and Schneider (arXiv 2511.16893) report such a frontier; how they measure it is not
known to us, so this is our own reading.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

__all__ = ["Frontier", "MonotoneBoundary", "monotone_boundary", "pareto_frontier"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Minimal emerged points and the points that contradict them.

    Attributes
    ----------
    frequency, reliability : ndarray, shape (k,)
        Emerged points that dominate no other emerged point, by increasing frequency.
    violations : ndarray of int
        Indices of the points that did not emerge although they dominate one that did.
    """

    frequency: FloatArray
    reliability: FloatArray
    violations: NDArray[np.int64]


@dataclass(frozen=True)
class MonotoneBoundary:
    """logit P(emerged) = intercept + frequency_weight ln f + reliability_weight ln r.

    Examples
    --------
    >>> boundary = MonotoneBoundary(5.0, 2.0, 2.0)
    >>> float(boundary.reliability(0.2).round(4)), float(boundary.probability(0.2, 0.4104).round(3))
    (0.4104, 0.5)
    """

    intercept: float
    frequency_weight: float
    reliability_weight: float

    def probability(self, frequency: ArrayLike, reliability: ArrayLike) -> FloatArray:
        """P(emerged); 0 at a vanishing frequency or reliability that has weight."""
        f, r = _unit("frequency", frequency), _unit("reliability", reliability)
        # xlogy is 0 for a weight of 0, where 0 * ln 0 would be NaN
        logit = self.intercept + special.xlogy(self.frequency_weight, f) + special.xlogy(self.reliability_weight, r)
        return np.asarray(special.expit(logit))

    def reliability(self, frequency: ArrayLike) -> FloatArray:
        """Reliability at which P = 1/2; above 1 where no reliability is enough, NaN without weight."""
        f = _unit("frequency", frequency)
        if self.reliability_weight == 0.0:
            return np.full(f.shape, np.nan)
        logit = self.intercept + special.xlogy(self.frequency_weight, f)
        return np.asarray(np.exp(-logit / self.reliability_weight))


def pareto_frontier(frequency: ArrayLike, reliability: ArrayLike, emerged: ArrayLike) -> Frontier:
    """Minimal emerged points, and violations of monotonicity.

    A point dominates another if neither coordinate is smaller and one is larger.

    Parameters
    ----------
    frequency, reliability : array_like, shape (n,)
        In [0, 1].
    emerged : array_like of bool, shape (n,)
        Whether induction heads emerged.

    Returns
    -------
    Frontier
        Empty if no point emerged.

    Raises
    ------
    ValueError
        If shapes differ, a coordinate lies outside [0, 1], or labels are not 0 or 1.

    Examples
    --------
    >>> grid = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    >>> f, r = (axis.ravel() for axis in np.meshgrid(grid, grid))
    >>> found = pareto_frontier(f, r, f * r >= 0.08)
    >>> [(float(a), float(b)) for a, b in zip(found.frequency, found.reliability)], found.violations.size
    ([(0.1, 0.9), (0.3, 0.3), (0.9, 0.1)], 0)
    """
    f, r, label = _points(frequency, reliability, emerged)
    points = np.unique(np.column_stack([f, r])[label], axis=0)  # by frequency, then reliability
    # a point is minimal if its reliability is below that of every point of smaller or equal frequency
    lowest = np.concatenate([[np.inf], np.minimum.accumulate(points[:, 1])[:-1]]) if len(points) else np.empty(0)
    minimal = points[points[:, 1] < lowest]
    above = (f[:, None] >= minimal[:, 0]) & (r[:, None] >= minimal[:, 1])
    equal = (f[:, None] == minimal[:, 0]) & (r[:, None] == minimal[:, 1])
    violations = np.flatnonzero(~label & (above & ~equal).any(axis=1))
    return Frontier(minimal[:, 0], minimal[:, 1], violations)


def monotone_boundary(
    frequency: ArrayLike, reliability: ArrayLike, emerged: ArrayLike, *, ridge: float = 1e-3
) -> MonotoneBoundary:
    """Logistic regression on (ln f, ln r) with weights that cannot be negative.

    Parameters
    ----------
    frequency, reliability : array_like, shape (n,)
        In (0, 1].
    emerged : array_like of bool, shape (n,)
        Both outcomes must occur.
    ridge : float
        Adds ridge (w1^2 + w2^2) / 2 to the negative log-likelihood. Without it, points that a line
        separates have no finite fit; small values then give the line of the widest margin.

    Returns
    -------
    MonotoneBoundary

    Raises
    ------
    ValueError
        As `pareto_frontier`; for a zero coordinate, a single outcome or a ridge that is not positive.
    RuntimeError
        If the optimiser does not converge.

    Examples
    --------
    >>> fit = monotone_boundary([0.1, 0.3, 0.5, 0.9], [0.5, 0.1, 0.6, 0.5], [0, 0, 1, 1])
    >>> fit.probability([0.1, 0.9], [0.1, 0.9]).round(2).tolist()
    [0.0, 1.0]
    """
    f, r, label = _points(frequency, reliability, emerged)
    if f.size == 0 or f.min() <= 0.0 or r.min() <= 0.0:
        raise ValueError("frequency, reliability: must be positive for a boundary in their logarithms")
    if label.all() or not label.any():
        raise ValueError(f"emerged: is {bool(label[0])} everywhere; a boundary needs both outcomes")
    if not (np.isfinite(ridge) and ridge > 0.0):
        raise ValueError(f"ridge={ridge}: must be positive and finite")
    X = np.column_stack([np.ones(f.size), np.log(f), np.log(r)])
    sign = np.where(label, 1.0, -1.0)
    penalty = ridge * np.array([0.0, 1.0, 1.0])

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        margin = sign * (X @ w)
        value = -special.log_expit(margin).sum() + penalty @ w**2 / 2.0
        return float(value), -(sign * special.expit(-margin)) @ X + penalty * w

    result = optimize.minimize(
        loss,
        np.array([0.0, 1.0, 1.0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None), (0.0, None), (0.0, None)],
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000},
    )
    projected = np.where((result.x == 0.0) & (np.arange(3) > 0), np.minimum(result.jac, 0.0), result.jac)
    if not np.abs(projected).max() < 1e-4:
        raise RuntimeError(f"the boundary did not converge: gradient {np.abs(projected).max():.1e}; {result.message}")
    return MonotoneBoundary(*(float(w) for w in result.x))


def _unit(name: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        raise ValueError(f"{name}={array[bad].flat[0]}: must lie in [0, 1]")
    return array


def _points(
    frequency: ArrayLike, reliability: ArrayLike, emerged: ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    f, r, label = _unit("frequency", frequency), _unit("reliability", reliability), np.asarray(emerged)
    if f.ndim != 1 or f.shape != r.shape or f.shape != label.shape:
        raise ValueError(f"frequency {f.shape}, reliability {r.shape}, emerged {label.shape}: must be equal and (n,)")
    if not np.isin(label, (0, 1)).all():
        raise ValueError("emerged: labels must be 0 or 1 (or booleans)")
    return f, r, label.astype(bool)
