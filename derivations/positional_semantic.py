r"""Positional versus semantic learning: from the replicas to the state equations, the proximal operator and its jumps.

Source: Cui, Behrens, Krzakala, Zdeborova, arXiv 2402.03902. Two tokens, a rank-one student and
teacher. A line of the derivation is a claim, in this order:

1. the loss of a sample, in rotated coordinates, and its derivatives;
2. the replicated partition function, with a replica-symmetric overlap matrix, becomes a prior and a channel term;
3. stationarity of the free energy in each order parameter gives each state equation back;
4. the training loss, the test error and the linear baseline.

It goes on in :mod:`.proximal`, with the proximal operator, its jumps and message passing; :mod:`.general_rank` has any
number of tokens and any rank.

Averages over teacher and student noise are linear, so an identity between averages is stated for one draw: g_u, g_v,
eta and zeta stand for it. Hats are sums over the two tokens. The kernels of the package are compared at random points.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from derivations.claim import Equation, claim
from derivations.gaussian import box, expectation, matrix
from statmech_attn.positional_semantic import PositionalSemantic, attention, observables
from statmech_attn.positional_semantic import state_equations as equations

Expr = Any
Box = dict[Expr, tuple[float, float]]

PACKAGE = "statmech_attn.positional_semantic"

u, v, wu, wv, t1, t2, d1, d2 = sp.symbols("u v omega_u omega_v t1 t2 delta1 delta2", real=True)
sigma, sigma2, V, alpha, lam, p, rho = sp.symbols("sigma sigma2 V alpha lambda p rho", positive=True)
q, qh, s = sp.symbols("q q_hat s", positive=True)
m, theta, mh, th, Vh = sp.symbols("m theta m_hat theta_hat V_hat", real=True)
gu, gv, eta_u, eta_v, zeta_u, zeta_v = sp.symbols("g_u g_v eta_u eta_v zeta_u zeta_v", real=True)
omega, a1, a2 = sp.symbols("omega a1 a2", real=True)
ATTENTION: Box = {t1: (0.0, 1.0), t2: (0.0, 1.0)}


def logistic(x: Expr) -> Expr:
    """1/(1 + exp(-x))."""
    return 1 / (1 + sp.exp(-x))


def loss(t1: Expr = t1, t2: Expr = t2) -> Expr:
    """The loss of a sample in rotated coordinates."""
    return sigma2 * ((logistic(u**2 + u * v) - t1) ** 2 + (logistic(u**2 - u * v) - t2) ** 2)


def softmax(h: list[Expr]) -> Expr:
    """Row-wise softmax of h h^T."""
    n = len(h)
    return sp.Matrix(n, n, lambda i, j: sp.exp(h[i] * h[j]) / sum(sp.exp(h[i] * x) for x in h))


def tokens(u: Expr, v: Expr) -> list[Expr]:
    """Token coordinates of a rotated point."""
    return [(u + v) / sp.sqrt(2), (v - u) / sp.sqrt(2)]


def domain(*symbols: Expr, **intervals: tuple[float, float]) -> Box:
    """A domain of order one, with other intervals for the named symbols."""
    return {x: intervals.get(x.name, interval) for x, interval in box(*symbols).items()}


# ---- 1. the loss


@claim()
def rotated_distance() -> Equation:
    r"""|z - omega|^2 = (u - omega_u)^2 + (v - omega_v)^2 for u = (z_1 - z_2)/sqrt 2, v = (z_1 + z_2)/sqrt 2."""
    z, w = tokens(u, v), tokens(wu, wv)
    left = sum((x - y) ** 2 for x, y in zip(z, w, strict=True))
    return Equation(left, (u - wu) ** 2 + (v - wv) ** 2, box(u, v, wu, wv))


@claim(f"{PACKAGE}.attention.loss")
def loss_of_a_sample() -> Equation:
    r"""tr (T - S) sigma^2 (T - S)^T/2 = sigma^2 [(S_11 - T_11)^2 + (S_22 - T_22)^2] for rows that sum to one."""
    s1, s2 = sp.symbols("s1 s2", real=True)
    S = sp.Matrix([[s1, 1 - s1], [1 - s2, s2]])
    T = sp.Matrix([[t1, 1 - t1], [1 - t2, t2]])
    instance = {s1: logistic(u**2 + u * v), s2: logistic(u**2 - u * v)}
    return Equation(
        ((T - S) * sigma2 * (T - S).T).trace() / 2,
        sigma2 * ((s1 - t1) ** 2 + (s2 - t2) ** 2),
        box(u, v, sigma2) | ATTENTION,
        instance=instance,
        kernel=lambda u, v, sigma2, t1, t2: attention.loss(u, v, t1, t2, sigma2),
    )


@claim()
def rotated_attention() -> Equation:
    r"""softmax(z z^T) has the diagonal s(u^2 + u v), s(u^2 - u v), s the logistic function."""
    S = softmax(tokens(u, v))
    right = [logistic(u**2 + u * v), logistic(u**2 - u * v)]
    return Equation([S[0, 0], S[1, 1]], right, box(u, v), wrong=right[::-1])


@claim(f"{PACKAGE}.attention.exp", limit=20, reason="compiles")
def exponential() -> Equation:
    r"""exp(k ln 2 + r) = 2^k exp(r): reduction of the argument before the Taylor series."""
    k = sp.Symbol("k", integer=True)
    r = sp.Symbol("r", real=True)
    return Equation(
        sp.exp(k * sp.log(2) + r),
        2**k * sp.exp(r),
        {k: (-900, 900), r: (-0.34, 0.34)},
        rewrite=[lambda e: sp.powsimp(sp.expand(e), force=False)],
        kernel=attention.exp,
        arguments=[k * sp.log(2) + r],
    )


@claim(f"{PACKAGE}.attention._exponentials")
def one_division() -> Equation:
    r"""With e = exp(-u^2), x = exp(u v), p = x + e, r = 1 + e x: S_11 = x r/(p r), 1 - S_11 = e r/(p r), and so on."""
    e, x = sp.exp(-(u**2)), sp.exp(u * v)
    p, r = x + e, 1 + e * x
    s1, s2 = logistic(u**2 + u * v), logistic(u**2 - u * v)
    right = [x * r / (p * r), e * r / (p * r), p / (p * r), e * x * p / (p * r)]
    return Equation([s1, 1 - s1, s2, 1 - s2], right, box(u, v), wrong=[right[1], right[0], *right[2:]])


def _logits_as_symbols(expression: Expr) -> Expr:
    """Write exp(-i a - j b), a = u^2 + u v, b = u^2 - u v, as powers of two symbols."""
    x, y = sp.symbols("exp_a exp_b", positive=True)

    def power(argument: Expr) -> Expr:
        squares, products = sp.expand(argument).coeff(u**2), sp.expand(argument).coeff(u * v)
        return x ** (-(squares + products) / 2) * y ** (-(squares - products) / 2)

    return expression.replace(sp.exp, power)


@claim(f"{PACKAGE}.attention.loss_derivatives")
def derivatives_of_the_loss() -> Equation:
    r"""Gradient and Hessian of the loss through the logits a = u^2 + u v, b = u^2 - u v."""
    x, y = logistic(u**2 + u * v), logistic(u**2 - u * v)
    s1, s2 = sp.symbols("s1 s2", real=True)
    slope1, slope2 = s1 * (1 - s1), s2 * (1 - s2)
    c, au, bu = 2 * sigma2, 2 * u + v, 2 * u - v
    la, lb = c * (s1 - t1) * slope1, c * (s2 - t2) * slope2
    laa = c * slope1 * (slope1 + (s1 - t1) * (1 - 2 * s1))
    lbb = c * slope2 * (slope2 + (s2 - t2) * (1 - 2 * s2))
    right = [
        sigma2 * ((s1 - t1) ** 2 + (s2 - t2) ** 2),
        au * la + bu * lb,
        u * (la - lb),
        2 * (la + lb) + au**2 * laa + bu**2 * lbb,
        (la - lb) + u * (au * laa - bu * lbb),
        u**2 * (laa + lbb),
    ]
    ell = loss()
    left = [ell, *(sp.diff(ell, *wrt) for wrt in ((u,), (v,), (u, u), (u, v), (v, v)))]
    right = [expression.subs({s1: x, s2: y}) for expression in right]
    return Equation(
        left,
        right,
        box(u, v) | ATTENTION | box(sigma2),
        rewrite=[_logits_as_symbols],
        kernel=attention.loss_derivatives,
        wrong=[*right[:5], -right[5]],
    )


@claim(f"{PACKAGE}.attention.teacher_attention")
def target_attention() -> Equation:
    r"""T = (1 - omega) softmax(h h^T) + omega A, on the diagonal, at the teacher's rotated index."""
    S = softmax(tokens(u, v))
    T = (1 - omega) * S + omega * sp.diag(a1, a2)
    s1, s2 = logistic(u**2 + u * v), logistic(u**2 - u * v)
    right = [(1 - omega) * s1 + omega * a1, (1 - omega) * s2 + omega * a2]
    return Equation(
        [T[0, 0], T[1, 1]],
        right,
        box(u, v) | {omega: (0.0, 1.0)} | box(a1, a2),
        kernel=attention.teacher_attention,
        wrong=right[::-1],
    )


