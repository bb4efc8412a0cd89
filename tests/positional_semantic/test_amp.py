"""Message passing: against its state evolution, against minimisers, and where it must fail."""

from __future__ import annotations

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.positional_semantic import simulate, state_evolution
from statmech_attn.positional_semantic.data import instance
from statmech_attn.positional_semantic.gauge import OrderParameters
from statmech_attn.positional_semantic.risk import Risk
from statmech_attn.positional_semantic.training import begin
from tests.positional_semantic.test_layer import A2, A3, HYBRID

MODEL = sa.PositionalSemantic(alpha=2.0, omega=0.3)
RANK_TWO = sa.AttentionLayer(4.0, sa.Spectrum.isotropic(1.0, (1, -1), 2), A2, 0.3, 0.1, 2)


def test_follows_state_evolution_at_every_iteration():
    """Damped, semantic, alpha = 2: mean of 8 instances within 4 standard errors at each of 15 times; ends at theory."""
    runs = [sa.amp(MODEL, 600, "semantic", seed=s, max_iterations=15, evolution=20_000) for s in range(8)]
    for name in ("q", "m", "theta", "V"):
        found = np.array([run.history[name][:, 0].ravel() for run in runs])
        wanted = np.array([run.history[f"evolution_{name}"][:, 0].ravel() for run in runs])
        # each instance has its own start, and its own state evolution from it
        difference = found - wanted
        error = np.maximum(difference.std(axis=0, ddof=1) / np.sqrt(len(runs)), 1e-12)
        assert np.all(np.abs(difference.mean(axis=0)) < 4.5 * error), name
    exact = sa.solve(MODEL, "semantic")
    assert runs[0].history["evolution_theta"][-1, 0, 0, 0] == pytest.approx(exact["theta"], abs=2e-3)
    assert runs[0].history["evolution_V"][-1, 0, 0, 0] == pytest.approx(exact["V"], rel=2e-2)


def test_damped_onsager_term_is_needed():
    """Negative control: the paths of the state evolution without memory, x <- damped F(x), miss the iterates."""
    run = sa.amp(MODEL, 2000, "semantic", max_iterations=3, evolution=20_000)
    q, memory = run.history["q"][:, 0, 0, 0], run.history["evolution_q"][:, 0, 0, 0]
    state = np.array([run.history[name][0].ravel()[0] for name in ("q", "m", "theta", "V")])
    for _ in range(2):
        state = 0.5 * state + 0.5 * MODEL.update(state, MODEL.rules(1e-4)[0])
    assert abs(q[2] - memory[2]) < 0.01 * q[2]
    assert abs(q[2] - state[0]) > 0.05 * q[2]


def test_ends_at_a_minimum_of_the_risk_and_at_theory():
    """d = 1000: theta within .002 of theory; a stationary point of the risk, and L-BFGS from it goes nowhere."""
    run = sa.amp(MODEL, 1000, "semantic")
    assert run.converged, str(run.status)
    assert run.gradient < 1e-6
    theory = sa.solve(MODEL, "semantic")
    assert run.numbers(theory)["theta"] == pytest.approx(theory["theta"], abs=2e-3)
    again = sa.train(MODEL, 1000, "lbfgs", run.weights, gram="limit")
    assert again.train_loss == pytest.approx(run.train_loss, rel=1e-6)


def test_undamped_steps_of_rank_two_are_those_of_the_state_equations():
    """Ranks two, undamped: the state evolution is x <- F(x); message passing follows it within its error."""
    data = [instance(RANK_TWO, 500, seed, gram="limit") for seed in range(6)]
    first = begin(data[0], "semantic")
    beside = state_evolution(data[0], first, 0.0, 4, samples=40_000)
    rule = RANK_TWO.rules(1e-3)[0]
    for now, after in zip(range(3), range(1, 4), strict=True):
        x = OrderParameters(*(value[now] for value in beside))
        image = RANK_TWO._image(RANK_TWO.state_of(x), rule)
        for name in ("q", "theta", "V"):
            wanted, found = getattr(image, name), getattr(beside, name)[after]
            assert np.max(np.abs(found - wanted)) < 0.04 * np.max(np.abs(wanted)), (name, now)
    runs = [sa.amp(RANK_TWO, 500, "semantic", seed=s, damping=0.0, max_iterations=4) for s in range(6)]
    for name in ("q", "theta", "V"):
        found = np.array([np.trace(run.history[name][4, 0]) for run in runs])
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert abs(found.mean() - np.trace(getattr(beside, name)[4, 0])) < 4.5 * error, name


def test_three_tokens_and_two_kinds_of_directions():
    """Converges to the solution: three tokens undamped, and the hybrid of rank two with much damping."""
    layer = sa.AttentionLayer(4.0, sa.Spectrum.isotropic(0.5, (1, 0.2, -0.8)), A3, 0.3, 0.1)
    run = sa.amp(layer, 800, "semantic", damping=0.0)
    assert run.converged, str(run.status)
    theory = sa.solve(layer, "semantic")
    numbers = run.numbers(theory)
    assert numbers["theta"] == pytest.approx(theory["theta"], abs=5e-3)
    hybrid = sa.amp(HYBRID, 800, "hybrid", damping=0.8, max_iterations=60)
    assert hybrid.overlaps.theta[0, 0, 0] == pytest.approx(0.129, abs=0.01)
    assert abs(hybrid.overlaps.m[0, 1]) == pytest.approx(0.215, abs=0.02)


def test_fails_where_replica_symmetry_does_and_where_damping_is_short():
    """Positional branch, alpha = 1.24: no fixed point is reached; undamped, the semantic one is left. Both say so."""
    positional = sa.amp(sa.PositionalSemantic(1.24, 0.3), 300, "positional", damping=0.75, max_iterations=45)
    assert positional.status.kind in ("stalled", "iteration limit", "infeasible")
    assert not positional.converged
    undamped = sa.amp(MODEL, 300, "semantic", damping=0.0, max_iterations=30)
    assert not undamped.converged


def test_runs_of_message_passing_compare_with_theory():
    """Seeds through the same door as the minimisers; overlaps and losses within 4 standard errors at d = 500."""
    runs = simulate(MODEL, 500, seeds=6, method="amp", start="semantic")
    comparison = sa.compare(runs, sa.solve(MODEL, "semantic"))
    assert comparison.largest_z < 4.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"damping": 1.0}, "damping=1.0 must lie in"),
        ({"max_iterations": 0}, "max_iterations=0 must be an integer"),
        ({"tol": 0.0}, "tol=0.0 must be positive"),
        ({"start": "nowhere"}, "start='nowhere' is not one of"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        sa.amp(MODEL, 50, **arguments)  # type: ignore[arg-type]


def test_risk_is_stationary_only_with_the_limiting_gram_matrices():
    """What a fixed point is: the risk with the tokens' own Gram matrices is not stationary there."""
    run = sa.amp(MODEL, 300, "semantic")
    exact = Risk(instance(MODEL, 300))(run.weights)[1]
    assert np.sqrt(np.mean(exact**2)) > 100 * run.gradient
