r"""Emergence of a copy head, step by step: the model of :mod:`statmech_attn.copy_head` from its definition.

One-hot sequences X (L x V), tokens iid uniform over V; target Y = G X with the shift G; output A X W. The steps are the
data average, the Gaussian integral over the values W, the prior of the logits, linear attention (pooling, then
copying), softmax attention (a first-order transition), and rows that fluctuate. Each claim has two sides that are
built apart: one from a definition (an enumeration, an integral, a derivative, a limit), the other the closed form of
the code, wherever it is plain arithmetic the code itself run on symbols (:mod:`.symbolic`).

Model: Lavie, Fischer, Lekov, Van Maele, Ringel, Helias, "Phase Transitions in Attention: A Bayesian Theory of Copy Head
Emergence", arXiv 2606.12058.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy as sp

from derivations.symbolic import Pair, on_symbols, per_boundary, step
from statmech_attn.copy_head import action, fluctuations, linear, observables, scaling, softmax, training
from statmech_attn.copy_head.data import pair_counts
from statmech_attn.copy_head.model import CopyHead

Expr = Any  # sympy is untyped
Matrix = Any

L, V, P = sp.symbols("L V P", positive=True)
kappa, c2, w2, b2, v_m = sp.symbols("kappa sigma_C^2 sigma_W^2 sigma_b^2 v_m", positive=True)
theta, q, lam, n = sp.symbols("theta q lambda n", positive=True)
t, s, r, u = sp.symbols("t s r u", positive=True)
m, g, first = sp.symbols("m g f", real=True)
rho, tau = sp.symbols("rho tau", positive=True)
beta, a, z = sp.symbols("beta a z", positive=True)


def _derived(name: str, here: Any) -> Expr:
    """A property of the model, of symbolic parameters."""
    return vars(CopyHead)[name].fget(here)


#: theta and the prefactor of the fit as functions of P, as the code has them.
RIDGE = _derived("ridge", SimpleNamespace(kappa=kappa, context_length=L, vocabulary_size=V, value_prior=w2, samples=P))
SIGNAL = _derived("signal", SimpleNamespace(kappa=kappa, context_length=L, vocabulary_size=V, samples=P))


def model(**changes: Any) -> Any:
    """A copy head whose parameters are symbols: cyclic, W integrated out, theta and q free."""
    values = {
        "context_length": L, "vocabulary_size": V, "samples": P, "kappa": kappa, "logit_prior": c2, "value_prior": w2,
        "uniform_prior": v_m, "ridge": theta, "signal": q, "determinant": 1, "target_rows": L, "boundary": "cyclic",
        "attention": "linear", "ensemble": "projected", "prior": "token+position",
    }  # fmt: skip
    return SimpleNamespace(**{**values, **changes})


def shift(length: int, boundary: str) -> Matrix:
    """G from its definition, G_{i, i-1} = 1."""
    G = sp.zeros(length)
    for i in range(0 if boundary == "cyclic" else 1, length):
        G[i, (i - 1) % length] = 1
    return G


def matrix(name: str, rows: int, columns: int | None = None) -> Matrix:
    """A matrix of free real symbols."""
    columns = columns or rows
    return sp.Matrix(rows, columns, lambda i, j: sp.Symbol(f"{name}{i}{j}", real=True))


def sequences(length: int, size: int) -> list[Matrix]:
    """All one-hot sequences."""
    return [
        sp.Matrix(length, size, lambda i, v: int(x[i] == v))  # noqa: B023
        for x in itertools.product(range(size), repeat=length)
    ]


def channels(size: int, perp: Expr, mean: Expr) -> Matrix:
    """perp (I - J) + mean J."""
    J = sp.ones(size) / size
    return perp * (sp.eye(size) - J) + mean * J


# ---- 1. the data average


def _pair_counts(length: int, size: int) -> Pair:
    every = sequences(length, size)
    index = list(itertools.product(range(length), range(size), range(length), range(size)))
    left = [sum(X[i, v] * X[j, w] for X in every) / sp.Integer(len(every)) for i, v, j, w in index]
    code = observables._expected_pairs(SimpleNamespace(context_length=length, vocabulary_size=size))  # type: ignore[arg-type]
    return list(left), [sp.Rational(float(code[k])) for k in index]


@step("observables.measure", "data.pair_counts")
def pair_counts_3_2() -> Pair:
    """E X_iv X_jw = delta_ij delta_vw/V + (1 - delta_ij)/V^2, by enumeration of all sequences; L = 3, V = 2."""
    return _pair_counts(3, 2)


@step("observables.measure", "data.pair_counts")
def pair_counts_2_4() -> Pair:
    """E X_iv X_jw = delta_ij delta_vw/V + (1 - delta_ij)/V^2, by enumeration of all sequences; L = 2, V = 4."""
    return _pair_counts(2, 4)


def _data_average(length: int, size: int) -> Pair:
    M, every = matrix("M", length), sequences(length, size)
    left = sum((X.T * M * X for X in every), sp.zeros(size)) / len(every)
    return list(left), list(channels(size, M.trace() / size, sum(M) / sp.Integer(size)))


@step("action.averaged_action")
def data_average_2_2() -> Pair:
    """E X^T M X = tr M/V (I - J) + 1^T M 1/V J for any M, by enumeration; L = 2, V = 2."""
    return _data_average(2, 2)


@step("action.averaged_action")
def data_average_3_2() -> Pair:
    """E X^T M X = tr M/V (I - J) + 1^T M 1/V J for any M, by enumeration; L = 3, V = 2."""
    return _data_average(3, 2)


@step("action.averaged_action")
def data_average_4_2() -> Pair:
    """E X^T M X = tr M/V (I - J) + 1^T M 1/V J for any M, by enumeration; L = 4, V = 2."""
    return _data_average(4, 2)


@step("action.averaged_action")
def data_average_2_3() -> Pair:
    """E X^T M X = tr M/V (I - J) + 1^T M 1/V J for any M, by enumeration; L = 2, V = 3."""
    return _data_average(2, 3)


@step("action.averaged_action")
def data_average_3_3() -> Pair:
    """E X^T M X = tr M/V (I - J) + 1^T M 1/V J for any M, by enumeration; L = 3, V = 3."""
    return _data_average(3, 3)


@step("action.averaged_action", wrong=lambda right: right.subs(V, V + 1))
def data_average_diagonal() -> Pair:
    """The same at any L and V, diagonal: tokens at i = j agree surely with each other, at i != j with chance 1/V."""
    trace, total = sp.symbols("trM M", real=True)
    return trace / V + (total - trace) / V**2, trace / V * (1 - 1 / V) + total / V / V


@step("action.averaged_action", wrong=lambda right: -right)
def data_average_off_diagonal() -> Pair:
    """Off the diagonal only i != j contributes."""
    trace, total = sp.symbols("trM M", real=True)
    return (total - trace) / V**2, -trace / V / V + total / V / V


# ---- 2. the values are Gaussian


@step("action.exact_action", "action.mean_values", wrong=lambda right: -right)
def square() -> Pair:
    """The square in W is complete at the mean (R + ridge)^{-1} B; it leaves -tr B^T (R + ridge)^{-1} B (V = 2)."""
    R, B, W = sp.Matrix(2, 2, sp.symbols("R00 R01 R01 R11")), matrix("B", 2), matrix("W", 2)
    K = R + kappa * L / w2 * sp.eye(2)
    mean = K.LUsolve(B)
    left = ((W.T * R * W).trace() - 2 * (W.T * B).trace()) / (2 * kappa * L) + (W.T * W).trace() / (2 * w2)
    deviation = W - mean
    return left, ((deviation.T * K * deviation).trace() - (B.T * mean).trace()) / (2 * kappa * L)


@step("action.exact_action")
def gaussian_integral() -> Pair:
    """One column of W, two tokens: the integral of the prior times the likelihood is det^{-1/2} e^{half the square}.

    The precision is [[p, c], [c, (D + c^2)/p]] with determinant D > 0; integrated over one weight after the other.
    """
    p, D = sp.symbols("p D", positive=True)
    c, b, d, h, x, y = sp.symbols("c b d h x y", real=True)
    over_x = sp.integrate(sp.exp(-p * x**2 / 2 + h * x), (x, -sp.oo, sp.oo))
    exponent = sp.expand_log(sp.log(sp.simplify(over_x)), force=True).subs(h, b - c * y)
    rest = sp.expand(exponent - (D + c**2) / p * y**2 / 2 + d * y)
    quadratic = -2 * rest.coeff(y, 2)
    left = rest.coeff(y, 0) + rest.coeff(y, 1) ** 2 / (2 * quadratic) + sp.log(2 * sp.pi / sp.together(quadratic)) / 2
    K = sp.Matrix([[p, c], [c, (D + c**2) / p]])
    fields = sp.Matrix([b, d])
    right = (fields.T * K.inv() * fields)[0] / 2 - sp.log(D) / 2 + sp.log(2 * sp.pi)
    return sp.expand_log(left, force=True), sp.expand_log(right, force=True)


def _determinant(size: int) -> Pair:
    R = channels(size, P * t / size, P * r / size)
    ridge = RIDGE.subs(V, size)
    return (sp.eye(size) + w2 / (kappa * L) * R).det(), (1 + t / ridge) ** (size - 1) * (1 + r / ridge)


@step("action.averaged_action")
def determinant_2() -> Pair:
    """det(I + sigma_W^2 R/(kappa L)) = (1 + t/theta)^{V-1} (1 + r/theta), R averaged over data; V = 2."""
    return _determinant(2)


@step("action.averaged_action")
def determinant_3() -> Pair:
    """det(I + sigma_W^2 R/(kappa L)) = (1 + t/theta)^{V-1} (1 + r/theta), R averaged over data; V = 3."""
    return _determinant(3)


@step("action.averaged_action")
def determinant_4() -> Pair:
    """det(I + sigma_W^2 R/(kappa L)) = (1 + t/theta)^{V-1} (1 + r/theta), R averaged over data; V = 4."""
    return _determinant(4)


def _explained(size: int) -> Pair:
    R, B = channels(size, P * t / size, P * r / size), channels(size, P * s / size, P * u / size)
    inverse = (R + kappa * L / w2 * sp.eye(size)).inv().applyfunc(sp.cancel)
    left = (B.T * inverse * B).trace() / (2 * kappa * L)
    here = model(vocabulary_size=sp.Integer(size), ridge=RIDGE.subs(V, size), signal=SIGNAL.subs(V, size))
    here.determinant = 0
    return left, -on_symbols(action.averaged_action)(here, action.Sums(t, s, r, u))


@step("action.averaged_action")
def explained_2() -> Pair:
    """tr B^T (R + ridge)^{-1} B/(2 kappa L) is the fit term of S_d, explicitly for small V; V = 2."""
    return _explained(2)


@step("action.averaged_action")
def explained_3() -> Pair:
    """tr B^T (R + ridge)^{-1} B/(2 kappa L) is the fit term of S_d, explicitly for small V; V = 3."""
    return _explained(3)


@step("action.averaged_action", wrong=lambda right: [x.subs(kappa, 2 * kappa) for x in right])
def averaged_action() -> Pair:
    """S_d at any V, W at its best or integrated out: I - J and J are projectors of rank V - 1 and 1."""
    ridge, scale = kappa * L / w2, kappa * L
    left = sp.Integer(0)
    for rank, size, target in ((V - 1, P * t / V, P * s / V), (1, P * r / V, P * u / V)):
        left += rank * (lam * V / 2 * sp.log(1 + size / ridge) - target**2 / (size + ridge) / (2 * scale))
    code = on_symbols(action.averaged_action)
    here = [model(ridge=RIDGE, signal=SIGNAL, determinant=k) for k in (0, 1)]
    return [left.subs(lam, k) for k in (0, 1)], [code(x, action.Sums(t, s, r, u)) for x in here]


@step("action.mean_values")
def mean_values() -> Pair:
    """The mean of W given A solves (R + ridge) W = B; it is w_perp (I - J) + w_J J (V = 3)."""
    R, B = channels(3, P * t / 3, P * r / 3), channels(3, P * s / 3, P * u / 3)
    w, w_mean = action.mean_values(model(ridge=RIDGE.subs(V, 3)), action.Sums(t, s, r, u))
    return list((R + kappa * L / w2 * sp.eye(3)) * channels(3, w, w_mean)), list(B)


@step("action.mean_values")
def best_value() -> Pair:
    """w_perp minimises the ridge-regularised error of its channel, t w^2 - 2 s w + theta w^2."""
    w = sp.Symbol("w", real=True)
    (left,) = sp.solve(sp.diff(t * w**2 - 2 * s * w + theta * w**2, w), w)
    return left, action.mean_values(model(), action.Sums(t, s, r, u))[0]


@step("action.averaged_gradient", wrong=lambda right: [-right[0], *right[1:]])
def action_slopes() -> Pair:
    """The derivatives of S_d in t, s, r and u, W at its best or integrated out."""
    here, sums = [model(determinant=k) for k in (0, 1)], action.Sums(t, s, r, u)
    S = [on_symbols(action.averaged_action)(x, sums) for x in here]
    return [sp.diff(x, y) for x in S for y in sums], [y for x in here for y in action.averaged_gradient(x, sums)]


@step("fluctuations.slope", wrong=lambda right: [right[0], -right[1], *right[2:]])
def action_curvatures() -> Pair:
    """The second derivatives of S_d in s and t, which the row mean field uses."""
    S = on_symbols(action.averaged_action)(model(), action.Sums(t, s, r, u))
    code = fluctuations._hessian(model(), [s, t])  # type: ignore[arg-type]
    return [sp.diff(S, x, y) for x in (s, t) for y in (s, t)], list(code.ravel())


@per_boundary("observables.loss", wrong=lambda right: right - 1)
def loss(boundary: str) -> Pair:
    """E|G X - A X W|^2/L over all sequences of three tokens, any A, any W = w_perp (I - J) + w_J J."""
    length, size = 3, 2
    A, G, every = matrix("A", length), shift(length, boundary), sequences(length, size)
    rows, n_rows = A * sp.ones(length, 1), sum(G)
    sums = action.Sums(sum(x**2 for x in A), sum(x * y for x, y in zip(A, G, strict=True)), (rows.T * rows)[0],
                       (rows.T * G * sp.ones(length, 1))[0])  # fmt: skip
    here = model(context_length=sp.Integer(length), vocabulary_size=sp.Integer(size), target_rows=n_rows)
    w, w_mean = sp.symbols("w w_J", real=True)
    W = channels(size, w, w_mean)
    left = sum(sum(x**2 for x in G * X - A * X * W) for X in every) / sp.Integer(len(every) * length)
    return left, on_symbols(observables.loss, mean_values=lambda *_: (w, w_mean))(here, sums)


@per_boundary("observables.alignment", "action.sums_of")
def alignment(boundary: str) -> Pair:
    """What is left of A after its projection on G, over |A|^2, is one minus the alignment s^2/(|G|^2 t) (L = 3)."""
    A, G = matrix("A", 3), shift(3, boundary)
    overlap = sum(x * y for x, y in zip(A, G, strict=True))
    rest = A - overlap / sum(G) * G
    code: Any = observables.alignment(model(target_rows=sum(G)), action.Sums(t, s, r, u))
    square_ = sum(x**2 for x in A)
    return sum(x**2 for x in rest) / square_, 1 - code.subs({t: square_, s: overlap}, simultaneous=True)


@step("observables.describe")
def noise_of_values() -> Pair:
    """What a posterior sample of W adds to the loss: V columns of covariance kappa L (R + ridge)^{-1} (V = 3)."""
    size = sp.Integer(3)
    R = channels(3, P * t / 3, P * r / 3)
    covariance = kappa * L * (R + kappa * L / w2 * sp.eye(3)).inv()
    left = size * (R / P * covariance).trace() / L
    ridge = RIDGE.subs(V, 3)
    return left, kappa * size / P * ((size - 1) * t / (t + ridge) + r / (r + ridge))


# ---- 3. the prior of the logits


@step("training.offset_variance", wrong=lambda right: right.subs(V, 2 * V))
def offset_variance() -> Pair:
    """Token blocks of V^2, LV and VL entries share a constant at the cost of sigma_b^2 = sigma_C^2 (1/V^2 + 2/LV)."""
    N, R, Q, b, multiplier = sp.symbols("N R Q b multiplier", real=True)
    cost = (V**2 * N**2 + L * V * R**2 + V * L * Q**2) / (2 * c2)
    conditions = [sp.diff(cost - multiplier * (N + R + Q - b), x) for x in (N, R, Q, multiplier)]
    best = sp.solve(conditions, [N, R, Q, multiplier], dict=True)[0]
    here = model()
    here.uniform_prior = _derived("uniform_prior", here)
    return cost.subs(best), b**2 / (2 * training.offset_variance(here))


@step("model.CopyHead.uniform_prior", wrong=lambda right: sp.sqrt(right))
def uniform_prior() -> Pair:
    """v_m = sigma_C^2 + L^2 sigma_b^2 = sigma_C^2 (1 + L/V)^2."""
    sigma_b2 = c2 * (1 / V**2 + 2 / (L * V))
    return c2 + L**2 * sigma_b2, _derived("uniform_prior", model())


@step("model.CopyHead.uniform_prior")
def uniform_mode() -> Pair:
    """v_m is the variance of sum_ij (C_ij + b)/L: the covariance of the logits summed up, for L = 3."""
    covariance = sp.Matrix(9, 9, lambda i, j: c2 * int(i == j) + b2)
    return sum(covariance) / sp.Integer(9), (c2 + L**2 * b2).subs(L, 3)


@step("action.prior_cost", wrong=lambda right: right.subs(b2, -b2))
def prior_cost() -> Pair:
    """-ln p_0 of C + b is |C|^2/2 sigma_C^2 - (uniform mode)^2/2 (1/sigma_C^2 - 1/v_m), b integrated out (L = 2)."""
    C = matrix("C", 4, 1)
    covariance = c2 * sp.eye(4) + b2 * sp.ones(4)
    uniform = sum(C) / sp.Integer(2)
    right = (C.T * C)[0] / (2 * c2) - uniform**2 / 2 * (1 / c2 - 1 / (c2 + 4 * b2))
    return (C.T * covariance.inv() * C)[0] / 2, right


@step("training.mean_parameters")
def offset_share() -> Pair:
    """The offset carries the share 1 - sigma_C^2/v_m of a constant logit c at least cost."""
    b, c = sp.symbols("b c", real=True)
    (left,) = sp.solve(sp.diff(L**2 * (c - b) ** 2 / (2 * c2) + b**2 / (2 * b2), b), b)
    return left, (1 - c2 / (c2 + L**2 * b2)) * c


def _entries(boundary: str) -> tuple[Expr, Expr, Expr, Expr]:
    """Target entry, other entry of a row with a target, entry of the row without; number of rows with a target."""
    target, other = m / L + g * (1 - 1 / L), (m - g) / L
    return target, other, first / L, L if boundary == "cyclic" else L - 1


def _counted(boundary: str) -> list[Expr]:
    """t, s, r, u of A = m 11^T/L + g (G - 11^T/L), first row f 1^T/L if open, entry by entry."""
    target, other, alone, rows = _entries(boundary)
    sum_of_row = target + (L - 1) * other
    rest = L - rows
    return [
        rows * (target**2 + (L - 1) * other**2) + rest * L * alone**2,
        rows * target,
        rows * sum_of_row**2 + rest * (L * alone) ** 2,
        rows * sum_of_row,
    ]


def _exact_forms(here: Any) -> linear.Forms:
    """The forms of the code, its floating-point ones and zeros as integers."""
    forms = linear.forms.__wrapped__(here)
    exact = np.vectorize(sp.nsimplify, otypes=[object])
    t_, r_, s_, u_, prior = (exact(x) for x in forms[:5])
    return linear.Forms(t_, r_, s_, u_, prior, forms.rho_modes, forms.tau_modes)


def _forms(boundary: str) -> tuple[linear.Forms, list[Expr]]:
    """The forms of the code and their variables."""
    x = [m, g] if boundary == "cyclic" else [m, g, first]
    return _exact_forms(model(target_rows=L if boundary == "cyclic" else L - 1)), x


@per_boundary("linear.forms", "action.prior_cost")
def prior_form(boundary: str) -> Pair:
    """The prior cost of the order parameters, x K x/2, from that of the logits C = L A."""
    target, other, alone, rows = _entries(boundary)
    squares = rows * (target**2 + (L - 1) * other**2) + (L - rows) * L * alone**2
    total = rows * (target + (L - 1) * other) + (L - rows) * L * alone
    left = L**2 * squares / (2 * c2) - (L * total / L) ** 2 / 2 * (1 / c2 - 1 / v_m)
    f, x = _forms(boundary)
    return left, sum(f.prior[i, j] * x[i] * x[j] for i in range(len(x)) for j in range(len(x))) / 2


# ---- 4. linear attention: the order parameters


@per_boundary("linear.forms", "linear.sums", wrong=lambda right: [*right[:2], right[2] / L, right[3]])
def linear_sums(boundary: str) -> Pair:
    """t, s, r, u of the mean attention at any L, counted entry by entry."""
    f, x = _forms(boundary)
    quadratic = [sum(f.t[k] * x[k] ** 2 for k in range(len(x))), sum(f.s[k] * x[k] for k in range(len(x)))]
    rest = [sum(f.r[k] * x[k] ** 2 for k in range(len(x))), sum(f.u[k] * x[k] for k in range(len(x)))]
    return list(_counted(boundary)), list(quadratic + rest)


@per_boundary("action.sums_of", "action.shift")
def linear_sums_of_a_matrix(boundary: str) -> Pair:
    """The same from the matrix itself, L = 4."""
    size = 4
    G, one = shift(size, boundary), sp.ones(size)
    A = m * one / size + g * (G - one / size)
    if boundary == "open":
        A[0, :] = first * sp.ones(1, size) / size
    rows = A * sp.ones(size, 1)
    left = [sum(x**2 for x in A), sum(x * y for x, y in zip(A, G, strict=True)), (rows.T * rows)[0],
            (rows.T * G * sp.ones(size, 1))[0]]  # fmt: skip
    return list(left), [x.subs(L, size) for x in _counted(boundary)]


@per_boundary("linear.sums", "observables.describe")
def weights_of_ones_and_shift(boundary: str) -> Pair:
    """In A = c_1 11^T/L + c_G G: m = c_1 + c_G, g = c_G, and f = c_1 for the open boundary."""
    c1, cG = sp.symbols("c_1 c_G", real=True)
    if boundary == "cyclic":
        right = [c1**2 + 2 * c1 * cG + L * cG**2, c1 + L * cG, L * (c1 + cG) ** 2, L * (c1 + cG)]
    else:
        right = [c1**2 + 2 * c1 * cG * (L - 1) / L + (L - 1) * cG**2, c1 * (L - 1) / L + (L - 1) * cG,
                 L * c1**2 + 2 * (L - 1) * c1 * cG + (L - 1) * cG**2, (L - 1) * (c1 + cG)]  # fmt: skip
    values = {m: c1 + cG, g: cG, first: c1}
    return [x.subs(values, simultaneous=True) for x in _counted(boundary)], list(right)


def _split(boundary: str) -> tuple[Matrix, Matrix, Matrix, Matrix, list[Expr]]:
    """A free A of L = 3 or 4, its mean part, the part that varies with the row alone, the rest; coefficients."""
    size = 3 if boundary == "cyclic" else 4
    A, G = matrix("A", size), shift(size, boundary)
    start = 0 if boundary == "cyclic" else 1
    rows = size - start
    sums = A * sp.ones(size, 1)
    M = sum(sums[start:]) / sp.Integer(rows)
    S = sum(x * y for x, y in zip(A, G, strict=True))
    gg = (S / rows - M / size) / (1 - sp.Rational(1, size))  # as linear.project
    mean, bulk_rows = sp.zeros(size), sp.zeros(size)
    for i in range(size):
        for j in range(size):
            mean[i, j] = M / size + gg * (G[i, j] - sp.Rational(1, size)) if i >= start else sums[0] / size
            bulk_rows[i, j] = (sums[i] - M) / size if i >= start else 0
    return A, mean, bulk_rows, A - mean - bulk_rows, [M, gg, sums[0]][: 2 + start]


@per_boundary("linear.project", "linear.sums", wrong=lambda right: right + right.subs(sp.Symbol("A00", real=True), 0))
def orthogonal_split(boundary: str) -> Pair:
    """t = (mean part) + rho/L + tau for any A: the three parts are orthogonal."""
    A, mean, bulk_rows, rest, _ = _split(boundary)
    bulk_sums = bulk_rows * sp.ones(A.rows, 1)
    right = sum(x**2 for x in mean) + (bulk_sums.T * bulk_sums)[0] / A.rows + sum(x**2 for x in rest)
    return sum(x**2 for x in A), right


@per_boundary("linear.project", "linear.sums")
def rest_is_unseen(boundary: str) -> Pair:
    """s, r - rho and u of any A are those of its mean part."""
    A, mean, bulk_rows, _, _ = _split(boundary)
    G, one = shift(A.rows, boundary), sp.ones(A.rows, 1)
    bulk_sums = bulk_rows * one

    def seen(B: Matrix) -> list[Expr]:
        return [
            sum(x * y for x, y in zip(B, G, strict=True)),
            ((B * one).T * (B * one))[0],
            ((B * one).T * G * one)[0],
        ]

    extra = [sp.Integer(0), (bulk_sums.T * bulk_sums)[0], sp.Integer(0)]
    return list(seen(A)), [x + y for x, y in zip(seen(mean), extra, strict=True)]


@per_boundary("linear.forms")
def numbers_of_modes(boundary: str) -> Pair:
    """Dimensions of the two bulks: ranks of the linear maps from A to its parts, L = 3 or 4."""
    A, _, bulk_rows, rest, _ = _split(boundary)
    ranks = [sp.Matrix([[sp.diff(y, x) for x in A] for y in part]).rank() for part in (bulk_rows, rest)]
    size = sp.Integer(A.rows)
    f = linear.forms.__wrapped__(model(context_length=size, target_rows=size - int(boundary == "open")))
    return list(map(sp.Integer, ranks)), [f.rho_modes, f.tau_modes]


@step("linear.potential", "sampling.sample_reduced")
def bulk_entropy() -> Pair:
    """k Gaussian modes of variance v enter through their sum of squares x with weight e^{-x/2v} x^{k/2} d ln x.

    Both sides are E e^{-j x}: mode by mode, and from the reduced density.
    """
    k, v, j, y, x = sp.symbols("k v j y x", positive=True)
    mode = sp.integrate(sp.exp(-(y**2) / (2 * v) - j * y**2) / sp.sqrt(2 * sp.pi * v), (y, -sp.oo, sp.oo))
    weight = sp.exp(-x / (2 * v)) * x ** (k / 2) / x
    ratio = sp.integrate(weight * sp.exp(-j * x), (x, 0, sp.oo)) / sp.integrate(weight, (x, 0, sp.oo))
    return sp.expand_log(k * sp.log(mode), force=True), sp.expand_log(sp.log(sp.simplify(ratio)), force=True)


def _reduced_action(boundary: str) -> tuple[Expr, list[Expr], dict[Expr, Expr]]:
    """S_4 of the compiled kernel on symbols; its variables; t, s, r, u in these."""
    f, x = _forms(boundary)
    k = len(x)
    log_rho, log_tau = sp.log(rho), sp.log(tau)
    modes = sp.symbols("n_rho n_tau", positive=True)
    y = _Vector([*x, log_rho, log_tau])
    from statmech_attn.copy_head import sampling

    value = on_symbols(sampling._reduced_action)(
        y, (L, V, q, theta, c2, *modes), _Vector(f.t), _Vector(f.r), _Vector(f.s), _Vector(f.u), f.prior
    )
    sums = {
        t: sum(f.t[i] * x[i] ** 2 for i in range(k)) + rho / L + tau,
        r: sum(f.r[i] * x[i] ** 2 for i in range(k)) + rho,
        s: sum(f.s[i] * x[i] for i in range(k)),
        u: sum(f.u[i] * x[i] for i in range(k)),
    }
    return value, x, sums


class _Vector(list[Any]):
    """A list with the attribute a kernel asks of a one-dimensional array."""

    @property
    def size(self) -> int:
        return len(self)


@per_boundary("linear.update", "linear.potential")
def stationary_means(boundary: str) -> Pair:
    """The gradient of S_4 in the means is (K + 2 S_t D_t + 2 S_r D_r) x + S_s s' + S_u u', solved by F."""
    value, x, sums = _reduced_action(boundary)
    f, _ = _forms(boundary)
    d = action.averaged_gradient(model(), action.Sums(t, s, r, u))
    right = []
    for i in range(len(x)):
        slope = sum(f.prior[i, j] * x[j] for j in range(len(x))) + 2 * (d.t * f.t[i] + d.r * f.r[i]) * x[i]
        right.append((slope + d.s * f.s[i] + d.u * f.u[i]).subs(sums, simultaneous=True))
    return [sp.diff(value, y) for y in x], list(right)


@per_boundary("linear.update", "linear.bulk_at_zero")
def stationary_bulk(boundary: str) -> Pair:
    """The derivatives in ln rho and ln tau: rho (L/2 sigma_C^2 + S_t/L + S_r) = n_rho/2 and the like for tau."""
    value, _, sums = _reduced_action(boundary)
    d = action.averaged_gradient(model(), action.Sums(t, s, r, u))
    n_rho, n_tau = sp.symbols("n_rho n_tau", positive=True)
    right = [
        rho * (L / c2 + 2 * d.t / L + 2 * d.r) / 2 - n_rho / 2,
        tau * (L**2 / c2 + 2 * d.t) / 2 - n_tau / 2,
    ]
    left = [rho * sp.diff(value, rho), tau * sp.diff(value, tau)]
    return left, [x.subs(sums, simultaneous=True) for x in right]


def _projected(determinant: int) -> Expr:
    """S(m, g), cyclic and without bulk, from the counted sums, W at its best (0) or integrated out (1)."""
    sums = action.Sums(*(sp.expand(x) for x in _counted("cyclic")))
    return (
        L**2 * m**2 / (2 * v_m)
        + L**2 * (L - 1) * g**2 / (2 * c2)
        + on_symbols(action.averaged_action)(model(determinant=determinant), sums)
    )


def _code_hessian(boundary: str) -> Any:
    rows = L if boundary == "cyclic" else L - 1
    hessian = on_symbols(linear.hessian_at_zero, forms=_exact_forms)
    return hessian(model(target_rows=rows))


def _second(S: Expr, x: Expr, y: Expr) -> Expr:
    return sp.diff(S, x, y).subs({m: 0, g: 0, first: 0})


@step("linear.hessian_at_zero", wrong=lambda right: [x + V / theta for x in right])
def hessian_pooling() -> Pair:
    """h_mm at A = 0."""
    right = L**2 / v_m + lam * (V * (V - 1) + V * L) / theta - q / theta * (V - 1 + L**2)
    return [_second(_projected(k), m, m) for k in (0, 1)], [right.subs(lam, k) for k in (0, 1)]


@step("linear.hessian_at_zero", wrong=lambda right: -right)
def hessian_mixed() -> Pair:
    """h_mg at A = 0: the field that pooling exerts on copying."""
    return _second(_projected(1), m, g), -q / theta * (V - 1) * (L - 1)


@step("linear.hessian_at_zero", wrong=lambda right: [y * (L - 1) for y in right])
def hessian_copy() -> Pair:
    """h_gg at A = 0."""
    right = (L - 1) * (L**2 / c2 + lam * V * (V - 1) / theta - q / theta * (V - 1) * (L - 1))
    return [_second(_projected(k), g, g) for k in (0, 1)], [right.subs(lam, k) for k in (0, 1)]


@per_boundary("linear.hessian_at_zero")
def hessian_of_the_code(boundary: str) -> Pair:
    """The Hessian at A = 0 that the package decides by, all entries."""
    f, x = _forms(boundary)
    sums = action.Sums(*_counted(boundary))
    S = sum(f.prior[i, j] * x[i] * x[j] for i in range(len(x)) for j in range(len(x))) / 2
    S += on_symbols(action.averaged_action)(model(), sums)
    return [_second(S, y, w) for y in x for w in x], list(_code_hessian(boundary).ravel())


# ---- 5. pooling: a pitchfork


def _closed_forms(**changes: Any) -> dict[str, Expr]:
    values: dict[str, Any] = {"determinant": sp.Integer(0), "ensemble": "map", **changes}
    return on_symbols(scaling.closed_forms)(model(**values))  # type: ignore[no-any-return]


def _pooling_action(square_of_m: Expr) -> Expr:
    """The J channel alone, joint maximum: u = L m, r = L m^2."""
    fit = SIGNAL / 2 * L**2 * square_of_m / (L * square_of_m + RIDGE)
    return L**2 * square_of_m / (2 * v_m) - fit


@step("scaling.closed_forms")
def pooling_onset() -> Pair:
    """P_0 = kappa V L/(sigma_W sqrt v_m), where A = 0 turns unstable in the J channel."""
    x = sp.Symbol("x", positive=True)
    left = sp.solve(sp.diff(_pooling_action(x), x).subs(x, 0), P)
    return max(left, key=lambda y: y.subs({kappa: 1, L: 1, V: 1, w2: 1, v_m: 1})), _closed_forms()["pooling"]


@step("scaling.closed_forms", wrong=lambda right: right / 2)
def pooling_branch() -> Pair:
    """m^2 = kappa V/sigma_W^2 (1/P_0 - 1/P), that is 1 + x = P/P_0: the action is stationary on it."""
    P0, x = sp.symbols("P_0 x", positive=True)
    variance = (kappa * V * L / P0) ** 2 / w2  # v_m, from P_0
    slope = sp.diff(_pooling_action(x), x).subs(x, kappa * V / w2 * (1 / P0 - 1 / P))
    return slope.subs(v_m, variance) + 1, sp.Integer(1)


@step("scaling.closed_forms")
def pooling_is_continuous() -> Pair:
    """Near the onset m^2 = -h/c of S = h m^2/2 + c m^4/4: the slope d m^2/dP there is that of the branch."""
    P0, y = sp.symbols("P_0 y", positive=True)
    S = sp.series(_pooling_action(y), y, 0, 3).removeO()
    S = S.subs(v_m, (kappa * V * L / P0) ** 2 / w2)
    h, c = 2 * sp.expand(S).coeff(y, 1), 4 * sp.expand(S).coeff(y, 2)
    branch = kappa * V / w2 * (1 / P0 - 1 / P)
    return sp.diff(-h / c, P).subs(P, P0), sp.diff(branch, P).subs(P, P0)


@step("linear.potential")
def pooling_quartic() -> Pair:
    """The quartic term is positive, q L^3/(2 theta^2): the transition is of second order."""
    y = sp.Symbol("y", positive=True)
    return sp.diff(_pooling_action(y), y, 2).subs(y, 0) / 2, (q * L**3 / (2 * theta**2)).subs({q: SIGNAL, theta: RIDGE})


@step("linear.hessian_at_zero")
def pooling_precursor() -> Pair:
    """Before the onset <m^2> = 1/h diverges as (v_m/L^2)/(1 - (P/P_0)^2)."""
    x = sp.Symbol("x", positive=True)
    h = 2 * sp.diff(_pooling_action(x), x).subs(x, 0)
    return 1 / h, v_m / L**2 / (1 - (P / _closed_forms()["pooling"]) ** 2)


@step("scaling.closed_forms", wrong=lambda right: right.subs(V, V + 1))
def pooling_with_integrated_values() -> Pair:
    """With W integrated out, b = kappa V^2 (1 + (V - 1)/L): h_mm with the fit of the J channel alone vanishes there."""
    h = L**2 / v_m + (V * (V - 1) + V * L) / RIDGE - SIGNAL / RIDGE * L**2
    left = max(sp.solve(h, P), key=lambda y: y.subs({kappa: 1, L: 1, V: 2, w2: 1, v_m: 1}))
    return left, _closed_forms(determinant=sp.Integer(1), ensemble="projected")["pooling"]


@step("scaling.closed_forms")
def pooling_of_token_and_position() -> Pair:
    """P_0 = kappa V^2/(sigma_C sigma_W) L/(L + V) for the token and position prior."""
    uniform = _derived("uniform_prior", model())
    return _closed_forms(uniform_prior=uniform)["pooling"], kappa * V**2 / sp.sqrt(c2 * w2) * L / (L + V)


@step("scaling.closed_forms")
def pooling_of_position() -> Pair:
    """P_0 = kappa V L/(sigma_C sigma_W) for the position prior."""
    uniform = _derived("uniform_prior", model(prior="position"))
    return _closed_forms(uniform_prior=uniform)["pooling"], kappa * V * L / sp.sqrt(c2 * w2)


def _exponent(form: Expr, size: Expr) -> Expr:
    return sp.simplify(sp.diff(sp.log(form), size) * size)


@step("scaling.closed_forms", "scaling.scaling_exponents")
def pooling_exponents() -> Pair:
    """P_0 ~ L^0 V^2 as L grows."""
    uniform = _derived("uniform_prior", model())
    form = _closed_forms(uniform_prior=uniform)["pooling"]
    return [sp.limit(_exponent(form, x), L, sp.oo) for x in (L, V)], list(map(sp.Integer, (0, 2)))


@step("observables.loss")
def plateau_loss() -> Pair:
    """Between pooling and copying the loss is 1 - (1 - (P_0/P)^2)/V."""
    P0 = sp.Symbol("P_0", positive=True)
    M = sp.sqrt(kappa * V / w2 * (1 / P0 - 1 / P))
    sums = action.Sums(0, 0, L * M**2, L * M)
    return observables.loss(model(ridge=RIDGE), sums), 1 - (1 - (P0 / P) ** 2) / V


# ---- 6. copying: a crossover


def _copy_action(square_of_g: Expr) -> Expr:
    """A = g G in the channel of token differences alone, position prior: t = L g^2, s = L g."""
    fit = SIGNAL * (V - 1) / 2 * L**2 * square_of_g / (L * square_of_g + RIDGE)
    return L**3 * square_of_g / (2 * c2) - fit


@step("scaling.closed_forms")
def copy_onset() -> Pair:
    """At P_c = kappa L^{3/2} V/(sqrt(V-1) sigma_C sigma_W) the fit of the copy channel equals the prior, g = 0."""
    x = sp.Symbol("x", positive=True)
    slope = sp.diff(_copy_action(x), x).subs(x, 0)
    prior = slope.subs(P, 0)
    return ((prior - slope) / prior).subs(P, sp.nsimplify(_closed_forms()["copy"])), sp.Integer(1)


@step("scaling.closed_forms", wrong=lambda right: right / 2)
def copy_branch() -> Pair:
    """g^2 = kappa V/sigma_W^2 (1/P_c - 1/P), that is 1 + y = P/P_c."""
    Pc, x = sp.symbols("P_c x", positive=True)
    variance = (kappa * V / Pc) ** 2 * L**3 / ((V - 1) * w2)  # sigma_C^2, from P_c
    slope = sp.diff(_copy_action(x), x).subs(x, kappa * V / w2 * (1 / Pc - 1 / P))
    return slope.subs(c2, variance) + 1, sp.Integer(1)


@step("observables.loss")
def copy_loss() -> Pair:
    """The share of token differences in the loss, (1 - 1/V) (P_c/P)^2 on the copy branch."""
    Pc = sp.Symbol("P_c", positive=True)
    size = sp.sqrt(kappa * V / w2 * (1 / Pc - 1 / P))
    sums = action.Sums(L * size**2, L * size, 0, 0)
    left = observables.loss(model(ridge=RIDGE), sums)
    return left - 1 / V, (V - 1) / V * (Pc / P) ** 2


@step("scaling.closed_forms", "scaling.scaling_exponents")
def copy_exponents() -> Pair:
    """P_c ~ L^{3/2} V^{1/2} as V grows."""
    form = sp.nsimplify(_closed_forms()["copy"])
    left = [sp.limit(_exponent(form, x), V, sp.oo) for x in (L, V)]
    return left, [sp.Rational(3, 2), sp.Rational(1, 2)]


@step("scaling.closed_forms", "linear.hessian_at_zero")
def copy_instability() -> Pair:
    """h_gg = 0 without pooling, joint maximum, tends to P_c as L grows: their ratio has the limit one."""
    h = (L**2 / c2 - q / theta * (V - 1) * (L - 1)).subs({q: SIGNAL, theta: RIDGE})
    root = max(sp.solve(h, P), key=lambda y: y.subs({kappa: 1, L: 2, V: 2, w2: 1, c2: 1}))
    return sp.limit(sp.cancel((root / sp.nsimplify(_closed_forms()["copy"])) ** 2), L, sp.oo), sp.Integer(1)


@step("scaling.closed_forms", wrong=lambda right: right.subs(w2, w2 * (V - 1) / V))
def copy_in_a_bulk() -> Pair:
    """The onset when all L^2 logits fluctuate: |A|^2 = sigma_C^2, and the saddle of tau fixes L^2/sigma_C^2 + 2 S_t.

    h_gg/L = (L^2/sigma_C^2 + 2 S_t) - q (V - 1) L/(t + theta), the first term L^2/t at the saddle, all at leading
    order in 1/L.
    """
    h = L**2 / c2 - (SIGNAL * (V - 1) * L / (c2 + RIDGE))
    left = max(sp.solve(h, P), key=lambda y: y.subs({kappa: 1, L: 1, V: 2, w2: 1, c2: 1}))
    return left, _closed_forms(ensemble="posterior", determinant=sp.Integer(1))["copy"]


@step("scaling.closed_forms")
def copy_in_a_cold_bulk() -> Pair:
    """When cold the onset is P_c, the one of the joint maximum."""
    bulk = _closed_forms(ensemble="posterior", determinant=sp.Integer(1))["copy"]
    product = sp.Symbol("x", positive=True)  # sigma_C sigma_W
    ratio = (bulk / sp.nsimplify(_closed_forms()["copy"])).subs(w2, product**2 / c2)
    return sp.limit(sp.simplify(ratio), product, 0, "+"), sp.Integer(1)


@step("scaling.closed_forms")
def copy_in_a_hot_bulk() -> Pair:
    """When hot it is kappa L^2 V/(V - 1), the count of the attention parameters."""
    bulk = _closed_forms(ensemble="posterior", determinant=sp.Integer(1))["copy"]
    return sp.limit(bulk, w2, sp.oo), kappa * L**2 * V / (V - 1)


# ---- 7. softmax attention with equal rows


@step("softmax.gap", "softmax.weight")
def softmax_inverse() -> Pair:
    """beta(a(beta)) = beta."""
    return sp.exp(on_symbols(softmax.gap)(on_symbols(softmax.weight)(beta, L), L)), sp.exp(beta)


@step("softmax.weight")
def softmax_weight() -> Pair:
    """The softmax of a row with one logit higher by beta: target weight a + (1 - a)/L."""
    weight = on_symbols(softmax.weight)(beta, L)
    return sp.exp(beta) / (sp.exp(beta) + L - 1), weight + (1 - weight) / L


@step("softmax.update", wrong=lambda right: -right)
def softmax_slope() -> Pair:
    """da/dbeta = (1 - a)(1 + (L - 1) a)/L."""
    weight = on_symbols(softmax.weight)(beta, L)
    return sp.diff(weight, beta), (1 - weight) * (1 + (L - 1) * weight) / L


def _softmax_sums(boundary: str) -> list[Expr]:
    """t, s, r, u of equal rows, entry by entry, in the weight a."""
    rows = L if boundary == "cyclic" else L - 1
    target, other = a + (1 - a) / L, (1 - a) / L
    rest = L - rows
    return [
        rows * (target**2 + (L - 1) * other**2) + rest / L,
        rows * target,
        rows * (target + (L - 1) * other) ** 2 + rest,
        rows * (target + (L - 1) * other),
    ]


@per_boundary("softmax.sums")
def softmax_sums(boundary: str) -> Pair:
    """t, s, r, u of equal rows; the first open row is uniform."""
    rows = L if boundary == "cyclic" else L - 1
    code = on_symbols(softmax.sums)(model(target_rows=rows), beta)
    weight = on_symbols(softmax.weight)(beta, L)
    return [x.subs(a, weight) for x in _softmax_sums(boundary)], list(code)


@step("action.prior_cost", "softmax.action_at")
def softmax_prior() -> Pair:
    """The least logits of a row with gap beta are centred: they cost (1 - 1/L) beta^2/(2 sigma_C^2)."""
    c = sp.Symbol("c", real=True)
    cost = ((c + beta) ** 2 + (L - 1) * c**2) / (2 * c2)
    (best,) = sp.solve(sp.diff(cost, c), c)
    return cost.subs(c, best), (1 - 1 / L) * beta**2 / (2 * c2)


def by_gap(x: Expr) -> Expr:
    """Derivative in beta of a function of a and beta."""
    return sp.diff(x, beta) + sp.diff(x, a) * (1 - a) * (1 + (L - 1) * a) / L


def _softmax_action(rows: Expr) -> Expr:
    """S(beta) as the kernel has it, theta = ridge/P, the weight written a."""
    ridge = sp.Symbol("ridge", positive=True)
    kernel = on_symbols(softmax._action)(beta, P, L, rows, V, c2, kappa, ridge, lam)
    found = kernel.subs(on_symbols(softmax.weight)(beta, L), a)
    assert not found.has(sp.exp)
    return found


@per_boundary("softmax.action_at", wrong=lambda right: right.subs(lam, -lam) + right)
def softmax_action(boundary: str) -> Pair:
    """The kernel of the action is prior + S_d without the constant J channel."""
    rows = L if boundary == "cyclic" else L - 1
    here = model(ridge=RIDGE, signal=SIGNAL)
    S_d = on_symbols(action.averaged_action)(here, action.Sums(t, s, r, u))
    values = dict(zip((t, s, r, u), map(sp.factor, _softmax_sums(boundary)), strict=True))
    constant = S_d.subs({t: 0, s: 0})
    left = rows * (1 - 1 / L) * beta**2 / (2 * c2) + (S_d - constant).subs(values, simultaneous=True)
    return left, _softmax_action(rows).subs({sp.Symbol("ridge", positive=True): RIDGE * P, lam: 1})


@per_boundary("softmax.update")
def softmax_update(boundary: str) -> Pair:
    """F(beta) - beta = -S'(beta) sigma_C^2/(n (1 - 1/L)): fixed points are the stationary points."""
    rows = L if boundary == "cyclic" else L - 1
    ridge = sp.Symbol("ridge", positive=True) / P
    here = model(target_rows=rows, ridge=ridge, signal=SIGNAL, determinant=lam)
    code = on_symbols(softmax.update, weight=lambda *_: a)(here, beta)
    return beta - by_gap(_softmax_action(rows)) * c2 / (rows * (1 - 1 / L)), code


