"""States of the theory: the contract, the branches, and tables of stationary points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statmech_attn as sa
from statmech_attn.copy_head import averaged_action, fluctuations, linear, prior_cost, softmax, sums_of
from statmech_attn.copy_head.scaling import critical_samples

COMBINATIONS = [
    (attention, ensemble, boundary)
    for attention in ("linear", "softmax")
    for ensemble in ("map", "posterior", "projected")
    for boundary in ("cyclic", "open")
]


def some(attention, ensemble, boundary):
    """A model with a state that is neither trivial nor critical."""
    if attention == "linear":
        return sa.CopyHead(16, 4, 1018, 4.0, temperature=0.2, attention=attention, ensemble=ensemble, boundary=boundary)
    return sa.CopyHead(32, 8, 1500, 2.0, value_variance=0.25, temperature=0.3, ensemble=ensemble, boundary=boundary)


@pytest.mark.parametrize(("attention", "ensemble", "boundary"), COMBINATIONS)
def test_fixed_points_are_stationary_points_of_the_action(attention, ensemble, boundary):
    model = some(attention, ensemble, boundary)
    start = "copy" if attention == "softmax" else "ordered"
    solution = sa.solve(model, start=start).require()
    assert solution.branch == start
    rule = model.rules(np.inf)[0]
    state = sa.solve(model, start=solution, accuracy=1.0).require().state if rule else solution.state
    for k, unit in enumerate(model.scale(state)):
        step = 1e-4 * unit * np.eye(state.size)[k]
        up, down = model.potential(state + step, rule), model.potential(state - step, rule)
        curvature = abs(up + down - 2 * model.potential(state, rule))
        assert abs(up - down) < 1e-3 * curvature + 1e-9, model.order_parameters[k]
        # negative control: away from the fixed point the same test fails
        off = state + 100 * step
        assert abs(model.potential(off + step, rule) - model.potential(off - step, rule)) > 10 * curvature


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@settings(max_examples=20, deadline=None)
@given(m=st.floats(-1, 1), g=st.floats(-0.3, 0.3), first=st.floats(-1, 1))
def test_linear_order_parameters_are_what_they_say(boundary, m, g, first):
    """Sums, prior cost and projection of the state against its attention matrix."""
    model = some("linear", "map", boundary)
    L = model.context_length
    x = np.array([m, g, first][: 2 + (boundary == "open")])
    A = m / L + g * (np.roll(np.eye(L), -1, axis=1) - 1 / L)
    if boundary == "open":
        A[0] = first / L
    np.testing.assert_allclose(linear.sums(model, x), sums_of(model, A), atol=1e-12)
    np.testing.assert_allclose(linear.project(model, A), x, atol=1e-12)
    expected = prior_cost(model, A) + averaged_action(model, sums_of(model, A))
    assert linear.potential(model, x) == pytest.approx(expected, rel=1e-10, abs=1e-10)
    image = linear.update(model, x)
    np.testing.assert_allclose(linear.update(model, -x), -image, atol=1e-14)  # A -> -A, W -> -W


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@pytest.mark.parametrize("ensemble", ["map", "projected"])
@given(beta=st.floats(0.01, 8))
@settings(max_examples=20, deadline=None)
def test_softmax_gap_is_what_it_says(boundary, ensemble, beta):
    model = some("softmax", ensemble, boundary)
    L = model.context_length
    logits = np.zeros((L, L))
    for i in range(L - model.target_rows, L):
        logits[i, i - 1] = beta
    A = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax.sums(model, beta), sums_of(model, A), rtol=1e-12)
    flat = softmax.sums(model, 0.0)
    difference = prior_cost(model, A) + averaged_action(model, sums_of(model, A)) - averaged_action(model, flat)
    assert softmax.action_at(model, beta) - softmax.action_at(model, 0.0) == pytest.approx(difference, rel=1e-9)
    assert softmax.gap(softmax.weight(beta, L), L) == pytest.approx(beta, rel=1e-12)
    # on the curve P(beta) the gap is a fixed point
    there = sa.replace(model, samples=float(softmax.sample_curve(model, np.array([beta]))[0]))
    assert softmax.update(there, beta) == pytest.approx(beta, rel=1e-10)


# L, V, kappa, sigma_W^2; P_s1, P*, P_s2, a_pool, a_copy, barrier, losses (independent numerical minimisation)
SOFTMAX = [
    (16, 8, 2, 0.25, 386, 401, 431, 0.027, 0.272, 0.68, 0.826, 0.409),
    (16, 16, 1, 1, 148, 152, 158, 0.033, 0.216, 0.29, 0.859, 0.471),
    (32, 16, 2, 0.25, 958, 1098, 1569, 0.005, 0.333, 11.1, 0.924, 0.268),
    (32, 32, 1, 1, 387, 436, 583, 0.006, 0.274, 7.6, 0.948, 0.288),
    (64, 16, 1, 0.25, 987, 1225, 2316, 0.001, 0.284, 45, 0.931, 0.186),
    (64, 64, 1, 1, 951, 1181, 2248, 0.001, 0.288, 46, 0.977, 0.194),
    (128, 32, 1, 0.25, 2302, 3138, 8968, 0.000, 0.287, 188, 0.966, 0.134),
]


@pytest.mark.parametrize("row", SOFTMAX, ids=lambda row: f"L{row[0]}V{row[1]}")
def test_softmax_stationary_points(row):
    L, V, kappa, variance, first, both, last, a_pool, a_copy, barrier, loss_pool, loss_copy = row
    model = sa.CopyHead(L, V, 1, kappa, value_variance=variance)
    critical = critical_samples(model)
    assert critical.copy_spinodal == pytest.approx(first, abs=0.51)
    assert critical.coexistence == pytest.approx(both, abs=0.51)
    assert critical.pooling_spinodal == pytest.approx(last, abs=0.51)
    model = sa.replace(model, samples=critical.coexistence)
    pool, copy = (sa.solve(model, start=start).require() for start in ("pooling", "copy"))
    assert (pool.a_G, copy.a_G) == pytest.approx((a_pool, a_copy), abs=6e-4)
    assert (pool.loss, copy.loss) == pytest.approx((loss_pool, loss_copy), abs=6e-4)
    assert pool.action == pytest.approx(copy.action, abs=1e-6 * abs(copy.action) + 1e-6)
    top = softmax.action_at(model, softmax.states_at(model)[1])
    assert top - copy.action == pytest.approx(barrier, rel=0.01)


def test_barrier_is_never_returned_as_converged():
    model = sa.CopyHead(32, 8, 1086, 2.0, value_variance=0.25)
    _, barrier, copy = softmax.states_at(model)
    found = sa.solve(model, start={"beta": barrier})
    assert found.branch == "barrier"
    assert found["beta"] == pytest.approx(barrier, rel=1e-6)
    assert sa.solve(model, start="copy").require()["beta"] == pytest.approx(copy, rel=1e-6)
    below = sa.solve(sa.replace(model, samples=700), start="copy")
    assert below.branch == "pooling"
    assert not below.converged


# P, c_1, c_G, loss; alignment (L=32, V=4, kappa=4, joint maximum)
LINEAR = [
    (68, 0.216, 0.0000, 0.031, 0.924),
    (227, 0.465, 0.0002, 0.032, 0.761),
    (909, 0.565, 0.0041, 0.047, 0.730),
    (1818, 0.478, 0.0210, 0.158, 0.664),
    (2272, 0.268, 0.0461, 0.578, 0.463),
    (3976, 0.134, 0.0751, 0.921, 0.156),
    (6817, 0.088, 0.0872, 0.972, 0.058),
]


@pytest.mark.parametrize("row", LINEAR, ids=lambda row: f"P{row[0]}")
def test_linear_joint_maximum(row):
    P, c_1, c_G, aligned, loss = row
    found = sa.solve(sa.CopyHead(32, 4, P, 4.0, attention="linear"), start="ordered").require()
    assert (found.c_1, found.c_G) == pytest.approx((c_1, c_G), abs=6e-4)
    assert (found.alignment, found.loss) == pytest.approx((aligned, loss), abs=6e-4)


def test_no_order_before_pooling():
    model = sa.CopyHead(32, 4, 45, 4.0, attention="linear")
    found = sa.solve(model, start="ordered")
    assert found.status.kind == "absent"
    assert found.loss == pytest.approx(1)
    assert np.isnan(found.alignment)
    assert np.isnan(found.coverage)


@pytest.mark.parametrize(
    ("temperature", "samples", "ensemble", "expected"),
    [
        (0.2, 203, "projected", (0.439, 0.0031)),
        (0.2, 203, "posterior", (0.450, 0.0027, 0.401, 0.038)),
        (0.2, 1018, "projected", (0.250, 0.1031)),
        (0.2, 1018, "posterior", (0.370, 0.0883, 0.477, 0.417)),
        (1.0, 2290, "projected", (0.104, 0.1406)),
        (1.0, 2290, "posterior", (0.401, 0.1422, 1.272, 0.352)),
        (0.03, 1018, "posterior", (0.278, 0.1023)),
    ],
)
def test_linear_saddles(temperature, samples, ensemble, expected):
    model = sa.CopyHead(16, 4, samples, 4.0, temperature=temperature, attention="linear", ensemble=ensemble)
    found = sa.solve(model, start="ordered").require()
    values = (found.c_1, found.c_G, model.sums(found.state).t, found.alignment)
    assert values[: len(expected)] == pytest.approx(expected, abs=6e-4)


def test_reversed_minimum_is_metastable():
    model = sa.CopyHead(64, 2, 8000, attention="linear")
    right, wrong = (sa.solve(model, start=start).require() for start in ("ordered", "reversed"))
    assert wrong["m"] * wrong["g"] < 0
    assert wrong.action > right.action
    tiny = sa.solve(sa.CopyHead(16, 4, 203, 4.0, attention="linear"), start="reversed")
    assert not tiny.converged  # there it does not exist


def test_posterior_contracts_to_the_joint_maximum():
    for attention, start in (("linear", "ordered"), ("softmax", "copy")):
        cold = sa.CopyHead(32, 8, 2500, 2.0, value_variance=0.25, temperature=1e-3, attention=attention)
        means = []
        for ensemble in ("map", "posterior"):
            found = sa.solve(sa.replace(cold, ensemble=ensemble), start=start).require()
            means.append((found.alignment, found.loss))
        assert means[0] == pytest.approx(means[1], rel=0.02)


def test_row_averages_against_sampled_rows():
    """Weighted averages over 2e5 softmax rows, within four standard errors of them."""
    rng = np.random.default_rng(1)
    logits = np.sqrt(0.4) * rng.standard_normal((200_000, 24))
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    a, q = rows[:, 0], np.sum(rows**2, axis=1)
    for first, second in ((0.0, 0.0), (12.0, -5.0), (4.0, -20.0)):
        weight = np.exp(first * a + second * q)
        row = fluctuations.row_average(24, 0.4, first, second, 4096)
        error = weight.std() / weight.mean() / np.sqrt(len(weight))
        assert row.log_partition == pytest.approx(np.log(weight.mean()), abs=4 * error + 2e-4)
        for k, x in enumerate((a, q)):
            mean = np.average(x, weights=weight)
            error = np.std(weight * (x - mean)) / weight.mean() / np.sqrt(len(weight))
            assert row.mean[k] == pytest.approx(mean, abs=4 * error + 1e-4)


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
def test_slope_of_the_row_mean_field(boundary):
    model = some("softmax", "posterior", boundary)
    state = sa.solve(model, start="copy").state
    numeric = np.empty((2, 2))
    for k in range(2):
        step = 1e-5 * state[k] * np.eye(2)[k]
        difference = fluctuations.update(model, state + step, 64) - fluctuations.update(model, state - step, 64)
        numeric[:, k] = difference / (2 * step[k])
    np.testing.assert_allclose(fluctuations.slope(model, state, 64), numeric, rtol=1e-5)


@pytest.mark.parametrize(
    ("samples", "pool", "copy"),
    [(1060, 0.009, 0.241), (1120, 0.011, 0.271), (1350, None, 0.325), (1600, None, 0.357)],
)
def test_row_mean_field_states(samples, pool, copy):
    model = sa.CopyHead(32, 8, samples, 2.0, value_variance=0.25, temperature=0.3, ensemble="posterior")
    assert sa.solve(model, start="copy").require().a_G == pytest.approx(copy, abs=1e-3)
    found = sa.solve(model, start="pooling")
    if pool is None:
        assert found.status.kind == "other branch"
    else:
        assert found.require().a_G == pytest.approx(pool, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"context_length": 2}, ValueError, "context_length=2 must be at least 3"),
        ({"vocabulary_size": 1}, ValueError, "vocabulary_size=1 must be at least 2"),
        ({"context_length": 8.5}, TypeError, "context_length=8.5 must be an integer"),
        ({"samples": 0.5}, ValueError, "samples=0.5 must be at least 1"),
        ({"noise": 0}, ValueError, "noise=0 must be positive"),
        ({"value_variance": -1}, ValueError, "value_variance=-1 must be positive"),
        ({"temperature": float("nan")}, ValueError, "temperature=nan must be positive"),
        ({"logit_variance": "1"}, TypeError, "logit_variance='1' must be a real number"),
        ({"attention": "cosine"}, ValueError, "attention='cosine' is not one of softmax, linear"),
        ({"ensemble": "mean"}, ValueError, "is not one of map, posterior, projected"),
    ],
)
def test_bad_parameters_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        sa.CopyHead(**{"context_length": 8, "vocabulary_size": 3, "samples": 10, **changes})


def test_states_outside_the_simplex_are_named():
    model = some("softmax", "posterior", "cyclic")
    with pytest.raises(ValueError, match="s=40 must lie between 0 and 32"):
        sa.solve(model, start={"s": 40.0, "t": 5.0})
    with pytest.raises(ValueError, match=r"t=0.5 must lie between"):
        sa.solve(model, start={"s": 3.0, "t": 0.5})
    with pytest.raises(ValueError, match="rho=-1 and tau=1 must be positive"):
        sa.solve(some("linear", "posterior", "cyclic"), start={"m": 0.1, "g": 0.0, "rho": -1.0, "tau": 1.0})
