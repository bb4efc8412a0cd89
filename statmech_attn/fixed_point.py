r"""Solve x = F(x) for the order parameters of a theory, and certify the state returned.

Residuals are max |F(x) - x| / scale(x), always undamped, always of the state that is returned. Three iterations:

* ``"anderson"`` (default): the combination of the last states whose residuals cancel best (type II, with a memory of
  as many differences as there are order parameters, so that near the end it is a secant method). A step that leaves
  the feasible set is shortened; one that makes the residual grow tenfold is undone, the memory dropped and a shorter
  plain step taken.
* ``"damped"``: x <- damping x + (1 - damping) F(x). Diverges where F' has an eigenvalue below
  -(1 + damping)/(1 - damping), as it has on the ordered branches of attention models.
* ``"newton"``: dense Newton on x - F(x), with a given or a finite-difference Jacobian; from a poor start it may end in
  any solution.

A named start aims at its branch. If the iteration falls off it, the search goes on in an equation from which the
symmetric solution is divided out: F_i(x)/x_i = 1 for the order parameter x_i whose sign symmetry the branch breaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from statmech_attn.theory import Array, Solution, Status, Theory, accuracy_of

__all__ = ["jacobian", "solve"]

METHODS = ("anderson", "damped", "newton")

Callback = Callable[[int, Array, float], object]
Step = tuple[Array, Array]  # a state and its image


class _Equations:
    """F under one rule, counting its evaluations."""

    def __init__(self, theory: Theory, rule: Any) -> None:
        self.theory, self.rule, self.count = theory, rule, 0

    def __call__(self, state: Array) -> Array:
        self.count += 1
        return self.theory.update(state, self.rule)


class _Deflated(_Equations):
    """F with the solution x_i = 0 divided out: its i-th equation is F_i(x)/x_i = 1."""

    def __init__(self, theory: Theory, rule: Any, i: int) -> None:
        super().__init__(theory, rule)
        self.i = i

    def __call__(self, state: Array) -> Array:
        image = super().__call__(state)
        image[self.i] = state[self.i] + self.theory.scale(state)[self.i] * (image[self.i] / state[self.i] - 1)
        return image


class _Run:
    """An iteration: its state with image, residuals so far, and how it ended."""

    def __init__(self, F: _Equations, x: Array, tol: float, limit: int, callback: Callback | None, advice: str):
        self.F, self.tol, self.limit, self.callback, self.advice = F, tol, limit, callback, advice
        self.state, self.image = x, F(x)
        self.history: list[float] = []
        self.kind = self.sentence = ""

    @property
    def residual(self) -> float:
        """Undamped residual of the present state, infinite if it is not a number."""
        value = float(np.max(np.abs(self.image - self.state) / self.F.theory.scale(self.state)))
        return math.inf if math.isnan(value) else value

    def ended(self) -> bool:
        """Record the residual of the present state; whether to stop."""
        residual = self.residual
        steps = len(self.history)
        self.history.append(residual)
        if self.callback is not None:
            self.callback(steps, self.state, residual)
        if residual <= self.tol:
            self.stop("converged", f"converged: residual {residual:.1e} <= tol {self.tol:.1e}")
        elif steps >= self.limit:
            self.stop(
                "iteration limit",
                f"maximum number of iterations reached ({self.limit}): residual {residual:.1e} > tol {self.tol:.1e}; "
                f"try {self.advice}",
            )
        return bool(self.kind)

    def stop(self, kind: str, sentence: str) -> None:
        self.kind, self.sentence = kind, sentence

    def move(self, step: Array) -> bool:
        """Take a step, halved until state and image are feasible; False (and stalled) if none is."""
        for _ in range(40):
            new = self.state + step
            if np.array_equal(new, self.state):
                break
            if not self.F.theory.infeasibility(new):
                image = self.F(new)
                if np.all(np.isfinite(image)):
                    self.state, self.image = new, image
                    return True
            step = 0.5 * step
        self.stop(
            "stalled",
            f"no feasible step is left: residual {self.residual:.1e} > tol {self.tol:.1e}; try another start",
        )
        return False


def _anderson(run: _Run) -> None:
    mixing = 0.5
    memory: list[Step] = []
    best: Step = (run.state, run.image)
    best_residual = math.inf
    while not run.ended():
        if run.residual > 10 * best_residual:
            run.state, run.image = best
            memory = []
            mixing = max(0.5 * mixing, 1e-3)
        elif run.residual < best_residual:
            best, best_residual = (run.state, run.image), run.residual
        x = run.state
        scale = run.F.theory.scale(x)
        memory = [*memory, (x, run.image)][-(x.size + 1) :]
        residual = run.image - x
        step: Array = np.asarray(mixing * residual)
        if len(memory) > 1:
            states = np.array([s for s, _ in memory])
            dx = np.diff(states, axis=0).T
            dr = np.diff(np.array([i for _, i in memory]) - states, axis=0).T
            weights = np.linalg.lstsq(dr / scale[:, None], residual / scale, rcond=1e-10)[0]
            step = np.asarray(step - (dx + mixing * dr) @ weights)
        longest = float(np.max(np.abs(step) / scale))
        if not run.move(step * min(1.0, 0.5 / longest) if longest > 0 else mixing * residual):
            return


def _damped(run: _Run, damping: float) -> None:
    while not run.ended():
        new = damping * run.state + (1 - damping) * run.image
        reason = run.F.theory.infeasibility(new)
        image = run.image if reason else run.F(new)
        if reason or not np.all(np.isfinite(image)):
            run.stop(
                "infeasible",
                f"step {len(run.history)} leaves the feasible set ({reason or 'the update is not a number there'}); "
                f"the state before it is returned; try {run.advice}",
            )
            return
        run.state, run.image = new, image


def _newton(run: _Run, derivative: Callable[[Array], Array] | None) -> None:
    while not run.ended():
        x, image, residual = run.state, run.image, run.residual
        slope = jacobian(run.F, x, run.F.theory) if derivative is None else np.asarray(derivative(x))
        try:
            step: Array = np.linalg.solve(np.eye(x.size) - slope, image - x).astype(np.float64)
        except np.linalg.LinAlgError:
            run.stop("stalled", f"1 - F' is singular at residual {residual:.1e} > tol {run.tol:.1e}")
            return
        length = 1.0
        while True:
            run.state, run.image = x, image
            if not run.move(length * step):
                return
            if run.residual < residual or run.residual <= run.tol:
                break
            length *= 0.5
            if length < 1e-4:
                run.state, run.image = x, image
                run.stop(
                    "stalled",
                    f"Newton steps no longer reduce the residual {residual:.1e} > tol {run.tol:.1e}; try {run.advice}",
                )
                return


def _iterate(
    F: _Equations,
    x: Array,
    method: str,
    tol: float,
    limit: int | None,
    callback: Callback | None = None,
    damping: float = 0.0,
    derivative: Callable[[Array], Array] | None = None,
) -> _Run:
    advice = {
        "anderson": "a nearer start or method='newton'",
        "damped": "more damping, more iterations or method='anderson'",
        "newton": "a nearer start or method='anderson'",
    }[method]
    if limit is None:
        limit = {"anderson": 100, "damped": 1000, "newton": 50}[method]
    run = _Run(F, x, tol, limit, callback, advice)
    if not np.all(np.isfinite(run.image)):
        run.history.append(math.inf)
        run.stop("infeasible", "the update of the start is not a number; the start is returned; try another start")
    elif method == "anderson":
        _anderson(run)
    elif method == "damped":
        _damped(run, damping)
    else:
        _newton(run, derivative)
    return run


def _active(theory: Theory, x: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Order parameters that no symmetry of the state keeps at zero."""
    kept = np.all(theory.symmetries * x == x, axis=1)
    active: np.ndarray[Any, np.dtype[np.bool_]] = np.all(theory.symmetries[kept] > 0, axis=0)
    return active


