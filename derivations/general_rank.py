r"""Any number of tokens, any rank of student and teacher, any spectrum: the general state equations, term by term.

Two, three tokens and ranks one, two stand for all. The law of a coordinate is a sum over atoms of weight w with spectra
gamma_l, positional components pi_l and a teacher tau of any mean and covariance K; L = lambda + sum_l gamma_l V_hat_l
and b = sum_l (pi_l m_hat_l + gamma_l theta_hat_l tau), N = sum_l gamma_l q_hat_l. Everything is a sum over atoms and,
in the hats, over tokens, so a claim takes one atom and one token, and a matrix of symbols for the rest.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derivations.claim import Equation, claim
from derivations.gaussian import box, expectation, matrix, symbols_of, symmetric
from derivations.positional_semantic import (
    ATTENTION,
    PACKAGE,
    PRIOR,
    Box,
    Expr,
    Vh,
    alpha,
    hat_domain,
    lam,
    loss,
    mh,
    p,
    qh,
    sigma,
    sigma2,
    softmax,
    t1,
    t2,
    th,
    tokens,
    u,
    v,
)  # fmt: skip

# ---- the loss


@claim(f"{PACKAGE}.row_attention.attend")
def derivative_of_the_softmax() -> Equation:
    r"""dS_l/da_k = S_l (delta_lk - S_k), for three logits."""
    a = sp.symbols("a:3", real=True)
    S = [sp.exp(x) / sum(sp.exp(y) for y in a) for x in a]
    left = [sp.diff(S[i], a[j]) for i in range(3) for j in range(3)]
    right = [S[i] * (sp.KroneckerDelta(i, j) - S[j]) for i in range(3) for j in range(3)]
    return Equation(left, right, box(*a), wrong=[-x for x in right])


def row_loss(tokens: int, rank: int) -> tuple[Expr, Expr, Expr, Expr]:
    """z, the first row of softmax(z z^T), c and T: loss of a row is sum_l c_l (S_l - T_l)^2/2."""
    z = matrix("z", tokens, rank)
    S = [sp.exp((z * z.T)[0, n]) / sum(sp.exp((z * z.T)[0, k]) for k in range(tokens)) for n in range(tokens)]
    return z, S, sp.symbols(f"c:{tokens}", positive=True), sp.symbols(f"T:{tokens}", real=True)


def row_derivatives(z: Expr, S: Expr, c: Expr, T: Expr) -> tuple[Expr, Expr]:
    """Gradient (L, r) and Hessian (L r, L r) of the first row's loss in closed form.

    G_l = c_l (S_l - T_l), mean = sum S G, B_j = S_j (G_j - mean); u_l = c_l S_l^2 + G_l S_l, U = sum u,
    H_jk = delta_jk (u_j - mean S_j) - u_j S_k - S_j u_k + (U + mean) S_j S_k, P = H z.
    """
    L, r = z.shape
    G = [c[n] * (S[n] - T[n]) for n in range(L)]
    mean = sum(S[n] * G[n] for n in range(L))
    B = [S[n] * (G[n] - mean) for n in range(L)]
    w = [c[n] * S[n] ** 2 + G[n] * S[n] for n in range(L)]
    H = sp.Matrix(
        L,
        L,
        lambda j, n: (
            (w[j] - mean * S[j]) * sp.KroneckerDelta(j, n) - w[j] * S[n] - S[j] * w[n] + (sum(w) + mean) * S[j] * S[n]
        ),
    )
    P = H * z
    gradient = sp.zeros(L, r)
    hessian = sp.zeros(L * r, L * r)
    for j in range(L):
        for a in range(r):
            gradient[0, a] += B[j] * z[j, a]
            gradient[j, a] += B[j] * z[0, a]
            hessian[a, j * r + a] += B[j]
            hessian[j * r + a, a] += B[j]
            for b in range(r):
                hessian[a, j * r + b] += P[j, a] * z[0, b]
                hessian[j * r + a, b] += z[0, a] * P[j, b]
                for n in range(L):
                    hessian[j * r + a, n * r + b] += H[j, n] * z[0, a] * z[0, b]
    inner = z.T * P
    hessian[:r, :r] += inner
    return gradient, hessian


def _row_gradient(tokens: int, rank: int) -> Equation:
    z, S, c, T = row_loss(tokens, rank)
    loss = sum(c[n] * (S[n] - T[n]) ** 2 for n in range(tokens)) / 2
    right, _ = row_derivatives(z, S, c, T)
    wrong = right.copy()
    wrong[0, 0] = wrong[0, 0] / 2
    left = [sp.diff(loss, x) for x in z]
    return Equation(left, right, box(*z, *c, *T), rewrite=[_row_as_symbols(z)], wrong=wrong)


def _row_hessian(tokens: int, rank: int) -> Equation:
    z, S, c, T = row_loss(tokens, rank)
    loss = sum(c[n] * (S[n] - T[n]) ** 2 for n in range(tokens)) / 2
    _, hessian = row_derivatives(z, S, c, T)
    pairs = [(i, j) for j in range(len(z)) for i in range(j + 1)]
    left = [sp.diff(loss, z[i], z[j]) for i, j in pairs]
    right = [hessian[i, j] for i, j in pairs]
    wrong = [*right[:-1], -right[-1]]
    return Equation(left, right, box(*z, *c, *T), rewrite=[_row_as_symbols(z)], wrong=wrong)


def _row_as_symbols(z: Expr) -> Any:
    """Rewriting step: the exponentials of the first row become symbols that sum to one symbol."""
    L = z.rows
    names = sp.symbols(f"E:{L}", positive=True)
    total = sp.Symbol("N", positive=True)
    logits = (z * z.T)[0, :]
    first = {sp.exp(logits[n]): names[n] for n in range(L)}
    # 2 a_l arises as exp(2 a_l)
    first |= {sp.exp(sp.expand(power * logits[n])): names[n] ** power for n in range(L) for power in (2, 3, 4)}
    last = {names[-1]: total - sum(names[:-1])}
    return lambda e: e.xreplace(first).xreplace(last)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_gradient_2_1() -> Equation:
    r"""Gradient of a row's loss, B_kj z_j + B_jk z_j: two tokens, rank one."""
    return _row_gradient(2, 1)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_gradient_3_1() -> Equation:
    r"""Gradient of a row's loss: three tokens, rank one."""
    return _row_gradient(3, 1)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_gradient_2_2() -> Equation:
    r"""Gradient of a row's loss: two tokens, rank two."""
    return _row_gradient(2, 2)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_gradient_3_2() -> Equation:
    r"""Gradient of a row's loss: three tokens, rank two."""
    return _row_gradient(3, 2)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_hessian_2_1() -> Equation:
    r"""Hessian of a row's loss, through H of the logits and P = H z: two tokens, rank one."""
    return _row_hessian(2, 1)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_hessian_3_1() -> Equation:
    r"""Hessian of a row's loss: three tokens, rank one."""
    return _row_hessian(3, 1)


