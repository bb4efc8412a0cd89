"""The contract between physics and numerics: what a solver needs to know of a model.

A *theory* is a frozen dataclass of parameters whose state equations are a fixed point x = F(x) of a vector of order
parameters, and whose potential (training loss, action) is stationary exactly there. Whatever solves, continues,
sweeps, stores or plots knows only this contract.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "ConvergenceError", "Solution", "Status", "Theory", "accuracy_of", "parameters_of", "replace"]

Array = npt.NDArray[np.float64]


@runtime_checkable
class Theory(Protocol):
    """Parameters of a model, with its order-parameter equations.

    States are vectors, one entry per name in `order_parameters`. A `rule` says how integrals are evaluated; it is
    opaque to solvers, which take it from :meth:`rules`.
    """

    name: ClassVar[str]
    #: Name of the quadrature rule, as :meth:`under` takes it; empty for the default.
    rule_name: ClassVar[str]
    #: The parameter transitions are usually drawn against.
    control: ClassVar[str]

    # Read-only properties, so that they may depend on the parameters (an ensemble, a boundary) or belong to the class.
    @property
    def order_parameters(self) -> tuple[str, ...]:
        """Names of the entries of a state."""
        ...

    @property
    def starts(self) -> tuple[str, ...]:
        """Named starts; each is the name of the branch it aims at."""
        ...

    @property
    def broken(self) -> Mapping[str, str]:
        """Order parameter whose sign symmetry a branch breaks, for the branches that do."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the solver that differ from its defaults (for named rules that come with an iteration)."""
        ...

    @property
    def symmetries(self) -> Array:
        """(k, n) array of signs: F(s * x) = s * F(x) for every row s."""
        ...

    def flat_directions(self, state: Array) -> Array:
        """(k, n) directions in which a continuous symmetry moves the state into equivalent ones; (0, n) without one."""
        ...

    def odd_slope(self, state: Array, rule: Any, group: list[int]) -> Array | None:
        """F' on a group of order parameters that break a symmetry of the state, if known without differences of F."""
        ...

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        """Quadrature rules, from the one meant for a relative `accuracy` to the finest; (None,) if all is exact."""
        ...

    def replicates(self, rule: Any) -> tuple[Any, ...]:
        """Independent rules of which a random `rule` is the mean, whose spread is its error; empty for a fixed one."""
        ...

    def under(self, rule: str, **options: Any) -> Theory:
        """The same equations under another, named rule (an independent check); ValueError lists the names."""
        ...

    def update(self, state: Array, rule: Any) -> Array:
        """F(state), not a number where the state is infeasible."""
        ...

    def potential(self, state: Array, rule: Any) -> float:
        """A function of the state alone, stationary exactly at the fixed points of `update`."""
        ...

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        """Named numbers of a state; the first is the potential, under the name it has in the field."""
        ...

    def infeasibility(self, state: Array) -> str:
        """Why the state cannot be one of the model (a negative variance, ...); empty if it can."""
        ...

    def scale(self, state: Array) -> Array:
        """Natural size of each order parameter, positive: errors and residuals are given in its units."""
        ...

    def initial(self, start: str) -> Array:
        """Where to begin for a named start."""
        ...

    def branch(self, state: Array) -> str:
        """Name of the branch the state belongs to."""
        ...


class ConvergenceError(RuntimeError):
    """A solution was required but not found; the message is the status sentence."""


@dataclass(frozen=True)
class Status:
    """How a computation ended: a `kind` to test, a `sentence` to read."""

    kind: str
    sentence: str

    #: Every kind there is.
    KINDS: ClassVar[tuple[str, ...]] = (
        "converged",
        "iteration limit",
        "stalled",
        "infeasible",
        "absent",
        "other branch",
        "accuracy not met",
    )

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise ValueError(f"kind={self.kind!r} is not one of {', '.join(self.KINDS)}")

    def __str__(self) -> str:
        return self.sentence


