"""Critical numbers of samples and their scaling laws, against independent tables and closed forms."""

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.copy_head import closed_forms, critical_samples, linear, scaling_exponents

GRID = [(V * ratio, V) for V in (8, 16, 32, 64, 128) for ratio in (16, 32, 64, 128, 256) if V * ratio <= 8192]
LENGTHS = [32, 64, 128, 256, 512, 1024]


@pytest.mark.parametrize(
    ("L", "V", "ensemble", "temperature", "pooling", "crossover"),
    [
        (16, 4, "map", 1.0, 12.7, 193),
        (32, 4, "map", 1.0, 14.2, 544),
        (64, 8, "map", 1.0, 56.8, 1833),
        (16, 4, "posterior", 0.2, 15.0, 280),
        (32, 4, "posterior", 0.2, 16.2, 919),
        (64, 8, "posterior", 0.2, 65.1, 3152),
        (16, 4, "posterior", 1.0, 26.9, 730),
        (32, 4, "posterior", 1.0, 26.5, 2871),
        (64, 8, "posterior", 1.0, 107, 9869),
        (64, 8, "projected", 1.0, 102.4, 1749),  # without the entropy of the bulk: far too low
    ],
)
def test_linear_critical_samples(L, V, ensemble, temperature, pooling, crossover):
    model = sa.CopyHead(L, V, 1, temperature=temperature, attention="linear", ensemble=ensemble)
    found = critical_samples(model)
    assert found.pooling == pytest.approx(pooling, abs=0.06 if pooling < 100 else 0.51)
    assert found.crossover == pytest.approx(crossover, abs=0.51)
    at = sa.solve(sa.replace(model, samples=found.crossover), start="ordered").require()
    assert at.alignment == pytest.approx(0.5, abs=1e-7)


def test_pooling_is_a_pitchfork_at_the_located_point():
    """m^2 grows linearly from zero: slope m^2/(P - P_pool) converges, and below there is no order."""
    model = sa.CopyHead(32, 4, 1, 4.0, attention="linear")
    onset = critical_samples(model).pooling
    slopes = []
    for excess in (1e-2, 1e-3):
        found = sa.solve(sa.replace(model, samples=onset * (1 + excess)), start="ordered").require()
        slopes.append(found["m"] ** 2 / excess)
    assert slopes[1] == pytest.approx(slopes[0], rel=0.03)
    assert sa.solve(sa.replace(model, samples=onset * 0.99), start="ordered").status.kind == "absent"
    # the J channel alone: m^2 = kappa V/sigma_W^2 (1/P0 - 1/P); the copy channel corrects it at order 1/L
    closed = closed_forms(model)["pooling"]
    assert onset == pytest.approx(closed, rel=0.01)
    P = 4 * onset
    found = sa.solve(sa.replace(model, samples=P), start="ordered").require()
    assert found["m"] ** 2 == pytest.approx(16 * (1 / closed - 1 / P), rel=0.03)


@pytest.mark.parametrize("ensemble", ["map", "posterior", "projected"])
@pytest.mark.parametrize("boundary", ["cyclic", "open"])
def test_hessian_at_zero_is_that_of_the_action(ensemble, boundary):
    model = sa.CopyHead(8, 3, 60, 4.0, attention="linear", ensemble=ensemble, boundary=boundary)
    hessian = linear.hessian_at_zero(model)
    zero = sa.solve(model, start="disordered").state
    n, h = len(hessian), 1e-3
    numeric = np.empty((n, n))
    unit = h * np.eye(zero.size)
    for i in range(n):
        for j in range(n):
            corners = [(a, b) for a in (1, -1) for b in (1, -1)]
            values = [a * b * linear.potential(model, zero + a * unit[i] + b * unit[j]) for a, b in corners]
            numeric[i, j] = sum(values) / (4 * h * h)
    np.testing.assert_allclose(hessian, numeric, rtol=1e-3, atol=1e-3 * np.max(np.abs(hessian)))