@claim(f"{PACKAGE}.attention.effective_target")
def rows_that_do_not_sum_to_one() -> Equation:
    r"""An excess r of a row of T over one shifts T_11 by -r/2 and adds r^2/4 to half of its square."""
    A = matrix("A", 2, 2)
    s1, s2 = sp.symbols("s1 s2", real=True)
    S = sp.Matrix([[s1, 1 - s1], [1 - s2, s2]])
    r1, r2 = A[0, 0] + A[0, 1] - 1, A[1, 0] + A[1, 1] - 1
    right = (s1 - A[0, 0] + r1 / 2) ** 2 + (s2 - A[1, 1] + r2 / 2) ** 2 + (r1**2 + r2**2) / 4
    return Equation(((S - A) * (S - A).T).trace() / 2, right, box(s1, s2, *A), wrong=right - (r1**2 + r2**2) / 8)


@claim(f"{PACKAGE}.attention.effective_target")
def effective_target() -> Equation:
    r"""The shifted diagonal is (1 + A_11 - A_12)/2, (1 + A_22 - A_21)/2, with constant (r_1^2 + r_2^2)/4."""
    A = matrix("A", 2, 2)
    r1, r2 = A[0, 0] + A[0, 1] - 1, A[1, 0] + A[1, 1] - 1
    return Equation(
        [A[0, 0] - r1 / 2, A[1, 1] - r2 / 2, (r1**2 + r2**2) / 4],
        [(1 + A[0, 0] - A[0, 1]) / 2, (1 + A[1, 1] - A[1, 0]) / 2, (r1**2 + r2**2) / 4],
        box(*A),
        kernel=lambda a, b, c, d: attention.effective_target(((a, b), (c, d))),
    )


