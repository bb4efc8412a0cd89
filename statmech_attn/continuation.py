r"""Follow a branch of solutions x = F(x; p) in a parameter p, through folds, by pseudo-arclength continuation.

The curve is parametrised by its length in the scaled coordinates (x/scale(x), p/(high - low)). A step predicts by the
cubic that continues the last two points and their tangents, and corrects on the plane normal to the tangent (Keller
1977) by chord steps with Broyden updates of the slopes, taken afresh at every accepted point by one-sided differences
under the cheapest rule. The same slopes give the stability of the row.

Symmetries. Order parameters that a symmetry keeps at zero are left out. An order parameter x_i that breaks one obeys
F_i(x)/x_i = 1 instead of F_i(x) = x_i: the symmetric solution is divided out, and the point x_i = 0 where the branch is
born at a pitchfork is a regular point of the curve, where the walk lands and stops.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq

from statmech_attn.events import Event, Fold, SymmetryBreaking, Transition
from statmech_attn.fixed_point import solve
from statmech_attn.linear_stability import AMPLITUDE, Stability, blocks, odd_slope, stability_of
from statmech_attn.registry import theory_class
from statmech_attn.store import read_archive, write_archive
from statmech_attn.theory import Array, ConvergenceError, Solution, Theory, parameters_of, replace

__all__ = ["Branch", "Row", "load_branch", "locate", "trace"]

log = logging.getLogger(__name__)

#: Relative width of the one-sided differences that give slopes for the corrector.
WIDTH = 5e-4
#: Distance between predicted and corrected point that the step length aims at.
TARGET = 3e-3
SMALLEST_STEP = 1e-6


class Wall(NamedTuple):
    """A coordinate that must stay on its side of a value: a walk that would cross lands there, ending with the sentence."""

    index: int
    value: float
    #: +1 above, -1 below, 0 where the walk begins.
    side: int
    sentence: str


class System(Protocol):
    """N equations in N + 1 coordinates y, whose solutions are a curve."""

    walls: tuple[Wall, ...]

    def residual(self, y: Array) -> Array:
        """(N,) equations in units of the scale, nan where y is infeasible."""
        ...

    def scale(self, y: Array) -> Array:
        """(N + 1,) units of length of the coordinates."""
        ...

    def linearise(self, y: Array) -> tuple[Array, Array]:
        """(N, N + 1) derivatives of the residual in scaled coordinates, and whatever else is to be kept of them."""
        ...


class Node(NamedTuple):
    """A point of a curve, and all that the walk beyond it depends on (with the point before)."""

    y: Array
    #: dy/ds, of unit length in scaled coordinates.
    tangent: Array
    slopes: Array
    #: What else :meth:`System.linearise` gave; for states F'.
    detail: Array
    #: Next step to try, and distance from the point before.
    step: float
    length: float
    residual: float


# ---- the numerical method: knows nothing of theories


def correct(
    system: System, guess: Array, normal: Array, slopes: Array, scale: Array, tol: float, limit: int = 7
) -> tuple[Array, float] | None:
    """The point of the curve on the plane through `guess` with the given normal, and its residual; None if not found."""
    matrix = np.vstack([slopes, normal])
    y = guess
    r = system.residual(y)
    first = float(np.max(np.abs(r), initial=0.0))
    for _ in range(limit):
        size = float(np.max(np.abs(r), initial=0.0))
        if not size <= max(10 * first, tol):
            return None
        if size <= tol:
            return y, size
        try:
            step = -np.linalg.solve(matrix, np.append(r, 0.0))
        except np.linalg.LinAlgError:
            return None
        y = y + step * scale
        r = system.residual(y)
        matrix[:-1] += np.outer(r, step) / (step @ step)
    size = float(np.max(np.abs(r), initial=0.0))
    return (y, size) if size <= tol else None


def land(system: System, guess: Array, index: int, value: float, slopes: Array, tol: float) -> tuple[Array, float] | None:
    """The point of the curve near `guess` where one coordinate has exactly a value."""
    guess = guess.copy()
    guess[index] = value
    normal = np.zeros(guess.size)
    normal[index] = 1.0
    found = correct(system, guess, normal, slopes, system.scale(guess), tol)
    if found is not None:
        found[0][index] = value  # the linear solve keeps it to round-off
    return found


def node_at(system: System, y: Array, residual: float, along: Array, step: float, length: float) -> Node:
    """A point with its slopes and tangent, oriented along a direction."""
    slopes, detail = system.linearise(y)
    scale = system.scale(y)
    tangent = np.linalg.svd(slopes)[2][-1] if len(slopes) else np.ones(1)
    if tangent @ (along / scale) < 0:
        tangent = -tangent
    return Node(y, tangent * scale, slopes, detail, step, length, residual)


def cubic(system: System, a: Node, b: Node, u: float) -> Array:
    """The cubic with the points and tangents of a at u = 0 and b at u = 1."""
    scale = system.scale(b.y)  # one scale for both, or their tangents would belong to different parametrisations
    h = float(np.linalg.norm((b.y - a.y) / scale))
    slope_a = h * a.tangent / np.linalg.norm(a.tangent / scale)
    slope_b = h * b.tangent
    result: Array = (
        (1 + 2 * u) * (1 - u) ** 2 * a.y
        + u * u * (3 - 2 * u) * b.y
        + u * (1 - u) ** 2 * slope_a
        + u * u * (u - 1) * slope_b
    )
    return result


def predict(system: System, nodes: Sequence[Node], h: float) -> Array:
    """The point at distance h beyond the last node."""
    last = nodes[-1]
    if len(nodes) == 1:
        return last.y + h * last.tangent
    return cubic(system, nodes[-2], last, 1 + h / distance(system, last.y, nodes[-2].y))


def crossed(system: System, node: Node, y: Array) -> Wall | None:
    """The wall between a node and a point."""
    for wall in system.walls:
        side = wall.side or node.y[wall.index] - wall.value or node.tangent[wall.index]
        if side * (y[wall.index] - wall.value) <= 0:
            return wall
    return None


def advance(system: System, nodes: Sequence[Node], tol: float, maximum_step: float) -> tuple[Node | None, str]:
    """The next node, and the sentence with which the walk ends there (empty if it goes on)."""
    last = nodes[-1]
    scale = system.scale(last.y)
    unit = last.tangent / scale
    h = min(last.step, maximum_step)
    while h >= SMALLEST_STEP:
        guess = predict(system, nodes, h)
        wall = crossed(system, last, guess)
        if wall is not None and last.y[wall.index] == wall.value:
            return None, wall.sentence
        found = None
        if wall is None:
            found = correct(system, guess, unit, last.slopes, scale, tol)
            if found is not None:
                wall = crossed(system, last, found[0])
                guess = guess if wall is None else found[0]
        else:
            # the nearest place where the prediction meets the wall

            def beyond(s: float, wall: Wall = wall) -> float:
                return float(predict(system, nodes, s)[wall.index] - wall.value)

            guess = predict(system, nodes, brentq(beyond, 0.0, h)) if beyond(0.0) * beyond(h) < 0 else guess
        if wall is not None:
            found = land(system, guess, wall.index, wall.value, last.slopes, tol)
            if found is not None and crossed(system, last, found[0]) not in (None, wall):
                found = None
        if found is not None:
            y, residual = found
            miss = float(np.linalg.norm((y - guess) / scale))
            length = float(np.linalg.norm((y - last.y) / scale))
            if miss <= 0.3 * h and unit @ ((y - last.y) / scale) > 0:
                step = h * min(2.0, max(0.5, (TARGET / max(miss, 1e-12)) ** (1 / 3)))
                node = node_at(system, y, residual, last.tangent, step, length)
                if wall is not None or node.tangent / system.scale(y) @ unit > 0.6:
                    return node, "" if wall is None else wall.sentence
        h *= 0.5
    return None, f"no step succeeds any more, down to a length of {SMALLEST_STEP}"


def between(system: System, a: Node, b: Node, u: float, tol: float) -> tuple[Array, float] | None:
    """The point of the curve at a fraction u of the way from a to b."""
    scale = system.scale(a.y)
    chord = (b.y - a.y) / scale
    plane = cubic(system, a, b, u), chord / np.linalg.norm(chord), a.slopes, scale
    # sharper than a row where the equations allow it: an event depends on the state
    return correct(system, *plane, 0.01 * tol) or correct(system, *plane, tol)


def zero_between(
    system: System, a: Node, b: Node, function: Callable[[Array], float], tol: float
) -> tuple[Array, float] | None:
    """The point between two nodes where a function of y vanishes; None if it does not change sign."""
    points: dict[float, tuple[Array, float]] = {0.0: (a.y, a.residual), 1.0: (b.y, b.residual)}

    def value(u: float) -> float:
        if u not in points:
            found = between(system, a, b, u, tol)
            if found is None:
                raise ArithmeticError
            points[u] = found
        return function(points[u][0])

    try:
        left, right = value(0.0), value(1.0)
        if left * right > 0:
            return None
        u = float(brentq(value, 0.0, 1.0, xtol=1e-9, rtol=1e-9))
        value(u)
    except ArithmeticError:
        return None
    return points[u]


# ---- the curve of states of a theory


class Curve:
    """x = F(x; p) with y = (order parameters that keep the symmetries, p); counts evaluations of F."""

    def __init__(self, theory: Theory, parameter: str, interval: tuple[float, float], state: Array, accuracy: float):
        self.theory, self.parameter, self.interval = theory, parameter, interval
        self.accuracy = accuracy
        self.rules = theory.rules(accuracy)
        self.rule, self.cheap = self.rules[0], theory.rules(math.inf)[0]
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
        state = self.state(y)
        unknown = np.full(y.size - 1, np.nan), np.full(self.size, np.nan)
        try:
            theory = self.at(y[-1])
        except ValueError:
            return unknown
        if theory.infeasibility(state):
            return unknown
        image = self.image(theory, state, rule)
        scale = theory.scale(state)[self.active]
        r = (image[self.active] - y[:-1]) / scale
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

    def linearise(self, y: Array) -> tuple[Array, Array]:
        """Slopes of the equations in scaled coordinates, and F' (n, n), by one-sided differences."""
        scale = self.scale(y)
        base, image = self._residual(y, self.cheap)
        slopes = np.empty((base.size, y.size))
        full = np.zeros((self.size, self.size))
        for j in range(y.size):
            # towards zero for the variances and overlaps alike, and into the interval: stays feasible
            inward = y[j] > (sum(self.interval) / 2 if j == base.size else 0.0)
            h = -WIDTH if inward else WIDTH
            shifted = y.copy()
            shifted[j] += h * scale[j]
            r, moved = self._residual(shifted, self.cheap)
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
            full += odd_slope(lambda x: self.image(theory, x, self.cheap), theory, state)
        return slopes, full



    def row(self, node: Node) -> Row:
        """A node with the names of the theory."""
        theory, state = self.at(node.y[-1]), self.state(node.y)
        return Row(
            theory=theory,
            parameter_name=self.parameter,
            state=state,
            residual=node.residual,
            quadrature_error=self._quadrature_error(theory, node, state),
            jacobian=node.detail,
            tangent=self._embedded(node.tangent),
            observables=theory.observables(state, self.rule),
        )

    def point(self, y: Array) -> Row:
        """A row of which only state and observables are known."""
        theory, state = self.at(y[-1]), self.state(y)
        unknown = np.full((self.size, self.size), np.nan)
        return Row(theory, self.parameter, state, math.nan, math.nan, unknown, unknown[0], theory.observables(state, self.rule))

    def _embedded(self, tangent: Array) -> Array:
        return np.append(self.state(tangent), tangent[-1])

    def _quadrature_error(self, theory: Theory, node: Node, state: Array) -> float:
        """Difference to the next finer rule, carried to the state by (1 - F')^-1, in units of the scale."""
        if len(self.rules) == 1:
            return 0.0 if self.rule is None else math.nan
        image = self._residual(node.y, self.rule)[1]
        difference = (self.image(theory, state, self.rules[1]) - image)[self.active]
        slope = node.detail[np.ix_(self.active, self.active)]
        error = np.linalg.pinv(np.eye(self.active.size) - slope) @ difference
        return float(np.max(np.abs(error) / theory.scale(state)[self.active], initial=0.0))