@claim(f"{PACKAGE}.row_attention.loss_derivatives")
def row_hessian_2_2() -> Equation:
    r"""Hessian of a row's loss: two tokens, rank two."""
    return _row_hessian(2, 2)


@claim(f"{PACKAGE}.row_attention.loss_derivatives", limit=20, reason="21 second derivatives in 12 symbols")
def row_hessian_3_2() -> Equation:
    r"""Hessian of a row's loss: three tokens, rank two."""
    return _row_hessian(3, 2)


@claim(f"{PACKAGE}.row_attention.layer_loss")
def row_loss_of_two_tokens() -> Equation:
    r"""With L = 2, r = 1 and rows that sum to one, the row losses add up to the rotated loss of section 1."""
    S = softmax(tokens(u, v))
    T = sp.Matrix([[t1, 1 - t1], [1 - t2, t2]])
    left = sum(sigma2 * (S[i, n] - T[i, n]) ** 2 for i in range(2) for n in range(2)) / 2
    return Equation(left, loss(), box(u, v, sigma2) | ATTENTION)


# matrices of rank two: student r = 2, teacher t = 2
q_matrix, V_matrix, V_hat_matrix, q_hat_matrix = (symmetric(name, 2) for name in ("q", "V", "Vh", "qh"))
theta_matrix, theta_hat_matrix = matrix("theta", 2, 2), matrix("th", 2, 2)
m_vector, m_hat_vector, tau_mean = matrix("m", 2, 1), matrix("mh", 2, 1), matrix("tau", 2, 1)
tau_covariance = symmetric("K", 2)
weight, gamma, pi = sp.Symbol("w", positive=True), sp.Symbol("gamma", positive=True), sp.Symbol("pi_l", real=True)