def jacobian(F: Callable[[Array], Array], state: Array, theory: Theory, *, symmetric: bool = True) -> Array:
    """Derivative F'(state) by central differences of relative width 3e-4, error about 1e-6 of its entries.

    One-sided in a direction in which the state lies on the edge of the feasible ones.

    Parameters
    ----------
    F : callable
        Map of the order parameters, (n,) -> (n,).
    state : (n,) array
        Where.
    theory : Theory
        Gives the scale of each order parameter and the symmetries.
    symmetric : bool
        Leave out (as zero) the directions that break a symmetry of the state; they do not couple to the others.

    Returns
    -------
    (n, n) array
        Entry (i, j) is dF_i/dx_j.
    """
    widths = 3e-4 * theory.scale(state)
    active = _active(theory, state) if symmetric else np.ones(state.size, dtype=bool)
    slope = np.zeros((state.size, state.size))
    for j in np.flatnonzero(active):
        shift = np.zeros(state.size)
        shift[j] = widths[j]
        up, down, width = F(state + shift), F(state - shift), 2 * widths[j]
        if not np.all(np.isfinite(down)):  # a variance next to zero
            down, width = F(state), widths[j]
        slope[:, j] = (up - down) / width
    return slope


def _off_symmetric(theory: Theory, rule: Any, symmetric: Array, i: int) -> tuple[Array | None, int, float]:
    """A state with x_i != 0 near the branch that bifurcates from a symmetric state, evaluations, and the rate.

    The rate is F_i/x_i at vanishing x_i: above one a broken solution exists on a supercritical branch.
    """
    F = _Deflated(theory, rule, i)
    scale = theory.scale(symmetric)[i]

    def rate(amplitude: float) -> float:
        state = symmetric.copy()
        state[i] = amplitude * scale
        while theory.infeasibility(state) and abs(state[i]) > 1e-12 * scale:
            state[i] *= 0.1
        return float(1 + (F(state)[i] - state[i]) / scale)

    at_zero, beyond = rate(1e-3), rate(0.3)
    if not (at_zero > 1 and math.isfinite(beyond)):
        return None, F.count, at_zero
    guess = 0.3 * math.sqrt((at_zero - 1) / max(at_zero - beyond, 0.1 * (at_zero - 1)))
    for amplitude in (guess, 0.5 * guess, 0.2 * guess):
        start = symmetric.copy()
        start[i] = min(amplitude, 0.9) * scale
        if theory.infeasibility(start):
            continue
        run = _iterate(F, start, "newton", 1e-4, 30)
        if run.kind == "converged" and abs(run.state[i]) > 1e-3 * abs(start[i]):
            return run.state, F.count, at_zero
    return None, F.count, at_zero