class Named:
    """What has a theory, a state and observables, read by name: ``solution["q"]``, ``solution.train_loss``."""

    theory: Theory
    state: Array

    if TYPE_CHECKING:  # a field of one, computed on use by the other

        @property
        def observables(self) -> dict[str, float]: ...

    def __getitem__(self, name: str) -> float:
        """An order parameter or observable by name."""
        names = self.theory.order_parameters
        if name in names:
            return float(self.state[names.index(name)])
        if name in self.observables:
            return self.observables[name]
        raise KeyError(f"{self.theory.name} has no {name!r}; it has {', '.join((*names, *self.observables))}")

    def __getattr__(self, name: str) -> float:
        if not name.startswith("_"):
            observables = self.observables
            if name in observables:
                return observables[name]
            raise AttributeError(
                f"a {type(self).__name__.lower()} has no {name!r}; its observables are {', '.join(observables)}"
            )
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.observables]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Solution(Named):
    """A state, its certificate and how it was obtained. Arrays hold the last finite state whatever the status.

    Attributes
    ----------
    theory : Theory
        The model solved.
    state : (n,) array
        Order parameters, in the order of ``theory.order_parameters``; ``solution["q"]`` reads one.
    residual : float
        max |F(x) - x| / scale, undamped, recomputed at `state`.
    tol : float
        Bound that the residual had to meet.
    errors : (n,) array
        Estimated absolute error of each order parameter: quadrature (difference to the next finer rule, carried to
        the state by the inverse of 1 - F') plus residual.
    quadrature_error : float
        The quadrature part, relative to the scale, largest entry; nan where it was not estimated.
    accuracy : float
        What the quadrature error had to meet.
    status : Status
    start, branch, method : str
        Start asked for, branch reached, iteration used.
    evaluations : int
        Evaluations of F, all included.
    history : (k,) array
        Undamped residual at each step of the last iteration.
    observables : dict
        Numbers of the state; also attributes: ``solution.train_loss``.
    """

    theory: Theory
    state: Array
    residual: float
    tol: float
    errors: Array
    quadrature_error: float
    accuracy: float
    status: Status
    start: str
    branch: str
    method: str
    evaluations: int
    history: Array
    observables: dict[str, float]

    @property
    def converged(self) -> bool:
        """Whether the state is the one asked for, to tolerance and accuracy."""
        return self.status.kind == "converged"

    def require(self) -> Self:
        """The solution itself, or ConvergenceError with the status sentence."""
        if not self.converged:
            raise ConvergenceError(f"{self.theory.name}, start {self.start!r}: {self.status}")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and strings (NaN as None), ready for JSON."""
        names = self.theory.order_parameters
        return {
            "theory": self.theory.name,
            "parameters": parameters_of(self.theory),
            "rule": self.theory.rule_name,
            "start": self.start,
            "branch": self.branch,
            "order_parameters": {n: _plain(x) for n, x in zip(names, self.state, strict=True)},
            "errors": {n: _plain(x) for n, x in zip(names, self.errors, strict=True)},
            "observables": {n: _plain(x) for n, x in self.observables.items()},
            "residual": _plain(self.residual),
            "tol": _plain(self.tol),
            "quadrature_error": _plain(self.quadrature_error),
            "accuracy": _plain(self.accuracy),
            "converged": self.converged,
            "status": {"kind": self.status.kind, "sentence": self.status.sentence},
            "method": self.method,
            "evaluations": self.evaluations,
        }

    def __str__(self) -> str:
        lines = [f"{self.theory}", f"start {self.start}, branch {self.branch}: {self.status}"]
        lines += [
            f"  {name:>8} = {value:.10g} +- {error:.1g}"
            for name, value, error in zip(self.theory.order_parameters, self.state, self.errors, strict=True)
        ]
        lines += [f"  {name:>16} = {value:.10g}" for name, value in self.observables.items()]
        return "\n".join(lines)

    __repr__ = __str__


def _plain(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def parameters_of(theory: Theory) -> dict[str, Any]:
    """Parameters of a theory as JSON-ready values."""
    assert dataclasses.is_dataclass(theory)
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(theory)))
    return values


def accuracy_of(theory: Theory, given: float | None) -> float:
    """The accuracy asked for, or else the one that the theory sets, or 1e-5."""
    return float(theory.settings.get("accuracy", 1e-5)) if given is None else given


def replace(theory: Theory, **changes: Any) -> Any:
    """The theory with other parameters (validated anew); TypeError names the parameters there are."""
    assert dataclasses.is_dataclass(theory)
    known = [f.name for f in dataclasses.fields(theory)]
    for name in changes:
        if name not in known:
            raise TypeError(f"{name!r} is not a parameter of {theory.name}: {', '.join(known)}")
    return dataclasses.replace(theory, **changes)
