"""When induction heads emerge: a power law in batch size and context size.

    U = T / (B^b C^c),        N = U B C = T B^(1-b) C^(1-c)

U parameter updates and N tokens at emergence, B sequences a batch, C tokens a sequence.
Equivalently, the token-weighted updates U B^b C^c reach the threshold T.
Source: Aoyama, Wilcox and Schneider, arXiv 2511.16893 (v1: b = c = 1/2; v2: b = .37, c = .62).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

__all__ = [
    "ExtrapolationWarning",
    "InductionLaw",
    "checkpoint_interval",
    "tokens_to_updates",
    "updates_to_tokens",
]

FloatArray = NDArray[np.float64]


class ExtrapolationWarning(UserWarning):
    """The law is asked outside the batch and context sizes it was fitted on."""


@dataclass(frozen=True)
class InductionLaw:
    """The law ln U = ln T - b ln B - c ln C, published or fitted.

    Attributes
    ----------
    log_threshold : float
        ln T; T has the unit of updates x sequences^b x tokens^c.
    batch_exponent, context_exponent : float
        b and c.
    source : str
        Where the numbers come from.
    batch_range, context_range : tuple of float
        Smallest and largest B and C the numbers rest on.
    residual_sd : float
        Standard deviation of ln U about the law; NaN where it is not published.
    degrees_of_freedom : int
        Of the t quantiles in every interval: emerged runs less three; 0 for a published law.
    correlation : float
        Pearson r of predicted and observed ln U; NaN when fewer than three runs are exact.
    covariance : ndarray, shape (3, 3), optional
        Of (ln T, b, c); None for a published law.

    Examples
    --------
    >>> law = InductionLaw.published("v2")
    >>> round(float(law.updates(batch_size=64, context_size=64)), 1)
    9346.0
    """

    log_threshold: float
    batch_exponent: float
    context_exponent: float
    source: str
    batch_range: tuple[float, float]
    context_range: tuple[float, float]
    residual_sd: float = np.nan
    degrees_of_freedom: int = 0
    correlation: float = np.nan
    covariance: FloatArray | None = field(default=None, repr=False, compare=False)

    @classmethod
    def published(cls, version: Literal["v1", "v2"] = "v2") -> InductionLaw:
        """The law as the authors printed it.

        Parameters
        ----------
        version : {"v1", "v2"}
            Version of arXiv 2511.16893. v1: N = 10^5.7 sqrt(B C). v2: b = .37, c = .62, ln T = 13.26;
            v2 also prints T = 750000, which contradicts its ln T; the logarithm is used.

        Raises
        ------
        ValueError
            For another version.

        Examples
        --------
        >>> InductionLaw.published("v1").batch_exponent
        0.5
        """
        laws = {"v1": (5.7 * np.log(10.0), 0.5, 0.5), "v2": (13.26, 0.37, 0.62)}
        if version not in laws:
            raise ValueError(f"version={version!r}: the published versions are {', '.join(laws)}")
        # Readers of the paper give 2048 or 4096 as the largest context; the smaller one warns earlier.
        return cls(*laws[version], f"arXiv 2511.16893{version}", (4.0, 512.0), (4.0, 2048.0), correlation=0.98)

    @classmethod
    def fit(
        cls,
        runs: Mapping[str, ArrayLike] | Sequence[Mapping[str, float]],
        method: Literal["least_squares", "interval_censored"] = "least_squares",
    ) -> InductionLaw:
        """Fit ln T, b and c to a table of runs.

        Parameters
        ----------
        runs : mapping of columns, data frame, structured array, or sequence of mappings
            Columns ``batch_size`` and ``context_size``, and ``updates`` at emergence, or for
            "interval_censored" also ``updates_lower`` and ``updates_upper``: the last checkpoint
            before and the first one after emergence (``updates_upper`` infinite, or ``updates`` NaN
            beside a finite ``updates_lower``, for a run that never emerged).
        method : {"least_squares", "interval_censored"}
            Ordinary least squares of ln U on (1, ln B, ln C), or maximum likelihood of a Gaussian
            ln U known only to lie in an interval. With exact runs the two are the same.

        Returns
        -------
        InductionLaw
            With covariance, residual deviation and degrees of freedom.

        Raises
        ------
        ValueError
            If columns are missing, values are not positive, batch and context sizes do not vary
            independently, fewer than four runs emerged, or least squares meets a censored run.
        TypeError
            If runs is no table.
        RuntimeError
            If the likelihood has no maximum: every interval is wider than the scatter can be seen in.

        Notes
        -----
        Least squares on emergence read off a coarse grid of checkpoints is biased upwards, because
        the first checkpoint after emergence is always late. The censored fit uses the same
        checkpoints without that bias. The log-likelihood is concave in (coefficients / sd, 1 / sd)
        (Burridge, J. R. Stat. Soc. B 43, 41 (1981)).

        Examples
        --------
        >>> runs = {"batch_size": [8, 8, 64, 64, 16], "context_size": [32, 256, 32, 256, 64]}
        >>> truth = InductionLaw.published("v2")
        >>> runs["updates"] = truth.updates(runs["batch_size"], runs["context_size"])
        >>> round(InductionLaw.fit(runs).context_exponent, 9)
        0.62
        """
        batch, context, lower, upper = _columns(runs, method)
        design = np.column_stack([np.ones(batch.size), -np.log(batch), -np.log(context)])
        emerged = int(np.isfinite(upper).sum())
        if emerged < 4:
            raise ValueError(f"runs: {emerged} of {batch.size} emerged; a fit of three coefficients needs at least 4")
        if np.linalg.matrix_rank(design[np.isfinite(upper)]) < 3:
            raise ValueError("runs: batch_size and context_size must both vary, and not as one power of the other")
        exact = lower == upper
        if exact.all():
            coefficients, covariance, sd = _least_squares(design, np.log(lower))
        else:
            with np.errstate(divide="ignore"):  # emerged before the first checkpoint: ln 0
                low = np.log(lower)
            coefficients, covariance, sd = _interval_censored(design, low, np.log(upper), emerged)
        correlation = np.nan
        if exact.sum() >= 3:
            correlation = float(np.corrcoef(design[exact] @ coefficients, np.log(lower[exact]))[0, 1])
        return cls(
            log_threshold=float(coefficients[0]),
            batch_exponent=float(coefficients[1]),
            context_exponent=float(coefficients[2]),
            source=f"{method} fit to {batch.size} runs, {emerged} emerged",
            batch_range=(float(batch.min()), float(batch.max())),
            context_range=(float(context.min()), float(context.max())),
            residual_sd=sd,
            degrees_of_freedom=emerged - 3,
            correlation=correlation,
            covariance=covariance,
        )

    @property
    def threshold(self) -> float:
        """T, the token-weighted updates at emergence."""
        return float(np.exp(self.log_threshold))

    def updates(self, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
        """Parameter updates at emergence, U = T / (B^b C^c).

        Parameters
        ----------
        batch_size, context_size : array_like
            Sequences a batch and tokens a sequence; broadcast against each other.

        Returns
        -------
        ndarray
            In the broadcast shape. Warns with ExtrapolationWarning outside the law's range.

        Raises
        ------
        ValueError
            If a size is not positive and finite.

        Examples
        --------
        >>> law = InductionLaw.published("v2")
        >>> law.updates(4, [64, 128]).round(1).tolist()
        [26070.6, 16963.4]
        """
        sentence = self.extrapolation(batch_size, context_size)
        if sentence:
            warnings.warn(sentence, ExtrapolationWarning, stacklevel=2)
        return self._updates(batch_size, context_size)

    def tokens(self, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
        """Tokens at emergence, N = T B^(1-b) C^(1-c).

        Parameters, warnings and errors as in `updates`.

        Examples
        --------
        >>> law = InductionLaw.published("v2")
        >>> (law.tokens([16, 32, 128], 2048) / 1e6).round(1).tolist()
        [59.7, 92.3, 221.1]
        """
        sentence = self.extrapolation(batch_size, context_size)
        if sentence:
            warnings.warn(sentence, ExtrapolationWarning, stacklevel=2)
        return updates_to_tokens(self._updates(batch_size, context_size), batch_size, context_size)

    def token_weighted_updates(self, updates: ArrayLike, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
        """Token-weighted updates U B^b C^c of a run; emergence is expected when they reach `threshold`.

        The paper names the quantity; that it is this product is inferred from its law.

        Examples
        --------
        >>> law = InductionLaw.published("v1")
        >>> float(law.token_weighted_updates(100, 16, 64))
        3200.0
        """
        batch, context = _positive("batch_size", batch_size), _positive("context_size", context_size)
        return _positive("updates", updates) * batch**self.batch_exponent * context**self.context_exponent

    def extrapolation(self, batch_size: ArrayLike, context_size: ArrayLike) -> str | None:
        """A sentence naming the sizes outside the law's range, or None.

        Examples
        --------
        >>> InductionLaw.published("v2").extrapolation(1024, 512)
        'extrapolation: batch_size up to 1024 outside [4, 512], the range of arXiv 2511.16893v2'
        """
        outside = []
        for name, sizes, (low, high) in (
            ("batch_size", _positive("batch_size", batch_size), self.batch_range),
            ("context_size", _positive("context_size", context_size), self.context_range),
        ):
            if sizes.max() > high:
                outside.append(f"{name} up to {sizes.max():g} outside [{low:g}, {high:g}]")
            if sizes.min() < low:
                outside.append(f"{name} down to {sizes.min():g} outside [{low:g}, {high:g}]")
        return f"extrapolation: {' and '.join(outside)}, the range of {self.source}" if outside else None

    def prediction_interval(
        self, batch_size: ArrayLike, context_size: ArrayLike, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray]:
        """Interval of the updates at emergence of a new run, with leverage.

            ln U = x.beta -+ t sqrt(s^2 + x.Cov.x),   x = (1, -ln B, -ln C)

        Parameters
        ----------
        batch_size, context_size : array_like
            As in `updates`.
        level : float
            Probability of the interval, in (0, 1).

        Returns
        -------
        lower, upper : ndarray
            Updates, in the broadcast shape.

        Raises
        ------
        ValueError
            For a published law, which comes without its scatter, or a level outside (0, 1).

        Examples
        --------
        >>> runs = {"batch_size": [8, 8, 64, 64, 16], "context_size": [32, 256, 32, 256, 64],
        ...         "updates": [9000, 2500, 4100, 1100, 4500]}
        >>> lower, upper = InductionLaw.fit(runs).prediction_interval(32, 64)
        >>> bool(lower < 3450 < upper)
        True
        """
        covariance, quantile = self._scatter(level)
        centre = np.log(self._updates(batch_size, context_size))
        x = np.stack(
            np.broadcast_arrays(
                1.0,
                -np.log(_positive("batch_size", batch_size)),
                -np.log(_positive("context_size", context_size)),
            ),
            axis=-1,
        )
        variance = self.residual_sd**2 + np.einsum("...i,ij,...j->...", x, covariance, x)
        half = quantile * np.sqrt(variance)
        with np.errstate(over="ignore"):  # one degree of freedom: without end
            return np.exp(centre - half), np.exp(centre + half)

    def coefficient_intervals(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Intervals of ln T, b and c.

        Examples
        --------
        >>> runs = {"batch_size": [8, 8, 64, 64, 16], "context_size": [32, 256, 32, 256, 64],
        ...         "updates": [9000, 2500, 4100, 1100, 4500]}
        >>> low, high = InductionLaw.fit(runs).coefficient_intervals()["context_exponent"]
        >>> low < 0.62 < high
        True
        """
        covariance, quantile = self._scatter(level)
        half = quantile * np.sqrt(np.diag(covariance))
        names = ("log_threshold", "batch_exponent", "context_exponent")
        return {
            name: (float(getattr(self, name) - width), float(getattr(self, name) + width))
            for name, width in zip(names, half, strict=True)
        }

    def _updates(self, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
        batch, context = _positive("batch_size", batch_size), _positive("context_size", context_size)
        return np.exp(
            self.log_threshold - self.batch_exponent * np.log(batch) - self.context_exponent * np.log(context)
        )

    def _scatter(self, level: float) -> tuple[FloatArray, float]:
        if self.covariance is None:
            raise ValueError(f"{self.source} comes without its scatter: only a fitted law has intervals")
        if not 0.0 < level < 1.0:
            raise ValueError(f"level={level}: must lie strictly between 0 and 1")
        return self.covariance, float(stats.t.ppf(0.5 + level / 2.0, self.degrees_of_freedom))


def updates_to_tokens(updates: ArrayLike, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
    """Tokens seen after a number of updates, N = U B C.

    Examples
    --------
    >>> float(updates_to_tokens(1000, 1024, 2048))
    2097152000.0
    """
    return _positive("updates", updates) * _positive("batch_size", batch_size) * _positive("context_size", context_size)


def tokens_to_updates(tokens: ArrayLike, batch_size: ArrayLike, context_size: ArrayLike) -> FloatArray:
    """Updates made when a number of tokens has been seen, U = N / (B C); not rounded.

    Examples
    --------
    >>> float(tokens_to_updates(2097152000, 1024, 2048))
    1000.0
    """
    return _positive("tokens", tokens) / (_positive("batch_size", batch_size) * _positive("context_size", context_size))


def checkpoint_interval(updates: ArrayLike, checkpoints: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The checkpoints around emergence: all that a run saved on a grid reveals.

    Parameters
    ----------
    updates : array_like
        Updates (or tokens) at emergence.
    checkpoints : array_like, shape (k,)
        Saved updates (or tokens), increasing.

    Returns
    -------
    lower, upper : ndarray
        Last checkpoint before and first one at or after; 0 before the first, infinite after the last.

    Raises
    ------
    ValueError
        If the checkpoints are not positive and increasing.

    Examples
    --------
    >>> lower, upper = checkpoint_interval([50, 300, 2000], [100, 200, 400, 1000])
    >>> lower.tolist(), upper.tolist()
    ([0.0, 200.0, 1000.0], [100.0, 400.0, inf])
    """
    grid = _positive("checkpoints", checkpoints)
    if grid.ndim != 1 or np.any(np.diff(grid) <= 0.0):
        raise ValueError(f"checkpoints of shape {grid.shape}: must be one increasing list")
    index = np.searchsorted(grid, _positive("updates", updates))
    padded = np.concatenate([[0.0], grid, [np.inf]])
    return padded[index], padded[index + 1]


def _positive(name: str, value: ArrayLike) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    bad = ~(np.isfinite(array) & (array > 0.0))
    if array.size == 0 or bad.any():
        shown = f"{array[bad].flat[0]:g}" if array.size else "empty"
        raise ValueError(f"{name}={shown}: must be positive and finite")
    return array


def _columns(runs: Any, method: str) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Batch sizes, context sizes and the bounds of the updates at emergence (equal when exact)."""
    if method not in ("least_squares", "interval_censored"):
        raise ValueError(f"method={method!r}: must be 'least_squares' or 'interval_censored'")
    if isinstance(runs, Sequence) and all(isinstance(row, Mapping) for row in runs):
        names = set().union(*(row.keys() for row in runs)) if runs else set()
        table: Any = {name: [row.get(name, np.nan) for row in runs] for name in names}
    elif isinstance(runs, np.ndarray) or hasattr(runs, "keys"):
        table = runs
        names = set(table.dtype.names or ()) if isinstance(table, np.ndarray) else set(table.keys())
    else:
        raise TypeError(f"runs of type {type(runs).__name__}: must be a mapping of columns or a list of mappings")
    for name in ("batch_size", "context_size"):
        if name not in names:
            raise ValueError(f"runs: column {name!r} is missing; found {sorted(names)}")
    batch, context = (
        _positive("batch_size", table["batch_size"]),
        _positive("context_size", table["context_size"]),
    )
    known = np.full(batch.shape, np.nan)
    if "updates" in names:
        known = np.array(table["updates"], dtype=np.float64)
    known = np.where(np.isinf(known), np.nan, known)
    lower, upper = known.copy(), known.copy()
    if method == "interval_censored" and "updates_lower" in names:
        low = np.asarray(table["updates_lower"], dtype=np.float64)
        high = np.asarray(table["updates_upper"], dtype=np.float64) if "updates_upper" in names else known
        lower = np.where(np.isnan(low), known, low)
        upper = np.where(np.isnan(high), np.where(np.isnan(low), known, np.inf), high)
    for name, column in (("context_size", context), ("updates", lower), ("updates_upper", upper)):
        if batch.ndim != 1 or column.shape != batch.shape:
            raise ValueError(f"runs: {name} has shape {column.shape}, batch_size {batch.shape}; both must be (n,)")
    unknown = np.flatnonzero(np.isnan(lower) | np.isnan(upper))
    if unknown.size:
        advice = (
            "give updates, or updates_lower and updates_upper"
            if method == "interval_censored"
            else "least squares needs the updates of every run; "
            "use method='interval_censored' for runs that did not emerge"
        )
        raise ValueError(f"runs: row {unknown[0]} has no emergence ({advice})")
    wrong = np.flatnonzero((lower < 0.0) | (upper <= 0.0) | (upper < lower) | ~np.isfinite(lower))
    if wrong.size:
        i = wrong[0]
        raise ValueError(f"runs: row {i} has updates in [{lower[i]:g}, {upper[i]:g}]; must be positive and ordered")
    return batch, context, lower, upper


def _least_squares(design: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    # QR keeps noise-free data exact to rounding, where the normal equations would square the condition
    q, r = np.linalg.qr(design)
    coefficients = np.linalg.solve(r, q.T @ target)
    residual = target - design @ coefficients
    variance = float(residual @ residual) / (target.size - design.shape[1])
    inverse = np.linalg.inv(r)
    return coefficients, variance * (inverse @ inverse.T), float(np.sqrt(variance))


def _interval_censored(
    design: FloatArray, lower: FloatArray, upper: FloatArray, emerged: int
) -> tuple[FloatArray, FloatArray, float]:
    """Maximum likelihood in (gamma, tau) = (beta / sd, 1 / sd), where it is concave."""
    exact = lower == upper
    guess = np.where(np.isneginf(lower), upper, np.where(np.isinf(upper), lower, (lower + upper) / 2.0))
    shift = float(guess.mean())
    lower, upper = lower - shift, upper - shift
    start, _, sd = _least_squares(design, guess - shift)
    # columns of d(bound * tau - x.gamma) / d(gamma, tau); an infinite bound has no weight
    slope_low = np.column_stack([-design, np.where(np.isinf(lower), 0.0, lower)])
    slope_high = np.column_stack([-design, np.where(np.isinf(upper), 0.0, upper)])
    last = np.array([0.0, 0.0, 0.0, 1.0])

    def log_mass(low: FloatArray, high: FloatArray) -> FloatArray:
        return _log_mass(np.where(exact, -1.0, low), np.where(exact, 1.0, high))

    def scaled_bounds(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        fitted = design @ theta[:3]
        return theta[3] * lower - fitted, theta[3] * upper - fitted

    def negative(theta: FloatArray) -> float:
        if theta[3] <= 0.0:
            return np.inf
        low, high = scaled_bounds(theta)
        density = np.log(theta[3]) - np.where(exact, low, 0.0) ** 2 / 2.0
        return -float(np.where(exact, density, log_mass(low, high)).sum())

    @np.errstate(over="ignore", invalid="ignore")  # far from the maximum; the end is checked
    def derivatives(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        low, high = scaled_bounds(theta)
        log_scale = log_mass(low, high) + np.log(2.0 * np.pi) / 2.0
        weight_low, weight_high = (np.where(exact, 0.0, np.exp(-(z**2) / 2.0 - log_scale)) for z in (low, high))
        curve_low, curve_high = (
            weight * np.where(np.isinf(z), 0.0, z) for weight, z in ((weight_low, low), (weight_high, high))
        )
        score = weight_high[:, None] * slope_high - weight_low[:, None] * slope_low
        hessian = slope_low.T @ (curve_low[:, None] * slope_low) - slope_high.T @ (curve_high[:, None] * slope_high)
        hessian -= score.T @ score
        points = slope_low[exact]
        gradient = score.sum(axis=0) - low[exact] @ points + exact.sum() / theta[3] * last
        hessian -= points.T @ points + exact.sum() / theta[3] ** 2 * np.outer(last, last)
        return -gradient, -hessian

    result = optimize.minimize(  # type: ignore[call-overload]
        negative,
        np.append(start, 1.0) / max(sd, 1e-3),
        method="trust-exact",
        jac=lambda theta: derivatives(theta)[0],
        hess=lambda theta: derivatives(theta)[1],
        tol=1e-8,
    )
    gamma, tau = result.x[:3], float(result.x[3])
    widths = (upper - lower)[np.isfinite(upper) & np.isfinite(lower) & ~exact]
    if not exact.any() and widths.size and tau * widths.min() > 1e3:
        raise RuntimeError("the intervals are too wide to see any scatter: the likelihood has no maximum")
    gradient, hessian = derivatives(result.x)
    spread = np.linalg.eigvalsh(hessian) if np.isfinite(hessian).all() else np.zeros(4)
    if not (np.abs(gradient).max() <= 1e-4 and spread[0] > 1e-14 * spread[-1]):
        raise RuntimeError(f"the likelihood was not maximised: gradient {np.abs(gradient).max():.1e}; {result.message}")
    # delta method from (gamma, tau) to beta = gamma / tau
    jacobian = np.column_stack([np.eye(3) / tau, -gamma / tau**2])
    # maximum likelihood divides by n, least squares by n - 3: the same correction
    inflation = emerged / (emerged - 3)
    coefficients = gamma / tau + shift * last[[3, 0, 0]]
    return (
        coefficients,
        inflation * (jacobian @ np.linalg.inv(hessian) @ jacobian.T),
        float(np.sqrt(inflation) / tau),
    )


def _log_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """ln(Phi(high) - Phi(low)), in the tail where the difference does not cancel."""
    flip = low > 0.0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    log_b = special.log_ndtr(b)
    with np.errstate(divide="ignore"):
        return np.asarray(log_b + np.log(-np.expm1(special.log_ndtr(a) - log_b)))