@step("softmax.sample_curve", "softmax.states_at", "softmax.folds")
def softmax_cubic() -> Pair:
    """Stationarity at a given gap is a cubic in x = 1/P whose coefficients change sign once, for n rows with a target.

    The left side is S'(beta) (t + theta)^2 x/(n (1 - 1/L)), theta = ridge x.
    """
    ridge, x = sp.symbols("ridge x", positive=True)
    N = n * (1 - 1 / L)
    T, s_, slope = 1 + N * a**2, n / L + N * a, (1 - a) * (1 + (L - 1) * a) / L
    left = by_gap(_softmax_action(n)).subs(P, 1 / x) * (T + ridge * x) ** 2 * x / N
    k, b, entropy = slope * s_ * (V - 1) / (kappa * L * V), beta / c2, lam * V * (V - 1) * a * slope
    right = b * ridge**2 * x**3 + (2 * b * T + entropy) * ridge * x**2
    right += (b * T**2 + entropy * T - k * ridge) * x - k * (1 - a * n / L)
    return left, right


def _coexistence() -> Expr:
    """P at which the action of the weight a, gap beta, equals that of uniform attention (joint maximum)."""
    t_, s_, *_ = _softmax_sums("cyclic")
    fit = q * (V - 1) / 2 * (s_**2 / (t_ + theta) - 1 / (1 + theta))
    (found,) = sp.solve(((L - 1) * beta**2 / (2 * c2) - fit).subs(q, SIGNAL), P)
    return found


