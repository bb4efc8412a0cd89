r"""Induction heads, step by step: the law, the repetition of known sources, and the sources made to order.

First the law of emergence and its fits; then how often a stationary Markov chain repeats a cue and a bigram, by
renewal, each formula against the enumeration of all paths of a chain with free entries; then contexts with a chosen
frequency and reliability, chains with a chosen marginal, and what is left: baselines, emergence points, the boundary.

T. Aoyama, E. G. Wilcox, N. Schneider, "Predicting the Emergence of Induction Heads in Language Model Pretraining",
arXiv 2511.16893.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy as sp

from derivations.symbolic import Pair, on_symbols, step
from statmech_attn.induction import emergence, expected, frontier, heads, law, markov
from statmech_attn.induction.repetition import Lookback

Expr = Any  # sympy is untyped
Matrix = Any

T, B, C, U = sp.symbols("T B C U", positive=True)
b, c = sp.symbols("b c", positive=True)
p, r = sp.symbols("p r", positive=True)
PROBABILITY = (0.05, 0.95)

# ---- 1. the law


def _law(threshold: float, batch_exponent: float, context_exponent: float) -> law.InductionLaw:
    everywhere = (0.0, np.inf)
    return law.InductionLaw(
        float(np.log(threshold)), batch_exponent, context_exponent, "any exponents", everywhere, everywhere
    )


@step(
    "law.InductionLaw.updates", "law.InductionLaw",
    kernel=lambda T, b, c, B, C: _law(T, b, c).updates(B, C), arguments=[T, b, c, B, C],
    wrong=lambda right: right * B ** (2 * b),
)  # fmt: skip
def updates() -> Pair:
    """U = T/(B^b C^c): the updates at which U B^b C^c = T."""
    (left,) = sp.solve(U * B**b * C**c - T, U)
    return left, sp.exp(sp.log(T) - b * sp.log(B) - c * sp.log(C))


@step(
    "law.InductionLaw.tokens", "law.updates_to_tokens",
    kernel=lambda T, b, c, B, C: _law(T, b, c).tokens(B, C), arguments=[T, b, c, B, C],
    rewrite=[sp.powsimp], wrong=lambda right: right / B,
)  # fmt: skip
def tokens() -> Pair:
    """N = U B C = T B^{1-b} C^{1-c}."""
    return T / (B**b * C**c) * B * C, T * B ** (1 - b) * C ** (1 - c)


@step(
    "law.InductionLaw.token_weighted_updates", "law.InductionLaw.threshold",
    kernel=lambda T, b, c, B, C: _law(T, b, c).token_weighted_updates(_law(T, b, c).updates(B, C), B, C),
    arguments=[T, b, c, B, C],
)  # fmt: skip
def token_weighted_updates() -> Pair:
    """At emergence the token-weighted updates U B^b C^c are T, whatever B and C."""
    return T / (B**b * C**c) * B**b * C**c, T


@step("law.tokens_to_updates", kernel=law.tokens_to_updates, arguments=[T, B, C])
def conversions() -> Pair:
    """Tokens to updates undoes updates to tokens: N/(B C), N = U B C, is U, here of N = T tokens."""
    (left,) = sp.solve(U * B * C - T, U)
    return left, T / (B * C)


@step("law.InductionLaw.published", wrong=lambda right: right / sp.sqrt(B), rewrite=[sp.powsimp])
def first_version() -> Pair:
    """The exponents of the first version, b = c = 1/2, give N = T sqrt(B C)."""
    published = law.InductionLaw.published("v1")
    exponents = [sp.Rational(x) for x in (published.batch_exponent, published.context_exponent)]
    return T / (B ** exponents[0] * C ** exponents[1]) * B * C, T * sp.sqrt(B * C)


@step("law.InductionLaw.published", wrong=lambda _: sp.Integer(750_000))
def second_threshold() -> Pair:
    """T of the second version, from its logarithm 13.26, to the nearest unit: not the 750000 printed beside it."""
    return sp.floor(sp.exp(sp.Rational(1326, 100)) + sp.Rational(1, 2)), sp.Integer(
        round(law.InductionLaw.published("v2").threshold)
    )


def _design() -> tuple[Matrix, Matrix]:
    """Four runs at two batch and two context sizes, the logarithms free; a fifth run to predict."""
    x, y, v, w = sp.symbols("x y v w", positive=True)
    return sp.Matrix([[1, 0, 0], [1, x, 0], [1, 0, y], [1, x, y]]), sp.Matrix([[1, v, w]])


@step("law.InductionLaw.fit")
def least_squares_covariance() -> Pair:
    """The covariance of a least-squares fit, sd^2 R^{-1} R^{-T} with the factor R of X = Q R, from that of the data."""
    X, _ = _design()
    estimator = (X.T * X).inv() * X.T
    inverse = X.QRdecomposition()[1].inv()
    return list(estimator * estimator.T), list(inverse * inverse.T)


@step("law.InductionLaw.prediction_interval", wrong=lambda right: right - sp.Symbol("sd", positive=True) ** 2)
def prediction_variance() -> Pair:
    """A new run misses the fitted law with variance sd^2 + x Cov x: its own scatter and that of the coefficients."""
    sd = sp.Symbol("sd", positive=True)
    X, new = _design()
    weights = new * (X.T * X).inv() * X.T  # of the four runs in the prediction; the new run itself has weight -1
    return sd**2 * (1 + sum(w**2 for w in weights)), sd**2 + (new * (sd**2 * (X.T * X).inv()) * new.T)[0]


def _gaussian(z: Expr) -> tuple[Expr, Expr]:
    """Density and distribution function."""
    return sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi), (1 + sp.erf(z / sp.sqrt(2))) / 2


def _censored() -> tuple[list[Expr], Expr, Expr, Matrix, Matrix]:
    """(gamma, tau); standardised bounds of a run known to lie in [low, high], and their slopes in (gamma, tau)."""
    gamma, x, low = sp.symbols("gamma x low", real=True)
    tau, width = sp.symbols("tau width", positive=True)
    high = low + width
    return [gamma, tau], tau * low - gamma * x, tau * high - gamma * x, sp.Matrix([-x, low]), sp.Matrix([-x, high])


@step("law.InductionLaw.fit", wrong=lambda right: [-x for x in right])
def censored_score() -> Pair:
    """Gradient of ln(Phi(high) - Phi(low)) in (gamma, tau): densities over the mass, times the slopes of the bounds."""
    unknowns, low, high, slope_low, slope_high = _censored()
    mass = _gaussian(high)[1] - _gaussian(low)[1]
    right = (_gaussian(high)[0] * slope_high - _gaussian(low)[0] * slope_low) / mass
    return [sp.diff(sp.log(mass), y) for y in unknowns], list(right)


@step("law.InductionLaw.fit")
def censored_curvature() -> Pair:
    """Its Hessian, which Newton's method and the covariance of the censored fit use."""
    unknowns, low, high, slope_low, slope_high = _censored()
    mass = _gaussian(high)[1] - _gaussian(low)[1]
    at_low, at_high = _gaussian(low)[0] / mass, _gaussian(high)[0] / mass
    score = at_high * slope_high - at_low * slope_low
    right = at_low * low * slope_low * slope_low.T - at_high * high * slope_high * slope_high.T - score * score.T
    return [sp.diff(sp.log(mass), y, w) for y in unknowns for w in unknowns], list(right)