@claim(f"{PACKAGE}.channel.teacher_grid")
def loss_is_even() -> Equation:
    r"""l(-u, -v) = l(u, v): a student and its negative are one; likewise T(-h) = T(h)."""
    flipped = loss().subs({u: -u, v: -v}, simultaneous=True)
    return Equation(flipped, loss(), box(u, v, sigma2) | ATTENTION, wrong=loss().subs(v, -v))


@claim(f"{PACKAGE}.channel.teacher_grid")
def exchange_of_the_tokens() -> Equation:
    r"""l(u, -v; T_22, T_11) = l(u, v; T_11, T_22): exchange of the tokens, with a sign."""
    return Equation(loss(t2, t1).subs(v, -v), loss(), box(u, v, sigma2) | ATTENTION, wrong=loss(t2, t1))


@claim(f"{PACKAGE}.state_equations.channel")
def exchange_of_the_channel() -> Equation:
    r"""omega_u stays and omega_v changes sign under (eta_v, zeta_v) -> -(eta_v, zeta_v), T_11 and T_22 exchange."""
    wu, wv = local_field()
    S = softmax(tokens(sigma * eta_u, sigma * eta_v))
    flip = {eta_v: -eta_v, zeta_v: -zeta_v}
    left = [x.subs(flip) for x in (wu, wv, S[0, 0], S[1, 1])]
    right = [wu, -wv, S[1, 1], S[0, 0]]
    return Equation(left, right, noise_domain(sigma), wrong=[wu, wv, S[1, 1], S[0, 0]])


