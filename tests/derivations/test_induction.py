"""Induction heads: claims, kernels against definitions, numbers against exact arithmetic."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from derivations import check
from derivations import induction as claims
from derivations.claim import claims_of
from statmech_attn.induction import (
    InductionLaw,
    context_statistics,
    controlled_contexts,
    expected_iid,
    expected_markov,
    expected_well_mixed,
    lookback_statistics,
    markov,
)

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


# ---- kernels that count: equal to the definition, not to 1e-12


def counted(ids: list[int], size: int) -> tuple[list[Fraction], int]:
    """Frequency, bigram, latest, mean of disjoint contexts of `size` ids, pair by pair."""
    totals, positions = [Fraction(0)] * 4, 0
    for start in range(0, len(ids), size):
        x = ids[start : start + size]
        for t in range(1, len(x)):
            successors = [x[i + 1] for i in range(t - 1) if x[i] == x[t - 1]]
            hits = successors.count(x[t])
            events = (bool(successors), hits > 0, successors[-1:] == [x[t]])
            share = Fraction(hits, len(successors)) if successors else Fraction(0)
            totals = [n + y for n, y in zip(totals, (*map(int, events), share), strict=True)]
            positions += 1
    return [n / positions for n in totals], positions


@pytest.mark.parametrize("seed", range(4))
def test_counts_of_a_stream(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(int(rng.integers(2, 9)), size=600)
    found = context_statistics(ids, [5, 32], mean=True)
    for k, size in enumerate((5, 32)):
        exact, positions = counted(ids.tolist(), size)
        values = [x[k] for x in (found.frequency, found.bigram, found.latest, found.mean)]
        np.testing.assert_allclose(values, [float(x) for x in exact], rtol=1e-12)
        assert found.positions[k] == positions


def test_counts_of_controlled_contexts():
    """Cues of the second half that came before, and those followed by an earlier successor, from the definition."""
    made = controlled_contexts(50, 24, 40, frequency=0.6, reliability=0.7, rng=1)
    cues = kept = 0
    for x in made.ids.tolist():
        for t in range(13, 24):
            successors = [x[i + 1] for i in range(t - 1) if x[i] == x[t - 1]]
            cues, kept = cues + bool(successors), kept + (x[t] in successors)
    assert made.frequency == pytest.approx(cues / (50 * 11), rel=1e-12)
    assert made.reliability == pytest.approx(kept / cues, rel=1e-12)


def test_sampled_ids_are_the_inverse_of_the_distribution():
    """Each id is the first whose cumulative probability exceeds the uniform number."""
    P, pi = np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.0, 0.8]]), np.array([0.2, 0.5, 0.3])
    uniform = np.random.default_rng(0).random((20, 30))
    ids = markov._sample_chain(uniform, np.cumsum(P, axis=1), np.cumsum(pi))
    for x, draws in zip(ids, uniform, strict=True):
        for t, draw in enumerate(draws):
            total = np.cumsum(P[x[t - 1]] if t else pi)
            assert (total[x[t] - 1] if x[t] else 0.0) <= draw < total[x[t]]


def test_well_mixed_bigrams_are_an_approximation():
    """Unlike the frequency, bigrams and latest successors of independent ids are not those of the well-mixed form."""
    exact, mixed = expected_iid([0.3, 0.7], 6), expected_well_mixed([[0.3, 0.7]] * 2, 6)
    np.testing.assert_allclose(mixed.frequency, exact.frequency, rtol=1e-14)
    assert np.max(np.abs(mixed.bigram - exact.bigram)) > 0.02
    assert np.max(np.abs(mixed.latest - exact.latest)) > 0.02


# ---- exact numbers


def test_law_with_30_digits():
    """Updates and tokens of both versions from their printed numbers."""
    with mpmath.workdps(30):
        for version, log_threshold, b, c in (
            ("v1", mpmath.mpf("5.7") * mpmath.log(10), "0.5", "0.5"),
            ("v2", mpmath.mpf("13.26"), "0.37", "0.62"),
        ):
            law = InductionLaw.published(version)
            for B, C in ((4, 64), (64, 64), (512, 2048)):
                U = mpmath.exp(log_threshold) / (mpmath.mpf(B) ** mpmath.mpf(b) * mpmath.mpf(C) ** mpmath.mpf(c))
                assert float(law.updates(B, C)) == pytest.approx(float(U), rel=1e-13)
                assert float(law.tokens(B, C)) == pytest.approx(float(U * B * C), rel=1e-13)


def test_renewal_with_exact_fractions():
    """A chain of three states with rational entries: enumeration of all paths in exact arithmetic, m = 6."""
    P = [[Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], [Fraction(1, 5), Fraction(0), Fraction(4, 5)],
         [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]]  # fmt: skip
    # two minors of I - P a state
    weights = [(1 - P[j][j]) * (1 - P[k][k]) - P[j][k] * P[k][j] for j, k in ((1, 2), (0, 2), (0, 1))]
    pi = [w / sum(weights) for w in weights]
    assert all(sum(pi[i] * P[i][j] for i in range(3)) == pi[j] for j in range(3))
    m, totals = 6, [Fraction(0)] * 3
    for x in itertools.product(range(3), repeat=m + 2):
        weight = pi[x[0]]
        for i, j in itertools.pairwise(x):
            weight *= P[i][j]
        successors = [x[i + 1] for i in range(m) if x[i] == x[m]]
        events = (bool(successors), x[m + 1] in successors, successors[-1:] == [x[m + 1]])
        totals = [n + weight * event for n, event in zip(totals, events, strict=True)]
    found = expected_markov([[float(y) for y in row] for row in P], m)
    values = [found.frequency[m], found.bigram[m], found.latest[m]]
    np.testing.assert_allclose(values, [float(x) for x in totals], rtol=1e-13)


def test_expected_and_counted_repetition_agree():
    """The definition behind the claims is the one that streams are counted by: 200,000 ids within five deviations."""
    chain = markov.MarkovProcess(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25]))
    found = lookback_statistics(chain.sample(200_000, 3), 4)
    exact = expected_markov(chain.transition, 4)
    for which in ("frequency", "bigram", "latest"):
        np.testing.assert_allclose(getattr(found, which), getattr(exact, which), atol=5 * 0.5 * 3 / 200_000**0.5)


def test_reach_of_the_ramp_nearest_to_a_logistic():
    """Least squares asks for int_0^R u tanh(u/2) du = R^2/3: R = 2.60, where the fit of an onset starts."""
    with mpmath.workdps(30):
        reach = mpmath.findroot(
            lambda R: mpmath.quad(lambda u: u * mpmath.tanh(u / 2), [0, R]) - R**2 / 3, (2, 3), solver="anderson"
        )
    assert float(reach) == pytest.approx(2.6, abs=0.005)
