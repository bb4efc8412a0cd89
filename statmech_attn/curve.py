r"""The curve of solutions x = F(x; p) of a theory in one of its parameters p, as equations to be continued.

Order parameters that a symmetry keeps at zero are left out. An order parameter x_i that breaks one obeys F_i(x)/x_i = 1
instead of F_i(x) = x_i: the symmetric solution is divided out, and the point x_i = 0 where the branch is born at a
pitchfork is a regular point of the curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from statmech_attn.arclength import Node, Wall
from statmech_attn.linear_stability import AMPLITUDE, Stability, blocks, odd_slope, stability_of
from statmech_attn.theory import Array, Named, Theory, replace

__all__ = ["Curve", "Row"]

#: Relative width of the one-sided differences that give slopes for the corrector. Where the quadrature is less accurate
#: than that, its accuracy, and the same rule as for the equations: finer features of F are artefacts of the rule. No
#: less than sqrt(tol), which is best for a function that is known to `tol`.
WIDTH = 5e-4


@dataclass(frozen=True)
class Row(Named):
    """A point of a branch.

    Attributes
    ----------
    theory : Theory
        At the row's parameter.
    parameter_name : str
    state : (n,) array
        Order parameters; ``row["q"]`` reads one, ``row["train_loss"]`` an observable.
    residual : float
        max |F(x) - x| / scale at the state, |F_i/x_i - 1| for an order parameter that breaks a symmetry.
    quadrature_error : float
        Estimated error of the state by the quadrature rule, in units of its scale; nan where there is no finer rule.
    jacobian : (n, n) array
        F' by one-sided differences under the cheapest rule, good to about 1e-3.
    tangent : (n + 1,) array
        d(state, parameter)/ds.
    rule : object
        Quadrature rule of the theory.
    observables : dict
        Numbers of the state, computed on use; also attributes: ``row.train_loss``.
    """

    theory: Theory
    parameter_name: str
    state: Array
    residual: float
    quadrature_error: float
    jacobian: Array
    tangent: Array
    rule: Any

    @cached_property
    def observables(self) -> dict[str, float]:
        """Numbers of the state."""
        return self.theory.observables(self.state, self.rule)

    @cached_property
    def potential(self) -> float:
        """Training loss, action."""
        return self.theory.potential(self.state, self.rule)

    @property
    def parameter(self) -> float:
        """Value of the parameter."""
        return float(getattr(self.theory, self.parameter_name))

    @property
    def stability(self) -> Stability:
        """Of the iteration, static, replica-symmetric."""
        return stability_of(self.theory, self.state, self.jacobian, self.observables)

    def __str__(self) -> str:
        state = ", ".join(f"{n}={x:.8g}" for n, x in zip(self.theory.order_parameters, self.state, strict=True))
        return f"{self.parameter_name}={self.parameter:.8g}: {state} (residual {self.residual:.1e}); {self.stability}"


class Curve:
    """x = F(x; p) with y = (order parameters that keep the symmetries, p); counts evaluations of F."""

    def __init__(
        self, theory: Theory, parameter: str, interval: tuple[float, float], state: Array, accuracy: float, tol: float
    ):
        self.theory, self.parameter, self.interval = theory, parameter, interval
        self.accuracy = accuracy
        self.width = max(WIDTH, accuracy, math.sqrt(tol))
        self.rules = theory.rules(accuracy)
        self.rule = self.rules[0]
        self.cheap = theory.rules(math.inf)[0] if accuracy <= WIDTH else self.rule
        self.size = state.size
        self.active = np.array(blocks(theory, state)[0], dtype=np.int64)
        alone = theory.symmetries[np.sum(theory.symmetries < 0, axis=1) == 1]
        #: Places in y of the order parameters whose own sign symmetry the state breaks.
        self.broken = [k for k, i in enumerate(self.active) if np.any(alone[:, i] < 0)]
        low, high = interval
        names = [theory.order_parameters[i] for i in self.active]
        self.walls = (
            Wall(len(names), low, 1, f"reached {parameter} = {low:g}, the end of the interval"),
            Wall(len(names), high, -1, f"reached {parameter} = {high:g}, the end of the interval"),
            *(
                Wall(k, 0.0, 0, f"{names[k]} vanishes: born at a pitchfork of the branch with {names[k]} = 0")
                for k in self.broken
            ),
        )
        self.count = 0
        self._last: tuple[bytes, Any, Array, Array] | None = None

    def at(self, p: float) -> Theory:
        """The theory at a value of the parameter; ValueError where it has none."""
        changed: Theory = replace(self.theory, **{self.parameter: float(p)})
        return changed

    def state(self, y: Array) -> Array:
        """All order parameters."""
        state = np.zeros(self.size)
        state[self.active] = y[:-1]
        return state

    def coordinates(self, state: Array, p: float) -> Array:
        """y of a state."""
        return np.append(state[self.active], p)

    def scale(self, y: Array) -> Array:
        state = self.state(y)
        return np.append(self.theory.scale(state)[self.active], self.interval[1] - self.interval[0])

    def near_pitchfork(self, y: Array) -> bool:
        """Whether an order parameter that breaks a symmetry is too small to tell its branch from the symmetric one."""
        return bool(np.any(np.abs(y[self.broken]) < 2 * AMPLITUDE * self.scale(y)[self.broken]))

    def image(self, theory: Theory, state: Array, rule: Any) -> Array:
        """F, counted."""
        self.count += 1
        return theory.update(state, rule)

    def residual(self, y: Array) -> Array:
        return self._residual(y, self.rule)[0]

    def _residual(self, y: Array, rule: Any) -> tuple[Array, Array]:
        """Equations and image; remembers the last."""
        key = y.tobytes()
        if self._last is None or self._last[0] != key or self._last[1] != rule:
            self._last = (key, rule, *self._evaluate(y, rule))
        return self._last[2].copy(), self._last[3]

    def _evaluate(self, y: Array, rule: Any) -> tuple[Array, Array]:
        try:
            theory = self.at(y[-1])
        except ValueError:
            return np.full(y.size - 1, np.nan), np.full(self.size, np.nan)
        return self.equations(theory, self.state(y), rule)

    def equations(self, theory: Theory, state: Array, rule: Any) -> tuple[Array, Array]:
        """Equations of the active order parameters in units of the scale, and image."""
        if theory.infeasibility(state):
            return np.full(self.active.size, np.nan), np.full(self.size, np.nan)
        image = self.image(theory, state, rule)
        r = ((image - state) / theory.scale(state))[self.active]
        for k in self.broken:
            r[k] = self._quotient(theory, state, image, int(self.active[k]), rule) - 1
        return r, image

    def _quotient(self, theory: Theory, state: Array, image: Array, i: int, rule: Any) -> float:
        """F_i/x_i, an even function of x_i; near zero, where quadrature errors dominate, by its parabola."""
        width = AMPLITUDE * theory.scale(state)[i]
        if abs(state[i]) >= width:
            return float(image[i] / state[i])
        values = []
        for amplitude in (width, 2 * width):
            shifted = state.copy()
            shifted[i] = amplitude
            values.append(self.image(theory, shifted, rule)[i] / amplitude)
        return float(values[0] + ((state[i] / width) ** 2 - 1) / 3 * (values[1] - values[0]))

    def linearise(self, y: Array, wide: float = 1.0) -> tuple[Array, Array]:
        """Slopes of the equations in scaled coordinates, and F' (n, n), by one-sided differences."""
        width = wide * self.width
        scale = self.scale(y)
        base, image = self._residual(y, self.cheap)
        slopes = np.empty((base.size, y.size))
        full = np.zeros((self.size, self.size))
        for j in range(y.size):
            # towards zero for the variances and overlaps alike, and into the interval: stays feasible
            inward = y[j] > (sum(self.interval) / 2 if j == base.size else 0.0)
            for h in (-width, width) if inward else (width, -width):
                shifted = y.copy()
                shifted[j] += h * scale[j]
                r, moved = self._residual(shifted, self.cheap)
                if np.all(np.isfinite(r)):
                    break
            slopes[:, j] = (r - base) / h
            if j < base.size:
                full[:, self.active[j]] = (moved - image) / (h * scale[j])
        for k in self.broken:
            if y[k] == 0:
                slopes[:, k] = 0.0  # everything is even in it
        state, theory = self.state(y), self.at(y[-1])
        odd = [i for group in blocks(theory, state)[1].values() for i in group]
        if odd:
            full[:, odd] = 0.0
            full[odd, :] = 0.0
            full += odd_slope(lambda x: self.image(theory, x, self.cheap), theory, state, self.cheap)
        return slopes, full

    def row(self, node: Node) -> Row:
        """A node with the names of the theory."""
        theory, state = self.at(node.y[-1]), self.state(node.y)
        tangent = np.append(self.state(node.tangent), node.tangent[-1])
        error = self._quadrature_error(theory, node, state)
        return Row(theory, self.parameter, state, node.residual, error, node.detail, tangent, self.rule)

    def point(self, theory: Theory, state: Array) -> Row:
        """A row of which only the state is known."""
        unknown = np.full((self.size, self.size + 1), np.nan)
        return Row(theory, self.parameter, state, math.nan, math.nan, unknown[:, 1:], unknown[0], self.rule)

    def _quadrature_error(self, theory: Theory, node: Node, state: Array) -> float:
        """Difference to the next finer rule, carried to the state by (1 - F')^-1, in units of the scale."""
        if len(self.rules) == 1:
            return 0.0 if self.rule is None else math.nan
        image = self._residual(node.y, self.rule)[1]
        difference = (self.image(theory, state, self.rules[1]) - image)[self.active]
        slope = node.detail[np.ix_(self.active, self.active)]
        error = np.linalg.pinv(np.eye(self.active.size) - slope) @ difference
        return float(np.max(np.abs(error) / theory.scale(state)[self.active], initial=0.0))
