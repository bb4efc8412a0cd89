"""The channel integrals: against their own finest rule, a scalar integrator, Monte Carlo and identities."""

from __future__ import annotations

import math

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.positional_semantic import channel as ch
from statmech_attn.positional_semantic import state_equations as equations
from statmech_attn.positional_semantic.monte_carlo import monte_carlo_hats
from statmech_attn.positional_semantic.proximal import proximal_point
from statmech_attn.positional_semantic.rules import TABLE, channel_rule
from statmech_attn.quadrature import gauss_legendre, normal_trapezoid

MODEL = sa.PositionalSemantic(alpha=1.24, omega=0.3)
# (alpha, state) of the three states at which the errors in the docstring of rules.py were measured
STATES = {
    "semantic 1.24": (1.24, (0.08109851, 0.0, 0.11714765, 18.430628)),
    "positional 1.24": (1.24, (0.04697979, 0.25230125, 0.0, 14.958682)),
    "semantic 2": (2.0, (0.11481711, 0.0, 0.15815868, 12.668271)),
}


def hats(alpha: float, state: tuple[float, ...], level: int) -> np.ndarray:
    model = sa.PositionalSemantic(alpha=alpha, omega=0.3)
    return np.array(model.hats(np.array(state), level))


def relative(values: np.ndarray, exact: np.ndarray) -> float:
    nonzero = exact != 0
    return float(np.max(np.abs(values / np.where(nonzero, exact, 1) - 1)[nonzero]))


@pytest.mark.parametrize("name", STATES)
def test_measured_errors_of_the_table_of_rules(name: str) -> None:
    alpha, state = STATES[name]
    exact = hats(alpha, state, len(TABLE) - 1)
    for level, bound in enumerate((5e-5, 3e-6, 1e-6, 3e-7, 2e-7)):
        assert relative(hats(alpha, state, level), exact) < bound


def test_hats_at_the_semantic_state_of_the_literature() -> None:
    # conjugates at the semantic fixed point, alpha = 1.24, from an independent implementation whose outer rules
    # differ: q_hat 7.71552831e-5, V_hat .01426536274, theta_hat .02543050044; good to the distance of its overlaps
    solution = sa.solve(MODEL, "semantic", accuracy=1e-7)
    found = MODEL.hats(solution.state, 3)
    assert found.q == pytest.approx(7.71552831e-5, rel=3e-6)
    assert pytest.approx(0.01426536274, rel=1e-5) == found.V
    assert found.theta == pytest.approx(0.02543050044, rel=1e-5)


@pytest.mark.parametrize("name", STATES)
def test_stein_form_equals_derivative_plus_jump_term(name: str) -> None:
    alpha, state = STATES[name]
    model = sa.PositionalSemantic(alpha=alpha, omega=0.3)
    averages = equations.channel(model, np.array(state), 3)
    V = state[3]
    stein = model.hats(np.array(state), 3).V
    smooth = -alpha * averages.trace / V
    jump = -alpha * averages.delta / V
    assert stein == pytest.approx(smooth + jump, rel=1e-6)
    if name != "semantic 2":
        assert abs(jump) > 1e-3 * abs(stein), "without the jump term the identity fails"


@pytest.mark.slow
def test_lines_equal_the_scalar_integrator() -> None:
    model = MODEL
    _, (q, m, theta, V) = STATES["positional 1.24"]
    teacher, reach, zeta, panels, negligible, tolerance = channel_rule(2)
    s = math.sqrt(q - theta**2 / 0.25)
    grid = ch.teacher_grid(teacher, reach, 1, V, 0.25, model.omega, 0.6, 0.6)
    lines = ch.line_table(grid, *zeta, math.sqrt(2) * m, theta / 0.5, s, V, 0.25, negligible)
    sums, again = ch.line_sums(lines, s, V, 0.25, reach + 0.3, panels, tolerance)
    assert lines.shape[1] > 100 * again
    nodes, weights = gauss_legendre(24)
    worst = 0.0
    for i in np.random.default_rng(0).choice(lines.shape[1], 200, replace=False):
        exact = ch.line_integral(
            lines[ch.LINE_MEAN, i], lines[ch.LINE_WV, i], s, V, lines[ch.LINE_T1, i], lines[ch.LINE_T2, i],
            0.25, reach + 0.3, nodes, weights, 3, 48,
        )  # fmt: skip
        rows = slice(ch.MASS - ch.RESIDUAL, ch.MINIMUM - ch.RESIDUAL + 1)
        worst = max(worst, lines[ch.WEIGHT, i] * np.max(np.abs(sums[rows, i] - exact[rows])))
    assert worst < 2 * tolerance