@step("scaling.closed_forms", wrong=lambda right: right.subs(beta, beta**2))
def softmax_coexistence() -> Pair:
    """Equal actions of a copying state and of the uniform one: P as a function of the gap, joint maximum."""
    bracket = (1 + (L - 1) * a) ** 2 / (1 + (L - 1) * a**2 + theta) - 1 / (1 + theta)
    return _coexistence(), kappa * L * V * (L - 1) * beta**2 / (c2 * (V - 1)) / bracket


@step("scaling.critical_samples", wrong=lambda right: right.subs(theta, -theta))
def softmax_coexistence_of_long_contexts() -> Pair:
    """With z = L a^2 fixed, P/(L ln^2(L z)) tends to kappa V/(V - 1) (1 + (1 + theta)/z)/(4 sigma_C^2): L ln^2 L."""
    N = sp.Symbol("N", positive=True)  # L = N^2
    left = _coexistence()
    weight = sp.sqrt(z) / N
    rational = (left / beta**2 / L).subs({L: N**2, a: weight}, simultaneous=True)
    gap = sp.log(1 + N**2 * weight / (1 - weight))
    prefactor = sp.limit(sp.cancel(rational), N, sp.oo)
    logarithm = sp.limit(gap / sp.log(N**2 * z), N, sp.oo)
    return prefactor * logarithm**2, kappa * V / (V - 1) * (1 + (1 + theta) / z) / (4 * c2)