@step("law.InductionLaw.fit")
def exact_score() -> Pair:
    """Gradient and Hessian for a run known exactly, whose log-likelihood is ln tau - z^2/2, z = tau y - gamma x."""
    gamma, x, y = sp.symbols("gamma x y", real=True)
    tau = sp.Symbol("tau", positive=True)
    z, slope, last = tau * y - gamma * x, sp.Matrix([-x, y]), sp.Matrix([0, 1])
    value = sp.log(tau) - z**2 / 2
    left = [sp.diff(value, w) for w in (gamma, tau)] + [
        sp.diff(value, v, w) for v in (gamma, tau) for w in (gamma, tau)
    ]
    return left, [*(-z * slope + last / tau), *(-slope * slope.T - last * last.T / tau**2)]


@step("law.InductionLaw.fit", rewrite=[sp.expand])
def mass_in_the_other_tail() -> Pair:
    """Phi(high) - Phi(low) = Phi(-low) - Phi(-high): the difference is taken in the tail where it does not cancel."""
    low, high = sp.symbols("low high", real=True)
    return _gaussian(high)[1] - _gaussian(low)[1], _gaussian(-low)[1] - _gaussian(-high)[1]


@step("law.InductionLaw.fit", wrong=lambda right: [-x for x in right])
def delta_method() -> Pair:
    """beta = gamma/tau has the Jacobian (1/tau, -gamma/tau^2)."""
    gamma, tau = sp.Symbol("gamma", real=True), sp.Symbol("tau", positive=True)
    return [sp.diff(gamma / tau, x) for x in (gamma, tau)], [1 / tau, -gamma / tau**2]