# ---- 2. replicas


def local_field() -> tuple[Expr, Expr]:
    """omega in rotated coordinates, teacher first."""
    spread = sp.sqrt(q - theta**2 / sigma**2)
    return (
        sp.sqrt(2) * m + theta / sigma * eta_u + spread * zeta_u,
        theta / sigma * eta_v + spread * zeta_v,
    )


def noise_domain(*more: Expr) -> Box:
    """Overlaps with theta^2 < sigma^2 q, and one draw of the noise."""
    ranges = {"theta": (-0.4, 0.4), "q": (1.5, 3.0), "sigma": (0.4, 1.5), "lambda": (0.5, 2.0), "V_hat": (0.1, 2.0)}
    return domain(q, m, theta, V, eta_u, eta_v, zeta_u, zeta_v, *more, **ranges)


@claim()
def replicated_prior() -> Equation:
    r"""Replicas of a weight: (1/n) log of their integral is B (b^2 + N)/(2 L) - log(L)/2 + ... as n -> 0.

    With energy B L w^2/2 - B b w a replica and a coupling B^2 N of all pairs (the overlap's conjugate), L = lambda +
    sigma^2 V_hat. As B -> infinity the term of order B is (b^2 + N)/(2 L), N = sigma^2 q_hat.
    """
    n, beta, L, N = sp.symbols("n B Lambda N", positive=True)
    b = sp.Symbol("b", real=True)
    # matrix B L 1 - B^2 N 11^T and source B b 1: determinant and inverse of the lemmas
    outlier = beta * L - n * beta**2 * N
    log = -((n - 1) * sp.log(beta * L) + sp.log(outlier)) / 2 + n * (beta * b) ** 2 / (2 * outlier)
    per_replica = sp.limit(log / n, n, 0)
    left = sp.limit(sp.expand(per_replica) / beta, beta, sp.oo)
    return Equation(left, (b**2 + N) / (2 * L), box(b, L, N), wrong=(b**2 - N) / (2 * L))


@claim()
def replicated_channel() -> Equation:
    r"""Indices of n replicas with covariance q + V delta_ab are independent given their common part omega.

    h^T (V 1 + q 11^T)^{-1} h is what is left of (sum_a (h_a - omega)^2/V + omega^2/q) at its minimum over omega.
    """
    h = sp.symbols("h:4", real=True)
    n = len(h)
    common = q * sum(h) / (V + n * q)
    left = sum((x - common) ** 2 for x in h) / V + common**2 / q
    right = sum(x**2 for x in h) / V - q * sum(h) ** 2 / (V * (V + n * q))
    return Equation(left, right, box(*h, q, V))


@claim(f"{PACKAGE}.monte_carlo.monte_carlo_hats")
def teacher_first() -> Equation:
    r"""omega = m + theta eta/sqrt(rho) + s zeta has mean m, variance q, covariance theta with sqrt(rho) eta."""
    eta, zeta = sp.symbols("eta zeta", real=True)
    spread = sp.sqrt(q - theta**2 / rho)
    field = m + theta * eta / sp.sqrt(rho) + spread * zeta
    mean = expectation(field, eta, zeta)
    left = [
        mean,
        expectation(sp.expand((field - mean) ** 2), eta, zeta),
        expectation(sp.expand((field - mean) * sp.sqrt(rho) * eta), eta, zeta),
    ]
    return Equation(left, [m, q, theta], domain(m, q, theta, rho, q=(4, 6)), wrong=[m, q, rho * theta])


@claim(f"{PACKAGE}.published.Published.hats")
def student_first() -> Equation:
    r"""omega = m + sqrt(q) xi, h* = theta xi/sqrt(q) + sqrt(rho - theta^2/q) y have the same covariances."""
    xi, y = sp.symbols("xi y", real=True)
    field = m + sp.sqrt(q) * xi
    teacher = theta / sp.sqrt(q) * xi + sp.sqrt(rho - theta**2 / q) * y
    left = [
        expectation(sp.expand((field - m) ** 2), xi, y),
        expectation(sp.expand((field - m) * teacher), xi, y),
        expectation(sp.expand(teacher**2), xi, y),
    ]
    return Equation(left, [q, theta, rho], domain(q, theta, m, rho, q=(15, 20)), wrong=[q, theta, q])


