r"""Follow a branch of solutions x = F(x; p) in a parameter p, through folds, from pitchfork to pitchfork.

The method is that of :mod:`.arclength`, the equations those of :mod:`.curve`. The slopes taken at every row give its
stability, and its tangent and stability announce the events of :mod:`.events`, which are then located on the curve.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import cached_property
from typing import Any

import numpy as np

from statmech_attn.arclength import (
    SMALLEST_STEP,
    Node,
    at_values,
    joined,
    land,
    node_at,
    packed,
    unpacked,
    walk,
    zero_between,
)
from statmech_attn.curve import Curve, Row
from statmech_attn.events import Event, Fold, SymmetryBreaking, Transition
from statmech_attn.fixed_point import solve
from statmech_attn.linear_stability import Stability, blocks
from statmech_attn.registry import theory_class
from statmech_attn.store import read_archive, write_archive
from statmech_attn.theory import Array, ConvergenceError, Solution, Theory, accuracy_of, parameters_of, replace

__all__ = ["Branch", "load_branch", "locate", "trace"]

log = logging.getLogger(__name__)


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
        Evaluations of F for all of it, slopes, stability, quadrature errors and events included. The potential and the
        observables of a row are computed on use and are not among them.
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
        """(k,) column of an order parameter or observable."""
        return np.array([row[name] for row in self.rows])

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in self.rows[0].observables:
            raise AttributeError(f"a branch has no {name!r}")
        return self[name]

    def curve(self) -> Curve:
        """Its equations."""
        middle = self.rows[len(self.rows) // 2].state
        return Curve(self.theory, self.parameter_name, self.interval, middle, self.accuracy, self.tol)

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
        arrays |= {name: getattr(self, name) for name in ("state", "potential", "quadrature_error")}
        arrays |= packed(self.nodes, "")
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

    __repr__ = __str__


# ---- files


def _save_walks(
    path: str | os.PathLike[str], key: Mapping[str, Any], walks: Sequence[tuple[list[Node], str]], count: int
) -> None:
    header = {"key": key, "ends": [end for _, end in walks], "evaluations": count}
    arrays = {k: v for i, (nodes, _) in enumerate(walks) for k, v in packed(nodes, f"{i}_").items()}
    write_archive(path, "walk", header, arrays)


def _load_walks(path: str | os.PathLike[str], key: Mapping[str, Any]) -> tuple[list[tuple[list[Node], str]], int]:
    header, arrays = read_archive(path, "walk")
    differ = [f"{k}: {header['key'].get(k)!r} there, {v!r} here" for k, v in key.items() if header["key"].get(k) != v]
    if differ:
        raise ValueError(f"checkpoint={str(path)!r} belongs to another walk ({'; '.join(differ)})")
    return [(unpacked(arrays, f"{i}_"), header["ends"][i]) for i in range(2)], header["evaluations"]


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
    nodes = unpacked(arrays, "")
    rows = []
    for k, node in enumerate(nodes):
        state = arrays["state"][k]
        tangent = np.append(np.zeros(state.size), node.tangent[-1])
        tangent[blocks(theory, arrays["state"][len(nodes) // 2])[0]] = node.tangent[:-1]
        here = replace(theory, **{name: float(node.y[-1])})
        error = float(arrays["quadrature_error"][k])
        rule = theory.rules(header["accuracy"])[0]
        row = Row(here, name, state, node.residual, error, node.detail, tangent, rule)
        # what a row computes on use is known already
        vars(row)["potential"] = float(arrays["potential"][k])
        vars(row)["observables"] = {n: float(arrays[f"observable_{n}"][k]) for n in header["observables"]}
        rows.append(row)
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
    accuracy: float | None = None,
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
        its ends and eighths, until its branch is found.
    at : sequence of float
        Values of the parameter at which rows are wanted exactly, wherever the branch passes them.
    events : sequence of Event, optional
        What to locate; default folds and every symmetry breaking.
    tol : float
        Bound on the residual of every row.
    accuracy : float
        Chooses the quadrature rule, whose error is estimated in every row; default 1e-5, or what the theory sets.
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
    0.719 theta vanishes: born at a pitchfork of the branch with theta = 0
    """
    accuracy = accuracy_of(theory, accuracy)
    low, high = checked(theory, parameter, interval, at)
    if not maximum_step > SMALLEST_STEP or max_rows < 1:
        raise ValueError(f"maximum_step={maximum_step!r} and max_rows={max_rows!r} must be positive")
    theory, state, label, count = _started(theory, parameter, (low, high), start, tol, accuracy)
    curve = Curve(theory, parameter, (low, high), state, accuracy, tol)
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
        found = land(curve, y, y.size - 1, y[-1], curve.linearise(y)[0], curve.scale(y), tol)
        if found is None:
            raise ConvergenceError(f"{theory.name}, start {label!r}: the equations do not hold to tol {tol}")
        forward = np.zeros(y.size)
        forward[-1] = 1.0
        first = node_at(curve, *found, forward, min(0.02, maximum_step), 0.0)
        walks = [([first], ""), ([first._replace(tangent=-first.tangent)], "")]

    for k in range(2):
        nodes, end = walks[k]
        if end:
            continue

        def keep(nodes: list[Node], end: str, k: int = k) -> None:
            walks[k] = (nodes, end)
            if callback is not None:
                callback(len(nodes), float(nodes[-1].y[-1]), nodes[-1].y)
            if checkpoint is not None and (len(nodes) % 8 == 0 or end):
                _save_walks(checkpoint, key, walks, curve.count)

        walks[k] = walk(curve, nodes, tol, maximum_step, max_rows, keep)
    if checkpoint is not None:
        _save_walks(checkpoint, key, walks, curve.count)
    return finish(curve, walks[::-1], label, at, events, tol)


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
    branch = Branch(curve.theory, curve.parameter, curve.interval, label, tol, curve.accuracy, tuple(nodes), rows, ends)
    if events is None:
        # of order parameters that break a symmetry together one stands for all
        groups = blocks(curve.theory, rows[len(rows) // 2].state)[1].values()
        others = {i for group in groups for i in group[1:]}
        odd = np.any(curve.theory.symmetries < 0, axis=0)
        names = [n for i, n in enumerate(curve.theory.order_parameters) if odd[i] and i not in others]
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
    0.826
    """
    curve = curve or branch.curve()
    nodes, rows = branch.nodes, branch.rows
    found = []

    def function(y: Array) -> float:
        row = curve.point(curve.at(y[-1]), curve.state(y))
        return event.equation(lambda x: curve.image(row.theory, x, curve.rule), row)

    def transition(y: Array, residual: float, before: int) -> Transition:
        row = curve.point(curve.at(y[-1]), curve.state(y))
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
        if k + 1 == len(nodes) or np.isnan(signs[k] + signs[k + 1]) or (signs[k] > 0) == (signs[k + 1] > 0):
            continue
        for i, j in ((k, k + 1), (max(k - 1, 0), k), (k + 1, min(k + 2, len(nodes) - 1))):
            # slopes and equation differ by the error of the cheap rule: the zero may lie just beyond a row
            point = zero_between(curve, nodes[i], nodes[j], function, branch.tol) if i < j else None
            if point is not None and isinstance(event, Fold) and curve.near_pitchfork(point[0]):
                break  # the parameter stands still there by symmetry
            if point is not None:
                found.append(transition(*point, before))
                break
        else:
            log.warning("%s between rows %d and %d was announced but not located", event.name, k, k + 1)
    return tuple(found)


def checked(theory: Theory, parameter: str, interval: tuple[float, float], at: Sequence[float]) -> tuple[float, float]:
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
        # a branch may live in the middle of the interval only
        spread = [low + (high - low) * k / 8 for k in (8, 0, 4, 2, 6, 1, 3, 5, 7)]
        places = [own, *spread] if low <= own <= high else spread
    elif low <= own <= high:
        places = [own]
    else:
        raise ValueError(f"the start belongs to {parameter}={own:g}, outside the interval [{low:g}, {high:g}]")
    reasons, count = [], 0
    for value in dict.fromkeys(places):
        here = replace(theory, **{parameter: value})
        solution = solve(here, start, tol=tol, accuracy=accuracy)
        count += solution.evaluations
        if solution.status.kind in ("converged", "accuracy not met"):
            label = start if isinstance(start, str) else solution.branch
            return here, solution.state, label, count
        reasons.append(f"at {parameter}={value:g}: {solution.status}")
    raise ConvergenceError(
        f"{theory.name}: the start {start!r} does not converge at any of {len(places)} values of {parameter} in "
        f"[{low:g}, {high:g}]; {reasons[0]}"
    )