@step("softmax.sample_curve", "softmax.folds", wrong=lambda right: right * sp.exp(beta))
def softmax_curve_of_long_contexts() -> Pair:
    """At a fixed gap stationary P/L^2 tends to kappa V/(V - 1) (1 + theta) beta e^{-2 beta}/sigma_C^2."""
    weight = on_symbols(softmax.weight)(beta, L)
    t_, s_, *_ = _softmax_sums("cyclic")
    slope = (1 - a) * (1 + (L - 1) * a) / L
    # joint maximum: beta/sigma_C^2 = q (V - 1) a' s (t - a s + theta)/(t + theta)^2
    (curve,) = sp.solve(beta / c2 - SIGNAL * (V - 1) * slope * s_ * (t_ - a * s_ + theta) / (t_ + theta) ** 2, P)
    rational = sp.together((curve / L**2).subs(a, weight).subs(sp.exp(-beta), 1 / z))
    left = sp.limit(sp.cancel(rational), L, sp.oo).subs(z, sp.exp(beta))
    return left, kappa * V / (V - 1) * (1 + theta) * beta * sp.exp(-2 * beta) / c2


@step("scaling.closed_forms")
def spinodal_gap() -> Pair:
    """beta e^{-2 beta} is largest at beta = 1/2."""
    (left,) = sp.solve(sp.diff(beta * sp.exp(-2 * beta), beta), beta)
    return left, sp.Rational(1, 2)