@claim(f"{PACKAGE}.published.Published.hats")
def hats_student_first() -> Equation:
    r"""Published: V_hat = -alpha E[g xi]/sqrt(q) + theta theta_hat/q, theta_hat = alpha E[g y]/sqrt(rho - theta^2/q).

    With the same field and teacher written teacher first, these are the hats of the state equations.
    """
    g, xi, y = sp.symbols("g xi y", real=True)
    spread, rest = sp.sqrt(q - theta**2 / rho), sp.sqrt(rho - theta**2 / q)
    eta = (theta / sp.sqrt(q) * xi + rest * y) / sp.sqrt(rho)
    zeta = (sp.sqrt(q) * xi - theta / sp.sqrt(rho) * eta) / spread
    V_hat = -alpha * g * zeta / spread
    left = [V_hat, alpha * g * eta / sp.sqrt(rho) + theta * V_hat / rho]
    theta_hat = alpha * g * y / rest
    right = [-alpha * g * xi / sp.sqrt(q) + theta * theta_hat / q, theta_hat]
    return Equation(
        left, right, domain(g, xi, y, q, theta, rho, alpha, q=(15, 20)),
        wrong=[-alpha * g * xi / sp.sqrt(q), theta_hat],
    )  # fmt: skip


# ---- 3. stationarity of the free energy


def prior_term() -> Expr:
    """Minus E (b^2 + N)/(2 D) over the law of a coordinate: pi = (p, -p), tau standard normal, gamma = sigma^2."""
    tau = sp.Symbol("tau", real=True)
    b = p * mh + sigma**2 * th * tau
    return -expectation(sp.expand(b**2 + sigma**2 * qh), tau) / (2 * (lam + sigma**2 * Vh))


def conjugate_term() -> Expr:
    """Order parameters times their hats."""
    return (qh * V - Vh * q) / 2 + m * mh + theta * th


def channel_derivative(wrt: Expr) -> Expr:
    """Derivative of M at one draw; by the envelope theorem dM/d omega = -g, dM/dV = -|g|^2/2."""
    wu, wv = local_field()
    return -gu * sp.diff(wu, wrt) - gv * sp.diff(wv, wrt) - (gu**2 + gv**2) / 2 * sp.diff(V, wrt)


def model(alpha: float, sigma: float, lam: float, p: float = 1.0) -> PositionalSemantic:
    """The package's model."""
    return PositionalSemantic(alpha=alpha, sigma=sigma, regularization=lam, positional_strength=p)


def _hat(index: int) -> Any:
    """Kernel: a hat of the package from averages over one draw."""

    def kernel(q, m, theta, V, eta_u, eta_v, zeta_u, zeta_v, gu, gv, sigma, alpha):  # type: ignore[no-untyped-def]
        averages = SimpleNamespace(
            g_u=gu,
            g_g=gu**2 + gv**2,
            g_zeta=gu * zeta_u + gv * zeta_v,
            g_eta=gu * eta_u + gv * eta_v,
            envelope=0.0,
        )
        return equations.hats(model(alpha, sigma, 1.0), np.array([q, m, theta, V]), averages)[index]  # type: ignore[arg-type]

    return kernel


def _stationary(wrt: Expr, hat: Expr) -> Expr:
    """The hat that makes the free energy stationary in an order parameter."""
    slope = sp.diff(conjugate_term(), wrt) + alpha * channel_derivative(wrt)
    (solution,) = sp.solve(slope, hat)
    return solution


@claim(f"{PACKAGE}.state_equations.hats")
def stationary_in_variance() -> Equation:
    r"""dE/dV = 0: q_hat = alpha E |g|^2."""
    right = alpha * (gu**2 + gv**2)
    return Equation(_stationary(V, qh), right, noise_domain(gu, gv, sigma, alpha), kernel=_hat(0), wrong=right / 2)