def inverse(A: Expr) -> Expr:
    """Of a two by two matrix."""
    return A.adjugate() / A.det()


def gradient(function: Expr, at: Expr, symmetric_matrix: bool = False) -> Expr:
    """d function/d matrix; for a symmetric matrix tr(gradient dA) is the differential."""
    return sp.Matrix(
        *at.shape,
        lambda i, j: sp.diff(function, at[i, j]) / (2 if symmetric_matrix and i != j else 1),
    )


@claim(f"{PACKAGE}.layer_equations.layer_prior")
def prior_q_general() -> Equation:
    r"""d/d V_hat_l of tr L^{-1} P/2 gives q_l = E gamma_l L^{-1} P L^{-1}, P = E b b^T + N."""
    P = symmetric("P", 2)
    rest = symmetric("R", 2)  # lambda and the other tokens
    L = rest + gamma * V_hat_matrix
    left = -2 * gradient(weight * (inverse(L) * P).trace() / 2, V_hat_matrix, True)
    right = weight * gamma * inverse(L) * P * inverse(L)
    return Equation(left, right, _definite(rest, V_hat_matrix) | box(*symbols_of(P), weight, gamma), wrong=-right)


@claim(f"{PACKAGE}.layer_equations.layer_prior")
def prior_v_general() -> Equation:
    r"""d/d q_hat_l of tr L^{-1} N/2 gives V_l = E gamma_l L^{-1}."""
    L, rest = symmetric("L", 2), symmetric("R", 2)
    N = rest + gamma * q_hat_matrix
    left = 2 * gradient(weight * (inverse(L) * N).trace() / 2, q_hat_matrix, True)
    right = weight * gamma * inverse(L)
    return Equation(left, right, _definite(L) | box(*symbols_of(rest, q_hat_matrix), weight, gamma), wrong=2 * right)


def _drive(other: Expr) -> tuple[Expr, Expr]:
    """Mean of b over tau, and E b b^T: b = other + pi m_hat + (other' + gamma theta_hat) tau."""
    slope = matrix("B", 2, 2) + gamma * theta_hat_matrix
    mean = other + pi * m_hat_vector + slope * tau_mean
    return mean, mean * mean.T + slope * tau_covariance * slope.T


@claim(f"{PACKAGE}.layer_equations.layer_prior")
def prior_m_general() -> Equation:
    r"""d/d m_hat_l of tr L^{-1} E b b^T/2 gives m_l = E pi_l L^{-1} E b."""
    L, other = symmetric("L", 2), matrix("b", 2, 1)
    mean, square = _drive(other)
    left = gradient(weight * (inverse(L) * square).trace() / 2, m_hat_vector)
    right = weight * pi * inverse(L) * mean
    return Equation(left, right, _definite(L) | box(*_drive_symbols(other), weight, gamma, pi), wrong=right / 2)


@claim(f"{PACKAGE}.layer_equations.layer_prior")
def prior_theta_general() -> Equation:
    r"""d/d theta_hat_l of tr L^{-1} E b b^T/2 gives theta_l = E gamma_l L^{-1} E b tau^T."""
    L, other = symmetric("L", 2), matrix("b", 2, 1)
    mean, square = _drive(other)
    slope = matrix("B", 2, 2) + gamma * theta_hat_matrix
    left = gradient(weight * (inverse(L) * square).trace() / 2, theta_hat_matrix)
    right = weight * gamma * inverse(L) * (mean * tau_mean.T + slope * tau_covariance)
    wrong = weight * gamma * inverse(L) * (mean * tau_mean.T)
    return Equation(left, right, _definite(L) | box(*_drive_symbols(other), weight, gamma, pi), wrong=wrong)


def _drive_symbols(other: Expr) -> list[Expr]:
    return symbols_of(other, m_hat_vector, matrix("B", 2, 2), theta_hat_matrix, tau_mean, tau_covariance)


def _definite(*matrices: Expr) -> Box:
    """Domain on which symmetric matrices are positive definite."""
    return {
        A[i, j]: (1.0, 2.0) if i == j else (-0.5, 0.5)
        for A in matrices
        for i in range(A.rows)
        for j in range(i, A.rows)
    }


