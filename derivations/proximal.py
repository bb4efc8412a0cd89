r"""The proximal operator of the two-token model, its jumps, and message passing.

The minimiser z of :math:`|z-\omega|^2/(2V)+\ell(z)` is global, and the loss has two wells where V is large, so z jumps.
In order: the operator and its derivative; where there are two wells; what a jump adds to Stein's identity; the
expansion from which the search for jumps starts; the Onsager term and the stability of replica symmetry.

Derivatives of the loss are symbols in proofs, and those of the loss itself in samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from derivations.claim import Equation, claim
from derivations.gaussian import box, matrix
from derivations.positional_semantic import (
    PACKAGE,
    PRIOR,
    Box,
    Expr,
    V,
    a1,
    a2,
    alpha,
    d1,
    d2,
    domain,
    ell,
    eta_u,
    eta_v,
    hat_domain,
    lam,
    loss,
    omega,
    qh,
    s,
    sigma,
    sigma2,
    softmax,
    t1,
    t2,
    tokens,
    u,
    v,
    wu,
    wv,
    zeta_u,
)  # fmt: skip
from statmech_attn.positional_semantic import channel, monte_carlo, proximal, published

# ---- the operator and its derivative

lu, lv, luu, luv, lvv = sp.symbols("l_u l_v l_uu l_uv l_vv", real=True)
LOSS = {
    ell: loss(),
    **{x: sp.diff(loss(), *wrt) for x, wrt in ((lu, (u,)), (lv, (v,)), (luu, (u, u)), (luv, (u, v)), (lvv, (v, v)))},
}
HESSIAN = sp.Matrix([[luu, luv], [luv, lvv]])
# 1/V above the most negative curvature of the loss: one well
CONVEX: Box = {u: (-1.5, 1.5), v: (-1.5, 1.5), V: (0.1, 0.5), t1: (0.0, 1.0), t2: (0.0, 1.0), sigma2: (0.1, 0.4)}


@claim((f"{PACKAGE}.proximal.proximal_point", f"{PACKAGE}.proximal.proximal_operator"))
def proximal_point() -> Equation:
    r"""z is the proximal point of omega = z + V grad l(z), where M = l + V |grad l|^2/2."""
    field = [u + V * lu, v + V * lv]
    M = ((u - field[0]) ** 2 + (v - field[1]) ** 2) / (2 * V) + ell

    def kernel(wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
        point = proximal.proximal_point(wu, wv, V, t1, t2, sigma2)
        pair = np.array([[(wu + wv) / np.sqrt(2), (wv - wu) / np.sqrt(2)]])
        z, minimum = proximal.proximal_operator(pair, V, np.array([[t1, t2]]), np.sqrt(sigma2))
        rotated = ((z[0, 0] - z[0, 1]) / np.sqrt(2), (z[0, 0] + z[0, 1]) / np.sqrt(2), minimum[0])
        return [*point, *rotated]

    found = [field[0] - V * lu, field[1] - V * lv, ell + V * (lu**2 + lv**2) / 2]
    return Equation(
        [u, v, M] * 2, found * 2, CONVEX, instance=LOSS, kernel=kernel,
        arguments=[x.subs(LOSS) for x in (*field, V, t1, t2, sigma2)],
    )  # fmt: skip


@claim(f"{PACKAGE}.proximal.local_minimum")
def local_minimum() -> Equation:
    r"""The gradient l_z + (z - omega)/V of the objective vanishes where the descent from omega ends."""
    z_u, z_v = u + V * lu, v + V * lv
    objective = ((u - wu) ** 2 + (v - wv) ** 2) / (2 * V)
    left = [sp.diff(objective, u) + lu, sp.diff(objective, v) + lv]
    at = {wu: z_u, wv: z_v}
    left = [u + left[0].subs(at), v + left[1].subs(at)]

    def kernel(wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
        return proximal.local_minimum(wu, wv, wu, wv, V, t1, t2, sigma2)[:2]

    return Equation(
        left, [u, v], CONVEX, instance=LOSS, kernel=kernel,
        arguments=[x.subs(LOSS) for x in (z_u, z_v, V, t1, t2, sigma2)],
    )  # fmt: skip


@claim(f"{PACKAGE}.channel._newton_step", limit=20, reason="compiles")
def newton_step() -> Equation:
    r"""Newton's step on z + V grad l = omega, the minimum it predicts, and dz/d omega_u = (1 + V l'')^{-1} e_u."""
    residual = sp.Matrix([u - wu + V * lu, v - wv + V * lv])
    slope = sp.eye(2) + V * HESSIAN
    inverse = slope.inv()
    step = -inverse * residual
    value = ell + ((u - wu) ** 2 + (v - wv) ** 2) / (2 * V)
    gradient = residual / V
    predicted = value + (gradient.T * step)[0] + (step.T * slope * step)[0] / (2 * V)
    left = [*step, predicted, inverse[0, 0], inverse[1, 0]]
    a, b, d = 1 + V * luu, V * luv, 1 + V * lvv
    det = a * d - b**2
    du, dv = -(d * residual[0] - b * residual[1]) / det, -(a * residual[1] - b * residual[0]) / det
    right = [du, dv, value + (du * residual[0] + dv * residual[1]) / (2 * V), d / det, -b / det]
    inside = {u: (-0.8, 0.8), v: (-0.8, 0.8), wu: (-1, 1), wv: (-1, 1)} | {x: CONVEX[x] for x in (V, t1, t2, sigma2)}
    wrong = [du, dv, value + du * residual[0] + dv * residual[1], d / det, -b / det]
    return Equation(left, right, inside, instance=LOSS, kernel=channel._newton_step, wrong=wrong)