@claim(f"{PACKAGE}.state_equations.hats")
def stationary_in_m() -> Equation:
    r"""dE/dm = 0: m_hat = alpha sqrt(2) E g_u."""
    right = alpha * sp.sqrt(2) * gu
    return Equation(_stationary(m, mh), right, noise_domain(gu, gv, sigma, alpha), kernel=_hat(1), wrong=-right)


@claim(f"{PACKAGE}.state_equations.hats")
def stationary_in_theta() -> Equation:
    r"""dE/d theta = 0: theta_hat = alpha E[g.eta]/sqrt(rho) + theta V_hat/rho."""
    spread = sp.sqrt(q - theta**2 / sigma**2)
    V_hat = -alpha * (gu * zeta_u + gv * zeta_v) / spread
    right = alpha * (gu * eta_u + gv * eta_v) / sigma + theta * V_hat / sigma**2
    wrong = right - 2 * theta * V_hat / sigma**2
    return Equation(_stationary(theta, th), right, noise_domain(gu, gv, sigma, alpha), kernel=_hat(2), wrong=wrong)


@claim(f"{PACKAGE}.state_equations.hats")
def stationary_in_q() -> Equation:
    r"""dE/dq = 0: V_hat = -alpha E[g.zeta]/s, in Stein form: no derivative of g, so jumps are counted."""
    spread = sp.sqrt(q - theta**2 / sigma**2)
    right = -alpha * (gu * zeta_u + gv * zeta_v) / spread
    return Equation(_stationary(q, Vh), right, noise_domain(gu, gv, sigma, alpha), kernel=_hat(3), wrong=right * spread)


@claim(f"{PACKAGE}.monte_carlo.monte_carlo_hats")
def theta_hat_of_a_sample() -> Equation:
    r"""theta_hat/alpha is the average of g.eta/sigma - (theta/sigma) g.zeta/(sigma s), one number a sample."""
    spread = sp.sqrt(q - theta**2 / sigma**2)
    g_eta, g_zeta = gu * eta_u + gv * eta_v, gu * zeta_u + gv * zeta_v
    slope = theta / sigma
    return Equation(
        _stationary(theta, th).subs(Vh, _stationary(q, Vh)) / alpha,
        g_eta / sigma - slope / (sigma * spread) * g_zeta,
        noise_domain(gu, gv, sigma, alpha),
        wrong=g_eta / sigma + slope / (sigma * spread) * g_zeta,
    )


D = lam + sigma**2 * Vh
PRIOR = (
    sigma**2 * (sigma**2 * qh + p**2 * mh**2 + sigma**4 * th**2) / D**2,
    p**2 * mh / D,
    sigma**4 * th / D,
    sigma**2 / D,
)


def _prior(index: int) -> Any:
    """Kernel: an order parameter of the package from the hats."""

    def kernel(qh, mh, th, Vh, lam, sigma, p):  # type: ignore[no-untyped-def]
        return equations.prior(model(1.0, sigma, lam, p), equations.Hats(qh, mh, th, Vh, 0.0))[index]

    return kernel


def hat_domain(*more: Expr) -> Box:
    """Hats with D > 0."""
    return domain(qh, mh, th, Vh, lam, sigma, p, *more, V_hat=(0.0, 2.0))


def _stationary_hat(hat: Expr, wanted: Expr) -> Expr:
    """The order parameter that makes the free energy stationary in a hat."""
    (solution,) = sp.solve(sp.diff(conjugate_term() + prior_term(), hat), wanted)
    return solution


@claim(f"{PACKAGE}.state_equations.prior")
def stationary_in_variance_hat() -> Equation:
    r"""dE/d V_hat = 0: q = sigma^2 (sigma^2 q_hat + p^2 m_hat^2 + sigma^2 rho theta_hat^2)/D^2."""
    return Equation(_stationary_hat(Vh, q), PRIOR[0], hat_domain(), kernel=_prior(0), wrong=PRIOR[0] * D)