# ---- what the user sees


@dataclass(frozen=True)
class Row:
    """A point of a branch.

    Attributes
    ----------
    theory : Theory
        At the row's parameter.
    parameter_name : str
    state : (n,) array
        Order parameters; ``row["q"]`` reads one.
    residual : float
        max |F(x) - x| / scale at the state, |F_i/x_i - 1| for an order parameter that breaks a symmetry.
    quadrature_error : float
        Estimated error of the state by the quadrature rule, in units of its scale; nan where there is no finer rule.
    jacobian : (n, n) array
        F' by one-sided differences under the cheapest rule, good to about 1e-3.
    tangent : (n + 1,) array
        d(state, parameter)/ds.
    observables : dict
        Numbers of the state; also attributes: ``row.train_loss``.
    """

    theory: Theory
    parameter_name: str
    state: Array
    residual: float
    quadrature_error: float
    jacobian: Array
    tangent: Array
    observables: dict[str, float]

    @property
    def parameter(self) -> float:
        """Value of the parameter."""
        return float(getattr(self.theory, self.parameter_name))

    @property
    def potential(self) -> float:
        """The first observable."""
        return next(iter(self.observables.values()))

    @property
    def stability(self) -> Stability:
        """Of the iteration, static, replica-symmetric."""
        return stability_of(self.theory, self.state, self.jacobian, self.observables)

    def __getitem__(self, name: str) -> float:
        return float(self.state[_position(self.theory, name)])

    def __getattr__(self, name: str) -> float:
        if not name.startswith("_") and name in self.observables:
            return self.observables[name]
        raise AttributeError(f"a row has no {name!r}")

    def __str__(self) -> str:
        state = ", ".join(f"{n}={x:.8g}" for n, x in zip(self.theory.order_parameters, self.state, strict=True))
        return f"{self.parameter_name}={self.parameter:.8g}: {state} (residual {self.residual:.1e}); {self.stability}"