@claim((f"{PACKAGE}.channel.line_integral", f"{PACKAGE}.channel.follow_line"))
def change_of_variable() -> Equation:
    r"""Along a line of fixed omega_v: d omega_u/du = 1 + V (l_uu - V l_uv^2/(1 + V l_vv)), positive at a minimum."""
    # 0 = d omega_v = V l_uv du + (1 + V l_vv) dv
    lean = -V * luv / (1 + V * lvv)
    left = (1 + V * luu) + V * luv * lean
    right = 1 + V * (luu - V * luv**2 / (1 + V * lvv))
    return Equation(left, right, CONVEX, instance=LOSS, wrong=1 + V * luu)


def _along_a_line() -> tuple[Expr, Expr, Expr]:
    """d omega_u/du, V l_uv/(1 + V l_vv), (1 + V l_uu)/(1 + V l_vv)."""
    slope = 1 + V * (luu - V * luv**2 / (1 + V * lvv))
    return slope, V * luv / (1 + V * lvv), (1 + V * luu) / (1 + V * lvv)


@claim(tuple(f"{PACKAGE}.channel.{name}" for name in ("line_integral", "line_sums", "channel_averages")))
def trace_of_the_slope() -> Equation:
    r"""V tr dg/d omega, times d omega_u/du, is 1 + (1 + V l_uu)/(1 + V l_vv) - 2 d omega_u/du."""
    slope, _, ratio = _along_a_line()
    dg = ((sp.eye(2) + V * HESSIAN).inv() - sp.eye(2)) / V
    right = 1 + ratio - 2 * slope
    return Equation(V * dg.trace() * slope, right, CONVEX, instance=LOSS, wrong=1 + ratio - slope)


@claim(tuple(f"{PACKAGE}.channel.{name}" for name in ("line_integral", "line_sums", "channel_averages")))
def norm_of_the_slope() -> Equation:
    r"""V^2 |dg/d omega|^2 is [(1 - slope)^2 + 2 lean^2 + (ratio - slope)^2]/slope^2: the integrand of the replicon."""
    slope, lean, ratio = _along_a_line()
    dg = ((sp.eye(2) + V * HESSIAN).inv() - sp.eye(2)) / V
    right = ((1 - slope) ** 2 + 2 * lean**2 + (ratio - slope) ** 2) / slope**2
    wrong = ((1 - slope) ** 2 + lean**2 + (ratio - slope) ** 2) / slope**2
    return Equation(V**2 * (dg * dg.T).trace(), right, CONVEX, instance=LOSS, wrong=wrong)


