"""Token sources and their expected repetition: enumeration, simulation, exact marginals."""

import itertools

import numpy as np
import pytest

from statmech_attn.induction import (
    MarkovProcess,
    context_statistics,
    controlled_contexts,
    controlled_process,
    copy_process,
    cue_rate,
    expected_iid,
    expected_markov,
    expected_well_mixed,
    lookback_statistics,
    marginal_distribution,
    sinkhorn,
    stationary_distribution,
)

FIELDS = ("frequency", "bigram", "latest")


@pytest.mark.parametrize("kind", ["random", "sparse", "iid"])
def test_expected_markov_by_enumeration_of_all_sequences(kind):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), 3)
    if kind == "sparse":
        P = np.array([[0.0, 0.7, 0.3], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    if kind == "iid":
        P[:] = P[0]
    pi = stationary_distribution(P)
    found = expected_markov(P, 6)
    for m in range(7):
        total = np.zeros(3)
        for w in itertools.product(range(3), repeat=m + 2):
            weight = pi[w[0]] * np.prod([P[i, j] for i, j in itertools.pairwise(w)])
            earlier = [w[i + 1] for i in range(m) if w[i] == w[m]]
            if earlier:
                total += weight * np.array([1, w[-1] in earlier, earlier[-1] == w[-1]])
        np.testing.assert_allclose([getattr(found, field)[m] for field in FIELDS], total, atol=1e-14)


def test_iid_closed_form_agrees_with_the_renewal_of_a_rank_one_chain():
    pi = np.random.default_rng(1).dirichlet(np.ones(12))
    one, other = expected_iid(pi, 60), expected_markov(np.tile(pi, (12, 1)), 60)
    for field in FIELDS:
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), atol=1e-14)
    for expected in (expected_iid(pi, 0), expected_markov(np.tile(pi, (12, 1)), 0)):
        assert [getattr(expected, field).tolist() for field in FIELDS] == [[0.0]] * 3
    np.testing.assert_allclose(one.frequency[7], (pi * (1 - (1 - pi) ** 7)).sum(), rtol=1e-14)
    mixed = expected_well_mixed(np.tile(pi, (12, 1)), 60)
    np.testing.assert_allclose(mixed.frequency, one.frequency, atol=1e-13)


PROCESSES = [
    (kind, entropy, within)
    for kind in ("uniform", "gaussian", "zipf")
    for entropy, within in ((None, 0.5), (3.5, 0.35), (3.5, 0.8))
]


@pytest.fixture(scope="module", params=PROCESSES, ids=lambda p: f"{p[0]}-{p[1]}-{p[2]}")
def process(request):
    kind, entropy, within = request.param
    return controlled_process(marginal_distribution(kind, 64), entropy=entropy, within=within, rng=1)


def test_analytic_repetition_within_four_standard_errors_of_two_million_tokens(process):
    ids = process.sample(2_000_000, 7)
    expected, measured = expected_markov(process.transition, 127), lookback_statistics(ids, 127)
    parts = [lookback_statistics(part, 127) for part in np.split(ids, 100)]
    for field in FIELDS:
        error = np.std([getattr(part, field) for part in parts], axis=0, ddof=1) / 10.0
        distance = np.abs(getattr(measured, field) - getattr(expected, field))
        assert np.all(distance[1:] <= 4.0 * error[1:]), (field, (distance[1:] / error[1:]).max())
        assert distance.max() <= 1.2e-3