@step("scaling.closed_forms")
def pooling_spinodal() -> Pair:
    """P_s2 = kappa L^2/(2 e sigma_C^2) (1 + theta) V/(V - 1), where theta = kappa L V/(sigma_W^2 P): a quadratic."""
    largest = (beta * sp.exp(-2 * beta)).subs(beta, sp.Rational(1, 2))
    c, d = kappa * L**2 / (2 * sp.E * c2) * V / (V - 1), kappa * L * V / w2
    root = (c + sp.sqrt(c**2 + 4 * c * d)) / 2
    return root**2 / (kappa * L**2 * largest / c2 * V / (V - 1)), root + kappa * L * V / w2


@step("scaling.critical_samples")
def softmax_of_large_vocabularies() -> Pair:
    """For V >> L ln^2 L the ridge dominates: P^2 tends to (kappa beta/a)^2 L V/(sigma_C sigma_W)^2."""
    left = _coexistence()
    squared = sp.limit(sp.cancel(left / theta), theta, sp.oo) * sp.Symbol("theta_P", positive=True)
    squared = squared.subs(sp.Symbol("theta_P", positive=True), kappa * L * V / w2)  # theta P
    growth = sp.limit(sp.cancel(sp.limit(sp.cancel(squared / V), V, sp.oo) / L), L, sp.oo)
    return growth, (kappa * beta / a) ** 2 / (c2 * w2)