@claim(f"{PACKAGE}.channel.teacher_grid")
def flat_attention() -> Equation:
    r"""At u = 0 attention is 1/2 whatever v; grad l = (-sigma^2 (d_1 - d_2) v/2, 0), d = T - 1/2."""
    ell = loss(sp.Rational(1, 2) + d1, sp.Rational(1, 2) + d2)
    left = [x.subs(u, 0) for x in (ell, sp.diff(ell, u), sp.diff(ell, v))]
    right = [sigma2 * (d1**2 + d2**2), -sigma2 * (d1 - d2) * v / 2, 0]
    return Equation(left, right, box(v, d1, d2, sigma2), wrong=[right[0], -right[1], 0])


@claim(f"{PACKAGE}.channel.teacher_grid")
def curvature_at_flat_attention() -> Equation:
    r"""There l_uu = sigma^2 v^2/4 - sigma^2 (d_1 + d_2), l_uv = -sigma^2 (d_1 - d_2)/2, l_vv = 0."""
    ell = loss(sp.Rational(1, 2) + d1, sp.Rational(1, 2) + d2)
    left = [sp.diff(ell, *wrt).subs(u, 0) for wrt in ((u, u), (u, v), (v, v))]
    right = [sigma2 * (v**2 / 4 - d1 - d2), -sigma2 * (d1 - d2) / 2, 0]
    return Equation(left, right, box(v, d1, d2, sigma2), wrong=[sigma2 * (v**2 / 2 - d1 - d2), right[1], 0])


@claim()
def two_wells() -> Equation:
    r"""Two wells iff 1/V^2 + (sigma^2/V)(v^2/4 - d_1 - d_2) < sigma^4 (d_1 - d_2)^2/4: the determinant."""
    hessian = sp.Matrix([[sigma2 * (v**2 / 4 - d1 - d2), -sigma2 * (d1 - d2) / 2], [-sigma2 * (d1 - d2) / 2, 0]])
    left = (sp.eye(2) / V + hessian).det()
    right = 1 / V**2 + sigma2 / V * (v**2 / 4 - d1 - d2) - sigma2**2 * (d1 - d2) ** 2 / 4
    return Equation(left, right, box(v, d1, d2, sigma2, V), wrong=right + sigma2**2 * (d1 - d2) ** 2 / 2)


@claim(f"{PACKAGE}.channel.teacher_grid", limit=20, reason="compiles")
def curve_of_two_wells() -> Equation:
    r"""At omega = 0 that is D = d_1 + d_2 + V sigma^2 (d_1 - d_2)^2/4 - 1/(V sigma^2) > 0, D = -V det/sigma^2."""
    ell = loss()
    hessian = sp.Matrix(2, 2, lambda i, j: sp.diff(ell, (u, v)[i], (u, v)[j])).subs({u: 0, v: 0})
    left = -V * (sp.eye(2) / V + hessian).det() / sigma2
    right = t1 + t2 - 1 + V * sigma2 * (t1 - t2) ** 2 / 4 - 1 / (V * sigma2)
    S = softmax(tokens(sigma * eta_u, sigma * eta_v))
    target = {
        t1: (1 - omega) * S[0, 0] + omega * a1, t2: (1 - omega) * S[1, 1] + omega * a2, sigma2: sigma**2
    }  # fmt: skip

    def kernel(eta_u, eta_v, sigma, V, omega, a1, a2):  # type: ignore[no-untyped-def]
        return channel._saddle_excess(eta_u, eta_v, sigma, V, sigma**2, omega, a1, a2)

    return Equation(
        left,
        right,
        domain(eta_u, eta_v, sigma, V, omega, a1, a2, omega=(0, 1), V=(5, 30)),
        instance=target,
        kernel=kernel,
        wrong=right + 1 / (V * sigma2),
    )


# minima on both sides of a jump
u_plus, v_plus, u_minus, v_minus, M_plus, M_minus = sp.symbols(
    "u_plus v_plus u_minus v_minus M_plus M_minus", real=True
)


@claim(f"{PACKAGE}.channel.find_jumps")
def search_for_the_jump() -> Equation:
    r"""c + V (M_plus - M_minus)/(u_plus - u_minus) is Newton's step to equal minima."""
    slope = (wu - u_plus) / V - (wu - u_minus) / V
    left = wu - (M_plus - M_minus) / slope
    right = wu + V * (M_plus - M_minus) / (u_plus - u_minus)
    wrong = wu - V * (M_plus - M_minus) / (u_plus - u_minus)
    return Equation(left, right, box(wu, V, u_plus, u_minus, M_plus, M_minus), wrong=wrong)