def test_marginal_is_exact(process):
    assert np.abs(process.marginal @ process.transition - process.marginal).max() <= 1e-14
    np.testing.assert_allclose(process.transition.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_allclose(stationary_distribution(process.transition), process.marginal, atol=1e-13)


def test_targets_are_met_and_measures_agree_with_their_definitions(process):
    P, pi = process.transition, process.marginal
    J = pi[:, None] * P
    information = (J * np.log2(J / np.outer(pi, pi))).sum()
    assert process.local_dependency == pytest.approx(information, abs=1e-12)
    cosine = P @ P.T / np.outer(np.linalg.norm(P, axis=1), np.linalg.norm(P, axis=1))
    same = process.classes[:, None] == process.classes
    off = ~np.eye(64, dtype=bool)
    within, across = process.categoriality
    assert within == pytest.approx(cosine[same & off].mean(), abs=1e-12)
    assert across == pytest.approx(cosine[~same].mean(), abs=1e-12)
    if process.local_dependency > 1e-9:
        assert process.entropy == pytest.approx(3.5, abs=1e-6)
        assert min(abs(within - 0.35), abs(within - 0.8)) < 1e-6
        assert across < within
    else:
        assert within == pytest.approx(1.0)


def test_latest_reliability_tends_to_the_match_probability(process):
    late = expected_markov(process.transition, 250)
    ratio = late.latest[-1] / late.frequency[-1]
    # rare ids have not come back yet at m = 250, the more so under Zipf and Gaussian marginals
    assert ratio == pytest.approx(process.limiting_reliability, rel=0.02)


def test_frequency_follows_the_marginal_and_reliability_the_dependency():
    pi = marginal_distribution("uniform", 64)
    independent, dependent = (controlled_process(pi, entropy=h, within=0.5, rng=0) for h in (None, 3.5))
    one, other = (expected_markov(p.transition, 62).contexts([64]) for p in (independent, dependent))
    assert abs(one.frequency[0] - other.frequency[0]) < 0.02
    assert other.reliability("latest")[0] > 5.0 * one.reliability("latest")[0]


def test_scaling_against_alternate_rows_and_columns():
    rng = np.random.default_rng(3)
    pi, K = rng.dirichlet(np.ones(20)), 2.0 * rng.standard_normal((20, 20))
    P = sinkhorn(K, pi)
    assert np.abs(pi @ P - pi).max() <= 1e-15
    J = np.exp(K)
    for _ in range(5000):
        J *= (pi / J.sum(axis=1))[:, None]
        J *= pi / J.sum(axis=0)
    np.testing.assert_allclose(pi[:, None] * P, J, rtol=1e-9, atol=1e-18)


def test_a_kernel_too_sharp_is_an_error_not_a_chain():
    rng = np.random.default_rng(3)
    with pytest.raises(RuntimeError, match="did not converge"):
        sinkhorn(300.0 * rng.standard_normal((20, 20)), rng.dirichlet(np.ones(20)))
    with pytest.raises(ValueError, match="log_kernel of shape"):
        sinkhorn(np.full((2, 2), np.inf), [0.5, 0.5])
    with pytest.raises(ValueError, match="marginal of shape"):
        sinkhorn(np.zeros((2, 2)), [1.0, 0.0])


def test_unreachable_targets_name_the_range():
    pi = marginal_distribution("zipf", 64)
    with pytest.raises(ValueError, match=r"between 0 and 4\.86396 bits"):
        controlled_process(pi, entropy=5.0, rng=0)
    with pytest.raises(ValueError, match=r"within=0\.1: must lie in \[0\.\d+, 1\.0000\]"):
        controlled_process(pi, entropy=4.5, within=0.1, rng=0)
    with pytest.raises(ValueError, match=r"entropy=0\.2: is too low"):
        controlled_process(pi, entropy=0.2, rng=0)
    with pytest.raises(ValueError, match=r"within=0\.5: .* the closest is"):
        controlled_process(marginal_distribution("uniform", 64), entropy=2.0, within=0.5, rng=0)
    with pytest.raises(ValueError, match="classes=40"):
        controlled_process(pi, entropy=3.5, classes=40, rng=0)


def test_marginals():
    assert marginal_distribution("uniform", 4).tolist() == [0.25] * 4
    zipf = marginal_distribution("zipf", 1000)
    assert zipf[0] / zipf[9] == pytest.approx(10.0, rel=1e-3)
    gaussian = marginal_distribution("gaussian", 1000)
    ids = np.arange(1000)
    mean = gaussian @ ids
    assert mean == pytest.approx(500.0, rel=1e-3)
    assert np.sqrt(gaussian @ (ids - mean) ** 2) == pytest.approx(125.0, rel=0.02)
    with pytest.raises(ValueError, match="kind='other'"):
        marginal_distribution("other", 10)
    with pytest.raises(ValueError, match="vocabulary_size=1"):
        marginal_distribution("zipf", 1)


def test_samples_follow_the_transition_matrix():
    chain = MarkovProcess(np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), np.array([14, 2, 1]) / 17)
    ids = chain.sample((1000, 400), 0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (ids[:, :-1].ravel(), ids[:, 1:].ravel()), 1)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), chain.transition, atol=0.01)
    np.testing.assert_allclose(np.bincount(ids[:, 0]) / 1000, chain.marginal, atol=0.04)
    assert counts[0, 2] == counts[2, 1] == counts[2, 2] == 0
    np.testing.assert_array_equal(ids, chain.sample((1000, 400), np.random.default_rng(0)))


