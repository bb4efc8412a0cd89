r"""Simulations against theory: means, standard errors, z-scores, and the limit of infinite dimension.

The mean of a number x over runs at dimension d is fitted by :math:`x_\infty+c\,d^{-a}`, with weights n d for n runs:
the variance of a self-averaging number falls as 1/d. Corrections to a smooth minimum are of order 1/d, so a = 1; only
where the runs refute that (p < 0.01) the better of 1/d and 1/sqrt d is taken, and the difference of the two limits
added to the error.

Variances are estimated from all runs together, as d times the variance, unless Bartlett's test (p < 0.05) finds that it
depends on d; then from those at each dimension. Either way the difference to the theory over its standard error follows
Student's t (with Welch and Satterthwaite's degrees of freedom), and z is the normal deviate of the same tail
probability: |z| > 2 means 4.6 %, whatever the number of runs.
"""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import chdtrc, fdtrc, ndtri, stdtr

from statmech_attn.store import replacing
from statmech_attn.theory import Array, Solution

__all__ = ["Comparison", "Limit", "Mean", "Record", "compare"]

#: Probabilities below which a correction 1/d, and a variance that falls as 1/d, are refuted.
REFUTED = 0.01
UNEQUAL = 0.05


class Record(Protocol):
    """What a simulation has to tell: its data, whether it converged, and its numbers by the theory's names."""

    @property
    def dimension(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def converged(self) -> bool: ...

    def departed(self, solution: Solution) -> bool:
        """Whether it ended on another branch than the solution."""
        ...

    def numbers(self, solution: Solution) -> dict[str, float]:
        """Numbers comparable with those of a solution; ValueError if that is one of other parameters."""
        ...


@dataclass(frozen=True)
class Mean:
    """A number averaged over the runs of a dimension, with its standard error.

    Where all runs agree exactly the error is zero and z is nan; where nothing gives a variance both are nan.
    """

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
    law : {"1/d", "1/sqrt d", "none"}
        Correction fitted; none, and nan in all that follows from it, where fewer than two dimensions have an error.
    runs : int
        In the means fitted.
    value, error : float
        At infinite d; where 1/d is refuted the error holds the difference of the two laws.
    slope : float
        Coefficient of the correction.
    chi_square : float
        Of the fit.
    degrees : int
        Of freedom.
    p : float
        Probability of a larger chi-square by the F distribution; nan with two dimensions, when nothing tests 1/d.
    theory, z : float
        Value of the theory and distance to it.
    """

    name: str
    law: str
    runs: int
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
        """Largest |z| of the limits or, from one dimension, of the means; nan if none has one."""
        alone = all(limit.law == "none" for limit in self.limits)
        return max((abs(x.z) for x in (self.means if alone else self.limits) if not math.isnan(x.z)), default=math.nan)

    def rows(self) -> list[dict[str, Any]]:
        """A row for every mean and, where there are limits, for every limit (dimension inf)."""
        rows: list[dict[str, Any]] = []
        for limit in self.limits:
            for m in self.at(limit.name):
                rows.append(_row(m.name, m.dimension, m.runs, "", m.mean, m.error, m.theory, m.z, math.nan))
            if (x := limit).law != "none":
                rows.append(_row(x.name, math.inf, x.runs, x.law, x.value, x.error, x.theory, x.z, x.p))
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
            z, p = (f"{row[key]:{form}}" * math.isfinite(row[key]) for key, form in (("z", "+.1f"), ("p", ".2f")))
            table.append((
                row["name"], f"{row['dimension']:g}", str(row["runs"]), f"{row['value']:.6g}", f"{row['error']:.1g}",
                f"{row['theory']:.6g}", z, row["law"], p,
            ))  # fmt: skip
        widths = [max(len(cells[i]) for cells in table) for i in range(len(head))]
        lines = ["  ".join(map(str.rjust, cells, widths)).rstrip() for cells in table]
        for what, counts in (("did not converge", self.excluded), ("ended on another branch", self.departed)):
            lost = ", ".join(f"{count} at d = {d}" for d, count in sorted(counts.items()) if count)
            lines += [f"runs that {what}, left out: {lost}"] * bool(lost)
        if any(limit.law == "none" for limit in self.limits):
            lines.append("no limit of infinite d: it takes runs at two dimensions; z has the finite-size bias")
        if not self.solution.converged:
            lines.append(f"theory not converged: {self.solution.status}")
        lines.append("z: normal deviate with the tail probability of Student's t")
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
        Runs of :func:`.train` and its like, every one on data of its own: two at some dimension at least, and two
        dimensions for a limit.
    solution : Solution
        The state they should approach.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If two runs have the same data (dimension and seed), a run has other parameters than the solution, or no
        dimension has two runs that converged.

    Notes
    -----
    Runs that did not converge are left out and counted, and so are runs that left the branch of the solution (see
    :meth:`.Run.departed`). With many numbers, a |z| of 2 somewhere is expected. A correction 1/sqrt d too small to
    refute 1/d biases the limit, and so does a smallest dimension that the first correction does not describe: see p.

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
    seen = Counter((run.dimension, run.seed) for run in runs)
    again = [f"d = {d}, seed {seed}" for (d, seed), count in seen.items() if count > 1]
    if again:
        raise ValueError(f"runs must not have the same data, which counts them twice; there are several of {again[0]}")
    groups: dict[int, list[dict[str, float]]] = {}
    excluded = {run.dimension: 0 for run in sorted(runs, key=lambda run: run.dimension)}
    departed = dict(excluded)
    for run in sorted(runs, key=lambda run: run.dimension):
        if not run.converged:
            excluded[run.dimension] += 1
            continue
        numbers = run.numbers(solution)
        if run.departed(solution):
            departed[run.dimension] += 1
        else:
            groups.setdefault(run.dimension, []).append(numbers)
    if not any(len(group) > 1 for group in groups.values()):
        raise ValueError(
            f"runs must hold two that converged at some dimension; of {len(runs)} runs "
            f"{sum(excluded.values())} did not converge and {sum(departed.values())} ended on another branch"
        )
    means, limits = [], []
    for name in next(iter(groups.values()))[0]:
        theory, uncertainty = _theory(solution, name)
        averages = _averages({d: [row[name] for row in group] for d, group in groups.items()})
        means += _means(name, averages, theory, uncertainty)
        limits.append(_limit(name, averages, theory, uncertainty))
    return Comparison(solution, tuple(means), tuple(limits), excluded, departed)


def _theory(solution: Solution, name: str) -> tuple[float, float]:
    """Value and error of a number of the solution; the errors of observables are not known."""
    names = solution.theory.order_parameters
    error = float(solution.errors[names.index(name)]) if name in names else 0.0
    return solution[name], error if math.isfinite(error) else 0.0


class _Averages(NamedTuple):
    """Means by dimension, (k,) each; variances of the means with their degrees of freedom, pooled or separate."""

    dimension: Array
    runs: Array
    mean: Array
    variance: Array
    freedom: Array
    pooled: bool

    def combination(self, coefficients: Array) -> tuple[float, float]:
        """Variance of a combination of the means, and its degrees of freedom."""
        parts = coefficients**2 * self.variance
        total = float(parts.sum())
        if self.pooled or not total > 0:
            return total, float(self.freedom[0])
        return total, total**2 / float(np.sum(parts**2 / self.freedom))


def _averages(samples: Mapping[int, Sequence[float]]) -> _Averages:
    d, runs = np.array(list(samples), dtype=np.float64), np.array([len(x) for x in samples.values()], dtype=np.float64)
    columns = [np.array(x) for x in samples.values()]
    mean, freedom = np.array([x.mean() for x in columns]), runs - 1
    # spreads of the size of round-off are none
    squares = np.array([np.sum((x - x.mean()) ** 2) * (np.ptp(x) > 1e-13 * np.abs(x).max()) for x in columns])
    if _equal(d * squares, freedom):
        total = float(freedom.sum())
        return _Averages(d, runs, mean, np.sum(d * squares) / total / (d * runs), np.full(d.size, total), True)
    variance = np.where(freedom > 0, squares / np.maximum(freedom, 1) / runs, math.nan)
    return _Averages(d, runs, mean, variance, freedom, False)


def _equal(squares: Array, freedom: Array) -> bool:
    """Bartlett's test that sums of squares of given degrees of freedom have one variance."""
    squares, freedom = squares[freedom > 0], freedom[freedom > 0]
    if squares.size < 2 or np.any(squares == 0):
        return True
    total = freedom.sum()
    ratio = total * np.log(squares.sum() / total) - np.sum(freedom * np.log(squares / freedom))
    correction = 1 + (np.sum(1 / freedom) - 1 / total) / (3 * (squares.size - 1))
    return bool(chdtrc(squares.size - 1, ratio / correction) >= UNEQUAL)


def _means(name: str, x: _Averages, theory: float, uncertainty: float) -> list[Mean]:
    return [
        Mean(name, int(d), int(runs), float(mean), math.sqrt(variance), theory,
             _z(mean - theory, variance, freedom, uncertainty))
        for d, runs, mean, variance, freedom in zip(*x[:-1], strict=True)
    ]  # fmt: skip


def _z(difference: float, variance: float, freedom: float, uncertainty: float) -> float:
    """Normal deviate with the tail probability of Student's t, 37 at most; nan without a variance."""
    if not variance > 0:
        return math.nan
    total = variance + uncertainty**2
    # what is added to the variance is taken as known
    freedom = min(freedom * (total / variance) ** 2, 1e6)
    tail = stdtr(freedom, -abs(difference) / math.sqrt(total))
    return math.copysign(-float(ndtri(max(tail, 1e-300))), difference)


class _Fit(NamedTuple):
    law: str
    value: float
    slope: float
    variance: float
    freedom: float
    chi_square: float
    p: float


def _limit(name: str, x: _Averages, theory: float, uncertainty: float) -> Limit:
    """The fit of 1/d or, where that is refuted, the better of the two, with their difference in the error."""
    known = np.isfinite(x.variance)
    d, runs, mean, variance, freedom = (column[known] for column in x[:-1])
    x = _Averages(d, runs, mean, variance, freedom, x.pooled)
    if x.mean.size < 2:
        return Limit(name, "none", 0, math.nan, math.nan, math.nan, math.nan, 0, math.nan, theory, math.nan)
    best, other = _fit("1/d", 1 / x.dimension, x), _fit("1/sqrt d", 1 / np.sqrt(x.dimension), x)
    ambiguity = 0.0
    if best.p < REFUTED:
        ambiguity = abs(best.value - other.value)
        best = min(best, other, key=lambda fit: fit.chi_square)
    return Limit(
        name=name,
        law=best.law,
        runs=int(x.runs.sum()),
        value=best.value,
        error=math.hypot(math.sqrt(best.variance), ambiguity),
        slope=best.slope,
        chi_square=best.chi_square,
        degrees=x.mean.size - 2,
        p=best.p,
        theory=theory,
        z=_z(best.value - theory, best.variance, best.freedom, math.hypot(uncertainty, ambiguity)),
    )


def _fit(law: str, correction: Array, x: _Averages) -> _Fit:
    """Least squares of mean = a + b correction, weighted by runs times dimension."""
    design, root = np.stack([np.ones_like(correction), correction], axis=1), np.sqrt(x.runs * x.dimension)
    inverse = np.linalg.pinv(design * root[:, None]) * root
    value, slope = inverse @ x.mean
    variance, freedom = x.combination(inverse[0])
    chi_square, p, degrees = 0.0, math.nan, correction.size - 2
    if degrees and variance > 0:
        null = np.linalg.qr(design, mode="complete")[0][:, 2:]
        rest = null.T @ x.mean
        chi_square = float(rest @ np.linalg.solve(null.T @ (x.variance[:, None] * null), rest))
        p = float(fdtrc(degrees, freedom, chi_square / degrees))
    return _Fit(law, float(value), float(slope), variance, freedom, chi_square, p)