@claim(f"{PACKAGE}.channel._delta_term")
def curve_of_jumps() -> Equation:
    r"""Along the curve of equal minima dc/d omega_v = -(v_plus - v_minus)/(u_plus - u_minus)."""
    by_u = (wu - u_plus) / V - (wu - u_minus) / V
    by_v = (wv - v_plus) / V - (wv - v_minus) / V
    right = -(v_plus - v_minus) / (u_plus - u_minus)
    return Equation(-by_v / by_u, right, box(wu, wv, V, u_plus, v_plus, u_minus, v_minus), wrong=-right)


@claim(f"{PACKAGE}.channel._delta_term", limit=20, reason="compiles")
def weight_of_a_jump() -> Equation:
    r"""The jump adds |dz|^2/(du) phi(zeta_c)/s to V tr E dg/d omega on its line.

    g jumps by dz/V across omega_u = c(omega_v): the weak derivative is dz_u/V times a delta function in omega_u, and
    for the other component -dc/d omega_v dz_v/V times the same.
    """
    du, dv, zeta = u_plus - u_minus, v_plus - v_minus, zeta_u
    density = sp.exp(-(zeta**2) / 2) / (sp.sqrt(2 * sp.pi) * s)
    slope_of_curve = -dv / du
    right = (du**2 + dv**2) / du * density
    return Equation(
        (du - slope_of_curve * dv) * density,
        right,
        domain(u_plus, v_plus, u_minus, v_minus, zeta, s, u_plus=(0.3, 2), u_minus=(-2, -0.3)),
        kernel=lambda up, vp, um, vm, zeta, s: channel._delta_term(up - um, vp - vm, zeta, s),
        wrong=du * density,
    )


@claim(f"{PACKAGE}.state_equations.hats")
def stein_with_the_jump_of_two_planes() -> Equation:
    r"""E[g.zeta]/s is the jump term alone where g takes two values, on both sides of a line.

    M = min(-a.omega, -b.omega - h): g = a or b, equal minima on (a - b).omega = h. Left: one Gaussian integral across
    the line. Right: the sum over lines of fixed zeta_v.
    """
    h, dv = sp.symbols("h Delta_v", real=True)
    du = sp.Symbol("Delta_u", positive=True)
    square = du**2 + dv**2
    # across the line |D| phi(h/(s |D|))/s: squared factor and exponent
    left = [square / s**2, -(h**2) / (2 * s**2 * square)]
    # zeta_c = (h - dv s zeta_v)/(du s); E over zeta_v of exp(-zeta_c^2/2) by the exponential of a quadratic
    width, constant, linear = dv**2 / du**2, h / (du * s), dv * h / (du**2 * s)
    right = [square**2 / du**2 / (1 + width) / s**2, -(constant**2) / 2 + linear**2 / (2 * (1 + width))]
    return Equation(left, right, box(h, du, dv, s), wrong=[du**2 / (1 + width) / s**2, right[1]])


def linear_attention() -> Expr:
    """Objective over sigma^2 with the attention linear in its logits; k = V sigma^2."""
    a, b = (u**2 + u * v) / 4, (u**2 - u * v) / 4
    return (a - d1) ** 2 + (b - d2) ** 2


k = sp.Symbol("k", positive=True)
shift, x = sp.symbols("shift x", real=True)
LINES: Box = {V: (2.0, 8.0), sigma2: (0.2, 0.5), wv: (-0.8, 0.8), t1: (0.4, 0.9), t2: (0.4, 0.9)}


@claim()
def third_order_of_a_line() -> Equation:
    r"""The loss itself adds (d_1 - d_2) v^3/24 to the cubic term, so linear attention is an expansion in small v too.

    At fixed v, over sigma^2: d^3/du^3 at u = 0, over 6.
    """
    ell = loss(sp.Rational(1, 2) + d1, sp.Rational(1, 2) + d2) / sigma2
    left = [sp.diff(x, u, 3).subs(u, 0) / 6 for x in (ell, linear_attention())]
    right = [(d1 - d2) * v**3 / 24, 0]
    return Equation(left, right, box(v, d1, d2, sigma2), wrong=[0, 0])


