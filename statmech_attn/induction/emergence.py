"""Where a score curve emerges: four definitions that give four numbers, so the one used is stored.

    threshold   first crossing of a fixed score
    half_rise   first crossing of the middle between the lowest and the highest score
    logistic    midpoint of  low + (high - low) / (1 + exp(-(ln step - mu) / width))
    onset       first corner of a flat, ramp, flat curve in ln step

Aoyama, Wilcox and Schneider (arXiv 2511.16893) do not say in their summary which one they use.
On a logistic of width w from 0 to 1, seen with long plateaus, the four give in ln step
mu + w ln(y / (1 - y)) for a threshold y, mu, mu, and mu - 2.60 w.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from statmech_attn.induction.heads import uniform_baseline

__all__ = ["EmergencePoint", "emergence_point"]

FloatArray = NDArray[np.float64]
Method = Literal["threshold", "half_rise", "logistic", "onset"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class EmergencePoint:
    """An emergence point, or the side on which it lies outside the curve.

    Attributes
    ----------
    step : float
        NaN when censored.
    lower, upper : float
        The checkpoints around a crossing, or the interval of a fitted point; for a censored curve what
        is known: (0, first step) or (last step, infinity).
    method : str
        Definition used.
    censored : {"no", "left", "right"}
        "left": emerged before the first checkpoint; "right": not emerged by the last.
    """

    step: float
    lower: float
    upper: float
    method: str
    censored: Literal["no", "left", "right"] = "no"


def emergence_point(
    steps: ArrayLike,
    score: ArrayLike,
    method: Method = "threshold",
    *,
    threshold: float = 0.1,
    baseline: float | None = None,
    level: float = 0.95,
) -> EmergencePoint:
    """Step at which a score rises.

    Parameters
    ----------
    steps : array_like, shape (n,)
        Updates (or tokens), increasing, not negative.
    score : array_like, shape (n,)
        Score at each step, for instance the prefix-matching score of the strongest head.
    method : {"threshold", "half_rise", "logistic", "onset"}
        Definition of emergence.
    threshold : float
        Score crossed, for "threshold"; the other methods need a rise above 5 x `baseline`.
    baseline : float, optional
        Score of uniform attention; by default that of the published probe, 50 ids repeated twice.
    level : float
        Of the interval of a fitted point.

    Returns
    -------
    EmergencePoint
        Crossings are interpolated linearly in ln step between the two checkpoints of the interval.
        A score that never rises, or a fitted point beyond the last step, is right-censored: never a number.
        One that has risen at the first step is left-censored.

    Raises
    ------
    ValueError
        If the arrays differ in shape, steps do not increase, values are not finite, or the method is unknown.
    RuntimeError
        If the fit does not converge.

    Notes
    -----
    "half_rise" takes the highest score seen as the plateau, so a curve cut short gives too early a step.
    The interval of a fitted point is a t interval in ln step of independent, equal errors of the score.

    Examples
    --------
    >>> steps = np.geomspace(10, 10_000, 61)
    >>> score = 1 / (1 + (900 / steps) ** 8)
    >>> round(emergence_point(steps, score, "logistic").step)
    900
    >>> emergence_point(steps, 0.02 + 0 * steps).censored
    'right'
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(score, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size < 2:
        raise ValueError(f"steps, score: shapes {x.shape} and {y.shape}; must be equal and (n,) with n >= 2")
    if not np.isfinite(x).all() or x[0] < 0.0 or np.any(np.diff(x) <= 0.0):
        raise ValueError("steps: must be finite, not negative and increasing")
    if not np.isfinite(y).all():
        raise ValueError(f"score: {y[~np.isfinite(y)][0]} at step {x[~np.isfinite(y)][0]:g}; must be finite")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level}: must lie strictly between 0 and 1")
    usual = uniform_baseline(50) if baseline is None else baseline
    floor = threshold if method == "threshold" else 5.0 * usual
    if not (np.isfinite(floor) and floor > 0.0):
        raise ValueError(f"threshold={threshold}, baseline={baseline}: must be positive and finite")
    middle = (y.min() + y.max()) / 2.0
    finders: dict[str, Callable[[], tuple[float, float, float]]] = {
        "threshold": lambda: _crossing(x, y, threshold),
        "half_rise": lambda: _crossing(x, y, middle),
        "logistic": lambda: _logistic(x, y, level),
        "onset": lambda: _onset(x, y, level),
    }
    if method not in finders:
        raise ValueError(f"method={method!r}: must be one of {', '.join(finders)}")
    before = EmergencePoint(np.nan, 0.0, float(x[0]), method, "left")
    after = EmergencePoint(np.nan, float(x[-1]), np.inf, method, "right")
    if y.max() < floor:
        return after
    if y[0] >= floor or (method == "half_rise" and y[0] >= middle):
        return before
    step, lower, upper = finders[method]()
    if not x[0] <= step <= x[-1]:
        return before if step < x[0] else after
    return EmergencePoint(step, lower, upper, method)