@claim((f"{PACKAGE}.layer_equations.layer_prior", f"{PACKAGE}.layer_equations.layer_free_energy"))
def drive_of_a_weight() -> Equation:
    r"""E b b^T = b b^T + B K B^T and E b tau^T = b tau^T + B K at the means, for b = b_0 + B tau."""
    b0, B, root = matrix("b", 2, 1), matrix("B", 2, 2), matrix("k", 2, 2)
    noise = sp.Matrix(sp.symbols("xi:2", real=True))
    K = root * root.T
    tau = tau_mean + root * noise
    b = b0 + B * tau
    mean = b0 + B * tau_mean

    def average(A: sp.Matrix) -> list[sp.Expr]:
        return [expectation(sp.expand(entry), *noise) for entry in A]

    left = [*average(b * b.T), *average(b * tau.T)]
    right = [*(mean * mean.T + B * K * B.T), *(mean * tau_mean.T + B * K)]
    return Equation(left, right, box(*symbols_of(b0, B, root, tau_mean)), wrong=[*(mean * mean.T), *right[4:]])


# channel, rank two: g, eta, zeta stand for one draw; J = E dg/d omega is symmetric, as g = -grad M
g_vector, eta_vector, zeta_vector = matrix("g", 2, 1), matrix("eta", 2, 1), matrix("zeta", 2, 1)


@claim(f"{PACKAGE}.layer_equations.layer_hats")
def channel_q_general() -> Equation:
    r"""d/dV_l of (z - omega)^T V^{-1} (z - omega)/2 is -g g^T/2, so q_hat_l = alpha E g_l g_l^T."""
    displacement = matrix("y", 2, 1)
    energy = (displacement.T * inverse(V_matrix) * displacement)[0] / 2
    g = inverse(V_matrix) * displacement
    left = -2 * alpha * gradient(energy, V_matrix, True)
    return Equation(left, alpha * g * g.T, _definite(V_matrix) | box(*displacement, alpha), wrong=-alpha * g * g.T)


@claim(f"{PACKAGE}.layer_equations.layer_hats")
def channel_v_general() -> Equation:
    r"""A change of s in omega = ... + s zeta changes E M by -tr(J d(s s^T))/2, so V_hat_l = -alpha E[g zeta^T] s^{-1}.

    By Stein, E g zeta^T = J s with J = E dg/d omega; -E g.(ds zeta) = -tr(ds s^T J). Any root s of q - theta rho^{-1}
    theta^T will do.
    """
    root, change, J = matrix("s", 2, 2), matrix("ds", 2, 2), symmetric("J", 2)
    t = sp.Symbol("t", real=True)
    square = (root + t * change) * (root + t * change).T
    stein = J * root  # E g zeta^T
    left = (stein.T * change).trace()
    right = (stein * inverse(root) * square.diff(t).subs(t, 0)).trace() / 2
    return Equation(left, right, box(*root, *change, *symbols_of(J)), wrong=2 * right)


@claim(f"{PACKAGE}.layer_equations.layer_hats")
def channel_theta_general() -> Equation:
    r"""dE/d theta_l = 0: theta_hat_l = alpha E[g_l eta_l^T] rho_l^{-1/2} + V_hat_l theta_l rho_l^{-1}.

    In omega, theta moves the mean theta rho^{-1/2} eta, and s through s s^T = q - theta rho^{-1} theta^T.
    """
    half, change, V_hat = symmetric("h", 2), matrix("dtheta", 2, 2), symmetric("Vh", 2)
    t = sp.Symbol("t", real=True)
    inverse_rho = half * half  # half is rho^{-1/2}
    moved = theta_matrix + t * change
    square = (-moved * inverse_rho * moved.T).diff(t).subs(t, 0)
    # alpha dE M = -alpha E g.(dtheta rho^{-1/2} eta) + tr(V_hat d(s s^T))/2, by the previous claim
    g_eta = g_vector * eta_vector.T
    energy = -alpha * (g_vector.T * change * half * eta_vector)[0] + (V_hat * square).trace() / 2
    hat = alpha * g_eta * half + V_hat * theta_matrix * inverse_rho
    wrong = alpha * g_eta * half - V_hat * theta_matrix * inverse_rho
    symbols = symbols_of(half, change, V_hat, theta_matrix, g_vector, eta_vector)
    return Equation(-energy, (hat.T * change).trace(), box(*symbols, alpha), wrong=(wrong.T * change).trace())