@step("law.InductionLaw.fit")
def worth_in_exact_runs() -> Pair:
    """n exact runs know tau to a variance of tau^2/2n, which turns a variance into a number of runs (n = 3).

    The inverse of the expected information, with E y = gamma x/tau and Var y = 1/tau^2.
    """
    gamma, tau = sp.Symbol("gamma", real=True), sp.Symbol("tau", positive=True)
    information = sp.zeros(2)
    for x in sp.symbols("x0:3", real=True):
        mean = gamma * x / tau
        square = mean**2 + 1 / tau**2
        information += sp.Matrix([[x**2, -x * mean], [-x * mean, square + 1 / tau**2]])
    return information.inv()[1, 1], tau**2 / 6


# ---- 2. repetition of known sources


def _two_states() -> tuple[Matrix, list[Expr]]:
    """A chain of two states and its stationary distribution."""
    return sp.Matrix([[1 - p, p], [r, 1 - r]]), [r / (p + r), p / (p + r)]


def _three_states() -> tuple[Matrix, list[Expr]]:
    """A chain of three states that stays or moves on, with a shortcut back; two free entries."""
    P = sp.Matrix(
        [
            [1 - p, p, 0],
            [r / 2, sp.Rational(1, 2), (1 - r) / 2],
            [sp.Rational(1, 3), sp.Rational(1, 3), sp.Rational(1, 3)],
        ]
    )
    weights = [(P.T - sp.eye(3)).adjugate()[i, 0] for i in range(3)]
    total = sp.together(sum(weights))
    return P, [sp.cancel(w / total) for w in weights]


Chain = Callable[[], tuple[Matrix, list[Expr]]]


def _enumerated(P: Matrix, pi: list[Expr], most: int) -> list[list[Expr]]:
    """Frequency, bigram and latest at look-backs 1 .. most, from the definition, over all paths of the chain.

    Earlier positions are 0 .. m - 1, the cue stands at m, its successor at m + 1.
    """
    totals: list[list[Expr]] = [[], [], []]
    for m in range(1, most + 1):
        sums = [sp.Integer(0)] * 3
        for x in itertools.product(range(len(pi)), repeat=m + 2):
            weight = pi[x[0]] * sp.Mul(*(P[i, j] for i, j in itertools.pairwise(x)))
            successors = [x[i + 1] for i in range(m) if x[i] == x[m]]
            events = (bool(successors), x[m + 1] in successors, successors[-1:] == [x[m + 1]])
            sums = [s + weight if event else s for s, event in zip(sums, events, strict=True)]
        for total, s in zip(totals, sums, strict=True):
            total.append(s)
    return totals


#: numpy for the package's own code on symbols.
_NUMPY = SimpleNamespace(
    **{
        **vars(np),
        "zeros": lambda shape: np.full(shape, sp.Integer(0), dtype=object),
        "ones": lambda shape: np.full(shape, sp.Integer(1), dtype=object),
    }
)


def _renewal(P: Matrix, pi: list[Expr], most: int) -> list[list[Expr]]:
    """The same from the compiled kernel, run on symbols."""
    powers = np.array([(P**k).tolist() for k in range(most + 2)], dtype=object)
    kernel = on_symbols(expected._renewal, np=_NUMPY)
    return [
        list(x[1:]) for x in kernel(powers, np.array(P.tolist(), dtype=object), np.array(pi, dtype=object), most + 1)
    ]


def _expected(chain: Chain, which: str, m: int) -> Callable[..., Any]:
    """The package's number, for given entries of the chain."""

    def number(*entries: float) -> float:
        P, _ = chain()
        values = np.array(sp.lambdify([p, r], P)(*entries), dtype=float)
        return float(getattr(expected.expected_markov(values, m), which)[m])

    return number


@functools.cache
def _both_sides(chain: Chain, most: int) -> tuple[list[list[Expr]], list[list[Expr]]]:
    P, pi = chain()
    return _enumerated(P, pi, most), _renewal(P, pi, most)


def _sides(chain: Chain, which: int, most: int) -> Pair:
    left, right = _both_sides(chain, most)
    return left[which], right[which]


