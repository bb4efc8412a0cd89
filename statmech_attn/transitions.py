r"""Where two branches exchange equilibrium, where branches are born, and any such place followed in a second parameter.

* :func:`coexistence`: two states of equal potential, E(x_1) = E(x_2), the first-order transition.
* :func:`switch`: the two arms that start at a pitchfork.
* :func:`critical_line`: an event g = 0 together with x = F(x) for its state, or for both, is a system of N equations in
  N + 1 unknowns (states, first parameter, second parameter): a curve, continued like a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from statmech_attn.arclength import (
    Node,
    Wall,
    at_values,
    cubic,
    joined,
    land,
    node_at,
    walk,
)
from statmech_attn.continuation import Branch, checked, finish
from statmech_attn.curve import Curve, Row
from statmech_attn.events import Event, SymmetryBreaking, Transition
from statmech_attn.theory import Array, ConvergenceError, Theory, accuracy_of, replace

__all__ = ["Coexistence", "Line", "coexistence", "critical_line", "switch"]


@dataclass(frozen=True)
class Coexistence:
    """Two states of equal potential."""

    name: str = "coexistence"

    def equation(self, F: Callable[[Array], Array], row: Row, other: Row) -> float:
        """Difference of the potentials in units of their size."""
        size = abs(row.potential) + abs(other.potential)
        return (row.potential - other.potential) / size if size > 0 else 0.0


def coexistence(branch: Branch, other: Branch) -> Transition:
    """The parameter at which two branches have the same potential, with the states on both sides.

    Parameters
    ----------
    branch, other : Branch
        Of the same theory in the same parameter.

    Returns
    -------
    Transition
        Its `states` are those on `branch` and on `other`.

    Raises
    ------
    ValueError
        If the branches do not belong together, or their potentials cross nowhere or more than once.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> model = sa.PositionalSemantic(alpha=1.24, omega=0.3)
    >>> semantic, positional = (sa.trace(model, "alpha", (1.0, 1.5), start=s) for s in ("semantic", "positional"))
    >>> print(f"{sa.coexistence(semantic, positional).parameter:.4f}")
    1.2515
    """
    name = branch.parameter_name
    if other.parameter_name != name or replace(other.theory, **{name: getattr(branch.theory, name)}) != branch.theory:
        raise ValueError(f"the branches differ in more than {name}: {branch.theory} and {other.theory}")
    curves = branch.curve(), other.curve()
    before = [curve.count for curve in curves]
    found: list[tuple[Point, Point]] = []
    for (i, j), (low, high) in _crossing_segments(branch, other):
        segments = (branch.nodes[i : i + 2], other.nodes[j : j + 2])
        pair = _equal(curves, segments, (low, high), (branch.tol, other.tol))
        # a branch that passes through folds holds both sides, and meets the other there a second time, exchanged
        if pair is not None and not any(_exchanged(curves, pair, earlier) for earlier in found):
            found.append(pair)
    places = [float(pair[0][0][-1]) for pair in found]
    if len(found) != 1:
        where = f"at {', '.join(f'{p:.6g}' for p in places)}" if found else "nowhere"
        raise ValueError(
            f"the potentials of the branches from {branch.start} and {other.start} cross {where}; trace them in an "
            f"interval of {name} with exactly one crossing"
        )
    rows = [c.point(c.at(y[-1]), c.state(y)) for c, (y, _) in zip(curves, found[0], strict=True)]
    event = Coexistence()
    return Transition(
        name=event.name,
        theory=rows[0].theory,
        parameter_name=name,
        parameter=places[0],
        states=(rows[0].state, rows[1].state),
        residual=abs(event.equation(lambda x: x, *rows)),
        state_residual=max(residual for _, residual in found[0]),
        event=event,
        evaluations=sum(c.count for c in curves) - sum(before),
    )


def _crossing_segments(branch: Branch, other: Branch) -> list[tuple[tuple[int, int], tuple[float, float]]]:
    """Pairs of segments whose potentials, interpolated linearly, cross, and the parameters that both cover."""
    found = []
    p, q, e, f = branch.parameter, other.parameter, branch.potential, other.potential
    for i in range(len(p) - 1):
        for j in range(len(q) - 1):
            low = max(min(p[i], p[i + 1]), min(q[j], q[j + 1]))
            high = min(max(p[i], p[i + 1]), max(q[j], q[j + 1]))
            if not low < high:
                continue
            gaps = [
                e[i] + (e[i + 1] - e[i]) * (v - p[i]) / (p[i + 1] - p[i])
                - f[j] - (f[j + 1] - f[j]) * (v - q[j]) / (q[j + 1] - q[j])
                for v in (low, high)
            ]  # fmt: skip
            curvature = abs(e[i + 1] - e[i]) + abs(f[j + 1] - f[j])
            if gaps[0] * gaps[1] <= 0 or min(map(abs, gaps)) < 0.1 * curvature:
                found.append(((i, j), (float(low), float(high))))
    return found


Point = tuple[Array, float]


def _exchanged(curves: tuple[Curve, Curve], pair: tuple[Point, Point], other: tuple[Point, Point]) -> bool:
    """Whether two pairs of states are the same but for their order."""
    a, b = (curve.state(y) for curve, (y, _) in zip(curves, pair, strict=True))
    c, d = (curve.state(y) for curve, (y, _) in zip(curves, other, strict=True))
    return bool(np.allclose(a, d, rtol=1e-5) and np.allclose(b, c, rtol=1e-5))


def _equal(
    curves: tuple[Curve, Curve],
    segments: tuple[Sequence[Node], Sequence[Node]],
    interval: tuple[float, float],
    tols: tuple[float, float],
) -> tuple[Point, Point] | None:
    """The two states of equal potential on a pair of segments; None if there is none."""
    points: dict[float, tuple[Point, Point]] = {}

    def gap(value: float) -> float:
        pair = []
        for curve, (a, b), tol in zip(curves, segments, tols, strict=True):
            u = min(max((value - a.y[-1]) / (b.y[-1] - a.y[-1]), 0.0), 1.0)
            landed = land(curve, cubic(curve, a, b, u), a.y.size - 1, value, a.slopes, curve.scale(a.y), tol)
            if landed is None:
                raise ArithmeticError
            pair.append(landed)
        points[value] = pair[0], pair[1]
        rows = [c.point(c.at(value), c.state(y)) for c, (y, _) in zip(curves, pair, strict=True)]
        return Coexistence().equation(lambda x: x, *rows)

    try:
        if gap(interval[0]) * gap(interval[1]) > 0:
            return None
        root = float(brentq(gap, *interval, xtol=1e-10 * abs(interval[1]), rtol=1e-10))
        gap(root)
    except ArithmeticError:
        return None
    (y, _), (z, _) = points[root]
    states = curves[0].state(y), curves[1].state(z)
    scale = curves[0].theory.scale(states[0])
    # where the branches meet, their potentials agree too
    return points[root] if np.max(np.abs(states[0] - states[1]) / scale) > 1e-3 else None


def switch(
    transition: Transition,
    interval: tuple[float, float],
    *,
    at: Sequence[float] = (),
    events: Sequence[Event] | None = None,
    tol: float = 1e-8,
    accuracy: float | None = None,
    maximum_step: float = 0.2,
    max_rows: int = 500,
) -> tuple[Branch, Branch]:
    """Both arms of the branch that starts at a pitchfork.

    Parameters
    ----------
    transition : Transition
        A symmetry breaking.
    interval : (low, high)
        Where the parameter may go.
    at, events, tol, accuracy, maximum_step, max_rows
        As for :func:`.trace`.

    Returns
    -------
    (Branch, Branch)
        With the order parameter positive and negative: mirror images, of which only the first is computed.

    Raises
    ------
    ValueError
        If the transition is not a pitchfork in a single order parameter.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> base = sa.trace(sa.PositionalSemantic(alpha=0.7), "alpha", (0.6, 1.0), start="uninformed")
    >>> up, down = sa.switch(base.events[0], (0.6, 1.0))
    >>> print(base.events[0].name, round(float(up["m"][-1]), 3), round(float(down["m"][-1]), 3))
    symmetry breaking in m 0.147 -0.147
    """
    event, theory, name = transition.event, transition.theory, transition.parameter_name
    if not isinstance(event, SymmetryBreaking):
        raise ValueError(f"transition={transition.name!r} is not a symmetry breaking: no other branch starts there")
    group = event.group(theory, transition.states[0])
    flips = [signs for signs in theory.symmetries if [i for i in range(signs.size) if signs[i] < 0] == group]
    if len(group) != 1 or not flips:
        raise ValueError(f"{transition.name}: the symmetry flips several order parameters at once")
    low, high = checked(theory, name, interval, at)
    i = group[0]
    broken = transition.states[0].copy()
    broken[i] = theory.scale(broken)[i]
    accuracy = accuracy_of(theory, accuracy)
    curve = Curve(theory, name, (low, high), broken, accuracy, tol)
    y = curve.coordinates(transition.states[0], transition.parameter)
    amplitude = int(np.flatnonzero(curve.active == i)[0])
    found = land(curve, y, amplitude, 0.0, curve.linearise(y)[0], curve.scale(y), tol)
    if found is None:
        raise ConvergenceError(f"{transition.name}: the equations do not hold at the transition to tol {tol}")
    out = np.zeros(y.size)
    out[amplitude] = 1.0
    first = node_at(curve, *found, out, 0.02, 0.0)
    born = f"{theory.order_parameters[i]} vanishes: born at the pitchfork"
    whole = walk(curve, [first], tol, maximum_step, max_rows)
    arm = finish(curve, [([first], born), whole], transition.name, at, events, tol)
    return arm, _mirrored(arm, flips[0], curve)


def _mirrored(branch: Branch, signs: Array, curve: Curve) -> Branch:
    """The branch under a symmetry that flips one order parameter, whose equation is invariant."""
    flip, full, both = np.append(signs[curve.active], 1.0), np.append(signs, 1.0), np.outer(signs, signs)
    nodes = tuple(
        n._replace(y=n.y * flip, tangent=n.tangent * flip, slopes=n.slopes * flip, detail=n.detail * both)
        for n in branch.nodes
    )
    rows = tuple(
        with_changes(row, state=row.state * signs, tangent=row.tangent * full, jacobian=row.jacobian * both)
        for row in branch.rows
    )
    events = tuple(with_changes(e, states=tuple(state * signs for state in e.states)) for e in branch.events)
    return with_changes(branch, nodes=nodes, rows=rows, events=events)


# ---- events in a second parameter


class Extended:
    """States, first and second parameter: x = F(x) for every state, and the equation of an event."""

    def __init__(
        self, transition: Transition, parameter: str, interval: tuple[float, float], accuracy: float, tol: float
    ):
        self.theory, self.event, self.accuracy = transition.theory, transition.event, accuracy
        self.first, self.second, self.interval = transition.parameter_name, parameter, interval
        self.unit = abs(transition.parameter) or 1.0
        p = transition.parameter
        self.curves = [
            Curve(self.theory, self.first, (p - self.unit, p + self.unit), state, accuracy, tol)
            for state in transition.states
        ]
        sizes = [curve.active.size for curve in self.curves]
        self.parts = [slice(a, a + n) for a, n in zip(np.cumsum([0, *sizes[:-1]]).tolist(), sizes, strict=True)]
        last = sum(sizes) + 1
        self.walls = (
            Wall(last, interval[0], 1, f"reached {parameter} = {interval[0]:g}, the end of the interval"),
            Wall(last, interval[1], -1, f"reached {parameter} = {interval[1]:g}, the end of the interval"),
            *(
                Wall(part.start + wall.coordinate, 0.0, 0, f"a state merges with another branch: {wall.sentence}")
                for curve, part in zip(self.curves, self.parts, strict=True)
                for wall in curve.walls[2:]
            ),
        )

    @property
    def count(self) -> int:
        """Evaluations of F."""
        return sum(curve.count for curve in self.curves)

    def at(self, y: Array) -> Theory:
        """The theory at a point; ValueError where it has none."""
        changed: Theory = replace(self.theory, **{self.first: float(y[-2]), self.second: float(y[-1])})
        return changed

    def states(self, y: Array) -> tuple[Array, ...]:
        """The states of a point."""
        return tuple(c.state(np.append(y[part], y[-2])) for c, part in zip(self.curves, self.parts, strict=True))

    def scale(self, y: Array) -> Array:
        sizes = [self.theory.scale(s)[c.active] for s, c in zip(self.states(y), self.curves, strict=True)]
        return np.concatenate([*sizes, [self.unit, self.interval[1] - self.interval[0]]])

    def residual(self, y: Array) -> Array:
        return self._residual(y, None, None)[0]

    def _residual(
        self, y: Array, known: tuple[Array, list[Row]] | None, changed: int | None
    ) -> tuple[Array, list[Row]]:
        """Equations and rows; what is known of a point that differs only in state number `changed` is kept."""
        result = np.full(y.size - 1, np.nan)
        try:
            theory = self.at(y)
        except ValueError:
            return result, []
        rows = []
        for k, (curve, part, state) in enumerate(zip(self.curves, self.parts, self.states(y), strict=True)):
            if known is not None and changed is not None and k != changed:
                result[part] = known[0][part]
                rows.append(known[1][k])
                continue
            result[part] = curve.equations(theory, state, curve.rule)[0]
            if not np.all(np.isfinite(result[part])):
                return result, []
            rows.append(curve.point(theory, state))
        curve = self.curves[0]
        result[-1] = self.event.equation(lambda x: curve.image(theory, x, curve.rule), *rows)
        return result, rows

    def linearise(self, y: Array, wide: float = 1.0) -> tuple[Array, Array]:
        scale = self.scale(y)
        known = self._residual(y, None, None)
        width = wide * self.curves[0].width
        slopes = np.empty((y.size - 1, y.size))
        for j in range(y.size):
            middle = sum(self.interval) / 2 if j == y.size - 1 else 0.0
            h = -width if y[j] > middle else width
            shifted = y.copy()
            shifted[j] += h * scale[j]
            changed = next((k for k, part in enumerate(self.parts) if part.start <= j < part.stop), None)
            slopes[:, j] = (self._residual(shifted, known, changed)[0] - known[0]) / h
        return slopes, np.empty(0)


@dataclass(frozen=True)
class Line:
    """An event followed in a second parameter.

    Attributes
    ----------
    name : str
        Of the event.
    theory : Theory
    critical_name, parameter_name : str
        First parameter, whose critical value is a function of the second; ``line["alpha"]`` reads the column of either.
    states : tuple of (k, n) arrays
        The state, or those on both sides.
    nodes : tuple of Node
    ends : (str, str)
        Why the line stops at its first and last row.
    transitions : tuple of Transition
        The rows one by one.
    evaluations : int
        Evaluations of F.
    """

    name: str
    theory: Theory
    critical_name: str
    parameter_name: str
    states: tuple[Array, ...]
    nodes: tuple[Node, ...]
    ends: tuple[str, str]
    transitions: tuple[Transition, ...]
    evaluations: int

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def parameter(self) -> Array:
        """(k,) values of the second parameter."""
        return np.array([node.y[-1] for node in self.nodes])

    @cached_property
    def critical(self) -> Array:
        """(k,) critical values of the first parameter."""
        return np.array([node.y[-2] for node in self.nodes])

    @cached_property
    def residual(self) -> Array:
        """(k,) residual of all equations, the event's included."""
        return np.array([node.residual for node in self.nodes])

    def at(self, value: float) -> tuple[Transition, ...]:
        """The rows at a value of the second parameter that was asked for with ``at=``."""
        return tuple(t for t, p in zip(self.transitions, self.parameter, strict=True) if p == value)

    def __getitem__(self, name: str) -> Array:
        if name not in (self.critical_name, self.parameter_name):
            raise KeyError(f"{name!r} is not {self.critical_name!r} or {self.parameter_name!r}")
        return self.critical if name == self.critical_name else self.parameter

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.critical_name} from {self.critical[0]:.6g} to {self.critical[-1]:.6g}, "
            f"{len(self)} rows, {self.evaluations} evaluations\n"
            f"  first row at {self.parameter_name} = {self.parameter[0]:.6g}: {self.ends[0]}\n"
            f"  last row at {self.parameter_name} = {self.parameter[-1]:.6g}: {self.ends[1]}"
        )

    __repr__ = __str__