@claim(f"{PACKAGE}.layer_channel.layer_averages")
def field_general() -> Equation:
    r"""omega = m + theta rho^{-1/2} eta + s zeta and h* = rho^{1/2} eta: cov(omega) = q, cov(omega, h*) = theta."""
    half, root = symmetric("h", 2), matrix("s", 2, 2)
    mixing = theta_matrix * inverse(half)
    left = [*(mixing * mixing.T + root * root.T), *(mixing * half)]
    q_of = root * root.T + theta_matrix * inverse(half * half) * theta_matrix.T
    return Equation(
        left,
        [*q_of, *theta_matrix],
        _definite(half) | box(*root, *theta_matrix),
        wrong=[*(root * root.T), *theta_matrix],
    )


@claim(f"{PACKAGE}.layer_proximal.response")
def slope_of_the_channel_general() -> Equation:
    r"""dg/d omega = V^{-1} [(V^{-1} + l'')^{-1} V^{-1} - 1] = -(1 + l'' V)^{-1} l'', V a matrix."""
    H = symmetric("H", 2)
    W = inverse(V_matrix)
    left = W * (inverse(W + H) * W - sp.eye(2))
    right = -inverse(sp.eye(2) + H * V_matrix) * H
    return Equation(left, right, _definite(V_matrix, H), wrong=-inverse(sp.eye(2) + V_matrix * H) * H)


@claim((f"{PACKAGE}.layer_equations.layer_free_energy", f"{PACKAGE}.layer_equations.virial"))
def two_forms_of_the_training_loss_general() -> Equation:
    r"""E = alpha E l(z) + (lambda/2) E tr L^{-1} (E b b^T + N) L^{-1}, for any hats, if the state is prior(hats).

    One token and one atom; more are sums. alpha E M = alpha E l + tr q_hat V/2, as q_hat = alpha E g g^T.
    """
    L = symmetric("L", 2)
    V_hat = (L - lam * sp.eye(2)) / gamma
    slope = gamma * theta_hat_matrix
    mean = pi * m_hat_vector + slope * tau_mean
    P = mean * mean.T + slope * tau_covariance * slope.T + gamma * q_hat_matrix
    W = inverse(L)
    q_of, V_of = gamma * W * P * W, gamma * W
    m_of, theta_of = pi * W * mean, gamma * W * (mean * tau_mean.T + slope * tau_covariance)
    left = (
        (q_hat_matrix * V_of).trace()
        - (V_hat * q_of).trace() / 2
        + (m_hat_vector.T * m_of)[0]
        + (theta_hat_matrix.T * theta_of).trace()
        - (W * P).trace() / 2
    )
    right = lam * (W * P * W).trace() / 2
    symbols = symbols_of(theta_hat_matrix, m_hat_vector, tau_mean, tau_covariance, q_hat_matrix)
    wrong = right + (W * P).trace()
    return Equation(left, right, _definite(L) | box(*symbols, lam, gamma, pi), wrong=wrong)


cosine, sine, angle = sp.symbols("cosine sine t", real=True)
# a rotation of the plane times a reflection, and in samples a point of the circle
R = sp.Matrix([[cosine, sine], [sine, -cosine]])
CIRCLE = {cosine: (1 - angle**2) / (1 + angle**2), sine: 2 * angle / (1 + angle**2)}


def _on_the_circle(expression: Expr) -> Expr:
    """Rewriting step: sine^2 = 1 - cosine^2."""
    numerator = sp.expand(sp.fraction(sp.together(expression))[0])
    return sp.expand(numerator.replace(lambda e: e.is_Pow and e.base == sine, _even_powers))


def _even_powers(power: Expr) -> Expr:
    half, odd = divmod(power.exp, 2)
    return (1 - cosine**2) ** half * sine**odd


@claim(f"{PACKAGE}.gauge.rotated")
def gauge_of_the_loss() -> Equation:
    r"""(z R)(z R)^T = z z^T for R in O(r): attention does not see a rotation of the student."""
    z = matrix("z", 3, 2)
    return Equation(
        (z * R) * (z * R).T, z * z.T, box(angle, *z), rewrite=[_on_the_circle], instance=CIRCLE, wrong=(z * R) * z.T
    )


@claim(f"{PACKAGE}.gauge.rotated")
def gauge_of_the_envelope() -> Equation:
    r"""(z R - omega R) (R^T V R)^{-1} (z R - omega R)^T = (z - omega) V^{-1} (z - omega)^T: M is equivariant."""
    y = matrix("y", 1, 2)
    left = (y * R * inverse(R.T * V_matrix * R) * (y * R).T)[0]
    right = (y * inverse(V_matrix) * y.T)[0]
    return Equation(
        left,
        right,
        _definite(V_matrix) | box(angle, *y),
        rewrite=[_on_the_circle],
        instance=CIRCLE,
        wrong=(y * R * inverse(V_matrix) * y.T)[0],
    )