def _line(at_shift: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """excess, centre, shift and quartic of a line, in k = V sigma^2, d_1, d_2, omega_v."""
    gap = d1 - d2
    excess = d1 + d2 + (k * gap**2 - wv**2) / 4 - 1 / k
    quartic = sp.Rational(1, 8) + k * (k * gap**2 - wv**2) / 32
    return (
        excess + 12 * quartic * at_shift**2,
        -k * (gap * wv / 2 + at_shift * (excess + 8 * quartic * at_shift**2)),
        -k * gap * wv / (32 * quartic),
        quartic,
    )


@claim((f"{PACKAGE}.channel.line_table", f"{PACKAGE}.channel._end_guess"))
def elimination_of_v() -> Equation:
    r"""With attention linear in its logits, v = (omega_v + k (d_1 - d_2) u/2)/(1 + k u^2/4), k = V sigma^2."""
    objective = (v - wv) ** 2 / (2 * k) + linear_attention()
    (left,) = sp.solve(sp.diff(objective, v), v)
    right = (wv + k * (d1 - d2) * u / 2) / (1 + k * u**2 / 4)
    return Equation(left, right, box(wv, k, d1, d2, u), wrong=(wv - k * (d1 - d2) * u / 2) / (1 + k * u**2 / 4))


def _line_objective() -> list[Expr]:
    """Coefficients of u, ..., u^4 of the objective with v eliminated, over sigma^2."""
    geometric = 1 - k * u**2 / 4 + (k * u**2 / 4) ** 2
    at = (wv + k * (d1 - d2) * u / 2) * geometric
    objective = ((u - wu) ** 2 + (v - wv) ** 2) / (2 * k) + linear_attention()
    series = sp.expand(objective.subs(v, at))
    return [series.coeff(u, n) for n in range(1, 5)]


@claim(f"{PACKAGE}.channel.line_table", limit=20, reason="compiles")
def quartic_of_a_line() -> Equation:
    r"""With v eliminated, the objective is quartic x^4 - excess x^2/2 - (omega_u - centre) x/k in x = u - shift.

    Over sigma^2, to fourth order in u; the shift removes the cubic term. With attention linear in its logits: starting
    values only.
    """
    coefficients = _line_objective()
    polynomial = sp.Poly(sum(c * (x + shift) ** n for n, c in enumerate(coefficients, 1)), x)
    excess, centre, at, quartic = _line(shift)
    found = [polynomial.coeff_monomial(x**n).subs(shift, at) for n in range(1, 5)]
    claimed = [-(wu - centre) / k, -excess / 2, 0, quartic]
    # as the kernel returns them: excess, centre, shift, quartic; and the cubic term that must vanish
    left = [-2 * found[1], (wu + k * found[0]).subs(wu, 0), at, found[3], found[2]]
    right = [excess.subs(shift, at), centre.subs(shift, at), at, quartic, claimed[2]]
    instance = {k: V * sigma2, d1: t1 - sp.Rational(1, 2), d2: t2 - sp.Rational(1, 2)}

    def kernel(V, sigma2, wv, t1, t2):  # type: ignore[no-untyped-def]
        teacher = np.array([[0.0], [0.0], [1.0], [t1], [t2]])
        line = channel.line_table(teacher, np.array([wv]), np.ones(1), 0.0, 0.0, 1.0, V, sigma2, 1e-12)[:, 0]
        rows = (channel.EXCESS, channel.CENTRE, channel.SHIFT, channel.QUARTIC)
        return [*(line[row] for row in rows), 0.0]

    return Equation(left, right, LINES, instance=instance, kernel=kernel, wrong=[-right[0], *right[1:]])


# ---- one draw of the noise, as the other integrators take it


@claim(f"{PACKAGE}.monte_carlo.monte_carlo_hats", limit=20, reason="compiles")
def draw_teacher_first() -> Equation:
    r"""g_u, |g|^2, g.zeta, theta_hat/alpha and M of one draw, at the noise whose proximal point is a given z."""
    mean, slope = sp.symbols("mean slope", real=True)
    field = [u + V * lu, v + V * lv]
    zeta = [(field[0] - mean - slope * eta_u) / s, (field[1] - slope * eta_v) / s]
    g = [-lu, -lv]
    g_zeta = g[0] * zeta[0] + g[1] * zeta[1]
    g_eta = (g[0] * eta_u + g[1] * eta_v) / sigma
    left = [
        (u - field[0]) / V, sum((x - y) ** 2 for x, y in zip((u, v), field, strict=True)) / V**2, g_zeta,
        g_eta - slope / (sigma * s) * g_zeta, ell + V * (lu**2 + lv**2) / 2,
    ]  # fmt: skip
    right = [g[0], g[0] ** 2 + g[1] ** 2, g_zeta, g_eta - slope / (sigma * s) * g_zeta, left[4]]
    T = softmax(tokens(sigma * eta_u, sigma * eta_v))
    target = {t1: (1 - omega) * T[0, 0] + omega * a1, t2: (1 - omega) * T[1, 1] + omega * a2, sigma2: sigma**2}
    instance = {name: e.subs(target) for name, e in LOSS.items()}

    def kernel(eta_u, eta_v, zeta_u, zeta_v, *rest):  # type: ignore[no-untyped-def]
        return monte_carlo._moments(np.array([[eta_u], [eta_v], [zeta_u], [zeta_v]]), *rest)[0]

    near = domain(
        u, v, eta_u, eta_v, mean, slope, s, V, sigma, omega, a1, a2,
        u=(-1, 1), v=(-1, 1), s=(0.8, 1.5), V=(0.1, 0.4), sigma=(0.4, 0.6), omega=(0, 1), a1=(0, 1), a2=(0, 1),
    )  # fmt: skip
    given = (eta_u, eta_v, *zeta, mean, slope, s, V, sigma, omega, a1, a2)
    return Equation(
        left, right, near, instance=instance, kernel=kernel, arguments=[x.subs(instance) for x in given],
        wrong=[*right[:3], g_eta + slope / (sigma * s) * g_zeta, right[4]],
    )  # fmt: skip


@claim(f"{PACKAGE}.published.Published.hats", limit=20, reason="compiles")
def draw_student_first() -> Equation:
    r"""g_1 - g_2, |g|^2, g.xi, g.y/sqrt(rho - theta^2/q) and M of one node of the published rule, xi = y.

    With a fixed target (omega = 1), so that the node follows from the proximal point.
    """
    q, m, theta = sp.symbols("q m theta", real=True)
    field = tokens(u + V * lu, v + V * lv)
    node = [(field[0] - m) / sp.sqrt(q), (field[1] + m) / sp.sqrt(q)]
    g = [(z - w) / V for z, w in zip(tokens(u, v), field, strict=True)]
    projection = g[0] * node[0] + g[1] * node[1]
    rest = sp.sqrt(sigma**2 - theta**2 / q)
    left = [g[0] - g[1], g[0] ** 2 + g[1] ** 2, projection, projection / rest, ell + V * (lu**2 + lv**2) / 2]
    along = -(lu * (node[0] - node[1]) + lv * (node[0] + node[1])) / sp.sqrt(2)
    right = [-sp.sqrt(2) * lu, lu**2 + lv**2, along, along / rest, left[4]]
    instance = {name: e.subs(sigma2, sigma**2) for name, e in LOSS.items()}

    def kernel(q, m, theta, V, sigma, t1, t2, x, y):  # type: ignore[no-untyped-def]
        return published._student_first(q, m, theta, V, sigma, 1.0, t1, t2, np.array([[x, y]]), np.ones(1))

    near = domain(
        u, v, q, m, theta, V, sigma, t1, t2,
        u=(-1, 1), v=(-1, 1), q=(1, 2), theta=(-0.3, 0.3), V=(0.1, 0.4), sigma=(0.4, 0.6), t1=(0, 1), t2=(0, 1),
    )  # fmt: skip
    return Equation(
        left, right, near, instance=instance, kernel=kernel, wrong=[-right[0], *right[1:]],
        arguments=[x.subs(instance) for x in (q, m, theta, V, sigma, t1, t2, *node)],
    )  # fmt: skip


# ---- message passing


@claim()
def denoiser() -> Equation:
    r"""The denoiser b/(lambda + A) has the slope C = 1/(lambda + A), the response that V averages."""
    A, b = sp.Symbol("A", positive=True), sp.Symbol("b", real=True)
    # log-partition of exp(-(lambda + A) w^2/2 + b w)
    log = b**2 / (2 * (lam + A)) - sp.log(lam + A) / 2
    left = [sp.diff(log, b), sp.diff(log, b, 2)]
    return Equation(left, [b / (lam + A), 1 / (lam + A)], box(b, A, lam), wrong=[b / (lam + A), b / (lam + A)])


@claim(f"{PACKAGE}.amp.amp")
def onsager_term() -> Equation:
    r"""The field without a sample is z - V g, V = x^T C x of the others: the Onsager term, exact in ridge regression.

    Squared loss (y - z)^2/2, g = y - z; two weights, two samples, the first left out.
    """
    X, Y = matrix("x", 2, 2), matrix("y", 2, 1)
    first, second = X[0, :], X[1, :]
    full = (lam * sp.eye(2) + X.T * X).inv() * X.T * Y
    response = (lam * sp.eye(2) + second.T * second).inv()
    without = response * second.T * Y[1]
    prediction = (first * full)[0]
    width = (first * response * first.T)[0]
    right = prediction - width * (Y[0] - prediction)
    return Equation((first * without)[0], right, box(*X, *Y, lam), wrong=prediction + width * (Y[0] - prediction))


@claim()
def slope_of_the_channel() -> Equation:
    r"""dg/d omega = V^{-1} [(V^{-1} + l'')^{-1} V^{-1} - 1] = -l'' (1 + V l'')^{-1}: its part of -V_hat/alpha."""
    left = ((sp.eye(2) / V + HESSIAN).inv() / V - sp.eye(2)) / V
    right = -HESSIAN * (sp.eye(2) + V * HESSIAN).inv()
    return Equation(left, right, CONVEX, instance=LOSS, wrong=-right)


@claim()
def gradient_of_the_risk() -> Equation:
    r"""The risk's gradient in Q is the sum over tokens of x_l phi_l/sqrt d, phi = (B + B^T) h.

    B = S * (G - rowsum(S * G) 1^T) entrywise, G = -(y - S x) x^T/d, y = T x*; x is what the student sees; d = 2.
    """
    Q, seen, taught = matrix("Q", 2, 1), matrix("x", 2, 2), matrix("y", 2, 2)
    d = 2
    h = seen * Q / sp.sqrt(d)
    S = softmax(list(h))
    error = taught - S * seen
    left = sp.Matrix([sp.diff((error * error.T).trace() / (2 * d), weight) for weight in Q])
    G = -error * seen.T / d
    rows = [sum(S[i, j] * G[i, j] for j in range(2)) for i in range(2)]
    B = sp.Matrix(2, 2, lambda i, j: S[i, j] * (G[i, j] - rows[i]))
    right = seen.T * (B + B.T) * h / sp.sqrt(d)
    return Equation(
        left, right, box(*Q, *seen, *taught), wrong=seen.T * B * h / sp.sqrt(d), rewrite=[_softmax_as_symbols(h)]
    )


def _softmax_as_symbols(h: Expr) -> Any:
    """Rewriting step: the exponentials of each row of h h^T become symbols that sum to one symbol."""
    n = h.rows
    table = {}
    for i in range(n):
        entries = sp.symbols(f"E{i}_:{n - 1}", positive=True)
        total = sp.Symbol(f"N{i}", positive=True)
        for j, entry in enumerate([*entries, total - sum(entries)]):
            table[sp.exp(h[i] * h[j])] = sp.Symbol(f"X{i}_{j}", positive=True), entry
    first = {exponential: symbol for exponential, (symbol, _) in table.items()}
    return lambda e: e.xreplace(first).xreplace(dict(table.values()))


@claim(f"{PACKAGE}.model.PositionalSemantic.observables")
def replicon() -> Equation:
    r"""A perturbation of q returns multiplied by alpha V^2 E |dg/d omega|^2."""
    square = sp.Symbol("norm2", positive=True)
    # delta q_hat = alpha E|dg/d omega|^2 delta q, and the prior's response to q_hat
    left = sp.diff(PRIOR[0], qh) * alpha * square
    return Equation(left, alpha * PRIOR[3] ** 2 * square, hat_domain(alpha, square), wrong=alpha * PRIOR[3] * square)