def _reach(
    theory: Theory, start: str, rule: Any, limit: int | None, callback: Callback | None
) -> tuple[Array, int, str, str]:
    """A state near the branch of a named start, under a coarse rule: state, evaluations, status kind and sentence."""
    F = _Equations(theory, rule)
    limit = 60 if limit is None else min(60, limit)
    run = _iterate(F, theory.initial(start), "anderson", 1e-4, limit, callback)
    if start not in theory.broken:
        return run.state, F.count, "", ""
    i = theory.order_parameters.index(theory.broken[start])
    large = abs(run.state[i]) > 0.02 * theory.scale(run.state)[i]
    if run.kind == "converged" and large and theory.branch(run.state) == start:
        return run.state, F.count, "", ""
    symmetric = theory.initial(start)
    symmetric[i] = 0.0
    base = _iterate(F, symmetric, "anderson", 1e-5, limit, callback)
    found, more, rate = _off_symmetric(theory, rule, base.state, i)
    count = F.count + more
    if found is not None:
        return found, count, "", ""
    name = theory.broken[start]
    if base.kind != "converged" or math.isnan(rate):
        return base.state, count, "other branch", f"the {start} branch was not found, nor the one it grows out of"
    if rate > 1:
        return base.state, count, "other branch", f"the {start} branch was not found, although {name} grows there"
    sentence = (
        f"the {start} branch does not exist here, or does not grow out of the symmetric state: "
        f"a small {name} changes by the factor {rate:.3f} < 1 per update"
    )
    return base.state, count, "absent", sentence