def _log_steps(x: FloatArray) -> FloatArray:
    # step 0 stands far to the left of the first positive step, where every curve is flat
    first = x[x > 0.0][0]
    return np.log(np.where(x > 0.0, x, first * np.exp(-20.0)))


def _crossing(x: FloatArray, y: FloatArray, height: float) -> tuple[float, float, float]:
    after = int(np.argmax(y >= height))
    before = after - 1
    fraction = (height - y[before]) / (y[after] - y[before])
    if x[before] == 0.0:
        return float(fraction * x[after]), 0.0, float(x[after])
    step = x[before] * (x[after] / x[before]) ** fraction
    return float(step), float(x[before]), float(x[after])


def _width(log_width: float) -> float:
    # a jump between two checkpoints sends the fitted width to 0: beyond e^-20 nothing changes
    return float(np.exp(np.clip(log_width, -20.0, 20.0)))


def _logistic_curve(u: FloatArray, low: float, high: float, middle: float, log_width: float) -> FloatArray:
    return np.asarray(low + (high - low) * special.expit((u - middle) / _width(log_width)))


def _ramp_curve(u: FloatArray, low: float, high: float, corner: float, log_width: float) -> FloatArray:
    return np.asarray(low + (high - low) * np.clip((u - corner) / _width(log_width), 0.0, 1.0))


def _fit(
    curve: Callable[..., FloatArray], x: FloatArray, y: FloatArray, start: list[float], level: float
) -> tuple[FloatArray, float]:
    """Parameters and the half width of the interval of the third one."""
    if x.size < 5:
        raise ValueError(f"score: {x.size} points; a fitted emergence point needs at least 5")
    u = _log_steps(x)

    def residual(p: FloatArray) -> FloatArray:
        return curve(u, *p) - y

    result = optimize.least_squares(residual, start, x_scale=[0.1, 0.1, 0.1, 0.3], xtol=1e-12, ftol=1e-14, gtol=1e-12)
    if not result.success:
        raise RuntimeError(f"the fit of the score curve did not converge: {result.message}")
    jacobian = np.asarray(result.jac)
    covariance = 2.0 * result.cost / (x.size - 4) * np.linalg.pinv(jacobian.T @ jacobian)
    return result.x, float(stats.t.ppf(0.5 + level / 2.0, x.size - 4) * np.sqrt(max(covariance[2, 2], 0.0)))


def _fit_logistic(x: FloatArray, y: FloatArray, level: float) -> tuple[FloatArray, float]:
    u, low, high = _log_steps(x), float(y.min()), float(y.max())
    after = max(int(np.argmax(y >= (low + high) / 2.0)), 1)
    width = np.clip(u[after] - u[after - 1], 0.05, 2.0)
    return _fit(_logistic_curve, x, y, [low, high, float(u[after]), float(np.log(width))], level)


def _logistic(x: FloatArray, y: FloatArray, level: float) -> tuple[float, float, float]:
    parameters, half = _fit_logistic(x, y, level)
    return _span(parameters[2], half)


def _onset(x: FloatArray, y: FloatArray, level: float) -> tuple[float, float, float]:
    (low, high, middle, log_width), _ = _fit_logistic(x, y, level)
    # the ramp nearest to a logistic of width w reaches 2.60 w to either side of the middle
    reach = 2.6 * _width(log_width)
    start = [low, high, middle - reach, float(np.log(2.0 * reach))]
    parameters, half = _fit(_ramp_curve, x, y, start, level)
    return _span(parameters[2], half)


def _span(log_step: float, half: float) -> tuple[float, float, float]:
    with np.errstate(over="ignore"):  # a curve that says nothing has an endless interval
        step, lower, upper = np.exp([log_step, log_step - half, log_step + half])
    return float(step), float(lower), float(upper)
