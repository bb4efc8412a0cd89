"""The loss, its derivatives, and the global proximal operator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from statmech_attn.positional_semantic import proximal_operator
from statmech_attn.positional_semantic.attention import effective_target, exp, loss, loss_derivatives
from statmech_attn.positional_semantic.proximal import local_minimum, proximal_point

SIGMA2 = 0.25
COORDINATE = st.floats(-6, 6)
ATTENTION = st.floats(-0.5, 1.5)


def test_exponential() -> None:
    x = np.linspace(-690, 690, 100_001)
    np.testing.assert_allclose([exp(y) for y in x], np.exp(x), rtol=4e-16)


@given(COORDINATE, COORDINATE, ATTENTION, ATTENTION)
def test_value_equals_the_plain_form(u: float, v: float, t1: float, t2: float) -> None:
    assert loss_derivatives(u, v, t1, t2, SIGMA2)[0] == pytest.approx(loss(u, v, t1, t2, SIGMA2), abs=1e-14)


def test_derivatives_equal_those_of_sympy() -> None:
    u, v, t1, t2 = sp.symbols("u v t1 t2", real=True)
    s = lambda x: 1 / (1 + sp.exp(-x))  # noqa: E731
    ell = SIGMA2 * ((s(u**2 + u * v) - t1) ** 2 + (s(u**2 - u * v) - t2) ** 2)
    wanted = [ell, *(sp.diff(ell, *x) for x in ((u,), (v,), (u, u), (u, v), (v, v)))]
    exact = sp.lambdify((u, v, t1, t2), wanted, "mpmath")
    rng = np.random.default_rng(1)
    for point in rng.uniform([-4, -4, -0.5, -0.5], [4, 4, 1.5, 1.5], size=(200, 4)):
        np.testing.assert_allclose(
            loss_derivatives(*point, SIGMA2), np.array(exact(*point), float), rtol=1e-11, atol=1e-15
        )


def test_saturated_logits_stay_finite() -> None:
    for u, v in ((40.0, 0.0), (1e3, 1e3), (1e3, -1e3), (1e-3, 1e6)):
        assert np.all(np.isfinite(loss_derivatives(u, v, 0.6, 0.6, SIGMA2)))


@given(COORDINATE, COORDINATE, ATTENTION, ATTENTION)
def test_symmetries_of_the_loss(u: float, v: float, t1: float, t2: float) -> None:
    here = loss(u, v, t1, t2, SIGMA2)
    assert loss(-u, -v, t1, t2, SIGMA2) == pytest.approx(here, rel=1e-12)
    assert loss(u, -v, t2, t1, SIGMA2) == pytest.approx(here, rel=1e-12)


def test_rows_that_do_not_sum_to_one_shift_and_add_a_constant() -> None:
    target = np.array([[0.9, 0.3], [-0.2, 0.5]])
    omega, u, v = 0.7, 0.4, -0.8
    s1 = 1 / (1 + math.exp(-u * u - u * v))
    s2 = 1 / (1 + math.exp(-u * u + u * v))
    teacher = np.array([[0.55, 0.45], [0.35, 0.65]])
    T = (1 - omega) * teacher + omega * target
    S = np.array([[s1, 1 - s1], [1 - s2, s2]])
    a1, a2, constant = effective_target(((0.9, 0.3), (-0.2, 0.5)))
    t1 = (1 - omega) * 0.55 + omega * a1
    t2 = (1 - omega) * 0.65 + omega * a2
    direct = 0.5 * SIGMA2 * np.sum((S - T) ** 2)
    assert loss(u, v, t1, t2, SIGMA2) + SIGMA2 * omega**2 * constant == pytest.approx(direct, rel=1e-14)


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points as the model meets them: omega of spread .35, teacher attention at omega = .3."""
    omega = rng.normal(scale=0.35, size=(n, 2))
    h = rng.normal(scale=0.5, size=(n, 2))
    s1 = 1 / (1 + np.exp(-h[:, 0] * (h[:, 0] - h[:, 1])))
    s2 = 1 / (1 + np.exp(-h[:, 1] * (h[:, 1] - h[:, 0])))
    return omega, 0.7 * np.column_stack([s1, s2]) + 0.18, rng.uniform(5, 30, n)


def test_global_minimum_against_a_multistart_library_minimiser() -> None:
    rng = np.random.default_rng(2)
    omega, target, V = draw(rng, 15)
    for w, t, v in zip(omega, target, V, strict=True):
        _, minimum = proximal_operator(w[None], v, t[None])

        def objective(z: np.ndarray, w: np.ndarray = w, t: np.ndarray = t, v: float = v) -> float:
            a, b = (z[0] - z[1]) / math.sqrt(2), (z[0] + z[1]) / math.sqrt(2)
            return float(np.sum((z - w) ** 2) / (2 * v) + loss(a, b, t[0], t[1], SIGMA2))

        best = min(minimize(objective, start, tol=1e-10).fun for start in rng.normal(scale=1.5, size=(12, 2)))
        assert minimum[0] <= best + 1e-9


def test_stationary_and_the_envelope_theorem() -> None:
    rng = np.random.default_rng(3)
    omega, target, V = draw(rng, 300)
    for w, t, v in zip(omega, target, V, strict=True):
        wu, wv = (w[0] - w[1]) / math.sqrt(2), (w[0] + w[1]) / math.sqrt(2)
        u, y, _ = proximal_point(wu, wv, v, *t, SIGMA2)
        _, lu, lv, *_ = loss_derivatives(u, y, *t, SIGMA2)
        assert abs(u - wu + v * lu) + abs(y - wv + v * lv) < 1e-12
        h = 1e-5
        up, down = (local_minimum(u, y, wu + k, wv, v, *t, SIGMA2)[2] for k in (h, -h))
        assert (up - down) / (2 * h) == pytest.approx((wu - u) / v, abs=1e-8)


def test_local_minimum_never_goes_uphill_and_zero_start_may_miss_the_global_one() -> None:
    rng = np.random.default_rng(4)
    omega, target, V = draw(rng, 4000)
    missed = 0
    for w, t, v in zip(omega, target, V, strict=True):
        wu, wv = (w[0] - w[1]) / math.sqrt(2), (w[0] + w[1]) / math.sqrt(2)
        value = local_minimum(0.0, 0.0, wu, wv, v, *t, SIGMA2)[2]
        assert value <= (wu**2 + wv**2) / (2 * v) + loss(0.0, 0.0, *t, SIGMA2) + 1e-15
        missed += value > proximal_point(wu, wv, v, *t, SIGMA2)[2] + 1e-10
    assert 0 < missed < 200, "the loss has two wells here, and one start does not see both"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 0.0, 0.0]], 1.0, [[0.5, 0.5]]), "must both have shape"),
        (([[0.0, 0.0]], -1.0, [[0.5, 0.5]]), "V=-1.0"),
    ],
)
def test_bad_input(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        proximal_operator(*arguments)