CHAIN = {p: PROBABILITY, r: PROBABILITY}
MARKOV = "expected.expected_markov"


def _kernel(chain: Chain, which: str, most: int) -> Callable[..., Any]:
    return lambda *entries: [_expected(chain, which, m)(*entries) for m in range(1, most + 1)]


@step(MARKOV, "repetition.Lookback", domain=CHAIN, kernel=_kernel(_two_states, "frequency", 4), arguments=[p, r])
def frequency_of_two_states() -> Pair:
    """F(m) = sum_a pi_a P(return to a within m), two states, m = 1 .. 4."""
    return _sides(_two_states, 0, 4)


@step(MARKOV, "repetition.Lookback", domain=CHAIN, kernel=_kernel(_two_states, "bigram", 4), arguments=[p, r])
def bigram_of_two_states() -> Pair:
    """F any(m) = sum_ab pi_a P_ab P(the pair chain returns to ab within m), two states, m = 1 .. 4."""
    return _sides(_two_states, 1, 4)


@step(MARKOV, "repetition.Lookback", domain=CHAIN, kernel=_kernel(_two_states, "latest", 4), arguments=[p, r])
def latest_of_two_states() -> Pair:
    """F latest(m) = sum_ab pi_a P_ab^2 P(a is hit from b within m - 1), two states, m = 1 .. 4."""
    return _sides(_two_states, 2, 4)


@step(MARKOV, domain=CHAIN, kernel=_kernel(_three_states, "frequency", 3), arguments=[p, r])
def frequency_of_three_states() -> Pair:
    """F(m) for three states, m = 1 .. 3."""
    return _sides(_three_states, 0, 3)


@step(MARKOV, domain=CHAIN, kernel=_kernel(_three_states, "bigram", 3), arguments=[p, r])
def bigram_of_three_states() -> Pair:
    """F any(m) for three states, m = 1 .. 3."""
    return _sides(_three_states, 1, 3)


@step(MARKOV, domain=CHAIN, kernel=_kernel(_three_states, "latest", 3), arguments=[p, r])
def latest_of_three_states() -> Pair:
    """F latest(m) for three states, m = 1 .. 3."""
    return _sides(_three_states, 2, 3)


@step("repetition.ContextStatistics.reliability", domain=CHAIN)
def frequency_times_reliability() -> Pair:
    """The share of repeated bigrams is F times the reliability "any", P(n_ab > 0 | n_a > 0), cue by cue (m = 3)."""
    P, pi = _two_states()
    repeated, right = _enumerated(P, pi, 3)[1][2], sp.Integer(0)
    for cue in range(2):
        cued, both = sp.Integer(0), sp.Integer(0)
        for x in itertools.product(range(2), repeat=5):
            n_a = sum(x[i] == cue for i in range(3)) if x[3] == cue else 0
            n_ab = sum(x[i] == cue and x[i + 1] == x[4] for i in range(3))
            weight = pi[x[0]] * sp.Mul(*(P[i, j] for i, j in itertools.pairwise(x)))
            cued, both = cued + weight * int(n_a > 0), both + weight * int(n_a > 0 and n_ab > 0)
        right += cued * (both / cued)
    return repeated, right


@step(MARKOV, domain=CHAIN, wrong=lambda right: right[1:] + right[:1])
def pair_chain() -> Pair:
    """The pair chain comes back to ab after k steps with probability (P^{k-1})_ba P_ab, k = 1 .. 4."""
    P, _ = _two_states()
    pairs = list(itertools.product(range(2), repeat=2))
    Q = sp.Matrix(4, 4, lambda i, j: P[pairs[j]] if pairs[i][1] == pairs[j][0] else 0)
    index = [(k, i, a, d) for k in range(1, 5) for i, (a, d) in enumerate(pairs)]
    return [(Q**k)[i, i] for k, i, _, _ in index], [(P ** (k - 1))[d, a] * P[a, d] for k, _, a, d in index]


def _mean_return(chain: Chain) -> Pair:
    P, pi = chain()
    s = sp.Symbol("s", positive=True)
    occupation = (sp.eye(len(pi)) - s * P).adjugate() / (sp.eye(len(pi)) - s * P).det()
    left = [sp.diff(sp.cancel(1 - 1 / occupation[i, i]), s).subs(s, 1) for i in range(len(pi))]
    return left, [1 / x for x in pi]


