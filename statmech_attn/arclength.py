r"""Pseudo-arclength continuation of N equations in N + 1 coordinates; knows nothing of theories.

The curve is parametrised by its length in scaled coordinates. A step predicts by the cubic that continues the last two
points and their tangents, and corrects on the plane normal to the tangent (H. B. Keller, 1977) by chord steps with
Broyden updates of the slopes, which are taken afresh at every accepted point. The step length aims at a fixed distance
between prediction and correction. All of it depends on the last two points only, so that a walk can be taken up again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from statmech_attn.theory import Array

__all__ = [
    "Node",
    "System",
    "Wall",
    "at_values",
    "cubic",
    "joined",
    "land",
    "node_at",
    "packed",
    "unpacked",
    "walk",
    "zero_between",
]

log = logging.getLogger(__name__)

#: Distance between predicted and corrected point that the step length aims at.
TARGET = 3e-3
SMALLEST_STEP = 1e-6
#: How much wider differences are taken where no step succeeds.
WIDER = 10.0


class Wall(NamedTuple):
    """A coordinate that must stay on its side of a value: a walk that would cross lands there and ends."""

    coordinate: int
    value: float
    #: +1 above, -1 below, 0 where the walk begins.
    side: int
    #: Why the walk ends there.
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

    def linearise(self, y: Array, wide: float = 1.0) -> tuple[Array, Array]:
        """(N, N + 1) derivatives of the residual in scaled coordinates, and whatever else is to be kept of them.

        By differences, `wide` times as wide as usual.
        """
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


def correct(
    system: System, guess: Array, normal: Array, slopes: Array, scale: Array, tol: float, limit: int = 7
) -> tuple[Array, float] | None:
    """The point of the curve on the plane through `guess` with a normal, and its residual; None if not found."""
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


def land(
    system: System, guess: Array, index: int, value: float, slopes: Array, scale: Array, tol: float
) -> tuple[Array, float] | None:
    """The point of the curve near `guess` where one coordinate has exactly a value."""
    guess = guess.copy()
    guess[index] = value
    normal = np.zeros(guess.size)
    normal[index] = 1.0
    found = correct(system, guess, normal, slopes, scale, tol)
    if found is not None:
        found[0][index] = value  # the linear solve keeps it to round-off
    return found


def node_at(
    system: System, y: Array, residual: float, along: Array, step: float, length: float, wide: float = 1.0
) -> Node:
    """A point with its slopes, by differences `wide` times as wide, and tangent, oriented along a direction."""
    slopes, detail = system.linearise(y, wide)
    scale = system.scale(y)
    if not np.all(np.isfinite(slopes)):
        raise ArithmeticError(f"the equations have no slopes at {y.tolist()}")
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
        side = wall.side or node.y[wall.coordinate] - wall.value or node.tangent[wall.coordinate]
        if side * (y[wall.coordinate] - wall.value) <= 0:
            return wall
    return None


def advance(system: System, nodes: Sequence[Node], tol: float, maximum_step: float) -> tuple[Node | None, str]:
    """The next node, and the sentence with which the walk ends there (empty if it goes on)."""
    node, end = _advance(system, nodes, tol, maximum_step)
    if node is not None or end:
        return node, end
    last = nodes[-1]
    try:  # slopes that do not see finer features of the equations
        last = node_at(system, last.y, last.residual, last.tangent, max(last.step, 10 * TARGET), last.length, WIDER)
        node, end = _advance(system, [last], tol, maximum_step)
    except ArithmeticError:
        pass
    if node is not None or end:
        return node, end
    return None, f"no step succeeds any more, down to a length of {max(SMALLEST_STEP, tol):g}"


def _advance(system: System, nodes: Sequence[Node], tol: float, maximum_step: float) -> tuple[Node | None, str]:
    """As :func:`advance`, with the slopes that the last node has; nothing where no step succeeds."""
    last = nodes[-1]
    scale = system.scale(last.y)
    unit = last.tangent / scale
    h = min(last.step, maximum_step)
    while h >= max(SMALLEST_STEP, tol):
        wall = crossed(system, last, predict(system, nodes, h))
        if wall is not None and last.y[wall.coordinate] == wall.value:
            return None, wall.sentence
        guess, found, wall = _attempt(system, nodes, h, wall, tol)
        if found is not None:
            y, residual = found
            miss = float(np.linalg.norm((y - guess) / scale))
            way = (y - last.y) / scale
            if miss <= 0.3 * h and unit @ way > 0:
                step = h * min(2.0, max(0.5, (TARGET / max(miss, 1e-12)) ** (1 / 3)))
                try:
                    node = node_at(system, y, residual, last.tangent, step, float(np.linalg.norm(way)))
                except ArithmeticError:
                    node = None
                if node is not None and (wall is not None or node.tangent / system.scale(y) @ unit > 0.6):
                    return node, "" if wall is None else wall.sentence
        h *= 0.5
    return None, ""


def _attempt(
    system: System, nodes: Sequence[Node], h: float, wall: Wall | None, tol: float
) -> tuple[Array, tuple[Array, float] | None, Wall | None]:
    """Prediction and correction of a step of length h, or of the shorter one to the wall that it would cross."""
    last = nodes[-1]
    scale = system.scale(last.y)
    guess = predict(system, nodes, h)
    if wall is None:
        found = correct(system, guess, last.tangent / scale, last.slopes, scale, tol)
        wall = None if found is None else crossed(system, last, found[0])
        if found is None or wall is None:
            return guess, found, None
        guess = found[0]
    else:
        coordinate, value = wall.coordinate, wall.value

        def beyond(s: float) -> float:
            return float(predict(system, nodes, s)[coordinate] - value)

        if beyond(0.0) * beyond(h) < 0:
            guess = predict(system, nodes, brentq(beyond, 0.0, h))
    found = land(system, guess, wall.coordinate, wall.value, last.slopes, scale, tol)
    if found is not None and crossed(system, last, found[0]) not in (None, wall):
        found = None
    return guess, found, wall


def between(system: System, a: Node, b: Node, u: float, tol: float) -> tuple[Array, float] | None:
    """The point of the curve at a fraction u of the way from a to b."""
    scale = system.scale(a.y)
    chord = (b.y - a.y) / scale
    plane = cubic(system, a, b, u), chord / np.linalg.norm(chord), a.slopes, scale
    # sharper than a row where the equations allow it: an event depends on the state
    return correct(system, *plane, 0.01 * tol) or correct(system, *plane, tol)


def zero_between(
    system: System,
    a: Node,
    b: Node,
    function: Callable[[Array], float],
    tol: float,
    within: tuple[float, float] = (0.0, 1.0),
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
        if value(within[0]) * value(within[1]) > 0:
            return None
        u = float(brentq(value, *within, xtol=1e-9, rtol=1e-9))
        value(u)
    except ArithmeticError:
        return None
    return points[u]


def at_values(system: System, nodes: Sequence[Node], values: Sequence[float], tol: float) -> list[Node]:
    """The nodes with further ones wherever the last coordinate takes one of the values."""
    result = [nodes[0]]
    for a, b in pairwise(nodes):
        for u, value, within in _crossings(system, a, b, values):
            found = _landed(system, a, b, u, value, within, tol)
            if found is None:
                log.warning("no row at the requested value %g, near a point where the branch turns", value)
            else:
                result.append(node_at(system, *found, b.y - a.y, a.step, distance(system, result[-1].y, found[0])))
        result.append(b if result[-1] is a else b._replace(length=distance(system, result[-1].y, b.y)))
    return result


def _crossings(
    system: System, a: Node, b: Node, values: Sequence[float]
) -> list[tuple[float, float, tuple[float, float]]]:
    """Where the last coordinate takes a value, in order: fraction of the way, value, fractions around it."""

    def last(u: float) -> float:
        return float(cubic(system, a, b, u)[-1])

    corners = [0.0, 1.0]
    if a.tangent[-1] * b.tangent[-1] < 0:  # a fold in between
        sign = -1.0 if a.tangent[-1] > 0 else 1.0
        corners.insert(1, float(minimize_scalar(lambda u: sign * last(u), bounds=(0.0, 1.0), method="bounded").x))
    found = []
    for start, stop in pairwise(corners):
        first = a.y[-1] if start == 0 else last(start)
        final = b.y[-1] if stop == 1 else last(stop)
        for value in values:
            if (first - value) * (final - value) < 0:
                u = float(brentq(lambda u, v=value: last(u) - v, start, stop))
                found.append((u, value, (start, stop)))
    return sorted(found)


def _landed(
    system: System, a: Node, b: Node, u: float, value: float, within: tuple[float, float], tol: float
) -> tuple[Array, float] | None:
    """The point of the curve near a fraction u of the way from a to b where the last coordinate has a value."""
    last = a.y.size - 1
    found = land(system, cubic(system, a, b, u), last, value, a.slopes, system.scale(a.y), tol)
    if found is None:  # near a fold the parameter is a poor coordinate, and the slopes of a node will not do
        near = zero_between(system, a, b, lambda y: float(y[last] - value), tol, within)
        if near is not None:
            found = land(system, near[0], last, value, system.linearise(near[0])[0], system.scale(near[0]), tol)
    return found


def distance(system: System, a: Array, b: Array) -> float:
    """Scaled distance of two points."""
    return float(np.linalg.norm((b - a) / system.scale(a)))


def walk(
    system: System,
    nodes: list[Node],
    tol: float,
    maximum_step: float,
    max_rows: int,
    keep: Callable[[list[Node], str], object] | None = None,
) -> tuple[list[Node], str]:
    """Walk on from the last node: all nodes, and the sentence with which the walk ends (empty at `max_rows`).

    `keep` is called with both after every step.
    """
    nodes, end = list(nodes), ""
    while not end and len(nodes) < max_rows:
        node, end = advance(system, nodes, tol, maximum_step)
        if node is not None:
            nodes.append(node)
        if keep is not None:
            keep(nodes, end)
    return nodes, end


def joined(system: System, walks: Sequence[tuple[list[Node], str]]) -> tuple[list[Node], tuple[str, str]]:
    """One list from the walks backwards and forwards of the same point, and the two ends."""
    (backward, first), (forward, last) = walks
    nodes = [node._replace(tangent=-node.tangent) for node in backward[::-1]] + forward[1:]
    for k in range(1, len(nodes)):
        nodes[k] = nodes[k]._replace(length=distance(system, nodes[k - 1].y, nodes[k].y))
    nodes[0] = nodes[0]._replace(length=0.0)
    limit = "the limit on the number of rows was reached"
    return nodes, (first or limit, last or limit)


def packed(nodes: Sequence[Node], prefix: str) -> dict[str, Array]:
    """Nodes as arrays."""
    return {prefix + name: np.array([getattr(node, name) for node in nodes]) for name in Node._fields}


def unpacked(arrays: Mapping[str, Array], prefix: str) -> list[Node]:
    """Nodes from arrays."""
    columns = [arrays[prefix + name] for name in Node._fields]
    return [Node(*cells[:4], *map(float, cells[4:])) for cells in zip(*columns, strict=True)]
