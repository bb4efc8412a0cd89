"""The copy head: claims, kernels against their symbolic source, states against 30 digits."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import sympy as sp

import statmech_attn as sa
from derivations import check
from derivations import copy_head as claims
from derivations.claim import claims_of
from derivations.symbolic import on_symbols
from statmech_attn.copy_head import action, closed_forms, critical_samples, fluctuations, linear, sampling, softmax
from statmech_attn.copy_head import training as layers
from statmech_attn.copy_head.data import pair_counts
from statmech_attn.copy_head.observables import describe, loss

CLAIMS = claims_of(claims)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_claim(claim):
    verdict = check(claim)
    assert verdict.kind == "proved", verdict


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_mutated_claim_is_refuted(claim):
    verdict = check(claim, control=True)
    assert verdict.kind == "refuted"
    assert verdict.witness


# ---- kernels: the symbolic source at random points


def value(expression: sp.Expr, **values: float) -> float:
    """An expression at a point, with 40 digits."""
    with mpmath.workdps(40):
        free = sorted(expression.free_symbols, key=str)
        return float(sp.lambdify(free, expression, "mpmath")(*(mpmath.mpf(values[str(x)]) for x in free)))


@pytest.fixture(params=range(4))
def rng(request) -> np.random.Generator:
    return np.random.default_rng(request.param)


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@pytest.mark.parametrize("ensemble", ["map", "projected"])
def test_softmax_action_and_curve(rng, boundary, ensemble):
    """The compiled action is prior + S_d of the sums of A; at P(beta) its derivative by symbols vanishes."""
    L, V = int(rng.integers(8, 60)), int(rng.integers(2, 30))
    kappa, c2, w2 = rng.uniform(0.3, 4, 3)
    head = sa.CopyHead(L, V, 10, kappa, c2, w2, boundary=boundary, ensemble=ensemble)
    beta, rows = float(rng.uniform(0.2, 5)), head.target_rows
    (P,) = softmax.sample_curve(head, np.array([beta]))
    head = sa.replace(head, samples=max(P, 1.0))
    S = claims._softmax_action(sp.Integer(rows))
    point = {"L": L, "V": V, "kappa": kappa, "sigma_C^2": c2, "ridge": head.ridge * head.samples,
             "lambda": head.determinant, "P": head.samples, "beta": beta, "a": softmax.weight(beta, L)}  # fmt: skip
    assert softmax.action_at(head, beta) == pytest.approx(value(S, **point), rel=1e-12)
    prior = value(S, **{**point, "P": 1e-300, "lambda": 0})
    slope = value(claims.by_gap(S), **{**point, "P": P})
    assert abs(slope * beta) < 1e-11 * prior
    with mpmath.workdps(40):  # the one positive root of the cubic in 1/P
        L_, n_, V_, v_, k_, ridge, lam = map(mpmath.mpf, softmax.parameters(head))
        a = (mpmath.exp(beta) - 1) / (mpmath.exp(beta) - 1 + L_)
        t, s, a_slope = 1 + n_ * (1 - 1 / L_) * a**2, n_ / L_ + n_ * (1 - 1 / L_) * a, (1 - a) * (1 + (L_ - 1) * a) / L_
        k, b, e = a_slope * s * (V_ - 1) / (k_ * L_ * V_), beta / v_, lam * V_ * (V_ - 1) * a * a_slope
        cubic = [b * ridge**2, (2 * b * t + e) * ridge, b * t * t + e * t - k * ridge, -k * (1 - a * n_ / L_)]
        roots = [x.real for x in mpmath.polyroots(cubic, maxsteps=500, extraprec=200) if abs(x.imag) < 1e-30]
        (x,) = [x for x in roots if x > 0]
    assert pytest.approx(float(1 / x), rel=1e-12) == P


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
def test_reduced_action(rng, boundary):
    """S_4 as the sampler computes it, from the matrix itself: its prior cost, its sums, and the entropy of the bulk."""
    L, V = int(rng.integers(5, 20)), int(rng.integers(2, 9))
    head = sa.CopyHead(L, V, float(rng.uniform(20, 500)), attention="linear", ensemble="posterior", boundary=boundary)
    f, G = linear.forms(head), action.shift(L, boundary)
    x, (rho, tau) = rng.standard_normal(f.t.size), rng.uniform(0.1, 3, 2)
    A = x[0] / L + x[1] * (G - 1 / L)
    if boundary == "open":
        A[0] = x[2] / L
    t, s, r, u = action.sums_of(head, A)
    expected = action.prior_cost(head, A) + action.averaged_action(head, action.Sums(t + rho / L + tau, s, r + rho, u))
    expected += L**2 / (2 * head.logit_prior) * (rho / L + tau)
    expected -= (f.rho_modes * np.log(rho) + f.tau_modes * np.log(tau)) / 2
    sizes = (L, V, head.signal, head.ridge, head.logit_prior, f.rho_modes, f.tau_modes)
    y = np.concatenate([x, np.log([rho, tau])])
    found = sampling._reduced_action(y, tuple(map(float, sizes)), f.t, f.r, f.s, f.u, f.prior)
    assert found == pytest.approx(expected, rel=1e-12)


def test_row(rng):
    """Partition function, means and second moments of a row as sums over its logits and backgrounds."""
    h, log_weight = np.linspace(-2, 3, 7), rng.standard_normal(7)
    Z, Q = rng.uniform(5, 20, 3), rng.uniform(5, 20, 3)
    first, second = 5 * rng.standard_normal(2)
    with mpmath.workdps(40):
        totals = [mpmath.mpf(0)] * 6
        for i, hi in enumerate(map(mpmath.mpf, h)):
            for z, y in zip(map(mpmath.mpf, Z), map(mpmath.mpf, Q), strict=True):
                a, q = mpmath.exp(hi) / (mpmath.exp(hi) + z), (mpmath.exp(2 * hi) + y) / (mpmath.exp(hi) + z) ** 2
                w = mpmath.exp(log_weight[i] + first * a + second * q)
                totals = [n + w * x for n, x in zip(totals, (1, a, q, a * a, a * q, q * q), strict=True)]
        expected = [float(mpmath.log(totals[0] / 3)), *(float(x / totals[0]) for x in totals[1:])]
    np.testing.assert_allclose(fluctuations._row(first, second, h, log_weight, Z, Q), expected, rtol=1e-12)


def symbolic_energy(attention: str, tokens: np.ndarray) -> tuple[sp.Expr, list[sp.Symbol]]:
    """U of given sequences from its definition, and the symbols C, b, W."""
    size, V = tokens.shape[1], 2
    C, W, b = claims.matrix("C", size), claims.matrix("W", V), sp.Symbol("b", real=True)
    if attention == "linear":
        A = (C + b * sp.ones(size)) / size
    else:
        A = sp.Matrix(size, size, lambda i, j: sp.exp(C[i, j]) / sum(sp.exp(C[i, k]) for k in range(size)))
    G = claims.shift(size, "cyclic")
    one_hot = [sp.Matrix(size, V, lambda i, v, x=x: int(x[i] == v)) for x in tokens]
    U = sum(sum(y**2 for y in G * X - A * X * W) for X in one_hot) / (2 * claims.kappa * size)
    U += sum(y**2 for y in C) / (2 * claims.c2) + sum(y**2 for y in W) / (2 * claims.w2)
    return U + (b**2 / (2 * claims.b2) if attention == "linear" else 0), [*C, b, *W]


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_energy(rng, attention):
    """The compiled energy of training and all its derivatives, against those of the symbolic energy."""
    tokens = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1]])
    U, symbols = symbolic_energy(attention, tokens)
    kappa, c2, w2 = rng.uniform(0.3, 3, 3)
    head = sa.CopyHead(3, 2, 3, kappa, c2, w2, attention=attention)
    at = layers.Parameters(rng.standard_normal((3, 3)), rng.standard_normal(1), rng.standard_normal((2, 2)))
    found, slope = layers.Energy(head, pair_counts(tokens, 2), 3)(at)
    names = {str(x): y for x, y in zip(symbols, np.concatenate([x.ravel() for x in at]), strict=True)}
    names |= {"kappa": kappa, "sigma_C^2": c2, "sigma_W^2": w2, "sigma_b^2": layers.offset_variance(head)}
    assert found == pytest.approx(value(U, **names), rel=1e-12)
    expected = [value(sp.diff(U, x), **names) for x in symbols]
    np.testing.assert_allclose(np.concatenate([x.ravel() for x in slope]), expected, rtol=1e-12, atol=1e-13)


def test_energy_of_blocks(rng):
    """The compiled energy of token and position logits: A_ij = (M_ij + N_{x_i x_j} + R_{x_i j} + Q_{i x_j})/L."""
    tokens = np.array([[0, 0, 1], [1, 0, 1]])
    shapes = {"M": (3, 3), "N": (2, 2), "R": (2, 3), "Q": (3, 2), "W": (2, 2)}
    blocks = {name: claims.matrix(name, *shape) for name, shape in shapes.items()}
    U = sp.Integer(0)
    for x in tokens:
        X = sp.Matrix(3, 2, lambda i, v, x=x: int(x[i] == v))
        A = (blocks["M"] + X * blocks["N"] * X.T + X * blocks["R"] + blocks["Q"] * X.T) / 3
        U += sum(y**2 for y in claims.shift(3, "cyclic") * X - A * X * blocks["W"])
    head = sa.CopyHead(3, 2, 2, *rng.uniform(0.3, 3, 3), attention="linear")
    at = layers.Blocks(*(rng.standard_normal(shape) for shape in shapes.values()))
    symbols = [y for block in blocks.values() for y in block]
    names = {str(x): y for x, y in zip(symbols, np.concatenate([x.ravel() for x in at]), strict=True)}
    U /= 2 * sp.Float(head.kappa, 40) * 3
    for name, block in blocks.items():
        U += sum(y**2 for y in block) / (2 * sp.Float(head.value_prior if name == "W" else head.logit_prior, 40))
    found, slope = layers.block_energy(head, tokens, at)
    assert found == pytest.approx(value(U, **names), rel=1e-12)
    expected = [value(sp.diff(U, x), **names) for x in symbols]
    np.testing.assert_allclose(np.concatenate([x.ravel() for x in slope]), expected, rtol=1e-12, atol=1e-13)


def test_loss_of_a_sample(rng):
    """`sampled_loss` less `loss` is the trace over the covariance of the values (V = 3)."""
    head = sa.CopyHead(9, 3, float(rng.uniform(20, 200)), *rng.uniform(0.3, 3, 3), attention="linear",
                       ensemble="posterior")  # fmt: skip
    state = np.array([*rng.uniform(-1, 1, 2), *rng.uniform(0.1, 1, 2)])
    t, s, r, u = linear.sums(head, state)
    left = claims.noise_of_values.build().left
    names = {"P": head.samples, "kappa": head.kappa, "L": 9, "sigma_W^2": head.value_prior, "t": t, "r": r}
    found = describe(head, state)
    assert found["loss"] == pytest.approx(loss(head, action.Sums(t, s, r, u)), rel=1e-14)
    assert found["sampled_loss"] - found["loss"] == pytest.approx(value(left, **names), rel=1e-12)


# ---- states with 30 digits


def roots(equations: Callable[..., list[mpmath.mpf]], start: list[float]) -> list[float]:
    """Newton's method with 40 digits to a residual below 1e-30."""
    with mpmath.workdps(40):
        found = mpmath.findroot(equations, list(map(mpmath.mpf, start)), tol=mpmath.mpf(10) ** -60, maxsteps=60)
        assert max(abs(x) for x in mpmath.matrix(equations(*found))) < mpmath.mpf(10) ** -28
        return [float(x) for x in found]


