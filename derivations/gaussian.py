r"""Lemmas: Gaussian integrals, integration by parts, envelopes, and small matrices.

The derivations of the models use these and nothing else about Gaussians. Where a lemma holds for every function, it is
checked for polynomials with symbolic coefficients times an exponential with a symbolic rate: both sides are linear in
the function, and such functions are dense. Undefined functions stand for themselves in proofs, and for an example in
samples.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derivations.claim import Equation, claim

Expr = Any

x, y, w, c, k, z = sp.symbols("x y omega c k z", real=True)
m, a, b = sp.symbols("m a b", real=True)
s, V, rho = sp.symbols("s V rho", positive=True)


def normal(variable: Expr) -> Expr:
    """Density of the standard normal law."""
    return sp.exp(-(variable**2) / 2) / sp.sqrt(2 * sp.pi)


def integral(expression: Expr, *variables: Expr) -> Expr:
    """E over independent standard normal variables, by integration."""
    for variable in variables:
        expression = sp.integrate(sp.expand(expression * normal(variable)), (variable, -sp.oo, sp.oo))
    return expression


def expectation(polynomial: Expr, *variables: Expr) -> Expr:
    """E of a polynomial in independent standard normal variables, from the moments (n - 1)!!."""
    terms = sp.Poly(polynomial, *variables).terms()
    return sum(
        coefficient * sp.prod([sp.factorial2(n - 1) if n % 2 == 0 else 0 for n in powers])
        for powers, coefficient in terms
    )


def box(*symbols: Expr) -> dict[Expr, tuple[float, float]]:
    """A domain of order one: positive symbols in [.3, 2], the others in [-2, 2]."""
    return {symbol: (0.3, 2.0) if symbol.is_positive else (-2.0, 2.0) for symbol in symbols}


def matrix(name: str, rows: int, columns: int) -> Expr:
    """A matrix of real symbols."""
    return sp.Matrix(rows, columns, sp.symbols(f"{name}:{rows}:{columns}", real=True))


def symmetric(name: str, n: int) -> Expr:
    """A symmetric matrix of real symbols."""
    return sp.Matrix(n, n, lambda i, j: sp.Symbol(f"{name}{min(i, j)}{max(i, j)}", real=True))


def symbols_of(*expressions: Expr) -> list[Expr]:
    """Free symbols in alphabetical order."""
    return sorted(set().union(*(e.free_symbols for e in expressions)), key=str)


# ---- integrals


@claim()
def moments() -> Equation:
    r"""E x^n = (n - 1)!! for even n and 0 for odd n."""
    p = sp.symbols("p:7", real=True)
    polynomial = sum(coefficient * x**n for n, coefficient in enumerate(p))
    return Equation(integral(polynomial, x), expectation(polynomial, x), box(*p))


@claim()
def shift() -> Equation:
    r"""E[f(x) exp(c x)] = exp(c^2/2) E f(x + c): an exponential shifts the mean."""
    p = sp.symbols("p:4", real=True)
    f = sum(coefficient * x**n for n, coefficient in enumerate(p))
    right = sp.exp(c**2 / 2) * expectation(f.subs(x, x + c), x)
    return Equation(integral(f * sp.exp(c * x), x), right, box(c, *p), wrong=right.subs(c, -c))


@claim()
def exponential_of_a_quadratic() -> Equation:
    r"""E exp(c x - a^2 x^2/2) = (1 + a^2)^{-1/2} exp(c^2/(2 (1 + a^2)))."""
    left = sp.integrate(sp.exp(c * x - (1 + V) * x**2 / 2), (x, -sp.oo, sp.oo)) / sp.sqrt(2 * sp.pi)
    return Equation(left, sp.exp(c**2 / (2 * (1 + V))) / sp.sqrt(1 + V), box(c, V))


@claim()
def completing_the_square() -> Equation:
    r"""-w^T L w/2 + b^T w = b^T L^{-1} b/2 - (w - L^{-1} b)^T L (w - L^{-1} b)/2, so log-partition and mean follow."""
    L, b, w = symmetric("L", 3), matrix("b", 3, 1), matrix("w", 3, 1)
    mean = L.adjugate() * b / L.det()
    left = -(w.T * L * w) / 2 + b.T * w
    right = b.T * mean / 2 - (w - mean).T * L * (w - mean) / 2
    return Equation(left, right, box(*symbols_of(L), *b, *w))


@claim()
def marginal() -> Equation:
    r"""Integrating y out of a Gaussian in (x, y) leaves a Gaussian in x with the covariance's own entry."""
    theta = sp.Symbol("theta", real=True)
    q = s**2 + theta**2 / rho
    point = sp.Matrix([x, y])
    # exponent -(A y^2/2 - B y + C), whose integral over y is sqrt(2 pi/A) exp(B^2/(2 A) - C)
    exponent = sp.Poly(sp.expand((point.T * sp.Matrix([[q, theta], [theta, rho]]).inv() * point)[0] / 2), y)
    A, B, C = (factor * exponent.coeff_monomial(y**n) for factor, n in ((2, 2), (-1, 1), (1, 0)))
    # both sides squared and without their equal exponentials
    left = [2 * sp.pi / A / ((2 * sp.pi) ** 2 * rho * s**2), B**2 / (2 * A) - C]
    return Equation(left, [1 / (2 * sp.pi * q), -(x**2) / (2 * q)], box(x, theta, s, rho))