@claim(f"{PACKAGE}.state_equations.prior")
def stationary_in_m_hat() -> Equation:
    r"""dE/d m_hat = 0: m = p^2 m_hat/D."""
    return Equation(_stationary_hat(mh, m), PRIOR[1], hat_domain(), kernel=_prior(1), wrong=PRIOR[1] / p)


@claim(f"{PACKAGE}.state_equations.prior")
def stationary_in_theta_hat() -> Equation:
    r"""dE/d theta_hat = 0: theta = sigma^2 rho theta_hat/D."""
    return Equation(_stationary_hat(th, theta), PRIOR[2], hat_domain(), kernel=_prior(2), wrong=PRIOR[2] / sigma**2)


@claim(f"{PACKAGE}.state_equations.prior")
def stationary_in_q_hat() -> Equation:
    r"""dE/d q_hat = 0: V = sigma^2/D."""
    return Equation(_stationary_hat(qh, V), PRIOR[3], hat_domain(), kernel=_prior(3), wrong=1 / D)


@claim(f"{PACKAGE}.state_equations.prior")
def prior_as_an_average() -> Equation:
    r"""The same as averages over a coordinate's law: w = (b + sqrt(N) xi)/D, q = E sigma^2 w^2, m = E pi w, ..."""
    tau, xi = sp.symbols("tau xi", real=True)
    weight = (p * mh + sigma**2 * th * tau + sigma * sp.sqrt(qh) * xi) / D
    left = [expectation(sp.expand(x * weight), tau, xi) for x in (sigma**2 * weight, p, sigma**2 * tau)]
    return Equation(left, list(PRIOR[:3]), hat_domain(), wrong=[PRIOR[0], PRIOR[1] * 2, PRIOR[2]])


# ---- 4. training loss, test error, linear baseline

envelope, ell = sp.symbols("M l", positive=True)


@claim(f"{PACKAGE}.state_equations.free_energy")
def free_energy() -> Equation:
    r"""E = (q_hat V - V_hat q)/2 + m m_hat + theta theta_hat - (b^2 + N)/(2 D) + alpha E M, the training loss.

    From the sum over both tokens, where m_2 = -m_1 and every hat is half of its sum.
    """
    halves = [(qh / 2, sign * mh / 2, th / 2, Vh / 2, sign * m) for sign in (1, -1)]
    conjugate = sum(a * V / 2 - d * q / 2 + b * x + c * theta for a, b, c, d, x in halves)
    b2 = sigma**2 * qh + p**2 * mh**2 + sigma**4 * th**2
    right = (qh * V - Vh * q) / 2 + m * mh + theta * th - b2 / (2 * D) + alpha * envelope

    def kernel(qh, mh, th, Vh, lam, sigma, p, q, m, theta, V, alpha, envelope):  # type: ignore[no-untyped-def]
        hats = equations.Hats(qh, mh, th, Vh, envelope)
        return equations.free_energy(model(alpha, sigma, lam, p), np.array([q, m, theta, V]), hats)

    return Equation(
        conjugate + prior_term() + alpha * envelope,
        right,
        hat_domain(q, m, theta, V, alpha, envelope),
        kernel=kernel,
        wrong=right + b2 / D,
    )


@claim()
def moreau_envelope() -> Equation:
    r"""M = l(z) + V |g|^2/2, with g = (z - omega)/V."""
    left = ((u - wu) ** 2 + (v - wv) ** 2) / (2 * V) + ell
    g = [(u - wu) / V, (v - wv) / V]
    right = ell + V * sum(x**2 for x in g) / 2
    return Equation(left, right, box(u, v, wu, wv, V, ell), wrong=ell + sum(x**2 for x in g) / (2 * V))


@claim(f"{PACKAGE}.state_equations.free_energy")
def two_forms_of_the_training_loss() -> Equation:
    r"""E = alpha E l(z) + (lambda/2) q/sigma^2, for any hats, as soon as (q, m, theta, V) = prior(hats)."""
    state = dict(zip((q, m, theta, V), PRIOR, strict=True))
    # alpha E M = alpha E l + V q_hat/2, as q_hat = alpha E |g|^2
    energy = conjugate_term() + prior_term() + alpha * ell + V * qh / 2
    right = alpha * ell + lam * q / (2 * sigma**2)
    wrong = alpha * ell + lam * q / 2
    return Equation(energy.subs(state), right.subs(state), hat_domain(alpha, ell), wrong=wrong.subs(state))


