"""The solver: closed forms, exact limits, safeguards, and inputs on which it must say no."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statmech_attn as sa
from statmech_attn.fixed_point import jacobian
from tests.curie_weiss import CurieWeiss, temperature_of


@dataclass(frozen=True)
class Plain(CurieWeiss):
    """Any map of one or more numbers as a theory without symmetry."""

    temperature: float = 1.0
    map: Callable[[np.ndarray], np.ndarray] = field(default=np.cos)
    size: int = 1

    starts = ("only",)
    broken = {}  # noqa: RUF012

    @property
    def order_parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"x{i}" for i in range(self.size))

    @property
    def symmetries(self) -> np.ndarray:  # type: ignore[override]
        return np.zeros((0, self.size))

    def update(self, state: np.ndarray, rule: Any) -> np.ndarray:
        return np.asarray(self.map(state), dtype=float)

    def potential(self, state: np.ndarray, rule: Any) -> float:
        return 0.0

    def scale(self, state: np.ndarray) -> np.ndarray:
        return np.ones(self.size)

    def initial(self, start: str) -> np.ndarray:
        return np.full(self.size, 0.5)

    def branch(self, state: np.ndarray) -> str:
        return "only"


@pytest.mark.parametrize("method", ["anderson", "damped", "newton"])
@given(m=st.floats(0.05, 0.99))
@settings(max_examples=25, deadline=None)
def test_curie_weiss_closed_form(method: str, m: float) -> None:
    solution = sa.solve(CurieWeiss(temperature_of(m)), "ferromagnetic", method=method, max_iterations=10_000)
    assert solution.converged
    # the distance to the solution is the residual divided by 1 - F'
    slope = (1 - m * m) / temperature_of(m)
    assert abs(solution["m"]) == pytest.approx(m, abs=2e-8 / (1 - slope))


def test_absent_branch_is_said_not_returned_as_success() -> None:
    solution = sa.solve(CurieWeiss(1.1), "ferromagnetic")
    assert solution.status.kind == "absent"
    assert "factor 0.909 < 1" in str(solution.status)
    assert not solution.converged
    with pytest.raises(sa.ConvergenceError, match="does not exist"):
        solution.require()


def test_just_below_the_critical_point_the_small_solution_is_found() -> None:
    m = 1e-3
    solution = sa.solve(CurieWeiss(temperature_of(m)), "ferromagnetic", tol=1e-13).require()
    assert abs(solution["m"]) == pytest.approx(m, rel=1e-3)


@pytest.mark.parametrize("damping", [0.0, 0.9, 0.99])
def test_damping_reaches_the_same_state_or_says_that_it_did_not(damping: float) -> None:
    theory = CurieWeiss(temperature_of(0.6))
    tol = 1e-8
    solution = sa.solve(theory, "ferromagnetic", method="damped", damping=damping, tol=tol, max_iterations=10_000)
    assert solution.converged
    assert abs(solution["m"] - 0.6) < 10 * tol
    short = sa.solve(theory, "ferromagnetic", method="damped", damping=0.99, tol=tol, max_iterations=50)
    assert short.status.kind == "iteration limit"
    assert "residual" in str(short.status)


@pytest.mark.parametrize("method", ["anderson", "damped", "newton"])
def test_converged_at_the_last_allowed_step_is_success(method: str) -> None:
    theory = Plain()
    needed = len(sa.solve(theory, {"x0": 0.5}, method=method).history) - 1
    assert needed > 1
    assert sa.solve(theory, {"x0": 0.5}, method=method, max_iterations=needed).converged
    short = sa.solve(theory, {"x0": 0.5}, method=method, max_iterations=needed - 1)
    assert short.status.kind == "iteration limit"
    assert len(short.history) == needed


@pytest.mark.parametrize("method", ["anderson", "damped", "newton"])
def test_a_map_that_stalls_at_no_fixed_point_is_no_success(method: str) -> None:
    # F(x) = x + 1e-6: steps shrink to nothing compared with x, the residual never does
    solution = sa.solve(Plain(map=lambda x: x + 1e-6), "only", method=method)
    assert not solution.converged
    assert solution.residual == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("method", ["anderson", "damped", "newton"])
def test_not_a_number_ends_with_the_last_finite_state(method: str) -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        return np.where(x < 1.0, np.exp(x), np.nan)  # exp has no fixed point

    solution = sa.solve(Plain(map=broken), "only", method=method)
    assert not solution.converged
    assert np.all(np.isfinite(solution.state))
    always = sa.solve(Plain(map=lambda x: np.full_like(x, np.nan)), "only", method=method)
    assert always.status.kind == "infeasible"
    assert always["x0"] == 0.5
    assert math.isinf(always.residual)


def test_large_negative_eigenvalue() -> None:
    # F' = -4, as on the positional branch: plain iteration explodes, Anderson is exact after one difference
    theory = Plain(map=lambda x: 1.0 - 4.0 * x)
    assert sa.solve(theory, "only").require()["x0"] == pytest.approx(0.2, abs=1e-8)
    assert not sa.solve(theory, "only", method="damped", damping=0.3, max_iterations=100).converged
    assert sa.solve(theory, "only", method="damped", damping=0.7).converged


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_anderson_solves_linear_maps_in_as_many_steps_as_dimensions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 6))
    matrix = rng.normal(size=(size, size)) * 2
    if np.linalg.cond(np.eye(size) - matrix) > 1e3:
        return
    target = rng.uniform(0.3, 0.7, size)
    theory = Plain(map=lambda x: target + matrix @ (x - target), size=size)
    solution = sa.solve(theory, "only").require()
    np.testing.assert_allclose(solution.state, target, atol=1e-4)
    assert len(solution.history) <= 4 * size + 6


def test_supplied_jacobian() -> None:
    solution = sa.solve(Plain(), "only", method="newton", jacobian=lambda x: np.diag(-np.sin(x)), tol=1e-14)
    assert solution.require()["x0"] == pytest.approx(0.7390851332151607, abs=1e-14)


def test_jacobian_of_curie_weiss() -> None:
    theory = CurieWeiss(temperature_of(0.6))
    slope = jacobian(lambda x: theory.update(x, None), np.array([0.6]), theory)
    assert slope[0, 0] == pytest.approx((1 - 0.36) / theory.temperature, rel=1e-6)
    at_zero = np.zeros(1)
    assert jacobian(lambda x: theory.update(x, None), at_zero, theory)[0, 0] == 0, "left out by symmetry"
    full = jacobian(lambda x: theory.update(x, None), at_zero, theory, symmetric=False)
    assert full[0, 0] == pytest.approx(1 / theory.temperature, rel=1e-6)


def test_callback_and_history() -> None:
    seen: list[float] = []
    solution = sa.solve(Plain(), {"x0": 0.5}, callback=lambda step, state, residual: seen.append(residual))
    np.testing.assert_array_equal(seen, solution.history)
    assert solution.history[-1] == solution.residual


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tol": 0.0}, "tol=0.0 must be positive"),
        ({"tol": math.nan}, "tol=nan must be positive"),
        ({"accuracy": -1.0}, "accuracy=-1.0 must be positive"),
        ({"damping": 1.0}, r"damping=1.0 must lie in \[0, 1\)"),
        ({"method": "magic"}, "method='magic' is not one of anderson, damped, newton"),
        ({"max_iterations": 1.5}, "max_iterations=1.5 must be an integer"),
        ({"start": {"x1": 1.0}}, "must give a value for each of x0"),
        ({"start": {"x0": math.nan}}, "start is infeasible: m=nan is not finite"),
        ({"rule": "none"}, "rule='none'"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sa.solve(Plain(), **arguments)


def test_solution_reads_like_a_result() -> None:
    solution = sa.solve(CurieWeiss(temperature_of(0.6)), "ferromagnetic")
    assert solution.free_energy == solution.observables["free_energy"]
    assert "free_energy" in dir(solution)
    with pytest.raises(AttributeError, match="observables are free_energy"):
        _ = solution.test_error
    assert solution["free_energy"] == solution.free_energy
    with pytest.raises(KeyError, match="has no 'theta'; it has m, free_energy"):
        _ = solution["theta"]
    assert "converged: residual" in str(solution)


def test_status_kinds_are_closed() -> None:
    with pytest.raises(ValueError, match="kind='fine' is not one of"):
        sa.Status("fine", "")