@claim()
def conditional() -> Equation:
    r"""A Gaussian (x, y) of covariance (rho, theta; theta^T, q) is y = theta^T rho^{-1} x + s z.

    The variance that is left is s^2 = q - theta^T rho^{-1} theta.
    """
    theta = sp.Matrix(sp.symbols("theta:2", real=True))
    R = symmetric("rho", 2)
    X = matrix("x", 2, 1)
    inverse = R.adjugate() / R.det()
    joint = sp.Matrix(sp.BlockMatrix([[R, theta], [theta.T, theta.T * inverse * theta + sp.Matrix([[s**2]])]]))
    point = sp.Matrix([*X, y])
    left = (point.T * joint.adjugate() * point)[0] / joint.det()
    right = (X.T * inverse * X)[0] + (y - (theta.T * inverse * X)[0]) ** 2 / s**2
    return Equation(left, right, box(*theta, *symbols_of(R), *X, y, s))


# ---- integration by parts


@claim()
def stein() -> Equation:
    r"""E[x f(x)] = E f'(x), x standard normal (Stein)."""
    p = sp.symbols("p:4", real=True)
    f = sum(coefficient * x**n for n, coefficient in enumerate(p))

    # with the exponential, by the shift
    def tilted(polynomial: sp.Expr) -> sp.Expr:
        return sp.exp(c**2 / 2) * expectation(polynomial.subs(x, x + c), x)

    return Equation(tilted(x * f), tilted(sp.diff(f, x) + c * f), box(c, *p))


@claim()
def stein_scaled() -> Equation:
    r"""E[g(m + s x) x]/s = E g'(m + s x): the slope of a function from its values."""
    p = sp.symbols("p:5", real=True)
    g = sum(coefficient * w**n for n, coefficient in enumerate(p))
    at = {w: m + s * x}
    left = expectation((x * g).subs(at), x) / s
    return Equation(left, expectation(sp.diff(g, w).subs(at), x), box(m, s, *p), wrong=left * s)


@claim()
def stein_matrix() -> Equation:
    r"""E[x h(A x)] = A^T E grad h(A x) for a vector x of independent standard normals."""
    A = matrix("A", 2, 2)
    p = sp.symbols("p:6", real=True)
    X = sp.Matrix([x, y])
    h1, h2 = sp.symbols("h1 h2", real=True)
    h = p[0] * h1 + p[1] * h2 + p[2] * h1**2 + p[3] * h1 * h2 + p[4] * h1**3 + p[5] * h1 * h2**2
    at = dict(zip((h1, h2), A * X, strict=True))
    left = [expectation(variable * h.subs(at), x, y) for variable in X]
    gradient = sp.Matrix([expectation(sp.diff(h, v).subs(at), x, y) for v in (h1, h2)])
    return Equation(left, A.T * gradient, box(*A, *p), wrong=A * gradient)