@step(MARKOV, "expected.stationary_distribution", domain=CHAIN)
def mean_return_of_two_states() -> Pair:
    """The generating function of first returns, 1 - 1/U_aa(s), has the slope 1/pi_a at s = 1 (two states)."""
    return _mean_return(_two_states)


@step(MARKOV, "expected.stationary_distribution", domain=CHAIN)
def mean_return_of_three_states() -> Pair:
    """The same for three states."""
    return _mean_return(_three_states)


def _process(p: float, r: float) -> markov.MarkovProcess:
    return markov.MarkovProcess(np.array([[1 - p, p], [r, 1 - r]]), np.array([r, p]) / (p + r))


@step(
    MARKOV, "markov.MarkovProcess.limiting_reliability", domain=CHAIN,
    kernel=lambda *entries: _process(*entries).limiting_reliability, arguments=[p, r],
)  # fmt: skip
def latest_in_long_contexts() -> Pair:
    """As m grows the reliability "latest" tends to sum_a pi_a sum_b P_ab^2, for two states by their hitting times."""
    k = sp.Symbol("k", positive=True)
    P, pi = _two_states()
    stay, back = sp.symbols("stay back", positive=True)
    # the other state is left within k steps but for probability (1 - p)^k or (1 - r)^k; these logarithms are negative
    hit = [[sp.Integer(1), 1 - sp.exp(-back * k)], [1 - sp.exp(-stay * k), sp.Integer(1)]]
    left = sum(pi[i] * P[i, j] ** 2 * sp.limit(hit[i][j], k, sp.oo) for i in range(2) for j in range(2))
    return left, sum(pi[i] * sum(P[i, j] ** 2 for j in range(2)) for i in range(2))


@functools.cache
def _independent(size: int, most: int) -> tuple[list[list[Expr]], list[list[Expr]]]:
    """Frequency, bigram, latest of independent ids by enumeration, and from the package's code on symbols."""
    pi = [p, 1 - p] if size == 2 else [p / 2, r / 2, 1 - p / 2 - r / 2]
    P = sp.Matrix([pi] * size)
    code = on_symbols(
        expected.expected_iid,
        np=_NUMPY,
        probabilities=lambda _, value: np.array(value, dtype=object),
        Lookback=lambda *profiles: profiles,
    )(pi, most)
    return _enumerated(P, pi, most), [[sp.nsimplify(sp.expand(x)) for x in profile[1:]] for profile in code]


def _iid_kernel(which: str, most: int) -> Callable[..., Any]:
    return lambda q: list(getattr(expected.expected_iid([q, 1 - q], most), which)[1:])


@step("expected.expected_iid", domain=CHAIN, kernel=_iid_kernel("frequency", 4), arguments=[p])
def frequency_of_independent_ids() -> Pair:
    """F(m) = sum_a pi_a (1 - (1 - pi_a)^m), two ids, m = 1 .. 4."""
    left, right = _independent(2, 4)
    return left[0], right[0]


@step("expected.expected_iid", domain=CHAIN, kernel=_iid_kernel("bigram", 4), arguments=[p])
def bigram_of_independent_ids() -> Pair:
    """The probability that m ids avoid a word of two, s_m = s_{m-1} - pi_a pi_b s_{m-2}, two ids, m = 1 .. 4."""
    left, right = _independent(2, 4)
    return left[1], right[1]


@step("expected.expected_iid", domain=CHAIN, kernel=_iid_kernel("latest", 4), arguments=[p])
def latest_of_independent_ids() -> Pair:
    """The latest successor of independent ids, by the distance of the last cue, two ids, m = 1 .. 4."""
    left, right = _independent(2, 4)
    return left[2], right[2]


@step("expected.expected_iid", domain=CHAIN)
def three_independent_ids() -> Pair:
    """All three for three ids, m = 1 .. 3."""
    left, right = _independent(3, 3)
    return [x for profile in left for x in profile], [x for profile in right for x in profile]


@step(
    "expected.expected_well_mixed", domain=CHAIN, arguments=[p],
    kernel=lambda q: expected.expected_well_mixed([[q, 1 - q]] * 2, 3).frequency[1:],
)  # fmt: skip
def well_mixed_frequency() -> Pair:
    """The well-mixed form sum_a pi_a (1 - (1 - pi_a)^m) is exact for independent ids, m = 1 .. 3."""
    pi = [p, 1 - p]
    return _enumerated(sp.Matrix([pi] * 2), pi, 3)[0], [sum(x * (1 - (1 - x) ** m) for x in pi) for m in (1, 2, 3)]


