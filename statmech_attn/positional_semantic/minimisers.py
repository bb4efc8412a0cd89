r"""Minimisers of a smooth function with an exact gradient: gradient descent, Adam, L-BFGS.

All stop where the root mean square of the gradient, measured at the point returned, is at most `tol`, and where value
or gradient are no longer finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from statmech_attn.theory import Array, Status

__all__ = ["METHODS", "Minimum", "check_minimiser", "minimise"]

Function = Callable[[Array], tuple[float, Array]]
#: Called with (iteration, point, value, gradient) at the start and after every iteration.
Observer = Callable[[int, Array, float, Array], object]

#: Methods, with the largest number of iterations each takes unless told.
METHODS = {"lbfgs": 5_000, "gradient_descent": 20_000, "adam": 4_000}


class Minimum(NamedTuple):
    """Where a minimiser ended.

    Attributes
    ----------
    point : array
        The best point of the last iteration.
    value, gradient : float
        Function there, and root mean square of its gradient.
    iterations : int
        Made.
    status : Status
        Converged, out of iterations, or stalled (no step lowers the function, or it diverged).
    """

    point: Array
    value: float
    gradient: float
    iterations: int
    status: Status


def check_minimiser(method: str, tol: float, max_iterations: int | None, learning_rate: float | None) -> None:
    """ValueError, by name, for arguments that :func:`minimise` does not take."""
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
    if not tol > 0:
        raise ValueError(f"tol={tol!r} must be positive")
    integer = isinstance(max_iterations, (int, np.integer)) and not isinstance(max_iterations, bool)
    if max_iterations is not None and (not integer or max_iterations < 1):
        raise ValueError(f"max_iterations={max_iterations!r} must be an integer, at least 1")
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate={learning_rate!r} must be positive and finite")
    if learning_rate is not None and method == "lbfgs":
        raise ValueError(f"learning_rate={learning_rate!r}: L-BFGS chooses its own steps")


def minimise(
    function: Function,
    start: Array,
    method: str = "lbfgs",
    *,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    learning_rate: float | None = None,
    observer: Observer | None = None,
) -> Minimum:
    """Minimise a function that gives its value and gradient.

    Parameters
    ----------
    function : callable
        Of an array of any shape; value and gradient of that shape.
    start : array
        Where to begin.
    method : {"lbfgs", "gradient_descent", "adam"}
        L-BFGS with 20 pairs; gradient descent with a fixed step; Adam with betas 0.9 and 0.999, on the whole function,
        its rate constant in the first half of the iterations and then falling to zero.
    tol : float
        Bound on the root mean square of the gradient.
    max_iterations : int, optional
        Default: see METHODS.
    learning_rate : float, optional
        Of gradient descent (default: one over the largest curvature at the start, halved whenever a step would raise
        the function) and of Adam (default 0.02).
    observer : callable, optional
        Called with (iteration, point, value, gradient) at the start and after every iteration.

    Examples
    --------
    >>> import numpy as np
    >>> curvature = np.array([1.0, 10.0])
    >>> for method in METHODS:
    ...     found = minimise(lambda x: (float(curvature @ x**2) / 2, curvature * x), np.ones(2), method)
    ...     print(method, found.status.kind)
    lbfgs converged
    gradient_descent converged
    adam converged
    """
    check_minimiser(method, tol, max_iterations, learning_rate)
    limit = METHODS[method] if max_iterations is None else max_iterations
    track = _Track(function, tol, observer)
    if not track.at(0, start):
        if method == "lbfgs":
            _lbfgs(track, start, limit)
        elif method == "adam":
            _adam(track, start, limit, learning_rate or 0.02)
        else:
            _gradient_descent(track, start, limit, learning_rate)
    return track.result(method, limit)


class _Track:
    """The function with its last iterate: tells observers, knows when to stop."""

    def __init__(self, function: Function, tol: float, observer: Observer | None) -> None:
        self.function, self.tol, self.observer = function, tol, observer
        self.last: tuple[Array, float, Array] | None = None
        self.note, self.diverged = "", False

    def evaluate(self, x: Array) -> tuple[float, Array]:
        """Value and gradient; the last ones are kept, as minimisers ask twice."""
        if self.last is None or not np.array_equal(self.last[0], x):
            with np.errstate(over="ignore", invalid="ignore"):
                self.last = (x.copy(), *self.function(x))
        return self.last[1:]

    def at(self, iteration: int, x: Array) -> bool:
        """Note an iterate; whether to stop: it is a minimum to tolerance, or not finite and then not kept."""
        value, slope = self.evaluate(x)
        self.diverged = not (math.isfinite(value) and bool(np.all(np.isfinite(slope))))
        if self.diverged and iteration:
            return True
        if not iteration:
            self.first = value
        self.point, self.value, self.iterations = x.copy(), value, iteration
        self.gradient = math.sqrt(float(np.mean(slope**2)))
        if self.observer is not None:
            self.observer(iteration, self.point, value, slope)
        return self.diverged or self.gradient <= self.tol

    def result(self, method: str, limit: int) -> Minimum:
        gradient, made = self.gradient, f"{self.iterations} iterations"
        lower = "" if method == "lbfgs" else "; take a lower learning_rate"
        if self.diverged:
            status = Status("stalled", f"diverged: not finite after {made}{lower}")
        elif gradient <= self.tol:
            status = Status("converged", f"converged in {made}: gradient {gradient:.1e} <= tol {self.tol:g}{self.note}")
        elif self.iterations >= limit:
            more = "; try more iterations" + ("" if method == "lbfgs" else " or method='lbfgs'")
            status = Status(
                "iteration limit",
                f"maximum number of iterations reached: gradient {gradient:.1e} > tol {self.tol:g} after {made}"
                + (more if self.value <= self.first else f", above the start{lower}"),
            )
        else:
            sentence = f"no step lowers the function: gradient {gradient:.1e} > tol {self.tol:g} after {made}"
            status = Status("stalled", sentence + self.note)
        return Minimum(self.point, self.value, gradient, self.iterations, status)


def _lbfgs(track: _Track, start: Array, limit: int) -> None:
    shape, step = start.shape, 0

    def flat(x: Any) -> Any:
        value, slope = track.evaluate(x.reshape(shape))
        return value, slope.ravel()

    def after(x: Any) -> None:
        nonlocal step
        step += 1
        if track.at(step, x.reshape(shape)):
            raise StopIteration

    settings: Any = {
        "jac": True,
        "method": "L-BFGS-B",
        "callback": after,
        "options": {"maxiter": limit, "maxfun": 10 * limit, "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
    }
    minimize(flat, start.ravel(), **settings)


def _adam(track: _Track, x: Array, limit: int, rate: float) -> None:
    first, second = np.zeros_like(x), np.zeros_like(x)
    for k in range(1, limit + 1):
        _, slope = track.evaluate(x)
        first += 0.1 * (slope - first)
        second += 0.001 * (slope * slope - second)
        now = rate if 2 * k < limit else rate * 0.5 * (1 + math.cos(math.pi * (2 * k / limit - 1)))
        x = x - now * first / (1 - 0.9**k) / (np.sqrt(second / (1 - 0.999**k)) + 1e-12)
        if track.at(k, x):
            return


def _gradient_descent(track: _Track, x: Array, limit: int, rate: float | None) -> None:
    automatic = rate is None
    step = 1 / _curvature(track, x) if rate is None else rate
    value, slope = track.evaluate(x)
    for k in range(1, limit + 1):
        ahead = track.evaluate(x - step * slope)
        while automatic and not ahead[0] <= value + 1e-12 * abs(value):
            step /= 2
            if step < 1e-12:
                track.note = "; the step size fell to zero"
                return
            ahead = track.evaluate(x - step * slope)
        x, (value, slope) = x - step * slope, ahead
        if track.at(k, x):
            break
    track.note = f", step {step:.3g}"


def _curvature(track: _Track, x: Array) -> float:
    """Largest absolute curvature at a point, by 15 power iterations on differences of gradients."""
    _, slope = track.evaluate(x)
    direction = np.random.default_rng(0).standard_normal(x.shape)
    move = 1e-4 * max(1.0, float(np.linalg.norm(x)))
    size = float(np.linalg.norm(direction))
    for _ in range(15):
        direction = (track.function(x + move / size * direction)[1] - slope) / move
        size = max(float(np.linalg.norm(direction)), 1e-12)
    return size