def _simplex_volume(size: int) -> Pair:
    logits = sp.symbols(f"x0:{size - 1}", real=True)
    weights = [sp.exp(x) for x in logits] + [sp.Integer(1)]
    total = sp.Add(*weights)
    row = [w / total for w in weights]
    return sp.Matrix([[sp.diff(y, x) for x in logits] for y in row[:-1]]).det(), sp.Mul(*row)


@step("action.prior_cost")
def simplex_volume_3() -> Pair:
    """The map from L - 1 logits (the last one fixed) to the weights of a row has the Jacobian prod_j A_j; L = 3."""
    return _simplex_volume(3)


@step("action.prior_cost")
def simplex_volume_4() -> Pair:
    """The map from L - 1 logits (the last one fixed) to the weights of a row has the Jacobian prod_j A_j; L = 4."""
    return _simplex_volume(4)


@step("softmax.weight")
def softmax_small_gap() -> Pair:
    """a = beta/L + (L - 2) beta^2/(2 L^2) + ...: nothing is symmetric in beta, so no pitchfork."""
    weight = on_symbols(softmax.weight)(beta, L)
    left = [sp.diff(weight, beta, k).subs(beta, 0) / sp.factorial(k) for k in range(3)]
    return left, [sp.Integer(0), 1 / L, (L - 2) / (2 * L**2)]


