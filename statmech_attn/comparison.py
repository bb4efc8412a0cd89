r"""Simulations against theory: means, standard errors, z-scores, and the limit of infinite dimension.

For every number x of the runs the mean at dimension d is fitted by :math:`x_\infty+c\,d^{-a}`, a = 1 or 1/2, weighted
by the standard errors. Corrections to a smooth minimum are of order 1/d; 1/sqrt d is taken where it lowers chi-square
by more than 4. z is the difference to the theory in units of the standard error (and the error of the theory, where it
has one).
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import gammaincc

from statmech_attn.store import replacing
from statmech_attn.theory import Array, Solution

__all__ = ["Comparison", "Limit", "Mean", "Record", "compare"]


class Record(Protocol):
    """What a simulation has to tell: its dimension, whether it converged, and its numbers by the theory's names."""

    @property
    def dimension(self) -> int: ...

    @property
    def converged(self) -> bool: ...

    def numbers(self, solution: Solution) -> dict[str, float]:
        """Numbers comparable with those of a solution."""
        ...


@dataclass(frozen=True)
class Mean:
    """A number averaged over the runs of a dimension: its standard error and z-score are nan for a single run."""

    name: str
    dimension: int
    runs: int
    mean: float
    error: float
    theory: float
    z: float


@dataclass(frozen=True)
class Limit:
    """A number extrapolated to infinite dimension.

    Attributes
    ----------
    name : str
        The number.
    law : {"1/d", "1/sqrt d", "constant"}
        Correction fitted; constant where there are runs at one dimension only.
    value, error : float
        At infinite d.
    slope : float
        Coefficient of the correction.
    chi_square : float
        Of the fit.
    degrees : int
        Of freedom.
    p : float
        Probability of a larger chi-square; nan without a degree of freedom, and then the law is 1/d by choice.
    theory, z : float
        Value of the theory and distance to it.
    """

    name: str
    law: str
    value: float
    error: float
    slope: float
    chi_square: float
    degrees: int
    p: float
    theory: float
    z: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Simulations beside a solution; prints as a table.

    Attributes
    ----------
    solution : Solution
        Compared with.
    means : tuple of Mean
        Number by number, in the order of dimensions.
    limits : tuple of Limit
        One for every number.
    excluded, departed : dict
        Runs that did not converge, and runs that ended on another branch, by dimension; they are in no mean.
    """

    solution: Solution
    means: tuple[Mean, ...]
    limits: tuple[Limit, ...]
    excluded: dict[int, int]
    departed: dict[int, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Numbers compared."""
        return tuple(limit.name for limit in self.limits)

    def at(self, name: str) -> tuple[Mean, ...]:
        """Means of a number, in the order of dimensions; KeyError lists the numbers."""
        self[name]
        return tuple(mean for mean in self.means if mean.name == name)

    def __getitem__(self, name: str) -> Limit:
        """The limit of a number; KeyError lists the numbers."""
        for limit in self.limits:
            if limit.name == name:
                return limit
        raise KeyError(f"there is no {name!r} to compare; there are {', '.join(self.names)}")

    @property
    def largest_z(self) -> float:
        """Largest |z| of the limits."""
        return max(abs(limit.z) for limit in self.limits)

    def rows(self) -> list[dict[str, Any]]:
        """A row for every mean and every limit (dimension inf)."""
        rows: list[dict[str, Any]] = []
        for limit in self.limits:
            for m in self.at(limit.name):
                rows.append(_row(m.name, m.dimension, m.runs, "", m.mean, m.error, m.theory, m.z, math.nan))
            runs = sum(m.runs for m in self.at(limit.name))
            rows.append(
                _row(limit.name, math.inf, runs, limit.law, limit.value, limit.error, limit.theory, limit.z, limit.p)
            )
        return rows

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as CSV."""
        rows = self.rows()
        with replacing(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def __str__(self) -> str:
        head = ("", "d", "runs", "simulation", "error", "theory", "z", "correction", "p")
        table = [head]
        for row in self.rows():
            law, p = row["law"], row["p"]
            table.append((
                row["name"], f"{row['dimension']:g}", str(row["runs"]), f"{row['value']:.6g}", f"{row['error']:.1g}",
                f"{row['theory']:.6g}", f"{row['z']:+.1f}", law, f"{p:.2f}" if math.isfinite(p) else "",
            ))  # fmt: skip
        widths = [max(len(cells[i]) for cells in table) for i in range(len(head))]
        lines = ["  ".join(map(str.rjust, cells, widths)).rstrip() for cells in table]
        for what, counts in (("did not converge", self.excluded), ("ended on another branch", self.departed)):
            lost = ", ".join(f"{count} at d = {d}" for d, count in sorted(counts.items()) if count)
            lines += [f"runs that {what}, left out: {lost}"] * bool(lost)
        return "\n".join([f"{self.solution.theory}, branch {self.solution.branch}", *lines])

    __repr__ = __str__


def _row(
    name: str, dimension: float, runs: int, law: str, value: float, error: float, theory: float, z: float, p: float
) -> dict[str, Any]:
    return {
        "name": name, "dimension": dimension, "runs": runs, "law": law, "value": value, "error": error,
        "theory": theory, "z": z, "p": p,
    }  # fmt: skip


def compare(runs: Sequence[Record], solution: Solution) -> Comparison:
    """Compare simulations with a solution of the theory.

    Parameters
    ----------
    runs : sequence of Record
        Runs of :func:`.train` and its like, at one dimension or several, two at least at some dimension.
    solution : Solution
        The state they should approach.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If no dimension has two runs that converged.

    Notes
    -----
    Runs that did not converge are left out and counted. So are runs that left the branch of the solution: the overlap
    that another branch breaks is, in units of its scale, larger than the one that this branch breaks. With many
    numbers, a |z| of 2 somewhere is expected; with few seeds the standard errors are themselves uncertain, and so is
    the tail of z.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> from statmech_attn.positional_semantic.training import simulate
    >>> model = sa.PositionalSemantic(alpha=2.0, omega=0.3)
    >>> runs = simulate(model, [100, 200], seeds=4, start="semantic")
    >>> comparison = sa.compare(runs, sa.solve(model, start="semantic"))
    >>> comparison.names, abs(comparison["theta"].z) < 4
    (('q', 'm', 'theta', 'train_loss', 'test_error'), True)
    """
    groups: dict[int, list[dict[str, float]]] = {}
    excluded = {run.dimension: 0 for run in sorted(runs, key=lambda run: run.dimension)}
    departed = dict(excluded)
    for run in sorted(runs, key=lambda run: run.dimension):
        if not run.converged:
            excluded[run.dimension] += 1
        elif _departed(solution, numbers := run.numbers(solution)):
            departed[run.dimension] += 1
        else:
            groups.setdefault(run.dimension, []).append(numbers)
    if not any(len(group) > 1 for group in groups.values()):
        raise ValueError(
            f"runs must hold two that converged at some dimension; of {len(runs)} runs "
            f"{sum(excluded.values())} did not converge and {sum(departed.values())} ended on another branch"
        )
    names = list(next(iter(groups.values()))[0])
    means, limits = [], []
    for name in names:
        theory, uncertainty = _theory(solution, name)
        column = [_mean(name, d, [row[name] for row in group], theory, uncertainty) for d, group in groups.items()]
        means += column
        limits.append(_limit(name, [m for m in column if m.runs > 1], theory, uncertainty))
    return Comparison(solution, tuple(means), tuple(limits), excluded, departed)


def _departed(solution: Solution, numbers: dict[str, float]) -> bool:
    """Whether the largest of the overlaps that branches break is that of another branch."""
    theory = solution.theory
    scale = dict(zip(theory.order_parameters, theory.scale(solution.state), strict=True))
    sizes = {b: abs(numbers[name]) / scale[name] for b, name in theory.broken.items() if name in numbers}
    return solution.branch in sizes and max(sizes, key=lambda b: sizes[b]) != solution.branch


def _theory(solution: Solution, name: str) -> tuple[float, float]:
    """Value and error of a number of the solution; the errors of observables are not known."""
    names = solution.theory.order_parameters
    error = float(solution.errors[names.index(name)]) if name in names else 0.0
    return solution[name], error if math.isfinite(error) else 0.0


def _mean(name: str, dimension: int, values: Sequence[float], theory: float, uncertainty: float) -> Mean:
    count, mean = len(values), float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Mean(name, dimension, count, mean, error, theory, _z(mean - theory, math.hypot(error, uncertainty)))


def _z(difference: float, error: float) -> float:
    if error == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / error


def _limit(name: str, means: Sequence[Mean], theory: float, uncertainty: float) -> Limit:
    """The fit of 1/d or, where clearly better, of 1/sqrt d; or the mean itself where there is one dimension only."""
    d = np.array([m.dimension for m in means], dtype=np.float64)
    y, error = np.array([m.mean for m in means]), np.array([m.error for m in means])
    # means without a spread are exact: their weight is finite only to keep the fit defined
    error = np.maximum(error, 1e-12 * max(1e-300, float(np.abs(y).max())))
    if len(means) == 1:
        fits = [("constant", y[0], error[0], 0.0, 0.0)]
    else:
        fits = [_fit("1/d", 1 / d, y, error), _fit("1/sqrt d", 1 / np.sqrt(d), y, error)]
    best = fits[1] if len(means) > 2 and fits[1][4] < fits[0][4] - 4 else fits[0]
    law, value, spread, slope, chi_square = best
    degrees = max(len(means) - 2, 0)
    p = float(gammaincc(degrees / 2, chi_square / 2)) if degrees else math.nan
    z = _z(value - theory, math.hypot(spread, uncertainty))
    return Limit(name, law, float(value), float(spread), float(slope), float(chi_square), degrees, p, theory, z)


def _fit(law: str, x: Array, y: Array, error: Array) -> tuple[str, float, float, float, float]:
    """Weighted least squares of y = a + b x: law, a, its error, b, chi-square."""
    design = np.stack([np.ones_like(x), x], axis=1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    a, b = covariance @ design.T @ (y / error)
    chi_square = float(np.sum((y / error - design @ np.array([a, b])) ** 2))
    return law, float(a), math.sqrt(covariance[0, 0]), float(b), chi_square