# what is not a finite number is found where it matters, and ends in a status
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def solve(
    theory: Theory,
    start: str | Mapping[str, float] | Solution | None = None,
    *,
    method: str | None = None,
    tol: float | None = None,
    accuracy: float | None = None,
    damping: float | None = None,
    max_iterations: int | None = None,
    rule: str | None = None,
    jacobian: Callable[[Array], Array] | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Solve the state equations x = F(x) of a theory from a start.

    Parameters
    ----------
    theory : Theory
        The model.
    start : str, mapping or Solution, optional
        A named start (default: the first of ``theory.starts``) aims at the branch of that name; a mapping gives every
        order parameter; a solution is continued from, also of other parameters.
    method : {"anderson", "damped", "newton"}
        Iteration, see the module.
    tol : float
        Bound on the undamped residual max |F(x) - x| / scale; default 1e-8.
    accuracy : float
        Bound on the quadrature error of the order parameters in units of their scale; default 1e-5. Chooses the rule,
        and finer ones as long as the measured error exceeds it.
    damping : float
        Weight of the old state in ``"damped"``, in [0, 1); default 0.5.
    max_iterations : int
        Steps allowed; default 100, 1000 or 50 by method.
    rule : str, optional
        A named quadrature rule of the theory, an independent check (ValueError lists the names).
    jacobian : callable, optional
        F'(x) for ``"newton"``; default finite differences.
    callback : callable, optional
        Called with (step, state, residual) at every step.

    Returns
    -------
    Solution
        Never raises for lack of convergence: ``solution.status`` says what happened, ``solution.require()`` raises.

    Raises
    ------
    ValueError, TypeError
        For arguments out of range, an unknown start or rule, an infeasible start.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> solution = sa.solve(sa.PositionalSemantic(alpha=1.24, omega=0.3), start="semantic")
    >>> print(f"{solution['theta']:.4f} {solution.branch} {solution.converged}")
    0.1172 semantic True
    """
    if rule is not None:
        theory = theory.under(rule)

    def setting(name: str, given: Any, default: Any) -> Any:
        return given if given is not None else theory.settings.get(name, default)

    method = setting("method", method, "anderson")
    tol = setting("tol", tol, 1e-8)
    accuracy = accuracy_of(theory, accuracy)
    damping = setting("damping", damping, 0.5)
    limit = setting("max_iterations", max_iterations, None)
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join(METHODS)}")
    for name, value in (("tol", tol), ("accuracy", accuracy)):
        if not value > 0:
            raise ValueError(f"{name}={value!r} must be positive")
    if not 0 <= damping < 1:
        raise ValueError(f"damping={damping!r} must lie in [0, 1)")
    if limit is not None and not (0 <= limit < math.inf and limit == int(limit)):
        raise ValueError(f"max_iterations={limit!r} must be an integer, at least 0")

    rules = theory.rules(accuracy)
    coarse = theory.rules(math.inf)[0]
    count = 0
    kind = sentence = ""
    if start is None:
        start = theory.starts[0]
    if isinstance(start, str):
        if start not in theory.starts:
            raise ValueError(f"start={start!r} is not one of {', '.join(theory.starts)}")
        label = start
        if method == "anderson":
            state, count, kind, sentence = _reach(theory, start, coarse, limit, callback)
        else:
            state = theory.initial(start)
    else:
        label = "given"
        state = _given(theory, start)

    level = 0
    while True:
        F = _Equations(theory, rules[level])
        run = _iterate(F, state, method, tol, limit, callback, damping, jacobian)
        count += F.count
        state = run.state
        errors, quadrature_error, more = _errors(theory, run, rules, level, coarse)
        count += more
        if not quadrature_error > accuracy or level == len(rules) - 1 or run.kind != "converged":
            break
        level += 1
    branch = theory.branch(state)
    if run.kind != "converged":
        kind, sentence = run.kind, run.sentence
    elif kind:
        sentence += f"; the {branch} state is returned"
    elif label in theory.starts and branch != label:
        kind = "other branch"
        sentence = f"the iteration left the {label} branch and reached the {branch} one; start from a nearer state"
    elif quadrature_error > accuracy:
        kind = "accuracy not met"
        sentence = (
            f"quadrature error {quadrature_error:.1e} > accuracy {accuracy:.1e} with the finest rule there is "
            f"(residual {run.residual:.1e})"
        )
    else:
        kind = "converged"
        sentence = run.sentence
        if not math.isnan(quadrature_error):
            sentence += f", quadrature error {quadrature_error:.1e} <= accuracy {accuracy:.1e}"
    return Solution(
        theory=theory,
        state=state,
        residual=run.residual,
        tol=tol,
        errors=errors,
        quadrature_error=quadrature_error,
        accuracy=accuracy,
        status=Status(kind, sentence),
        start=label,
        branch=branch,
        method=method,
        evaluations=count,
        history=np.array(run.history),
        observables=theory.observables(state, rules[level]),
    )


def _given(theory: Theory, start: Mapping[str, float] | Solution) -> Array:
    """A start given by values, checked."""
    if isinstance(start, Solution):
        state = start.state.copy()
        if start.theory.order_parameters != theory.order_parameters:
            raise ValueError(f"start is a state of {start.theory.name}, not of {theory.name}")
    else:
        names = theory.order_parameters
        if not isinstance(start, Mapping) or set(start) != set(names):
            raise ValueError(f"start={start!r} must give a value for each of {', '.join(names)}")
        state = np.array([float(start[name]) for name in names])
    reason = theory.infeasibility(state)
    if reason:
        raise ValueError(f"start is infeasible: {reason}")
    return state


def _errors(theory: Theory, run: _Run, rules: tuple[Any, ...], level: int, coarse: Any) -> tuple[Array, float, int]:
    """Estimated error of each order parameter, relative quadrature error, evaluations.

    The image under the next finer rule (for the finest: the next coarser) differs by the error of F, which
    (1 - F')^-1 carries over to the fixed point. Of a random rule it is the standard error over its replicates.
    """
    state, image = run.state, run.image
    unknown = np.full(state.size, math.nan)
    if not math.isfinite(run.residual) or (len(rules) == 1 and rules[0] is not None):
        return unknown, math.nan, 0
    F = _Equations(theory, coarse)
    active = _active(theory, state)
    slope = jacobian(F, state, theory)
    if not np.all(np.isfinite(slope)):  # the state is within a difference step of the infeasible ones
        return unknown, math.nan, F.count
    inverse = np.linalg.pinv(np.eye(state.size) - slope)
    residual_part = np.abs(inverse @ (image - state)) * active
    if len(rules) == 1:
        return residual_part, 0.0, F.count
    replicates = theory.replicates(rules[level])
    if replicates:
        images = np.array([theory.update(state, one) for one in replicates])
        part = np.std((images - image) @ inverse.T, axis=0, ddof=1) / math.sqrt(len(replicates)) * active
    else:
        other = theory.update(state, rules[level + 1] if level + 1 < len(rules) else rules[level - 1])
        # absolute values: errors of the entries of F must not be seen to cancel
        part = np.abs(inverse) @ np.abs(other - image) * active
    evaluations = F.count + max(len(replicates), 1)
    return residual_part + part, float(np.max(part / theory.scale(state))), evaluations