# ---- 8. rows that fluctuate


def _row() -> tuple[list[Expr], Expr, list[Expr]]:
    """A row of four logits, the target first: logits, its logit over the mean of the others, the others centred."""
    x = list(sp.symbols("x0:4", real=True))
    mean = (x[1] + x[2] + x[3]) / 3
    return x, x[0] - mean, [y - mean for y in x[1:]]


@step("fluctuations.row_average")
def row_weight() -> Pair:
    """The weight of the target is e^h/(e^h + Z)."""
    x, h, others = _row()
    left = sp.exp(x[0]) / sp.Add(*(sp.exp(y) for y in x))
    return left, sp.exp(h) / (sp.exp(h) + sp.Add(*(sp.exp(y) for y in others)))


@step("fluctuations.row_average")
def row_square() -> Pair:
    """The sum of squares of a row is (e^{2h} + Q)/(e^h + Z)^2."""
    x, h, others = _row()
    left = sp.Add(*(sp.exp(2 * y) for y in x)) / sp.Add(*(sp.exp(y) for y in x)) ** 2
    Z, Q = sp.Add(*(sp.exp(y) for y in others)), sp.Add(*(sp.exp(2 * y) for y in others))
    return left, (sp.exp(2 * h) + Q) / (sp.exp(h) + Z) ** 2


@step("fluctuations.row_average", wrong=lambda right: right * (L - 1) / L)
def row_variance() -> Pair:
    """h has the variance sigma_C^2 L/(L - 1): one logit and the mean of L - 1 others are independent."""
    return c2 + (L - 1) * c2 / (L - 1) ** 2, c2 * L / (L - 1)