@claim(f"{PACKAGE}.gauge.rotated")
def gauge_of_the_inverse() -> Equation:
    r"""(R^T L R)^{-1} = R^T L^{-1} R for R in O(r): V rotates with V_hat."""
    L = symmetric("L", 2)
    right = R.T * inverse(L) * R
    return Equation(
        inverse(R.T * L * R),
        right,
        _definite(L) | box(angle),
        rewrite=[_on_the_circle],
        instance=CIRCLE,
        wrong=inverse(L),
    )


@claim(f"{PACKAGE}.gauge.rotated")
def gauge_of_the_prior() -> Equation:
    r"""Hats (R^T q_hat R, R^T m_hat, R^T theta_hat, R^T V_hat R) give (R^T q R, R^T m, R^T theta, R^T V R).

    b rotates with m_hat and theta_hat, L^{-1} as above.
    """
    W, b = symmetric("W", 2), matrix("b", 2, 1)

    def prior(W: Expr, b: Expr, N: Expr) -> list[Expr]:
        return [gamma * W * (b * b.T + N) * W, pi * W * b, gamma * W * b * tau_mean.T]

    q_of, m_of, theta_of = prior(W, b, q_hat_matrix)
    left = prior(R.T * W * R, R.T * b, R.T * q_hat_matrix * R)
    right = [R.T * q_of * R, R.T * m_of, R.T * theta_of]
    domain = box(angle, *symbols_of(W, b, q_hat_matrix, tau_mean), gamma, pi)
    return Equation(left, right, domain, rewrite=[_on_the_circle], instance=CIRCLE, wrong=[q_of, *right[1:]])


@claim(f"{PACKAGE}.layer_equations.layer_replicon")
def replicon_of_the_channel() -> Equation:
    r"""delta q_hat = alpha E D delta q D^T, D = dg/d omega: what field noise of covariance delta q adds to E g g^T."""
    D_matrix, root = matrix("D", 2, 2), matrix("r", 2, 2)
    noise = sp.Matrix(sp.symbols("xi:2", real=True))
    g = g_vector + D_matrix * root * noise
    left = [expectation(sp.expand(entry), *noise) for entry in g * g.T - g_vector * g_vector.T]
    right = D_matrix * root * root.T * D_matrix.T
    return Equation(left, right, box(*D_matrix, *root, *g_vector), wrong=D_matrix.T * root * root.T * D_matrix)


@claim(f"{PACKAGE}.layer_equations.layer_replicon")
def replicon_of_the_prior() -> Equation:
    r"""delta q_l = E gamma_l L^{-1} (sum_k gamma_k delta q_hat_k) L^{-1}: q moves with q_hat at fixed V_hat."""
    L, P, change = symmetric("L", 2), symmetric("P", 2), symmetric("d", 2)
    t, other = sp.Symbol("t", real=True), sp.Symbol("gamma_k", positive=True)
    q_of = weight * gamma * inverse(L) * (P + other * (q_hat_matrix + t * change)) * inverse(L)
    right = weight * gamma * inverse(L) * (other * change) * inverse(L)
    symbols = symbols_of(P, q_hat_matrix, change)
    return Equation(q_of.diff(t), right, _definite(L) | box(*symbols, t, weight, gamma, other), wrong=right * other)


@claim(f"{PACKAGE}.state_equations.prior")
def general_prior_of_two_tokens() -> Equation:
    r"""The general prior at L = 2, r = t = 1, gamma = sigma^2, pi = (p, -p) is the two-token one, hats summed."""
    L = lam + 2 * sigma**2 * (Vh / 2)
    b0 = p * mh / 2 + (-p) * (-mh / 2)
    B = 2 * sigma**2 * th / 2
    N = 2 * sigma**2 * qh / 2
    left = [sigma**2 * (b0**2 + B**2 + N) / L**2, p * b0 / L, sigma**2 * B / L, sigma**2 / L]
    return Equation(left, list(PRIOR), hat_domain(), wrong=[PRIOR[0], -PRIOR[1], *PRIOR[2:]])