def softmax_action_of(head: sa.CopyHead) -> sp.Expr:
    """S(beta, P) with the parameters of a model."""
    exact = {"L": head.context_length, "V": head.vocabulary_size, "kappa": head.kappa, "sigma_C^2": head.logit_prior,
             "ridge": head.ridge * head.samples, "lambda": head.determinant}  # fmt: skip
    kernel = on_symbols(softmax._action)(claims.beta, claims.P, claims.L, claims.L, claims.V, claims.c2, claims.kappa,
                                         sp.Symbol("ridge", positive=True), claims.lam)  # fmt: skip
    return kernel.subs({x: sp.Rational(exact[str(x)]) for x in kernel.free_symbols if str(x) in exact})


def test_coexistence_of_softmax_attention():
    """P*, both states there and both spinodals of L = 24, V = 8, by Newton's method on the action itself."""
    head = sa.CopyHead(24, 8, samples=1, noise=4.0, value_variance=0.25)
    found, folds = critical_samples(head), softmax.folds(head)
    S = softmax_action_of(head)
    orders = [sp.lambdify((claims.beta, claims.P), sp.diff(S, claims.beta, k), "mpmath") for k in range(3)]
    here = sa.replace(head, samples=found.coexistence)
    states = [sa.solve(here, start=start).require() for start in ("pooling", "copy")]
    start = [*(float(x.state[0]) for x in states), found.coexistence]
    *gaps, P = roots(
        lambda x, y, P: [orders[1](x, P), orders[1](y, P), orders[0](x, P) - orders[0](y, P)],
        start,
    )
    assert found.coexistence == pytest.approx(P, rel=1e-12)
    for solution, gap in zip(states, gaps, strict=True):
        # one step of the fixed point from the residual, stretched by how slowly it contracts
        slope = (softmax.update(here, gap + 1e-6) - softmax.update(here, gap - 1e-6)) / 2e-6
        assert abs(float(solution.state[0]) - gap) <= 2 * solution.residual / abs(1 - slope) + 1e-11
    for gap, P in ((folds.beta_pooling, found.pooling_spinodal), (folds.beta_copy, found.copy_spinodal)):
        _, exact = roots(lambda x, P: [orders[1](x, P), orders[2](x, P)], [gap, P])
        assert pytest.approx(exact, rel=1e-12) == P