def test_bad_processes_are_refused():
    half = np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match="every row"):
        MarkovProcess(np.ones((2, 2)), np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="is not stationary"):
        MarkovProcess(half, np.array([0.4, 0.6]))
    with pytest.raises(ValueError, match="must be \\(V, V\\)"):
        MarkovProcess(half, np.ones(3) / 3)
    with pytest.raises(ValueError, match="classes of shape"):
        MarkovProcess(half, np.ones(2) / 2, np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match="needs the class"):
        _ = MarkovProcess(half, np.ones(2) / 2).categoriality
    with pytest.raises(ValueError, match="size="):
        MarkovProcess(half, np.ones(2) / 2).sample(0, 0)
    with pytest.raises(ValueError, match="more than one stationary"):
        stationary_distribution(np.eye(2))
    with pytest.raises(ValueError, match="row 1 is not"):
        expected_markov([[0.5, 0.5], [0.5, 0.6]], 4)
    with pytest.raises(ValueError, match=r"sum 0\.9"):
        expected_iid([0.5, 0.4], 4)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.9), (0.5, 0.5), (0.5, 0.7), (0.9, 0.2), (0.9, 0.9), (0.3, 1.0)])
@pytest.mark.parametrize("rule", ["exact", "published"])
def test_controlled_contexts_reach_what_their_rule_gives(a, b, rule):
    contexts = 4000
    made = controlled_contexts(contexts, 64, 500, frequency=a, reliability=b, rule=rule, rng=0)
    expected = a if rule == "exact" else a / (1.0 - b**2 + a * b)
    assert made.expected_frequency == pytest.approx(expected, rel=1e-12)
    # cues of one context are dependent: the error of a mean of contexts
    again = [controlled_contexts(100, 64, 500, frequency=a, reliability=b, rule=rule, rng=s) for s in range(40)]
    error = np.std([one.frequency for one in again], ddof=1) / np.sqrt(40.0)
    assert abs(made.frequency - expected) <= 4.0 * error + 1e-12
    count = contexts * 31 * made.frequency
    assert abs(made.reliability - b) <= 4.0 * np.sqrt(b * (1.0 - b) / count) + 1e-12


def test_controlled_contexts_by_their_definition():
    made = controlled_contexts(300, 32, 100, frequency=0.6, reliability=0.4, rng=5)
    cues = kept = latest = 0
    for x in made.ids.tolist():
        assert len(set(x[:16])) == 16  # nothing repeats in the first half
        assert all(i != j for i, j in itertools.pairwise(x))
        for t in range(17, 32):
            earlier = [x[i + 1] for i in range(t - 1) if x[i] == x[t - 1]]
            cues += bool(earlier)
            kept += x[t] in earlier
            latest += bool(earlier) and earlier[-1] == x[t]
    assert made.frequency == pytest.approx(cues / (300 * 15))
    assert made.reliability == pytest.approx(kept / cues)
    assert latest == kept
    # and by the general statistics, which also count the new cue that ends the first half
    other = context_statistics(made.ids.ravel(), [32], second_half=True)
    assert other.frequency[0] == pytest.approx(made.frequency * 15 / 16)


def test_published_rule_is_right_only_where_frequency_equals_reliability():
    for a, b in itertools.product((0.2, 0.5, 0.8), repeat=2):
        assert (cue_rate(a, b) == pytest.approx(cue_rate(a, b, "published"))) == (a == b)


def test_controlled_extremes_and_bad_numbers():
    assert np.isnan(controlled_contexts(5, 8, 20, frequency=0.0, reliability=0.5, rng=0).reliability)
    assert controlled_contexts(5, 32, 40, frequency=1.0, reliability=1.0, rng=0).frequency == 1.0
    good = {"contexts": 5, "context_size": 8, "vocabulary_size": 20, "frequency": 0.5, "reliability": 0.5}
    bad = {"contexts": 0, "context_size": 9, "vocabulary_size": 7, "frequency": 1.1, "reliability": -0.1}
    for name, value in (bad | {"rule": "other"}).items():
        with pytest.raises(ValueError, match=f"{name}="):
            controlled_contexts(**(good | {name: value}), rng=0)


def test_copy_process_copies_at_its_rate():
    pi = marginal_distribution("zipf", 256)
    for p in (0.0, 0.7, 1.0):
        ids = copy_process(pi, p, (500, 64), 0)
        repeats = copies = 0
        matched_anyway = 0.0
        for x in ids.tolist():
            successor = {}
            for t in range(1, 64):
                if t > 1:
                    successor[x[t - 2]] = x[t - 1]
                if x[t - 1] in successor:
                    repeats += 1
                    copies += x[t] == successor[x[t - 1]]
                    matched_anyway += pi[successor[x[t - 1]]]
        expected = p + (1.0 - p) * matched_anyway / repeats
        assert abs(copies / repeats - expected) <= 4.0 * np.sqrt(0.25 / repeats)
    with pytest.raises(ValueError, match="copy_probability=2"):
        copy_process(pi, 2, 5, 0)
    with pytest.raises(ValueError, match="marginal of shape"):
        copy_process([0.5, 0.4], 0.5, 5, 0)