def critical_line(
    transition: Transition,
    parameter: str,
    interval: tuple[float, float],
    *,
    at: Sequence[float] = (),
    tol: float = 1e-8,
    accuracy: float | None = None,
    maximum_step: float = 0.3,
    max_rows: int = 200,
) -> Line:
    """Follow an event in a second parameter, in both directions from where it was located.

    Parameters
    ----------
    transition : Transition
        Located by :func:`.trace`, :func:`.locate` or :func:`coexistence`.
    parameter : str
        The second parameter.
    interval : (low, high)
        Where it may go; the transition's own value must lie inside.
    at : sequence of float
        Values at which rows are wanted exactly.
    tol, accuracy, maximum_step, max_rows
        As for :func:`.trace`.

    Returns
    -------
    Line
        It ends at the ends of the interval or where a state merges with the branch it was born from.

    Raises
    ------
    ValueError, TypeError
        For a parameter, interval or transition that does not fit.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> model = sa.PositionalSemantic(alpha=1.0, omega=0.3)
    >>> birth = sa.trace(model, "alpha", (0.6, 1.0), start="semantic").events[-1]
    >>> line = sa.critical_line(birth, "omega", (0.2, 0.3), at=[0.2])
    >>> print(birth.name, f"{line['alpha'][0]:.3f}")
    symmetry breaking in theta 0.620
    """
    if transition.event is None:
        raise ValueError(f"transition {transition.name!r} was read from a file: locate it again to follow it")
    theory, first = transition.theory, transition.parameter_name
    low, high = checked(theory, parameter, interval, at)
    if parameter == first:
        raise ValueError(f"parameter={parameter!r} is the one in which the transition was located; choose another")
    own = float(getattr(theory, parameter))
    if not low <= own <= high:
        raise ValueError(f"interval={interval!r} does not hold the transition, which is at {parameter}={own:g}")
    system = Extended(transition, parameter, (low, high), accuracy_of(theory, accuracy), tol)
    parts = [s[c.active] for s, c in zip(transition.states, system.curves, strict=True)]
    y = np.concatenate([*parts, [transition.parameter, own]])
    found = land(system, y, y.size - 1, own, system.linearise(y)[0], system.scale(y), tol)
    if found is None:
        raise ConvergenceError(f"{transition.name}: its equations do not hold at the transition to tol {tol}")
    forward = np.zeros(y.size)
    forward[-1] = 1.0
    start = node_at(system, *found, forward, 0.05, 0.0)
    both = (start._replace(tangent=-start.tangent), start)
    nodes, ends = joined(system, [walk(system, [node], tol, maximum_step, max_rows) for node in both])
    nodes = at_values(system, nodes, at, tol)
    rows = tuple(_transition(system, transition, node) for node in nodes)
    columns = tuple(np.array([row.states[k] for row in rows]) for k in range(len(transition.states)))
    return Line(transition.name, theory, first, parameter, columns, tuple(nodes), ends, rows, system.count)


def _transition(system: Extended, like: Transition, node: Node) -> Transition:
    """A row of a line as the transition it is."""
    return Transition(
        name=like.name,
        theory=system.at(node.y),
        parameter_name=like.parameter_name,
        parameter=float(node.y[-2]),
        states=system.states(node.y),
        residual=node.residual,
        state_residual=node.residual,
        event=like.event,
    )