@step("repetition.Lookback.contexts", wrong=lambda right: right[1:] + right[:1])
def contexts() -> Pair:
    """Contexts of C ids average the look-backs of their bigrams; of the second half, those at t >= C/2 (C = 2 .. 7)."""
    profile = sp.symbols("F0:6", positive=True)
    lookback = Lookback(*3 * (np.array(profile, dtype=object),))
    sizes = range(2, 8)
    left, right = [], []
    for half in (False, True):
        for size in sizes:
            seen = [profile[t - 1] for t in range(1, size) if not half or 2 * t >= size]
            left.append(sp.Add(*seen) / len(seen))
        right += [sp.nsimplify(x) for x in lookback.contexts(list(sizes), second_half=half).frequency]
    return left, right


# ---- 3. contexts made to order


def _cue_chain(rate: Expr) -> Expr:
    """Stationary share of repeated cues: one follows another with b + (1 - b) rate, a new one with the rate."""
    again = b + (1 - b) * rate
    move = sp.Matrix([[again, 1 - again], [rate, 1 - rate]])
    return sp.cancel((sp.eye(2) - move).T.nullspace()[0][0] / sum((sp.eye(2) - move).T.nullspace()[0]))


CUES = {sp.Symbol("a", positive=True): PROBABILITY, b: PROBABILITY, r: PROBABILITY}


@step("markov.cue_rate", "markov.controlled_contexts", domain=CUES)
def share_of_repeated_cues() -> Pair:
    """f = r/(1 - b + b r), from the chain of repeated and new cues."""
    return _cue_chain(r), r / (1 - b + b * r)


@step("markov.cue_rate", domain=CUES, wrong=lambda right: right / (1 - b**2 + right * b))
def exact_rule() -> Pair:
    """The rate a (1 - b)/(1 - a b) gives the frequency a; the rate a/(1 + b) does not (the control)."""
    a = sp.Symbol("a", positive=True)
    return _cue_chain(a * (1 - b) / (1 - a * b)), a


@step("markov.cue_rate", domain=CUES, kernel=markov.cue_rate, arguments=[sp.Symbol("a", positive=True), b])
def exact_rate() -> Pair:
    """Solved for the rate, the frequency a asks for a (1 - b)/(1 - a b)."""
    a, rate = sp.symbols("a rate", positive=True)
    (left,) = sp.solve(_cue_chain(rate) - a, rate)
    return left, a * (1 - b) / (1 - a * b)


@step("markov.cue_rate", domain=CUES)
def published_rule() -> Pair:
    """The published rate a/(1 + b) gives a/(1 - b^2 + a b), off by a b (b - a)/(1 - b^2 + a b)."""
    a = sp.Symbol("a", positive=True)
    found = _cue_chain(a / (1 + b))
    return [found, found - a], [a / (1 - b**2 + a * b), a * b * (b - a) / (1 - b**2 + a * b)]


# ---- 4. chains made to order


def _scaling(size: int) -> tuple[list[Expr], list[Expr], Matrix, Expr]:
    """Potentials u, marginal, transition matrix, and the convex function of u."""
    u, weights = sp.symbols(f"u0:{size}", real=True), sp.symbols(f"w0:{size}", positive=True)
    pi = [w / sp.Add(*weights) for w in weights]
    K = sp.Matrix(size, size, lambda i, j: sp.Symbol(f"K{i}{j}", real=True))
    rows = [sp.Add(*(sp.exp(K[i, j] + u[j]) for j in range(size))) for i in range(size)]
    P = sp.Matrix(size, size, lambda i, j: sp.exp(K[i, j] + u[j]) / rows[i])
    value = sp.Add(*(pi[i] * sp.log(rows[i]) for i in range(size))) - sp.Add(
        *(x * y for x, y in zip(pi, u, strict=True))
    )
    return list(u), pi, P, value


@step("markov.sinkhorn", wrong=lambda right: [-x for x in right])
def marginal_of_the_scaling() -> Pair:
    """The gradient of sum_i pi_i ln sum_j exp(K_ij + u_j) - pi.u is pi P - pi: its minimum has the marginal (V = 3)."""
    u, pi, P, value = _scaling(3)
    return [sp.diff(value, x) for x in u], list(sp.Matrix([pi]) * P - sp.Matrix([pi]))