def test_every_point_of_a_line_is_the_global_minimiser() -> None:
    # 1e5 random points, as the model meets them: u on the line through each, from the fast jump search, has the sign
    # of the global minimiser found by the scalar operator from nine starts
    _, (q, _, theta, V) = STATES["semantic 1.24"]
    s = math.sqrt(q - theta**2 / 0.25)
    rng = np.random.default_rng(5)
    n = 100_000
    eta, zeta = rng.normal(size=(2, 2, n))
    h1, h2 = 0.5 * (eta[0] + eta[1]) / math.sqrt(2), 0.5 * (eta[1] - eta[0]) / math.sqrt(2)
    t1 = 0.7 / (1 + np.exp(-h1 * (h1 - h2))) + 0.18
    t2 = 0.7 / (1 + np.exp(-h2 * (h2 - h1))) + 0.18
    teacher = np.array([eta[0], eta[1], np.full(n, 1 / n), t1, t2])
    lines = np.concatenate(
        [ch.line_table(teacher[:, i : i + 1], zeta[1, i : i + 1], np.ones(1), 0.0, theta / 0.5, s, V, 0.25, 0.0)
         for i in range(n)], axis=1,
    )  # fmt: skip
    jumps = ch.find_jumps(lines, s, V, 0.25, 6.0)[0]
    wu = lines[ch.LINE_MEAN] + s * zeta[0]
    checked = wrong = 0
    for i in np.flatnonzero(np.isfinite(jumps)):
        u, _, _ = proximal_point(wu[i], lines[ch.LINE_WV, i], V, t1[i], t2[i], 0.25)
        u_far, _, _ = proximal_point(jumps[i] + 1e-9, lines[ch.LINE_WV, i], V, t1[i], t2[i], 0.25)
        wrong += (u >= u_far - 1e-6) != (wu[i] > jumps[i])
        checked += 1
    assert checked > 10_000
    assert wrong <= 1, "a jump in the wrong place, or a third well"


@pytest.mark.slow
@pytest.mark.parametrize("start", ["uninformed", "positional", "semantic"])
def test_monte_carlo(start: str) -> None:
    solution = sa.solve(MODEL, start)
    exact = np.array(MODEL.hats(solution.state, 2))
    sample, error = map(np.array, monte_carlo_hats(MODEL, solution.state, 1_000_000, 2))
    z = np.abs(sample - exact)[error > 0] / error[error > 0]
    assert np.all(z < 4)
    assert relative(sample, exact) < 0.02, "and the sample is large enough to tell"


def test_monte_carlo_with_rows_that_differ_and_both_overlaps() -> None:
    # no symmetry left but one: the whole half plane is needed
    model = sa.PositionalSemantic(1.2, 0.4, 0.6, 0.05, ((0.8, 0.3), (0.1, 0.7)), 1.3)
    state = np.array([0.12, 0.2, 0.1, 8.0])
    exact = np.array(model.hats(state, 2))
    sample, error = map(np.array, monte_carlo_hats(model, state, 400_000, 3))
    assert np.all(np.abs(sample - exact) < 4 * error)
    one = sa.PositionalSemantic(1.2, 0.4, 0.6, 0.05, ((0.8, 0.2), (0.2, 0.8)), 1.3)
    assert np.any(np.abs(np.array(one.hats(state, 2)) - exact) > 20 * error), "another target is seen"