def _position(theory: Theory, name: str) -> int:
    if name not in theory.order_parameters:
        raise KeyError(f"{name!r} is not an order parameter of {theory.name}: {', '.join(theory.order_parameters)}")
    return theory.order_parameters.index(name)


@dataclass(frozen=True)
class Branch:
    """A branch of solutions as a table, ordered by its length.

    ``branch["theta"]`` is the column of an order parameter, ``branch.train_loss`` that of an observable.

    Attributes
    ----------
    theory : Theory
        The model; its value of the parameter is where it was started, if the branch passes there.
    parameter_name : str
    interval : (low, high)
    start : str
        What the branch was started from.
    tol, accuracy : float
        Bound on every residual; choice of the quadrature rule.
    nodes : tuple of Node
        Points with tangents and slopes.
    rows : tuple of Row
        The same points as the theory names them.
    ends : (str, str)
        Why the branch stops at its first and last row.
    events : tuple of Transition
        What was located.
    evaluations : int
        Evaluations of F for all of it, slopes, stability, quadrature errors and events included.
    """

    theory: Theory
    parameter_name: str
    interval: tuple[float, float]
    start: str
    tol: float
    accuracy: float
    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]
    ends: tuple[str, str]
    events: tuple[Transition, ...] = ()
    evaluations: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def parameter(self) -> Array:
        """(k,) values of the parameter."""
        return np.array([node.y[-1] for node in self.nodes])

    @cached_property
    def state(self) -> Array:
        """(k, n) order parameters."""
        return np.array([row.state for row in self.rows])

    @cached_property
    def arclength(self) -> Array:
        """(k,) length from the first row, in units of the scale and of the interval."""
        return np.cumsum([0.0, *(node.length for node in self.nodes[1:])])

    @cached_property
    def residual(self) -> Array:
        """(k,) residual of every row."""
        return np.array([node.residual for node in self.nodes])

    @cached_property
    def quadrature_error(self) -> Array:
        """(k,) relative quadrature error of every row."""
        return np.array([row.quadrature_error for row in self.rows])

    @cached_property
    def potential(self) -> Array:
        """(k,) potential."""
        return np.array([row.potential for row in self.rows])

    @cached_property
    def stability(self) -> tuple[Stability, ...]:
        """Stability of every row."""
        return tuple(row.stability for row in self.rows)

    @cached_property
    def static(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(k,) whether the potential is stable in every direction."""
        return np.array([s.static for s in self.stability])

    def __getitem__(self, name: str) -> Array:
        column: Array = self.state[:, _position(self.theory, name)]
        return column

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or not self.rows or name not in self.rows[0].observables:
            raise AttributeError(f"a branch has no {name!r}")
        return np.array([row.observables[name] for row in self.rows])

    def curve(self) -> Curve:
        """Its equations."""
        middle = self.rows[len(self.rows) // 2].state
        return Curve(self.theory, self.parameter_name, self.interval, middle, self.accuracy)

    def at(self, value: float) -> tuple[Row, ...]:
        """All states at a value of the parameter, in the order of the branch; none where it does not reach."""
        curve, found = self.curve(), []
        for node in at_values(curve, self.nodes, (value,), self.tol):
            if node.y[-1] == value:
                stored = (r for r, n in zip(self.rows, self.nodes, strict=True) if np.array_equal(n.y, node.y))
                found.append(next(stored, None) or curve.row(node))
        return tuple(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the branch as .npz (numbers and a JSON header); events keep name, place and states."""
        header = {
            "theory": self.theory.name,
            "parameters": parameters_of(self.theory),
            "parameter": self.parameter_name,
            "interval": self.interval,
            "start": self.start,
            "tol": self.tol,
            "accuracy": self.accuracy,
            "ends": self.ends,
            "evaluations": self.evaluations,
            "observables": list(self.rows[0].observables),
            "events": [event.to_dict() for event in self.events],
        }
        arrays = {f"observable_{n}": getattr(self, n) for n in self.rows[0].observables}
        arrays |= {"state": self.state, "quadrature_error": self.quadrature_error, **_packed(self.nodes, "")}
        write_archive(path, "branch", header, arrays)

    def __str__(self) -> str:
        lines = [
            f"{self.theory.name}: branch from {self.start}, {self.parameter_name} in [{self.interval[0]:g}, "
            f"{self.interval[1]:g}], {len(self)} rows, {self.evaluations} evaluations, residuals below "
            f"{max(self.residual):.1e}, quadrature errors below {max(self.quadrature_error):.1e}",
            f"  first row at {self.parameter[0]:.8g}: {self.ends[0]}",
            f"  last row at {self.parameter[-1]:.8g}: {self.ends[1]}",
        ]
        return "\n".join([*lines, *(f"  {event}" for event in self.events)])


def at_values(system: System, nodes: Sequence[Node], values: Sequence[float], tol: float) -> list[Node]:
    """The nodes with further ones wherever the last coordinate takes one of the values."""
    result = [nodes[0]]
    for a, b in zip(nodes, nodes[1:], strict=False):
        inside = [v for v in values if (a.y[-1] - v) * (b.y[-1] - v) < 0]
        for value in sorted(inside, reverse=bool(a.y[-1] > b.y[-1])):

            def beyond(u: float, value: float = value, a: Node = a, b: Node = b) -> float:
                return float(cubic(system, a, b, u)[-1] - value)

            found = land(system, cubic(system, a, b, brentq(beyond, 0.0, 1.0)), a.y.size - 1, value, a.slopes, tol)
            if found is None:
                log.warning("no row at the requested value %g, near a point where the branch turns", value)
                continue
            result.append(node_at(system, *found, b.y - a.y, a.step, distance(system, result[-1].y, found[0])))
        result.append(b if result[-1] is a else b._replace(length=distance(system, result[-1].y, b.y)))
    return result


def distance(system: System, a: Array, b: Array) -> float:
    """Scaled distance of two points."""
    return float(np.linalg.norm((b - a) / system.scale(a)))


# ---- files


def _packed(nodes: Sequence[Node], prefix: str) -> dict[str, Array]:
    """Nodes as arrays."""
    return {prefix + name: np.array([getattr(node, name) for node in nodes]) for name in Node._fields}


def _unpacked(arrays: Mapping[str, Array], prefix: str) -> list[Node]:
    """Nodes from arrays."""
    columns = [arrays[prefix + name] for name in Node._fields]
    return [Node(*cells[:4], *map(float, cells[4:])) for cells in zip(*columns, strict=True)]


def _save_walks(
    path: str | os.PathLike[str], key: Mapping[str, Any], walks: Sequence[tuple[list[Node], str]], count: int
) -> None:
    header = {"key": key, "ends": [end for _, end in walks], "evaluations": count}
    arrays = {k: v for i, (nodes, _) in enumerate(walks) for k, v in _packed(nodes, f"{i}_").items()}
    write_archive(path, "walk", header, arrays)


def _load_walks(path: str | os.PathLike[str], key: Mapping[str, Any]) -> tuple[list[tuple[list[Node], str]], int]:
    header, arrays = read_archive(path, "walk")
    differ = [f"{k}: {header['key'].get(k)!r} there, {v!r} here" for k, v in key.items() if header["key"].get(k) != v]
    if differ:
        raise ValueError(f"checkpoint={str(path)!r} belongs to another walk ({'; '.join(differ)})")
    return [(_unpacked(arrays, f"{i}_"), header["ends"][i]) for i in range(2)], header["evaluations"]


def load_branch(path: str | os.PathLike[str]) -> Branch:
    """Read a branch.

    Parameters
    ----------
    path : path
        Written by :meth:`Branch.save`.

    Raises
    ------
    ValueError
        If the file is damaged or holds something else.
    """
    header, arrays = read_archive(path, "branch")
    theory, name = theory_class(header["theory"])(**header["parameters"]), header["parameter"]
    nodes = _unpacked(arrays, "")
    rows = []
    for k, node in enumerate(nodes):
        state = arrays["state"][k]
        tangent = np.append(np.zeros(state.size), node.tangent[-1])
        tangent[blocks(theory, arrays["state"][len(nodes) // 2])[0]] = node.tangent[:-1]
        rows.append(
            Row(
                theory=replace(theory, **{name: float(node.y[-1])}),
                parameter_name=name,
                state=state,
                residual=node.residual,
                quadrature_error=float(arrays["quadrature_error"][k]),
                jacobian=node.detail,
                tangent=tangent,
                observables={n: float(arrays[f"observable_{n}"][k]) for n in header["observables"]},
            )
        )
    events = tuple(
        Transition(
            name=e["name"],
            theory=replace(theory, **{e["parameter_name"]: e["parameter"]}),
            parameter_name=e["parameter_name"],
            parameter=e["parameter"],
            states=tuple(np.array(s) for s in e["states"]),
            residual=e["residual"],
            state_residual=e["state_residual"],
            event=None,
            evaluations=e["evaluations"],
        )
        for e in header["events"]
    )
    return Branch(
        theory=theory,
        parameter_name=name,
        interval=tuple(header["interval"]),
        start=header["start"],
        tol=header["tol"],
        accuracy=header["accuracy"],
        nodes=tuple(nodes),
        rows=tuple(rows),
        ends=tuple(header["ends"]),
        events=events,
        evaluations=header["evaluations"],
    )


# ---- tracing


def trace(
    theory: Theory,
    parameter: str,
    interval: tuple[float, float],
    start: str | Mapping[str, float] | Solution | None = None,
    *,
    at: Sequence[float] = (),
    events: Sequence[Event] | None = None,
    tol: float = 1e-8,
    accuracy: float = 1e-5,
    maximum_step: float = 0.2,
    max_rows: int = 500,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, float, Array], object] | None = None,
) -> Branch:
    """Follow a branch of solutions in a parameter, in both directions from a start.

    Parameters
    ----------
    theory : Theory
        The model.
    parameter : str
        Name of one of its scalar parameters.
    interval : (low, high)
        Where the parameter may go.
    start : str, mapping or Solution, optional
        As for :func:`.solve`; a named start is tried at the model's own parameter if it lies in the interval, then at
        the ends and the middle, until its branch is found.
    at : sequence of float
        Values of the parameter at which rows are wanted exactly, wherever the branch passes them.
    events : sequence of Event, optional
        What to locate; default folds and every symmetry breaking.
    tol : float
        Bound on the residual of every row.
    accuracy : float
        Chooses the quadrature rule; the error it makes is estimated in every row.
    maximum_step : float
        Longest step, in units of the scale of the order parameters and of the length of the interval.
    max_rows : int
        Rows after which the walk in a direction stops.
    checkpoint : path, optional
        File that keeps the walk as it grows and from which the same call resumes.
    callback : callable, optional
        Called with (row number, parameter, coordinates) at every step.

    Returns
    -------
    Branch

    Raises
    ------
    ValueError, TypeError
        For a parameter, interval or start that the theory does not have, or a checkpoint of something else.
    ConvergenceError
        If no start converges.

    Notes
    -----
    At a point where two branches cross without a symmetry the walk goes straight on. A symmetry that flips several
    order parameters at once is not divided out: the walk passes through its pitchfork to the mirrored arm.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> branch = sa.trace(sa.PositionalSemantic(alpha=1.0, omega=0.3), "alpha", (0.5, 1.2), start="semantic")
    >>> print(f"{branch.parameter[0]:.3f}", branch.ends[0])
    0.720 theta vanishes: born at a pitchfork of the branch with theta = 0
    """
    low, high = _checked(theory, parameter, interval, at)
    if not maximum_step > SMALLEST_STEP or max_rows < 1:
        raise ValueError(f"maximum_step={maximum_step!r} and max_rows={max_rows!r} must be positive")
    theory, state, label, count = _started(theory, parameter, (low, high), start, tol, accuracy)
    curve = Curve(theory, parameter, (low, high), state, accuracy)
    curve.count = count
    key = {
        "theory": theory.name,
        "parameters": parameters_of(theory),
        "parameter": parameter,
        "interval": [low, high],
        "state": state.tolist(),
        "tol": tol,
        "accuracy": accuracy,
        "maximum_step": maximum_step,
    }
    walks: list[tuple[list[Node], str]] = []
    if checkpoint is not None and os.path.exists(checkpoint):
        walks, curve.count = _load_walks(checkpoint, key)
    if not walks:
        y = curve.coordinates(state, getattr(theory, parameter))
        found = land(curve, y, y.size - 1, y[-1], curve.linearise(y)[0], tol)
        if found is None:
            raise ConvergenceError(f"{theory.name}, start {label!r}: the state does not satisfy the equations to tol {tol}")
        forward = np.zeros(y.size)
        forward[-1] = 1.0
        first = node_at(curve, *found, forward, min(0.02, maximum_step), 0.0)
        walks = [([first], ""), ([first._replace(tangent=-first.tangent)], "")]

    def save() -> None:
        if checkpoint is not None:
            _save_walks(checkpoint, key, walks, curve.count)

    for k in range(2):
        for nodes, end in walk(curve, walks[k], tol, maximum_step, max_rows):
            walks[k] = (nodes, end)
            if callback is not None:
                callback(len(nodes), float(nodes[-1].y[-1]), nodes[-1].y)
            if len(nodes) % 8 == 0 or end:
                save()
    return finish(curve, walks[::-1], label, at, events, tol)


def walk(
    system: System, begun: tuple[list[Node], str], tol: float, maximum_step: float, max_rows: int
) -> Any:
    """Yield the growing list of nodes and the sentence with which it ends (empty before)."""
    nodes, end = list(begun[0]), begun[1]
    while not end and len(nodes) < max_rows:
        node, end = advance(system, nodes, tol, maximum_step)
        if node is not None:
            nodes = [*nodes, node]
        yield nodes, end


def joined(system: System, walks: Sequence[tuple[list[Node], str]]) -> tuple[list[Node], tuple[str, str]]:
    """One list from the walks backwards and forwards of the same point, and the two ends."""
    (backward, first), (forward, last) = walks
    nodes = [node._replace(tangent=-node.tangent) for node in backward[::-1]] + forward[1:]
    for k in range(1, len(nodes)):
        nodes[k] = nodes[k]._replace(length=distance(system, nodes[k - 1].y, nodes[k].y))
    nodes[0] = nodes[0]._replace(length=0.0)
    limit = "the limit on the number of rows was reached"
    return nodes, (first or limit, last or limit)


def finish(
    curve: Curve,
    walks: Sequence[tuple[list[Node], str]],
    label: str,
    at: Sequence[float],
    events: Sequence[Event] | None,
    tol: float,
) -> Branch:
    """A branch from its two walks: requested rows, observables, events."""
    nodes, ends = joined(curve, walks)
    nodes = at_values(curve, nodes, at, tol)
    rows = tuple(curve.row(node) for node in nodes)
    branch = Branch(
        curve.theory, curve.parameter, curve.interval, label, tol, curve.accuracy, tuple(nodes), rows, ends
    )
    if events is None:
        odd = np.any(curve.theory.symmetries < 0, axis=0)
        names = [n for n, flips in zip(curve.theory.order_parameters, odd, strict=True) if flips]
        events = (Fold(), *(SymmetryBreaking(n) for n in names))
    found = [t for event in events for t in locate(branch, event, curve)]
    return with_changes(branch, events=tuple(found), evaluations=curve.count)


def locate(branch: Branch, event: Event, curve: Curve | None = None) -> tuple[Transition, ...]:
    """The places of an event on a branch, in the order of the branch.

    Parameters
    ----------
    branch : Branch
    event : Event
        :class:`Fold`, :class:`SymmetryBreaking` or :class:`Crossing`.
    curve : Curve, optional
        Counts the evaluations; default a new one.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> branch = sa.trace(sa.PositionalSemantic(alpha=1.0, omega=0.3), "alpha", (0.5, 1.2), start="semantic")
    >>> print(f"{sa.locate(branch, sa.SymmetryBreaking('m'))[0].parameter:.3f}")
    0.827
    """
    curve = curve or branch.curve()
    nodes, rows = branch.nodes, branch.rows
    found = []

    def function(y: Array) -> float:
        row = curve.point(y)
        return event.equation(row, lambda x: curve.image(row.theory, x, curve.rule))

    def transition(y: Array, residual: float, before: int) -> Transition:
        row = curve.point(y)
        return Transition(
            name=event.name,
            theory=row.theory,
            parameter_name=branch.parameter_name,
            parameter=row.parameter,
            states=(row.state,),
            residual=abs(function(y)),
            state_residual=residual,
            event=event,
            evaluations=curve.count - before,
        )

    signs = [event.sign(row) for row in rows]
    for k, node in enumerate(nodes):
        before = curve.count
        if isinstance(event, SymmetryBreaking) and k in (0, len(nodes) - 1):
            born = any(
                node.y[j] == 0 and curve.theory.order_parameters[curve.active[j]] == event.order_parameter
                for j in curve.broken
            )
            if born:
                found.append(transition(node.y, node.residual, before))
        if k + 1 == len(nodes) or not signs[k] * signs[k + 1] == signs[k] * signs[k + 1]:
            continue
        if (signs[k] > 0) == (signs[k + 1] > 0):
            continue
        for i, j in ((k, k + 1), (max(k - 1, 0), k), (k + 1, min(k + 2, len(nodes) - 1))):
            # slopes and equation differ by the error of the cheap rule: the zero may lie just beyond a row
            point = zero_between(curve, nodes[i], nodes[j], function, branch.tol) if i < j else None
            if point is not None:
                found.append(transition(*point, before))
                break
        else:
            log.warning("%s between rows %d and %d was announced but not located", event.name, k, k + 1)
    return tuple(found)


def _checked(theory: Theory, parameter: str, interval: tuple[float, float], at: Sequence[float]) -> tuple[float, float]:
    """The interval, after checking it and the parameter."""
    known = [n for n, v in parameters_of(theory).items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if parameter not in known:
        raise ValueError(f"parameter={parameter!r} is not a scalar parameter of {theory.name}: {', '.join(known)}")
    try:
        low, high = (float(x) for x in interval)
    except (TypeError, ValueError):
        raise ValueError(f"interval={interval!r} must be a pair of numbers (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"interval={interval!r} must be finite with low < high")
    for value in (low, high):
        replace(theory, **{parameter: value})
    outside = [float(v) for v in at if not low <= v <= high]
    if outside:
        raise ValueError(f"at={outside} lies outside the interval [{low}, {high}]")
    return low, high


def _started(
    theory: Theory,
    parameter: str,
    interval: tuple[float, float],
    start: str | Mapping[str, float] | Solution | None,
    tol: float,
    accuracy: float,
) -> tuple[Theory, Array, str, int]:
    """Theory, state and label where a start converges, and evaluations spent."""
    low, high = interval
    if isinstance(start, Solution):
        theory = start.theory
    own = float(getattr(theory, parameter))
    if start is None:
        start = theory.starts[0]
    if isinstance(start, str):
        places = [own] if low <= own <= high else []
        places += [v for v in (high, low, 0.5 * (low + high)) if v != own]
    elif low <= own <= high:
        places = [own]
    else:
        raise ValueError(f"the start belongs to {parameter}={own:g}, outside the interval [{low:g}, {high:g}]")
    reasons, count = [], 0
    for value in places:
        here = replace(theory, **{parameter: value})
        solution = solve(here, start, tol=tol, accuracy=accuracy)
        count += solution.evaluations
        if solution.status.kind in ("converged", "accuracy not met"):
            label = start if isinstance(start, str) else solution.branch
            return here, solution.state, label, count
        reasons.append(f"at {parameter}={value:g} {solution.status}")
    raise ConvergenceError(f"{theory.name}, start {start!r}: " + "; ".join(reasons))