@step("markov.sinkhorn")
def curvature_of_the_scaling() -> Pair:
    """Its Hessian is diag(pi P) - P^T diag(pi) P, the matrix of the Newton steps (V = 2)."""
    u, pi, P, value = _scaling(2)
    right = sp.diag(*(sp.Matrix([pi]) * P)) - P.T * sp.diag(*pi) * P
    return [sp.diff(value, x, y) for x in u for y in u], list(right)


@step("markov.sinkhorn")
def free_direction_of_the_scaling() -> Pair:
    """A constant added to u changes nothing: the Hessian plus 1/V maps the constant vector to itself (V = 3)."""
    _, pi, P, _ = _scaling(3)
    hessian = sp.diag(*(sp.Matrix([pi]) * P)) - P.T * sp.diag(*pi) * P
    return list((hessian + sp.ones(3) / 3) * sp.ones(3, 1)), list(sp.ones(3, 1))


@step(
    "markov.sinkhorn", domain={p: (0.1, 0.9)}, arguments=[p, sp.Symbol("K", real=True)],
    kernel=lambda p, K: markov.sinkhorn([[K, 0.0], [0.0, 0.0]], [p, 1 - p]).ravel(),
)  # fmt: skip
def scaling_of_two_states() -> Pair:
    """Two states: the joint keeps the odds ratio e^K of the kernel, x (1 - 2p + x) = e^K (p - x)^2, P_00 = x/p."""
    K = sp.Symbol("K", real=True)
    odds = sp.exp(K)
    B_ = 1 - 2 * p + 2 * p * odds
    root = sp.sqrt(B_**2 + 4 * (1 - odds) * odds * p**2)
    x, y = 2 * odds * p**2 / (B_ + root), (root - B_) / (2 * (1 - odds))
    left = [x / p, 1 - x / p, (p - x) / (1 - p), (1 - 2 * p + x) / (1 - p)]
    return left, [y / p, (p - y) / p, 1 - (1 - 2 * p + y) / (1 - p), 1 - (p - y) / (1 - p)]


@step(
    "markov.MarkovProcess.local_dependency", "markov.MarkovProcess.entropy", domain=CHAIN,
    kernel=lambda *entries: _process(*entries).local_dependency, arguments=[p, r],
    rewrite=[lambda x: sp.expand_log(x, force=True), sp.expand, sp.cancel],
)  # fmt: skip
def local_dependency() -> Pair:
    """The mutual information of neighbours in bits is H(pi) - H(P | pi), for two states."""
    P, pi = _two_states()
    index = list(itertools.product(range(2), repeat=2))
    left = sum(pi[i] * P[i, j] * sp.log(P[i, j] / pi[j]) for i, j in index) / sp.log(2)
    right = sum(pi[i] * P[i, j] * sp.log(P[i, j]) for i, j in index) - sum(x * sp.log(x) for x in pi)
    return left, right / sp.log(2)


def _cosines(*angles: float) -> tuple[float, float]:
    return markov._mean_cosines(np.column_stack([np.cos(angles), np.sin(angles)]), np.arange(5) % 2)


@step(
    "markov.MarkovProcess.categoriality", rewrite=[sp.expand, sp.trigsimp], kernel=_cosines,
    arguments=list(sp.symbols("t0:5", real=True)),
)  # fmt: skip
def categoriality() -> Pair:
    """Mean cosines of pairs within and across two classes from sums of unit vectors, five ids."""
    angles = sp.symbols("t0:5", real=True)
    label = [k % 2 for k in range(5)]
    pairs = list(itertools.combinations(range(5), 2))
    left = []
    for alike in (True, False):
        chosen = [(i, j) for i, j in pairs if (label[i] == label[j]) is alike]
        left.append(sum(sp.cos(angles[i] - angles[j]) for i, j in chosen) / len(chosen))
    vectors = [sp.Matrix([sp.cos(t), sp.sin(t)]) for t in angles]
    sums = [sum((v for v, k in zip(vectors, label, strict=True) if k == name), sp.zeros(2, 1)) for name in (0, 1)]
    same, everything = sum(v.dot(v) for v in sums), (sums[0] + sums[1]).dot(sums[0] + sums[1])
    return [sp.expand_trig(x) for x in left], [(same - 5) / (9 + 4 - 5), (everything - same) / (25 - 9 - 4)]


# ---- 5. scores, emergence, boundary


def _uniform_scores(s: float) -> list[float]:
    attention = heads.uniform_attention(2 * int(s))
    return [heads.uniform_baseline(int(s)), float(heads.repeated_prefix_matching(attention))]