def test_wide_proximal_operator_and_little_noise() -> None:
    # at V = 33 and theta^2 close to sigma^2 q the minimiser stays near omega, far from where the expansion of the loss
    # puts it; a panel that begins in the wrong well integrates smoothly to a wrong value
    model = sa.PositionalSemantic(1.2, 0.0, regularization=1e-3)
    state = np.array([0.215481, 0.0, 0.230955, 33.0])
    exact = np.array(model.hats(state, 3))
    for level, bound in ((0, 1e-3), (1, 1e-4), (2, 2e-5)):
        assert relative(np.array(model.hats(state, level)), exact) < bound
    sample, error = map(np.array, monte_carlo_hats(model, state, 100_000, 0))
    assert np.all(np.abs(sample - exact) <= 4 * error)


@pytest.mark.slow
def test_several_jumps_on_a_line() -> None:
    # at sigma near one the loss has wells at large z too: up to three jumps a line, left to the scalar integrator
    model = sa.PositionalSemantic(2.7, 0.6, 0.95, 0.07)
    state = np.array([0.26, 0.0, 0.0, 5.7])
    exact = np.array(model.hats(state, 1))
    assert equations.channel(model, state, 1).scalar_lines > 100
    sample, error = map(np.array, monte_carlo_hats(model, state, 300_000, 4))
    assert np.all(np.abs(sample - exact) <= 4 * error)


def test_teacher_grid_integrates_the_plane() -> None:
    grid = ch.teacher_grid(gauss_legendre(12), 5.6, 4, 18.0, 0.25, 0.3, 0.6, 0.7)
    assert np.sum(grid[2]) == pytest.approx(1, abs=1e-14)
    assert np.sum(grid[2] * grid[0] ** 2 * grid[1] ** 4) == pytest.approx(3, rel=1e-5)
    assert abs(np.sum(grid[2] * grid[0] * grid[1])) < 1e-12
    two_wells = grid[3] + grid[4] - 1 + 0.25 * 18 * 0.25 * (grid[3] - grid[4]) ** 2 - 1 / (18 * 0.25)
    assert np.any(two_wells > 0)
    assert np.any(two_wells < 0)


def test_unsplit_teacher_plane_is_worse() -> None:
    # what the split on D = 0 buys: the same line rule on a plain Gauss-Hermite plane of more nodes is far off
    alpha, (q, m, theta, V) = STATES["positional 1.24"]
    exact = hats(alpha, (q, m, theta, V), 4)
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    weights = weights / weights.sum()
    eta_u, eta_v = (x.ravel() for x in np.meshgrid(nodes, nodes))
    h1, h2 = 0.5 * (eta_u + eta_v) / math.sqrt(2), 0.5 * (eta_v - eta_u) / math.sqrt(2)
    t1 = 0.7 / (1 + np.exp(-h1 * (h1 - h2))) + 0.18
    t2 = 0.7 / (1 + np.exp(-h2 * (h2 - h1))) + 0.18
    teacher = np.array([eta_u, eta_v, np.outer(weights, weights).ravel(), t1, t2])
    _, reach, zeta, panels, negligible, tolerance = channel_rule(2)
    s = math.sqrt(q)
    lines = ch.line_table(teacher, *zeta, math.sqrt(2) * m, 0.0, s, V, 0.25, negligible)
    sums, _ = ch.line_sums(lines, s, V, 0.25, reach + 0.3, panels, tolerance)
    q_hat = alpha * float(lines[ch.WEIGHT] @ sums[ch.G_G - ch.RESIDUAL])
    unsplit = abs(q_hat / exact[0] - 1)
    assert unsplit > 10 * relative(hats(alpha, (q, m, theta, V), 2)[:1], exact[:1])
    assert unsplit < 1e-2


def test_normal_trapezoid_moments() -> None:
    x, w = normal_trapezoid(16, 6.4)
    for power, moment in ((0, 1), (2, 1), (4, 3), (6, 15)):
        assert w @ x**power == pytest.approx(moment, rel=1e-6)
