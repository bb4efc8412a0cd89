"""Speed of the channel integrals: ratios measured in one run, at stated accuracy.

Run with ``-s`` to see the figures. The bounds leave room for other processors and a busy machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from numba import njit
from scipy.optimize import minimize

import statmech_attn as sa
from statmech_attn.positional_semantic import channel as ch
from statmech_attn.positional_semantic.attention import loss, teacher_attention
from statmech_attn.positional_semantic.proximal import local_minimum
from statmech_attn.positional_semantic.rules import TABLE, channel_rule
from statmech_attn.quadrature import gauss_legendre

SIGMA2 = 0.25
STATES = {
    "semantic 1.24": (0.08109851, 0.0, 0.11714765, 18.430628),
    "positional 1.24": (0.04697979, 0.25230125, 0.0, 14.958682),
    "semantic 2": (0.11481711, 0.0, 0.15815868, 12.668271),
}


@njit(error_model="numpy", cache=True)
def scalar_rule(m, theta, q, V, omega, teacher, zeta, panel, reach):  # type: ignore[no-untyped-def]
    """The plain split rule: E|g|^2 and E g.zeta.

    Gauss-Legendre in eta and zeta_v on a quadrant, the jump located on each line, Gauss-Legendre panels in omega_u, a
    safeguarded scalar Newton at each node from the one before.
    """
    nodes, weights = teacher
    z_nodes, z_weights = zeta
    p_nodes, p_weights = panel
    s = math.sqrt(q - theta * theta / 0.25)
    total = gg = gz = 0.0
    for i in range(nodes.size):
        for j in range(nodes.size):
            eta_u, eta_v = reach * nodes[i], reach * nodes[j]
            t1, t2 = teacher_attention(0.5 * eta_u, 0.5 * eta_v, omega, 0.6, 0.6)
            w2 = weights[i] * weights[j] * math.exp(-0.5 * (eta_u**2 + eta_v**2))
            for k in range(z_nodes.size):
                zv = reach * (2.0 * z_nodes[k] - 1.0)
                wv = theta / 0.5 * eta_v + s * zv
                mean = math.sqrt(2.0) * m + theta / 0.5 * eta_u
                w3 = w2 * z_weights[k] * math.exp(-0.5 * zv * zv)
                c = -0.5 * V * 0.25 * (t1 - t2) * wv
                for _ in range(12):
                    u, v, right = local_minimum(0.6, wv, c, wv, V, t1, t2, 0.25)
                    x, _, left = local_minimum(-0.6, wv, c, wv, V, t1, t2, 0.25)
                    if u - x < 1e-6:
                        break
                    step = V * (right - left) / (u - x)
                    c += step
                    if abs(step) < 1e-10:
                        break
                c = min(max(c, mean - s * reach), mean + s * reach)
                for side in range(2):
                    a = c if side else mean - s * reach
                    b = mean + s * reach if side else c
                    u, v = (0.6 if side else -0.6), wv
                    for p in range(p_nodes.size):
                        wu = a + (b - a) * p_nodes[p]
                        zu = (wu - mean) / s
                        u, v, _ = local_minimum(u, v, wu, wv, V, t1, t2, 0.25)
                        gu, gv = (u - wu) / V, (v - wv) / V
                        w = w3 * (b - a) / s * p_weights[p] * math.exp(-0.5 * zu * zu)
                        total += w
                        gg += w * (gu * gu + gv * gv)
                        gz += w * (gu * zu + gv * zv)
    return gg / total, gz / total


def best_time(function: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_faster_and_more_accurate_than_the_scalar_split_rule(name: str) -> None:
    q, m, theta, V = STATES[name]

    def fast(level: int) -> np.ndarray:
        return ch.channel_averages(m, theta, q, V, SIGMA2, 0.3, 0.6, 0.6, 1, channel_rule(level))

    exact = fast(len(TABLE) - 1)[[1, 2]]
    rules = gauss_legendre(16), gauss_legendre(24), gauss_legendre(16)

    def scalar() -> np.ndarray:
        return np.array(scalar_rule(m, theta, q, V, 0.3, *rules, 5.2))

    scalar_error = np.max(np.abs(scalar() / exact - 1))
    scalar_time = best_time(scalar, 2)
    for level in (1, 2):
        error = np.max(np.abs(fast(level)[[1, 2]] / exact - 1))
        seconds = best_time(lambda level=level: fast(level))  # type: ignore[misc]
        print(
            f"\n{name}, rule {TABLE[level][0]:g}: {1e3 * seconds:.1f} ms, error {error:.0e}; "
            f"scalar split rule 16/24/16: {scalar_time / seconds:.0f} times the time, error {scalar_error:.0e}"
        )
        assert error < scalar_error
    assert scalar_time > 5 * best_time(lambda: fast(1))


def vectorised_newton(wu: np.ndarray, wv: np.ndarray, V: float, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
    """Minimum over two starts by damped Newton in numpy, all points at once."""

    def derivatives(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
        s1, s2 = 1 / (1 + np.exp(-u * (u + v))), 1 / (1 + np.exp(-u * (u - v)))
        d1, d2 = s1 * (1 - s1), s2 * (1 - s2)
        e1, e2 = s1 - t1, s2 - t2
        a, b = 2 * SIGMA2 * e1 * d1, 2 * SIGMA2 * e2 * d2
        aa = 2 * SIGMA2 * d1 * (d1 + e1 * (1 - 2 * s1))
        bb = 2 * SIGMA2 * d2 * (d2 + e2 * (1 - 2 * s2))
        x, y = 2 * u + v, 2 * u - v
        value = SIGMA2 * (e1**2 + e2**2) + ((u - wu) ** 2 + (v - wv) ** 2) / (2 * V)
        return (
            value, x * a + y * b + (u - wu) / V, u * (a - b) + (v - wv) / V,
            2 * (a + b) + x * x * aa + y * y * bb + 1 / V, (a - b) + u * (x * aa - y * bb), u * u * (aa + bb) + 1 / V,
        )  # fmt: skip

    best = np.full(wu.shape, np.inf)
    for sign in (1, -1):
        u, v = np.full(wu.shape, 0.6 * sign), wv.copy()
        for _ in range(30):
            _, gu, gv, a, b, c = derivatives(u, v)
            shift = np.maximum(0, 0.02 / V - 0.5 * (a + c) + np.sqrt(0.25 * (a - c) ** 2 + b * b))
            a, c = a + shift, c + shift
            du, dv = -(c * gu - b * gv) / (a * c - b * b), -(a * gv - b * gu) / (a * c - b * b)
            length = np.minimum(1, 0.4 / np.maximum(np.hypot(du, dv), 1e-300))
            u, v = u + length * du, v + length * dv
            if np.max(np.abs(length * du)) < 1e-9:
                break
        best = np.minimum(best, derivatives(u, v)[0])
    return best


@pytest.mark.slow
def test_proximal_solves_per_second() -> None:
    """Nodes of the fast rule per second, everything included, against three ways to solve the same problems."""
    q, m, theta, V = STATES["positional 1.24"]
    rule = channel_rule(1)
    averages = ch.channel_averages(m, theta, q, V, SIGMA2, 0.3, 0.6, 0.6, 1, rule)
    s = math.sqrt(q)
    grid = ch.teacher_grid(rule[0], rule[1], 1, V, SIGMA2, 0.3, 0.6, 0.6)
    lines = ch.line_table(grid, *rule[2], math.sqrt(2) * m, 0.0, s, V, SIGMA2, rule[4])
    jumps = ch.find_jumps(lines, s, V, SIGMA2, rule[1] + 0.3)[0]
    jumping = int(np.sum(np.abs(jumps - lines[ch.LINE_MEAN]) < s * (rule[1] + 0.3)))
    nodes = (averages[10] - jumping) * TABLE[1][3] + 2 * jumping * TABLE[1][4]
    fast = best_time(
        lambda: ch.channel_averages(m, theta, q, V, SIGMA2, 0.3, 0.6, 0.6, 1, rule), 15
    ) / nodes  # fmt: skip

    rng = np.random.default_rng(0)
    n = 20_000
    wu, wv = math.sqrt(2) * m + s * rng.normal(size=n), s * rng.normal(size=n)
    eta = rng.normal(size=(2, n))
    t1, t2 = np.array([teacher_attention(0.5 * x, 0.5 * y, 0.3, 0.6, 0.6) for x, y in eta.T]).T
    scalar = best_time(lambda: _scalar_points(wu, wv, V, t1, t2), 2) / n
    vectorised = best_time(lambda: vectorised_newton(wu, wv, V, t1, t2), 2) / n

    def library(i: int) -> float:
        def objective(z: np.ndarray) -> float:
            value = loss.py_func(z[0], z[1], t1[i], t2[i], SIGMA2)
            return float(value + ((z[0] - wu[i]) ** 2 + (z[1] - wv[i]) ** 2) / (2 * V))

        return min(minimize(objective, [x, wv[i]]).fun for x in (0.6, -0.6))

    few = 20
    start = time.perf_counter()
    found = [library(i) for i in range(few)]
    by_library = (time.perf_counter() - start) / few
    np.testing.assert_allclose(found, _scalar_points(wu, wv, V, t1, t2)[:few], atol=1e-7)
    np.testing.assert_allclose(vectorised_newton(wu, wv, V, t1, t2), _scalar_points(wu, wv, V, t1, t2), atol=1e-7)
    print(
        f"\n{1e-6 / fast:.0f} million nodes a second and core; times per proximal problem over that: scalar Newton "
        f"{scalar / fast:.0f}, numpy Newton {vectorised / fast:.0f}, scipy.optimize.minimize {by_library / fast:.0f}"
    )
    assert by_library > 1000 * fast
    assert scalar > 4 * fast
    assert vectorised > 10 * fast


@njit(error_model="numpy", cache=True)
def _scalar_points(wu, wv, V, t1, t2):  # type: ignore[no-untyped-def]
    out = np.empty(wu.size)
    for i in range(wu.size):
        right = local_minimum(0.6, wv[i], wu[i], wv[i], V, t1[i], t2[i], SIGMA2)[2]
        left = local_minimum(-0.6, wv[i], wu[i], wv[i], V, t1[i], t2[i], SIGMA2)[2]
        out[i] = min(left, right)
    return out


@pytest.mark.slow
def test_a_solution_from_scratch_takes_a_fraction_of_a_second() -> None:
    for start in ("uninformed", "positional", "semantic"):
        for alpha in (0.9, 1.24, 2.0):
            model = sa.PositionalSemantic(alpha, 0.3)
            sa.solve(model, start)
            seconds = best_time(lambda model=model, start=start: sa.solve(model, start), 3)  # type: ignore[misc]
            print(f"\n{start} at alpha={alpha}: {seconds:.2f} s")
            assert seconds < 0.5