@step(
    "heads.uniform_baseline", "heads.repeated_prefix_matching", "heads.uniform_attention",
    kernel=_uniform_scores, arguments=[sp.Symbol("s", integer=True, positive=True)],
    rewrite=[lambda x: x.rewrite(sp.digamma)],
)  # fmt: skip
def uniform_baseline() -> Pair:
    """Uniform attention scores (1/s) sum of 1/(q + 1), q = s .. 2s - 1, which is (psi(2s + 1) - psi(s + 1))/s."""
    s, k = sp.Symbol("s", integer=True, positive=True), sp.Symbol("k", integer=True)
    left = (sp.summation(1 / k, (k, 1, 2 * s)) - sp.summation(1 / k, (k, 1, s))) / s
    return [left, left], 2 * [(sp.digamma(2 * s + 1) - sp.digamma(s + 1)) / s]


def _crossing(x: float, w: float, y: float, v: float, f: float) -> float:
    return emergence._crossing(np.array([x, x + w]), np.array([y, y + v]), y + f * v)[0]


@step(
    "emergence.emergence_point", kernel=_crossing, arguments=list(sp.symbols("x w y v f", positive=True)),
    domain={sp.Symbol("f", positive=True): PROBABILITY},
)  # fmt: skip
def crossing() -> Pair:
    """The score, a straight line in ln step between two checkpoints, takes a height at x (x'/x)^fraction."""
    x, w, y, v, f, log_step = sp.symbols("x w y v f log_step", positive=True)
    line = y + v * (log_step - sp.log(x)) / (sp.log(x + w) - sp.log(x))
    (found,) = sp.solve(line - (y + f * v), log_step)
    return sp.exp(found), x * ((x + w) / x) ** f


def _logistic_at(low: float, rise: float, f: float, middle: float, width: float) -> float:
    at = np.array(middle + width * np.log(f / (1 - f)))
    return float(emergence._logistic_curve(at, low, low + rise, middle, float(np.log(width))))


@step(
    "emergence.emergence_point", kernel=_logistic_at,
    arguments=list(sp.symbols("low rise f middle width", positive=True)),
    domain={sp.Symbol("f", positive=True): PROBABILITY},
)  # fmt: skip
def logistic() -> Pair:
    """A logistic in ln step has risen by the share f at middle + width ln(f/(1 - f)): the middle is the half rise."""
    low, rise, f, middle, width = sp.symbols("low rise f middle width", positive=True)
    at = middle + width * sp.log(f / (1 - f))
    return low + rise / (1 + sp.exp(-(at - middle) / width)), low + rise * f


@step(
    "frontier.MonotoneBoundary.reliability", "frontier.MonotoneBoundary.probability",
    kernel=lambda f, i, v, w: float(frontier.MonotoneBoundary(i, v, w).reliability(f)),
    arguments=list(sp.symbols("f i v w", positive=True)), domain={sp.Symbol("f", positive=True): PROBABILITY},
)  # fmt: skip
def boundary() -> Pair:
    """P = 1/2 where the logit i + v ln f + w ln r vanishes: r = exp(-(i + v ln f)/w)."""
    f, i, v, w = sp.symbols("f i v w", positive=True)
    y = sp.Symbol("y", real=True)
    (found,) = sp.solve(1 / (1 + sp.exp(-(i + v * sp.log(f) + w * y))) - sp.Rational(1, 2), y)
    return sp.exp(found), sp.exp(-(i + v * sp.log(f)) / w)


@step("frontier.monotone_boundary", wrong=lambda right: [-x for x in right])
def boundary_slope() -> Pair:
    """The gradient of -ln expit(margin) + ridge w^2/2 is -sign expit(-margin) x + ridge w, either outcome."""
    w, x = sp.symbols("w0:2", real=True), sp.symbols("x0:2", real=True)
    ridge = sp.Symbol("ridge", positive=True)
    left, right = [], []
    for sign in (1, -1):
        margin = sign * sum(y * z for y, z in zip(w, x, strict=True))
        value = sp.log(1 + sp.exp(-margin)) + ridge * w[1] ** 2 / 2
        left += [sp.diff(value, y) for y in w]
        right += [-sign * x[0] / (1 + sp.exp(margin)), -sign * x[1] / (1 + sp.exp(margin)) + ridge * w[1]]
    return left, right