@claim(f"{PACKAGE}.observables.mean_loss")
def test_error() -> Equation:
    r"""The error of a fresh sample is the loss at the field omega itself: no proximal operator, V does not enter.

    On three trapezoid nodes an axis the average is a finite sum, which the kernel must reproduce.
    """

    def average(summand: Any) -> Any:
        def side(m, theta, q, sigma, omega, a1, a2):  # type: ignore[no-untyped-def]
            weight = mpmath.exp(-2) / (1 + 2 * mpmath.exp(-2))
            nodes = [(-2, weight), (0, 1 - 2 * weight), (2, weight)]
            spread = mpmath.sqrt(q - theta**2 / sigma**2)
            return sum(
                wx * wy * wa * wb * summand(
                    sigma * x, sigma * y, mpmath.sqrt(2) * m + theta / sigma * x + spread * a,
                    theta / sigma * y + spread * b, sigma, omega, a1, a2,
                )
                for x, wx in nodes for y, wy in nodes for a, wa in nodes for b, wb in nodes
            )  # fmt: skip

        return side

    S, T = softmax(tokens(u, v)), softmax(tokens(wu, wv))
    # both entries of a row that sums to one
    errors = [S[i, i] - (1 - omega) * T[i, i] - omega * a for i, a in enumerate((a1, a2))]
    in_tokens = sigma**2 * sum(2 * e**2 for e in errors) / 2
    target = [logistic(wu**2 + wu * wv), logistic(wu**2 - wu * wv)]
    target = [(1 - omega) * t + omega * a for t, a in zip(target, (a1, a2), strict=True)]
    rotated = loss(*target).subs(sigma2, sigma**2)
    arguments = (wu, wv, u, v, sigma, omega, a1, a2)
    left, right = (average(sp.lambdify(arguments, e, "mpmath", cse=True)) for e in (in_tokens, rotated))
    return Equation(
        left, right,
        domain(m, theta, q, sigma, omega, a1, a2, theta=(-0.3, 0.3), q=(0.5, 1), sigma=(0.5, 1), omega=(0, 1)),
        kernel=lambda *values: observables.mean_loss(*values, 1, 2.0),  # type: ignore[call-arg]
    )  # fmt: skip


@claim(f"{PACKAGE}.observables.linear_baseline")
def best_linear_layer() -> Equation:
    r"""E (W - T)^2 = (W - E T)^2 + Var T: the best linear layer is W = E T and leaves the variance."""
    W, x, w1 = sp.symbols("W x w", real=True)
    other = sp.Symbol("y", real=True)
    # a law of two values, x with probability w
    mean = w1 * x + (1 - w1) * other
    variance = w1 * x**2 + (1 - w1) * other**2 - mean**2
    left = w1 * (W - x) ** 2 + (1 - w1) * (W - other) ** 2
    return Equation(left, (W - mean) ** 2 + variance, box(W, x, other) | {w1: (0.0, 1.0)}, wrong=(W - mean) ** 2)


@claim(f"{PACKAGE}.observables.linear_baseline")
def linear_baseline() -> Equation:
    r"""E tr (T - ET) Sigma (T - ET)^T/2 = sigma^2 (1 - omega)^2 (Var S_11 + Var S_22): the fixed part is linear."""
    x, y = sp.symbols("x y", real=True)
    mx, my = sp.symbols("mean_x mean_y", real=True)
    A = matrix("A", 2, 2)
    S, mean = (sp.Matrix([[a, 1 - a], [1 - b, b]]) for a, b in ((x, y), (mx, my)))
    T, mean_T = ((1 - omega) * X + omega * A for X in (S, mean))
    left = ((T - mean_T) * sigma**2 * (T - mean_T).T).trace() / 2
    right = sigma**2 * (1 - omega) ** 2 * ((x - mx) ** 2 + (y - my) ** 2)
    return Equation(left, right, box(x, y, mx, my, sigma, *A) | {omega: (0.0, 1.0)}, wrong=right / (1 - omega))
