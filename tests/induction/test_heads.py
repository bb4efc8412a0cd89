"""Head metrics: baselines, ideal heads, definitions by loops, validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statmech_attn.induction import (
    associative_recall,
    copy_advantage,
    duplicate_token,
    in_context_score,
    logit_attribution,
    prefix_matching,
    previous_token,
    repeated_prefix_matching,
    repeated_sequences,
    strongest_head,
    uniform_attention,
    uniform_baseline,
)


def random_attention(*shape: int, seed: int = 0) -> np.ndarray:
    """Causal rows that sum to one; shape ends with T."""
    weights = np.random.default_rng(seed).random((*shape, shape[-1])) * np.tri(shape[-1])
    return weights / weights.sum(axis=-1, keepdims=True)


class Tensor:
    """What the metrics need of a half-precision tensor on a device, and no more."""

    def __init__(self, value, log=()):
        self.value, self.log = value, log

    def detach(self):
        return Tensor(self.value, (*self.log, "detach"))

    def cpu(self):
        return Tensor(self.value, (*self.log, "cpu"))

    def double(self):
        return Tensor(np.asarray(self.value, dtype=np.float64), (*self.log, "double"))

    def numpy(self):
        assert self.log[:2] == ("detach", "cpu")
        return self.value


@pytest.mark.parametrize(("half", "score"), [(16, 0.04236), (25, 0.02733), (32, 0.02142), (50, 0.01376)])
def test_uniform_baselines(half, score):
    assert uniform_baseline(half) == pytest.approx(score, abs=5e-6)
    assert repeated_prefix_matching(uniform_attention(2 * half)) == pytest.approx(uniform_baseline(half), rel=1e-12)
    ids = repeated_sequences(half, 3, 1000, 0)
    weights = np.broadcast_to(uniform_attention(2 * half), (3, 1, 2 * half, 2 * half))
    np.testing.assert_allclose(prefix_matching(weights, ids), uniform_baseline(half))
    np.testing.assert_allclose(prefix_matching(weights, ids, denominator="all"), uniform_baseline(half) / 2)


def ideal_head(half: int) -> np.ndarray:
    weights = np.eye(2 * half)
    q = np.arange(half, 2 * half)
    weights[q] = 0.0
    weights[q, q - half + 1] = 1.0
    return weights


def test_ideal_induction_and_previous_token_heads():
    ids = repeated_sequences(12, 1, 100, 0)[0]
    assert repeated_prefix_matching(ideal_head(12)) == 1.0
    assert prefix_matching(ideal_head(12), ids) == 1.0
    assert duplicate_token(ideal_head(12), ids) == 0.0
    shifted = np.eye(24, k=-1)
    shifted[0, 0] = 1.0
    assert previous_token(shifted) == 1.0
    assert np.isnan(previous_token(np.ones((1, 1))))


@given(ids=st.lists(st.integers(0, 4), min_size=2, max_size=12), seed=st.integers(0, 99))
def test_masked_scores_by_definition(ids, seed):
    T = len(ids)
    weights = random_attention(T, seed=seed)
    for keys in ("every", "latest"):
        rows = []
        for q in range(T):
            matches = [k for k in range(1, q + 1) if ids[k - 1] == ids[q]]
            if matches:
                rows.append(sum(weights[q, k] for k in (matches if keys == "every" else matches[-1:])))
        matched = np.mean(rows) if rows else np.nan
        np.testing.assert_allclose(prefix_matching(weights, ids, keys=keys), matched)
        np.testing.assert_allclose(prefix_matching(weights, ids, keys=keys, denominator="all"), sum(rows) / T)
    rows = [sum(weights[q, k] for k in range(q) if ids[k] == ids[q]) for q in range(T) if ids[q] in ids[:q]]
    np.testing.assert_allclose(duplicate_token(weights, ids), np.mean(rows) if rows else np.nan)


@given(seed=st.integers(0, 99))
def test_renaming_ids_changes_no_score(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 5, 10)
    weights = random_attention(10, seed=seed)
    names = rng.permutation(1000)[:5]
    for metric in (prefix_matching, duplicate_token):
        np.testing.assert_array_equal(metric(weights, ids), metric(weights, names[ids]))


def test_every_container_gives_the_same_scores():
    model = random_attention(3, 4, 2, 10)  # layers, batch, heads
    ids = np.random.default_rng(1).integers(0, 4, (4, 10))
    for metric in (
        lambda a: prefix_matching(a, ids),
        lambda a: duplicate_token(a, ids),
        repeated_prefix_matching,
        previous_token,
    ):
        expected = metric(model)
        assert expected.shape == (3, 4, 2)
        np.testing.assert_array_equal(metric(tuple(model)), expected)
        np.testing.assert_array_equal(metric([Tensor(layer) for layer in model]), expected)
        np.testing.assert_array_equal(metric(model[1]), expected[1])
        np.testing.assert_allclose(metric(tuple(model.astype(np.float16))), expected, atol=2e-3)
    one = prefix_matching(model[2, 3, 1], ids[3])
    np.testing.assert_allclose(prefix_matching(model, ids)[2, 3, 1], one)
    unbatched = model[:, 0]
    np.testing.assert_allclose(prefix_matching(unbatched, ids[0]), prefix_matching(model, ids)[:, 0])


def test_strongest_head():
    found = strongest_head([[0.1, np.nan], [0.2, 0.7]])
    assert (found.score, found.layer, found.head) == (0.7, 1, 1)
    assert strongest_head([0.3, 0.1]).layer is None
    for scores in ([np.nan], 0.5, np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match="scores"):
            strongest_head(scores)


def broken(row_change):
    weights = np.stack([random_attention(3, 6, seed=s) for s in range(2)])
    row_change(weights[1, 2])
    return weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.__setitem__((4, 0), 0.9), "layer 1, head 2, row 4 does not sum to one"),
        (
            lambda w: w.__setitem__((4, slice(4, 6)), [w[4, 4] - 0.2, 0.2]),
            "layer 1, head 2, row 4 attends to later",
        ),
        (lambda w: w.__setitem__((1, slice(0, 2)), [1.5, -0.5]), "layer 1, head 2, row 1 has negative"),
        (lambda w: w.__setitem__((3, 0), np.nan), "layer 1, head 2, row 3 does not sum to one"),
    ],
)
def test_bad_weights_name_layer_head_and_row(change, message):
    weights = broken(change)
    for form in (weights, list(weights)):
        with pytest.raises(ValueError, match=message):
            repeated_prefix_matching(form)
    with pytest.raises(ValueError, match=message.replace("layer", "sequence")):
        prefix_matching(weights, np.zeros((2, 6), dtype=int))


def test_bad_shapes_are_refused():
    good = random_attention(6)
    for attention, message in (
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        ([good, None], "layer 1 is None"),
        ([good, random_attention(2, 6)], "different shapes"),
        ([], "0 layers"),
        (random_attention(5), "length 5 is odd"),
    ):
        with pytest.raises(ValueError, match=message):
            repeated_prefix_matching(attention)
    with pytest.raises(ValueError, match="does not fit ids of length 5"):
        prefix_matching(good, [1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="batch of 2"):
        prefix_matching(random_attention(3, 1, 6), np.zeros((2, 6), dtype=int))
    with pytest.raises(TypeError, match="float64"):
        prefix_matching(good, np.zeros(6))
    for keyword in ("denominator", "keys"):
        with pytest.raises(ValueError, match=f"{keyword}='other'"):
            prefix_matching(good, np.zeros(6, dtype=int), **{keyword: "other"})
    for half in (0, 11):
        with pytest.raises(ValueError, match="half_length"):
            repeated_sequences(half, 1, 10, 0)


def test_repeated_sequences_are_distinct_and_repeat():
    ids = repeated_sequences(50, 100, 60, 0)
    np.testing.assert_array_equal(ids[:, :50], ids[:, 50:])
    assert all(np.unique(row[:50]).size == 50 for row in ids)
    np.testing.assert_array_equal(ids, repeated_sequences(50, 100, 60, np.random.default_rng(0)))


def test_logit_attribution_ideal_chance_opposite_and_undefined():
    half, batch, heads, d = 20, 30, 4, 64
    ids = repeated_sequences(half, batch, 100, 0)
    rng = np.random.default_rng(0)
    unembedding = rng.standard_normal((d, 100))
    square = np.eye(100)
    output = square[np.roll(ids, -1, axis=1)][:, None]
    np.testing.assert_allclose(logit_attribution(output, square, ids), 1.0)
    np.testing.assert_array_equal(logit_attribution(-output, square, ids), 0.0)
    assert np.isnan(logit_attribution(0.0 * output, square, ids)).all()
    noise = logit_attribution(rng.standard_normal((batch, heads, 2 * half, d)), unembedding, ids)
    assert noise.shape == (batch, heads)
    assert noise.mean() == pytest.approx(1.0 / half, rel=0.1)


def test_logit_attribution_by_definition():
    rng = np.random.default_rng(3)
    ids = repeated_sequences(5, 2, 9, 1)
    unembedding, output = rng.standard_normal((7, 9)), rng.standard_normal((2, 3, 10, 7))
    found = logit_attribution(output, unembedding, ids)
    for b in range(2):
        for h in range(3):
            shares = []
            for q in range(5, 9):
                logits = output[b, h, q] @ unembedding[:, ids[b, :5]]
                rectified = np.maximum(logits - logits.mean(), 0.0)
                shares.append(rectified[list(ids[b, :5]).index(ids[b, q + 1])] / rectified.sum())
            assert found[b, h] == pytest.approx(np.mean(shares))


def test_associative_recall():
    ids = repeated_sequences(8, 5, 50, 0)
    right = np.eye(50)[np.roll(ids, -1, axis=1)]
    assert associative_recall(right, ids).accuracy.tolist() == [1.0] * 5
    found = associative_recall(-right, ids)
    assert (found.accuracy.max(), found.mean_rank.min()) == (0.0, 49.0)
    tied = associative_recall(np.zeros((5, 16, 50)), ids)
    assert (tied.accuracy.max(), tied.mean_rank[0]) == (0.0, 24.5)
    noise = np.random.default_rng(0).standard_normal((5, 16, 50))
    ranks = [int((noise[b, q] > noise[b, q, ids[b, q + 1]]).sum()) for b in range(5) for q in range(8, 15)]
    assert associative_recall(noise, ids).mean_rank.mean() == pytest.approx(np.mean(ranks))
    with pytest.raises(ValueError, match="NaN"):
        associative_recall(np.nan * noise, ids)
    with pytest.raises(ValueError, match=r"must lie in \[0, 9\]"):
        associative_recall(noise[..., :10], ids)
    with pytest.raises(ValueError, match="repeated twice"):
        associative_recall(noise, ids[:, ::-1] + np.arange(16))
    with pytest.raises(ValueError, match="distinct"):
        associative_recall(noise[0, :4], [1, 1, 1, 1])


def test_losses():
    losses = np.arange(1000.0)[::-1]
    assert in_context_score(losses) == -450.0
    assert in_context_score(np.stack([losses, losses]), 0, 999).tolist() == [-999.0, -999.0]
    with pytest.raises(ValueError, match="late=500"):
        in_context_score(losses[:500])
    assert copy_advantage([[3.0, 3.0, 1.0, 0.0], [np.nan, 3.0, 1.0, 0.0]]).tolist() == [2.5, 2.5]
    assert np.isnan(copy_advantage([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(ValueError, match="length 3"):
        copy_advantage([1.0, 2.0, 3.0])