@pytest.mark.parametrize(
    ("changes", "pooling", "crossover"),
    [
        ({}, (0.021, 1.980), (1.479, 0.464)),
        ({"prior": "position"}, (1.000, 1.000), (1.503, 0.474)),
        ({"ensemble": "projected"}, (0.002, 1.999), (1.484, 0.460)),
    ],
)
def test_linear_exponents(changes, pooling, crossover):
    model = sa.CopyHead(64, 8, 1, attention="linear", **changes)
    for quantity, expected in (("pooling", pooling), ("crossover", crossover)):
        fit = scaling_exponents(model, *zip(*GRID, strict=True), quantity)
        assert (fit.exponents["L"], fit.exponents["V"]) == pytest.approx(expected, abs=6e-4)
        assert 0 < fit.errors["L"] < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "crossover"),
    [(0.001, (1.484, 0.459)), (0.01, (1.533, 0.413)), (0.1, (1.785, 0.166)), (1.0, (1.987, -0.034))],
)
def test_hot_posterior_leaves_the_law(temperature, crossover):
    """L^1.5 V^0.5 when cold, L^2 when hot."""
    model = sa.CopyHead(64, 8, 1, attention="linear", ensemble="posterior", temperature=temperature)
    fit = scaling_exponents(model, *zip(*GRID, strict=True), "crossover")
    assert (fit.exponents["L"], fit.exponents["V"]) == pytest.approx(crossover, abs=6e-4)


@pytest.mark.parametrize(
    ("lengths", "sizes", "changes", "raw", "divided", "spinodal"),
    [
        (LENGTHS, [n // 4 for n in LENGTHS], {}, 1.361, 0.964, 1.96),
        (LENGTHS, LENGTHS, {}, 1.349, 0.952, 1.98),
        (LENGTHS, [n // 4 for n in LENGTHS], {"value_variance": 0.25}, 1.331, 0.934, 1.97),
        ([2 * n for n in LENGTHS], 6 * [32], {}, 1.195, 0.848, 1.79),
        ([2**k for k in range(5, 13)], 8 * [8], {"ensemble": "projected"}, 1.228, 0.872, None),
        ([2**k for k in range(6, 13)], 7 * [32], {"ensemble": "projected"}, 1.053, 0.722, None),
    ],
)
def test_softmax_exponents(lengths, sizes, changes, raw, divided, spinodal):
    model = sa.CopyHead(64, 8, 1, **changes)
    assert scaling_exponents(model, lengths, sizes, "coexistence").exponents["L"] == pytest.approx(raw, abs=6e-4)
    fit = scaling_exponents(model, lengths, sizes, "coexistence", log_squared=True)
    assert fit.exponents["L"] == pytest.approx(divided, abs=6e-4)
    if spinodal:  # where training from small logits ends up: close to L^2
        found = scaling_exponents(model, lengths, sizes, "pooling_spinodal")
        assert found.exponents["L"] == pytest.approx(spinodal, abs=6e-3)


@pytest.mark.parametrize(("temperature", "expected"), [(0.1, 1175), (0.4, 1410), (1.0, 1890)])
def test_temperature_raises_softmax_coexistence(temperature, expected):
    """Row mean field with exact rows, L=32, V=16; 1098 for the joint maximum."""
    model = sa.CopyHead(32, 16, 1, 2.0, value_variance=0.25, temperature=temperature, ensemble="posterior")
    found = critical_samples(model)
    assert found.copy_spinodal < found.coexistence < found.pooling_spinodal
    assert found.coexistence == pytest.approx(expected, rel=2e-3)
    model = sa.replace(model, samples=found.coexistence)
    pool, copy = (sa.solve(model, start=start, accuracy=9e-3) for start in ("pooling", "copy"))
    assert abs(pool.action - copy.action) < 0.5


def test_no_transition_is_said():
    """The determinant removes the barrier at V^2 T of the order of L ln L."""
    found = critical_samples(sa.CopyHead(32, 32, 1, ensemble="projected"))
    assert found.coexistence is None
    assert found.copy_spinodal is None
    with pytest.raises(ValueError, match="context_length=32, vocabulary_size=32: the model has no coexistence"):
        scaling_exponents(sa.CopyHead(8, 4, 1, ensemble="projected"), [32, 64, 128], [32, 32, 32], "coexistence")


def test_closed_forms_of_softmax():
    for L, V, kappa, variance, both, last in ((64, 16, 1, 0.25, 1224, 2260), (128, 32, 1, 0.25, 3138, 8862)):
        forms = closed_forms(sa.CopyHead(L, V, 1, kappa, value_variance=variance))
        assert (forms["coexistence"], forms["pooling_spinodal"]) == pytest.approx((both, last), abs=0.51)


def test_bad_fits_are_named():
    model = sa.CopyHead(8, 4, 1)
    with pytest.raises(ValueError, match="quantity='loss' is not one of pooling"):
        scaling_exponents(model, [32, 64], [8, 8], "loss")
    with pytest.raises(ValueError, match="too few or too alike"):
        scaling_exponents(model, [64, 64], [16, 16], "coexistence")
    with pytest.raises(ValueError, match="must pair up"):
        scaling_exponents(model, [64, 64], [16], "coexistence")