@claim("statmech_attn.positional_semantic.layer_response.response_of_hats")
def response_to_a_regression() -> Equation:
    r"""d/da of E[g(m + a y + s x, y) y] is E[g x y^2]/s: how the field of the teacher answers an overlap with it."""
    p = sp.symbols("p:9", real=True)
    g = sum(coefficient * w ** (n // 3) * y ** (n % 3) for n, coefficient in enumerate(p))
    at = {w: m + a * y + s * x}
    left = sp.diff(expectation((g * y).subs(at), x, y), a)
    right = expectation((g * x * y**2).subs(at), x, y) / s
    return Equation(left, right, box(m, a, s, *p), wrong=expectation((g * x * y).subs(at), x, y) / s)


@claim()
def stein_with_a_jump() -> Equation:
    r"""E[g(m + s x) x]/s = E g' + D phi((c - m)/s)/s for g that jumps by D at c: the slope misses the jump."""
    p = sp.symbols("p:2", real=True)
    q = sp.symbols("q:2", real=True)
    low = sum(coefficient * w**n for n, coefficient in enumerate(p))
    high = sum(coefficient * w**n for n, coefficient in enumerate(q))
    # in x, the jump sits at k = (c - m)/s
    density = normal(x)
    lower = [sp.integrate(x**n * density, (x, -sp.oo, k)) for n in range(3)]
    upper = [sp.integrate(x**n * density, (x, k, sp.oo)) for n in range(3)]

    def over(below: Expr, above: Expr) -> Expr:
        return sum(
            coefficient * table[n]
            for part, table in ((below, lower), (above, upper))
            for (n,), coefficient in sp.Poly(part.subs(w, m + s * x), x).terms()
        )

    left = over(low * (w - m) / s, high * (w - m) / s) / s
    smooth = over(sp.diff(low, w), sp.diff(high, w))
    jump = (high - low).subs(w, m + s * k) * normal(k) / s
    return Equation(left, smooth + jump, box(m, s, k, *p, *q), wrong=smooth)


@claim()
def isserlis() -> Equation:
    r"""E[a b c d] = ab cd + ac bd + ad bc in covariances, for four linear forms of a Gaussian vector."""
    A = matrix("A", 4, 3)
    X = sp.Matrix(sp.symbols("x:3", real=True))
    C = A * A.T
    left = expectation(sp.expand(sp.prod(list(A * X))), *X)
    right = C[0, 1] * C[2, 3] + C[0, 2] * C[1, 3] + C[0, 3] * C[1, 2]
    return Equation(left, right, box(*A), wrong=right - C[0, 1] * C[2, 3])


@claim()
def heat_equation() -> Equation:
    r"""d/dq E f(m + sqrt(q) x) = E f''/2: how averages depend on a variance."""
    q = sp.Symbol("q", positive=True)
    p = sp.symbols("p:6", real=True)
    f = sum(coefficient * w**n for n, coefficient in enumerate(p))
    at = {w: m + sp.sqrt(q) * x}
    right = expectation(sp.diff(f, w, 2).subs(at), x) / 2
    return Equation(sp.diff(expectation(f.subs(at), x), q), right, box(m, q, *p))


# ---- envelopes
#
# M(omega) = min_z |z - omega|^2/(2 V) + f(z). The minimiser is parametrised by itself: omega = z + V f'(z).

f = sp.Function("f")
EXAMPLE = {f: sp.Lambda(z, sp.cos(z) + b * z**2 + c * z)}


@claim()
def envelope() -> Equation:
    r"""dM/d omega = (omega - z)/V: the minimiser's own change does not count."""
    slope = sp.diff(f(z), z)
    omega = z + V * slope
    M = (z - omega) ** 2 / (2 * V) + f(z)
    right = (omega - z) / V
    return Equation(sp.diff(M, z) / sp.diff(omega, z), right, box(z, V, b, c), instance=EXAMPLE, wrong=-right)


@claim()
def envelope_in_the_width() -> Equation:
    r"""dM/dV = -(z - omega)^2/(2 V^2) at fixed omega."""
    slope = sp.diff(f(z), z)
    omega = z + V * slope
    M = (z - omega) ** 2 / (2 * V) + f(z)
    fixed = -sp.diff(omega, V) / sp.diff(omega, z)
    left = sp.diff(M, V) + sp.diff(M, z) * fixed
    right = -((z - omega) ** 2) / (2 * V**2)
    return Equation(left, right, box(z, V, b, c), instance=EXAMPLE, wrong=right / 2)


@claim()
def slope_of_the_proximal_operator() -> Equation:
    r"""dz/d omega = 1/(1 + V f''), and g = (z - omega)/V has dg/d omega = -f''/(1 + V f'')."""
    slope = sp.diff(f(z), z)
    omega = z + V * slope
    curvature = sp.diff(f(z), z, 2)
    g = (z - omega) / V
    left = [1 / sp.diff(omega, z), sp.diff(g, z) / sp.diff(omega, z)]
    right = [1 / (1 + V * curvature), -curvature / (1 + V * curvature)]
    return Equation(left, right, box(z, V, b, c), instance=EXAMPLE, wrong=[right[0], -right[1]])


@claim()
def laplace() -> Equation:
    r"""-(1/B) log E exp(-B f(omega + sqrt(V/B) x)) -> M(omega) as B -> infinity, for a quadratic f."""
    beta = sp.Symbol("B", positive=True)
    # E exp(-B c^2 (omega + sqrt(V/B) x - b)^2/2) by the exponential of a quadratic
    linear = -(k**2) * (w - b) * sp.sqrt(beta * V)
    log = -beta * k**2 * (w - b) ** 2 / 2 + linear**2 / (2 * (1 + k**2 * V)) - sp.log(1 + k**2 * V) / 2
    minimum = (w + V * k**2 * b) / (1 + V * k**2)
    right = (minimum - w) ** 2 / (2 * V) + k**2 * (minimum - b) ** 2 / 2
    return Equation(sp.limit(sp.expand(-log / beta), beta, sp.oo), right, box(w, b, k, V))


# ---- matrices


@claim()
def determinant_lemma() -> Equation:
    r"""det(A + u v^T) = det A (1 + v^T A^{-1} u)."""
    A, u, v = matrix("A", 3, 3), matrix("u", 3, 1), matrix("v", 3, 1)
    correction = (v.T * A.adjugate() * u)[0]
    return Equation((A + u * v.T).det(), A.det() + correction, box(*A, *u, *v), wrong=A.det() - correction)


@claim()
def sylvester() -> Equation:
    r"""det(1 + U W) = det(1 + W U) for U of shape (3, 2)."""
    U, W = matrix("U", 3, 2), matrix("W", 2, 3)
    return Equation((sp.eye(3) + U * W).det(), (sp.eye(2) + W * U).det(), box(*U, *W), wrong=(sp.eye(2) - W * U).det())


@claim()
def sherman_morrison() -> Equation:
    r"""(A + u v^T)^{-1} = A^{-1} - A^{-1} u v^T A^{-1}/(1 + v^T A^{-1} u)."""
    A, u, v = matrix("A", 2, 2), matrix("u", 2, 1), matrix("v", 2, 1)
    inverse = A.inv()
    correction = inverse * u * v.T * inverse / (1 + (v.T * inverse * u)[0])
    return Equation((A + u * v.T).inv(), inverse - correction, box(*A, *u, *v), wrong=inverse + correction)


@claim()
def woodbury() -> Equation:
    r"""(d + U W)^{-1} = 1/d - U (1 + W U/d)^{-1} W/d^2 for a number d and U of shape (2, 2)."""
    d, U, W = sp.Symbol("d", positive=True), matrix("U", 2, 2), matrix("W", 2, 2)
    inverse = sp.eye(2) / d
    core = sp.eye(2) + W * inverse * U
    right = inverse - inverse * U * core.adjugate() * W * inverse / core.det()
    # both sides times D + U W: the identity without the large inverse
    return Equation((d * sp.eye(2) + U * W) * right, sp.eye(2), box(d, *U, *W))


@claim()
def derivative_of_an_inverse() -> Equation:
    r"""d A^{-1} = -A^{-1} dA A^{-1}."""
    A, B = matrix("A", 2, 2), matrix("B", 2, 2)
    t = sp.Symbol("t", real=True)
    left = (A + t * B).inv().diff(t).subs(t, 0)
    return Equation(left, -A.inv() * B * A.inv(), box(*A, *B), wrong=A.inv() * B * A.inv())


@claim()
def derivative_of_a_log_determinant() -> Equation:
    r"""d log det A = tr A^{-1} dA."""
    A, B = matrix("A", 3, 3), matrix("B", 3, 3)
    t = sp.Symbol("t", real=True)
    left = (A + t * B).det().diff(t).subs(t, 0) / A.det()
    return Equation(left, (A.adjugate() * B).trace() / A.det(), box(*A, *B), wrong=(A.adjugate() * B).trace())


@claim()
def replica_symmetric_inverse() -> Equation:
    r"""(V 1 + q 11^T)^{-1} = (1 - q/(V + n q) 11^T)/V for n replicas, n any number: 11^T squares to n 11^T."""
    n, q = sp.symbols("n q", positive=True)
    # a + b J with J = 11^T, J^2 = n J, as the pair (a, b)
    a, b = 1 / V, -q / (V * (V + n * q))
    return Equation([V * a, V * b + q * a + n * q * b], [1, 0], box(n, q, V), wrong=[1, q])


@claim()
def replica_symmetric_determinant() -> Equation:
    r"""det(V 1 + q 11^T) = V^{n-1} (V + n q) for n = 1, ..., 4 replicas."""
    q = sp.Symbol("q", positive=True)
    left = [(V * sp.eye(n) + q * sp.ones(n, n)).det() for n in range(1, 5)]
    return Equation(left, [V ** (n - 1) * (V + n * q) for n in range(1, 5)], box(q, V))


@claim()
def replica_limit() -> Equation:
    r"""(1/n) log det(V 1 + q 11^T) -> log V + q/V as n -> 0."""
    n, q = sp.symbols("n q", positive=True)
    left = sp.limit(((n - 1) * sp.log(V) + sp.log(V + n * q)) / n, n, 0)
    return Equation(left, sp.log(V) + q / V, box(q, V), wrong=sp.log(V) - q / V)
