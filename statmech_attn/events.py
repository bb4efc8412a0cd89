r"""Special points of a branch: what is looked for, and what was found.

An event is the zero of a function of a point, g(theory, state) = 0, beside x = F(x):

* :class:`Fold`: det(1 - F') = 0 among the order parameters that keep the symmetries of the state; the branch turns
  back (a spinodal).
* :class:`SymmetryBreaking`: r_i = dF_i/dx_i = 1 for an order parameter that a symmetry of the state keeps at zero. On
  a symmetric branch another branch starts there (pitchfork), and on any branch static stability against x_i changes.
* :class:`Crossing`: a function of the row given by the user.

Each object also says how a row of a branch announces it, so that locating needs no further evaluation to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from statmech_attn.fixed_point import jacobian
from statmech_attn.linear_stability import across, blocks, rate_of
from statmech_attn.theory import Array, Theory

if TYPE_CHECKING:
    from statmech_attn.curve import Row

__all__ = ["Crossing", "Event", "Fold", "SymmetryBreaking", "Transition"]


class Event(Protocol):
    """What a branch can be searched for."""

    @property
    def name(self) -> str:
        """How the located event is called."""
        ...

    def sign(self, row: Row) -> float:
        """Changes sign between two rows that enclose the event; nan where it has no meaning."""
        ...

    def equation(self, F: Callable[[Array], Array], row: Row) -> float:
        """The function whose zero is the event; F is the update at the row's parameter."""
        ...


@dataclass(frozen=True)
class Fold:
    """The branch turns back in its parameter."""

    name: str = "fold"

    def sign(self, row: Row) -> float:
        """Direction in which the parameter changes; nan where it stands still by symmetry, as at a pitchfork."""
        still = abs(row.tangent[-1]) <= 1e-12 * np.max(np.abs(row.tangent))
        return np.nan if still else float(row.tangent[-1])

    def equation(self, F: Callable[[Array], Array], row: Row) -> float:
        """det(1 - F') among the order parameters that keep the symmetries of the state."""
        theory, state = row.theory, row.state
        active = blocks(theory, state)[0]
        slope = jacobian(F, state, theory)[np.ix_(active, active)]
        return float(np.linalg.det(np.eye(len(active)) - slope))


@dataclass(frozen=True)
class SymmetryBreaking:
    """Static stability against an order parameter that a symmetry keeps at zero changes: r_i = 1."""

    order_parameter: str

    @property
    def name(self) -> str:
        """symmetry breaking in the order parameter"""
        return f"symmetry breaking in {self.order_parameter}"

    def group(self, theory: Theory, state: Array) -> list[int]:
        """The order parameters that break the symmetry together; empty if the state itself breaks it."""
        if self.order_parameter not in theory.order_parameters:
            raise ValueError(
                f"order_parameter={self.order_parameter!r} is not one of {', '.join(theory.order_parameters)}"
            )
        i = theory.order_parameters.index(self.order_parameter)
        return next((group for group in blocks(theory, state)[1].values() if i in group), [])

    def sign(self, row: Row) -> float:
        """-det(1 - F') on the group."""
        group = self.group(row.theory, row.state)
        if not group:
            return np.nan
        slope = across(row.theory, row.state, row.jacobian[np.ix_(group, group)], group)
        return -float(np.linalg.det(np.eye(len(slope)) - slope))

    def equation(self, F: Callable[[Array], Array], row: Row) -> float:
        """r_i - 1."""
        return rate_of(F, row.theory, row.state, row.rule, self.group(row.theory, row.state)) - 1


@dataclass(frozen=True)
class Crossing:
    """A function of a row crosses zero.

    Examples
    --------
    >>> Crossing(lambda row: row.test_error - row.linear_baseline, "linear baseline").name
    'linear baseline'
    """

    function: Callable[[Any], float]
    name: str = "crossing"

    def sign(self, row: Row) -> float:
        """The function."""
        return float(self.function(row))

    def equation(self, F: Callable[[Array], Array], row: Row) -> float:
        """The function."""
        return float(self.function(row))


@dataclass(frozen=True)
class Transition:
    """An event that was located.

    Attributes
    ----------
    name : str
        Of the event.
    theory : Theory
        With the critical value of the parameter.
    parameter_name, parameter : str, float
        Which parameter, and its critical value.
    states : tuple of (n,) arrays
        One, or one on each side (equal potentials).
    residual : float
        Of the equation that defines the event, at the states returned.
    state_residual : float
        Largest max |F(x) - x| / scale of the states.
    event : Event or None
        What was looked for; None for one that was read from a file.
    evaluations : int
        Evaluations of F spent on locating.
    """

    name: str
    theory: Theory
    parameter_name: str
    parameter: float
    states: tuple[Array, ...]
    residual: float
    state_residual: float
    event: Any
    evaluations: int = 0

    def __str__(self) -> str:
        states = "; ".join(
            ", ".join(f"{n}={x:.6g}" for n, x in zip(self.theory.order_parameters, state, strict=True))
            for state in self.states
        )
        return f"{self.name} at {self.parameter_name} = {self.parameter:.8g} (residual {self.residual:.1e}): {states}"

    def to_dict(self) -> Mapping[str, Any]:
        """Plain numbers and strings."""
        return {
            "name": self.name,
            "parameter_name": self.parameter_name,
            "parameter": self.parameter,
            "states": [state.tolist() for state in self.states],
            "residual": self.residual,
            "state_residual": self.state_residual,
            "evaluations": self.evaluations,
        }
