"""What every theory must satisfy; a theory that is registered is tested unasked."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.registry import THEORIES, theory_class
from statmech_attn.theory import Status, Theory
from tests.curie_weiss import CurieWeiss, temperature_of

#: Parameters at which every named start has its branch.
EXAMPLES: dict[str, dict[str, Any]] = {
    # two kinds of directions, tokens of different covariance, a teacher that is not centred, and nothing jumps
    "attention-layer": {
        "alpha": 6.0,
        "spectrum": {
            "weights": [0.5, 0.5],
            "variances": [[0.1, 0.4], [0.4, 0.2]],
            "positions": [[1.4, -0.6], [0.4, -1.2]],
            "teacher_mean": [[0.3], [-0.2]],
            "teacher_covariance": [[[1.5]], [[0.8]]],
        },
        "positional_target": [[0.7, 0.3], [0.2, 0.8]],
        "omega": 0.3,
        "regularization": 0.05,
    },
    "copy-head": {
        "context_length": 24,
        "vocabulary_size": 8,
        "samples": 1320,
        "noise": 4.0,
        "value_variance": 0.25,
    },
    "curie-weiss": {"temperature": temperature_of(0.6)},
    "positional-semantic": {"alpha": 1.3, "omega": 0.3},
}


def example(name: str) -> Any:
    cls = CurieWeiss if name == "curie-weiss" else theory_class(name)
    return cls(**EXAMPLES[name])  # type: ignore[call-arg]


@pytest.fixture(params=[*THEORIES, "curie-weiss"])
def theory(request: pytest.FixtureRequest) -> Any:
    return example(request.param)


@pytest.fixture(params=[(n, s) for n in [*THEORIES, "curie-weiss"] for s in example(n).starts], ids="-".join)
def solution(request: pytest.FixtureRequest) -> sa.Solution:
    name, start = request.param
    return sa.solve(example(name), start)


def states(theory: Theory) -> list[np.ndarray]:
    """Feasible states: the initial ones, and others around them."""
    rng = np.random.default_rng(0)
    found = []
    for start in theory.starts:
        x = theory.initial(start)
        found += [x, x * rng.uniform(0.8, 1.2, x.size), np.where(x == 0, 0.1 * theory.scale(x), x)]
    return [x for x in found if not theory.infeasibility(x)]


def test_meets_the_protocol(theory: Any) -> None:
    assert isinstance(theory, Theory)
    assert dataclasses.is_dataclass(theory)
    with pytest.raises(dataclasses.FrozenInstanceError):
        theory.name = "other"
    assert set(theory.broken) <= set(theory.starts)
    assert set(theory.broken.values()) <= set(theory.order_parameters)


def test_starts_are_feasible_and_updates_finite_and_feasible(theory: Any) -> None:
    rule = theory.rules(1e-4)[0]
    for x in states(theory):
        image = theory.update(x, rule)
        assert image.shape == x.shape
        assert np.all(np.isfinite(image))
        assert np.all(theory.scale(x) > 0)
    assert all(not theory.infeasibility(theory.initial(start)) for start in theory.starts)


def test_infeasible_states_update_to_nan(theory: Any) -> None:
    x = np.full(len(theory.order_parameters), np.nan)
    assert theory.infeasibility(x)
    assert np.all(np.isnan(theory.update(x, theory.rules(1e-4)[0])))


def test_symmetries(theory: Any) -> None:
    rule = theory.rules(1e-5)[0]
    for sign in theory.symmetries:
        for x in states(theory):
            np.testing.assert_allclose(
                theory.update(sign * x, rule) / theory.scale(x),
                sign * theory.update(x, rule) / theory.scale(x),
                atol=1e-6,
            )
            assert theory.potential(sign * x, rule) == pytest.approx(theory.potential(x, rule), rel=1e-6)


def test_named_starts_reach_their_branch(solution: sa.Solution) -> None:
    assert isinstance(solution.status, Status)
    assert solution.converged, str(solution.status)
    assert solution.branch == solution.start


def test_certificate_is_the_residual_of_the_state(solution: sa.Solution) -> None:
    theory = solution.theory
    images = [theory.update(solution.state, rule) for rule in theory.rules(solution.accuracy)]
    residuals = [np.max(np.abs(image - solution.state) / theory.scale(solution.state)) for image in images]
    assert solution.residual in residuals
    assert solution.residual <= solution.tol


def test_first_observable_is_the_potential(solution: sa.Solution) -> None:
    potentials = [solution.theory.potential(solution.state, rule) for rule in solution.theory.rules(solution.accuracy)]
    assert next(iter(solution.observables.values())) in potentials


def gradient(theory: Any, x: np.ndarray, rule: Any) -> np.ndarray:
    """Scaled gradient of the potential, by central differences."""
    scale = theory.scale(x)
    slopes = []
    for j in range(x.size):
        shift = np.zeros(x.size)
        shift[j] = 1e-3 * scale[j]
        slopes.append((theory.potential(x + shift, rule) - theory.potential(x - shift, rule)) / 2e-3)
    return np.array(slopes)


def test_potential_is_stationary_exactly_where_the_residual_vanishes(solution: sa.Solution) -> None:
    theory: Any = solution.theory
    if solution.accuracy > 1e-5:  # the gradient at the state shows its error
        solution = sa.solve(theory, solution, accuracy=1e-5, tol=1e-8)
    rule = theory.rules(1e-6)[0]
    size = abs(theory.potential(solution.state, rule))
    assert np.max(np.abs(gradient(theory, solution.state, rule))) < 2e-5 * size
    away = solution.state * 1.1
    away = np.where(away == 0, 0.1 * theory.scale(away), away)
    assert np.max(np.abs(gradient(theory, away, rule))) > 1e-3 * size


def test_state_round_trips_through_a_mapping(solution: sa.Solution) -> None:
    names = solution.theory.order_parameters
    again = sa.solve(solution.theory, {name: solution[name] for name in names}, tol=solution.tol)
    assert again.start == "given"
    assert again.converged
    # the first rule tried may be coarser than the one the solution needed
    assert again.history[0] < max(1e-4, 10 * solution.accuracy)
    assert np.all(np.abs(again.state - solution.state) <= 2 * (again.errors + solution.errors))


def test_bad_parameters_are_refused(theory: Any) -> None:
    numbers = [f.name for f in dataclasses.fields(theory) if isinstance(getattr(theory, f.name), float)]
    assert numbers
    for name in numbers:
        for value in (np.nan, np.inf):
            with pytest.raises(ValueError, match=name):
                sa.replace(theory, **{name: value})


def test_unknown_rule_and_start_are_refused(theory: Any) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        theory.under("nonsense")
    with pytest.raises(ValueError, match=f"not one of {theory.starts[0]}"):
        sa.solve(theory, "nonsense")
    with pytest.raises(TypeError, match="not a parameter"):
        sa.replace(theory, nonsense=1.0)


SECOND_PROCESS = """
import sys
import statmech_attn as sa
from statmech_attn.registry import theory_class
theory = theory_class({name!r})(**{parameters!r})
for start in theory.starts:
    sa.solve(theory, start, accuracy=1e-4)
missed = {{
    f"{{module}}.{{name}}": dict(value.stats.cache_misses)
    for module in list(sys.modules) if module.startswith("statmech_attn")
    for name, value in vars(sys.modules[module]).items()
    if hasattr(value, "stats") and sum(value.stats.cache_misses.values())
}}
sys.exit(f"compiled again: {{missed}}" if missed else 0)
"""


@pytest.mark.parametrize("name", THEORIES)
def test_a_second_process_compiles_nothing(name: str) -> None:
    for start in example(name).starts:
        sa.solve(example(name), start, accuracy=1e-4)
    code = SECOND_PROCESS.format(name=name, parameters=EXAMPLES[name])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