@pytest.mark.parametrize("ensemble", ["map", "projected"])
def test_pitchfork_of_linear_attention(ensemble):
    """The number of samples at which the Hessian at A = 0 turns singular, L = 32, V = 4."""
    head = sa.CopyHead(32, 4, samples=1, noise=4.0, attention="linear", ensemble=ensemble)
    S = claims._projected(head.determinant).subs({claims.theta: claims.RIDGE, claims.q: claims.SIGNAL})
    exact = {claims.L: 32, claims.V: 4, claims.kappa: 4, claims.c2: 1, claims.w2: 1, claims.v_m: 81}
    pairs = ((claims.m, claims.m), (claims.m, claims.g), (claims.g, claims.g))
    entries = [claims._second(S, x, y).subs(exact) for x, y in pairs]
    singular = sp.lambdify(claims.P, entries[0] * entries[2] - entries[1] ** 2, "mpmath")
    found = critical_samples(head).pooling
    (P,) = roots(lambda P: [singular(P) / 1e6], [found])
    assert found == pytest.approx(P, rel=1e-12)


def test_ordered_state_of_linear_attention():
    """(m, g) of L = 32, V = 4, P = 2272, by Newton's method on the gradient of the action."""
    head = sa.CopyHead(32, 4, samples=2272, noise=4.0, attention="linear")
    S = claims._projected(0).subs({claims.theta: claims.RIDGE, claims.q: claims.SIGNAL})
    exact = {claims.L: 32, claims.V: 4, claims.kappa: 4, claims.c2: 1, claims.w2: 1, claims.v_m: 81, claims.P: 2272}
    x = (claims.m, claims.g)
    slopes = sp.lambdify(x, [sp.diff(S, y).subs(exact) / 1000 for y in x], "mpmath")
    solution = sa.solve(head, start="ordered").require()
    state = np.array(roots(lambda *y: slopes(*y), solution.state.tolist()))
    assert np.max(np.abs(solution.state - state) / head.scale(state)) <= 30 * solution.residual + 1e-13


# ---- what was refuted


def test_onset_of_copying_meets_its_cold_limit():
    """With V for V - 1 under the root the closed form was refuted; cold, it missed both P_c and the Hessian by 20 %."""
    head = sa.CopyHead(256, 3, 1, temperature=1e-3, attention="linear", ensemble="posterior", prior="position")
    cold = closed_forms(head)["copy"]
    assert cold == pytest.approx(closed_forms(sa.replace(head, ensemble="map"))["copy"], rel=0.02)
    hessian = [linear.hessian_at_zero(sa.replace(head, samples=x * cold))[1, 1] for x in (0.98, 1.02)]
    assert hessian[0] > 0 > hessian[1]


def test_onset_of_pooling_with_integrated_values():
    """The closed form with V for V - 1 in b was refuted; for small V and long contexts it is the root of h_mm."""
    head = sa.CopyHead(64, 3, 1, attention="linear", ensemble="projected")
    onset = closed_forms(head)["pooling"]
    hessian = [linear.hessian_at_zero(sa.replace(head, samples=x * onset))[0, 0] for x in (0.997, 1.003)]
    assert hessian[0] > 0 > hessian[1]