@step("fluctuations.row_average")
def row_parts_are_independent() -> Pair:
    """The covariance of h and the centred others (L = 4): h stands alone, so that the two are averaged apart."""
    x, h, others = _row()
    slopes = sp.Matrix([[sp.diff(y, w) for w in x] for y in (h, *others)])
    right = sp.diag(sp.Rational(4, 3), sp.eye(3) - sp.ones(3) / 3)
    return list(slopes * slopes.T), list(right)


@step("model.CopyHead.infeasibility")
def row_least_square() -> Pair:
    """At a given weight a of the target the least sum of squares is a^2 + (1 - a)^2/(L - 1): the feasible states."""
    c = sp.Symbol("c", real=True)  # one entry; the other L - 2 share the rest
    square_ = a**2 + c**2 + (L - 2) * ((1 - a - c) / (L - 2)) ** 2
    (best,) = sp.solve(sp.diff(square_, c), c)
    return square_.subs(c, best), a**2 + (1 - a) ** 2 / (L - 1)


def _two_rows() -> tuple[Expr, list[Expr], list[Expr], Matrix]:
    """ln of the partition function of a row with two states in two fields; fields, means, covariance."""
    fields = list(sp.symbols("lambda_1 lambda_2", real=True))
    weights, A, Q = sp.symbols("p0:2", positive=True), sp.symbols("a0:2", real=True), sp.symbols("q0:2", real=True)
    states = [p * sp.exp(fields[0] * x + fields[1] * y) for p, x, y in zip(weights, A, Q, strict=True)]
    Z = sp.Add(*states)
    means = [sp.Add(*(w * x for w, x in zip(states, values, strict=True))) / Z for values in (A, Q)]
    second = [[sp.Add(*(w * x * y for w, x, y in zip(states, X, Y, strict=True))) / Z for Y in (A, Q)] for X in (A, Q)]
    covariance = sp.Matrix(2, 2, lambda i, j: second[i][j] - means[i] * means[j])
    return sp.log(Z), fields, means, covariance


@step("fluctuations.row_average")
def row_means() -> Pair:
    """Means and covariance of (a, q) are the derivatives of Lambda in the fields."""
    Lambda, fields, means, covariance = _two_rows()
    left = [sp.diff(Lambda, x) for x in fields] + [sp.diff(Lambda, x, y) for x in fields for y in fields]
    return list(left), [*means, *covariance]


@step("fluctuations.potential", "fluctuations.update", "fluctuations.fields", wrong=lambda right: [-x for x in right])
def mean_field_is_stationary() -> Pair:
    """grad F = -(Hessian of S_d) ((s, t) - n (means of a row)): F is stationary where the mean field holds.

    F = S_d + lambda_1 s + lambda_2 t - n Lambda, lambda = -grad S_d, for rows with two states.
    """
    here = model()
    Lambda, fields, means, _ = _two_rows()
    S = on_symbols(action.averaged_action)(here, action.Sums(t, s, r, u))
    field = _fields(here)
    F = S + field[0] * s + field[1] * t - L * Lambda.subs(dict(zip(fields, field, strict=True)), simultaneous=True)
    hessian = fluctuations._hessian(here, [s, t])  # type: ignore[arg-type]
    miss = [x - L * y for x, y in zip((s, t), means, strict=True)]
    # the fields are free symbols on both sides: their values would only be carried along
    right = [-sum(hessian[i, j] * miss[j] for j in range(2)) for i in range(2)]
    back = dict(zip(fields, field, strict=True))
    return (
        [sp.diff(F, x) for x in (s, t)],
        [x.subs(back, simultaneous=True) for x in right],
    )


def _fields(here: Any) -> list[Expr]:
    d = action.averaged_gradient(here, action.Sums(t, s, r, u))
    return [-d.s, -d.t]


@step("fluctuations.slope", "fluctuations.state_at", wrong=lambda right: [-x for x in right])
def mean_field_slope() -> Pair:
    """F'(state) = -(covariance of the rows) (Hessian of S_d), which decides stability and serves Newton's method."""
    here = model()
    _, fields, means, covariance = _two_rows()
    back = dict(zip(fields, _fields(here), strict=True))
    hessian = sp.Matrix(fluctuations._hessian(here, [s, t]).tolist())  # type: ignore[arg-type]
    left = [sp.diff(y.subs(back, simultaneous=True), x) for y in means for x in (s, t)]
    return list(left), list((-covariance * hessian).subs(back, simultaneous=True))


@step("fluctuations.point_on_curve")
def fields_and_samples() -> Pair:
    """The derivatives of the fields in ln P, by which Newton's method follows the curve P(s)."""
    here = model(determinant=1, ridge=RIDGE, signal=SIGNAL)
    field = _fields(here)
    x = t + RIDGE
    right = [
        field[0] * (1 + RIDGE / x),
        -SIGNAL * (V - 1) * (s / x) ** 2 / 2 * (1 + 2 * RIDGE / x) - V * (V - 1) * RIDGE / (2 * x * x),
    ]
    return [P * sp.diff(y, P) for y in field], list(right)


# ---- 9. training


@step("action.normal_equations", "data.pair_counts", wrong=lambda right: right[::-1])
def moments_from_pair_counts() -> Pair:
    """R = sum X^T A^T A X and B = sum X^T A^T G X are linear in how often token v stands at i together with w at j."""
    tokens = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1]])
    A, G = matrix("A", 3), shift(3, "cyclic")
    data = [sp.Matrix(3, 2, [int(y == v) for y in x for v in range(2)]) for x in tokens]
    left = [sum((X.T * A.T * M * X for X in data), sp.zeros(2)) for M in (A, G)]
    exact = np.vectorize(sp.Integer, otypes=[object])
    code = on_symbols(
        action.normal_equations,
        _square=lambda _, M: np.array(M.tolist(), dtype=object),
        shift=lambda *_: exact(action.shift(3, "cyclic")),
        np=SimpleNamespace(einsum=lambda *operands, **_: np.einsum(*operands)),
    )(model(), A, exact(pair_counts(tokens, 2)))
    return [y for M in left for y in M], [y for M in code for y in M.ravel()]


@step("training.Energy", "observables.losses")
def energy_of_the_data() -> Pair:
    """sum_mu |Y - A X W|^2 = sum |Y|^2 - 2 tr W^T B + tr W^T R W, two sequences of three tokens, any A and W."""
    A, W, G = matrix("A", 3), matrix("W", 2), shift(3, "cyclic")
    data = [sequences(3, 2)[k] for k in (1, 6)]
    left = sum(sum(x**2 for x in G * X - A * X * W) for X in data)
    R = sum((X.T * A.T * A * X for X in data), sp.zeros(2))
    B = sum((X.T * A.T * G * X for X in data), sp.zeros(2))
    return left, 6 - 2 * (W.T * B).trace() + (W.T * R * W).trace()


@step("training.Energy", wrong=lambda right: [-x for x in right])
def energy_slope() -> Pair:
    """dU/dA = (A H[W W^T] - G H[W]^T)/(kappa L), H[M] = sum_mu X M X^T: the gradient of the compiled energy."""
    A, W, G = matrix("A", 3), matrix("W", 2), shift(3, "cyclic")
    data = [sequences(3, 2)[k] for k in (1, 6)]
    U = sum(sum(x**2 for x in G * X - A * X * W) for X in data) / (2 * kappa * L)
    pulled = [sum((X * M * X.T for X in data), sp.zeros(3)) for M in (W * W.T, W)]
    return [sp.diff(U, x) for x in A], list((A * pulled[0] - G * pulled[1].T) / (kappa * L))


@step("training.Energy")
def softmax_chain_rule() -> Pair:
    """dC_j = A_j (dA_j - sum_k A_k dA_k) through a softmax row."""
    x, d = sp.symbols("x0:3", real=True), sp.symbols("d0:3", real=True)
    total = sp.Add(*(sp.exp(y) for y in x))
    row = [sp.exp(y) / total for y in x]
    left = [sp.diff(sum(y * w for y, w in zip(row, d, strict=True)), w) for w in x]
    mean = sum(y * w for y, w in zip(row, d, strict=True))
    return left, [y * (w - mean) for y, w in zip(row, d, strict=True)]
