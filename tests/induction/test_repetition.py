"""Repetition statistics: against their definition, invariances, files, and options."""

import json
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statmech_attn.induction import context_statistics, lookback_statistics, token_chunks

streams = st.lists(st.integers(0, 5), min_size=3, max_size=80).map(np.array)


def by_definition(x, *, lookback=None, context=None, end=None, self_pairs=True, second_half=False):
    """(F, F any, F latest, F mean) and the number of positions, straight from the text."""
    x, counts, total = list(x), np.zeros(4), 0
    start = 0
    for p in range(len(x) - 1):
        a, b = x[p], x[p + 1]
        if a == end:
            start = p + 1
        if end in (a, b) or (a == b and not self_pairs):
            continue
        t = (p + 1 - start) % context if context else lookback + 1
        if t == 0 or (second_half and 2 * t < context):
            continue
        total += 1
        earlier = [x[i + 1] for i in range(max(start, p - t + 1), p) if x[i] == a and (self_pairs or x[i + 1] != a)]
        if earlier:
            counts += [1, b in earlier, earlier[-1] == b, earlier.count(b) / len(earlier)]
    return counts / total if total else np.full(4, np.nan), total


options = {
    "end": st.sampled_from([None, 0]),
    "self_pairs": st.booleans(),
}


@settings(deadline=None, max_examples=150)
@given(x=streams, lookback=st.integers(0, 90), **options)
def test_lookbacks_by_definition(x, lookback, end, self_pairs):
    expected, total = by_definition(x, lookback=lookback, end=end, self_pairs=self_pairs)
    keywords = {"end_of_document": end, "self_pairs": self_pairs, "mean": True}
    if total == 0:
        with pytest.raises(ValueError, match="no bigram"):
            lookback_statistics(x, lookback, **keywords)
        return
    found = lookback_statistics(x, lookback, **keywords)
    assert found.positions == total
    np.testing.assert_allclose(
        [found.frequency[-1], found.bigram[-1], found.latest[-1], found.mean[-1]], expected, atol=1e-14
    )


@settings(deadline=None, max_examples=150)
@given(x=streams, context=st.integers(2, 40), second_half=st.booleans(), **options)
def test_disjoint_contexts_by_definition(x, context, second_half, end, self_pairs):
    expected, total = by_definition(x, context=context, end=end, self_pairs=self_pairs, second_half=second_half)
    if total == 0:
        return
    found = context_statistics(
        x, [context, 7], second_half=second_half, end_of_document=end, self_pairs=self_pairs, mean=True
    )
    assert found.positions[0] == total
    np.testing.assert_allclose(
        [found.frequency[0], found.bigram[0], found.latest[0], found.mean[0]], expected, atol=1e-14
    )


def test_long_lookbacks_cross_the_turns_of_the_tables():
    rng = np.random.default_rng(0)
    for vocabulary in (3000, 40, 3):
        x = rng.integers(0, vocabulary, 9000)
        lookback = 2500
        last, histogram = {}, np.zeros(lookback + 2)
        for p, pair in enumerate(zip(x[:-1].tolist(), x[1:].tolist(), strict=True)):
            histogram[min(p - last.get(pair, -2 * lookback), lookback + 1)] += 1
            last[pair] = p
        found = lookback_statistics(x, lookback)
        np.testing.assert_allclose(found.bigram, np.cumsum(histogram[:-1])[: lookback + 1] / (x.size - 1))


@settings(deadline=None, max_examples=60)
@given(x=streams, seed=st.integers(0, 1000))
def test_renaming_ids_changes_nothing(x, seed):
    names = np.random.default_rng(seed).permutation(70_000)[:6]  # also beyond the first table
    one, other = (lookback_statistics(ids, 20, mean=True) for ids in (x, names[x]))
    for field in ("frequency", "bigram", "latest", "mean"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@settings(deadline=None, max_examples=60)
@given(documents=st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=30), min_size=1, max_size=6))
def test_documents_joined_by_an_end_add_nothing_across(documents):
    joined = np.concatenate([[*document, 0] for document in documents])
    for windows in ("sliding", "disjoint"):
        parts = [context_statistics(np.array(d), [2, 9], windows=windows, mean=True) for d in documents]
        weights = np.array([np.broadcast_to(part.positions, 2) for part in parts])
        whole = context_statistics(joined, [2, 9], windows=windows, end_of_document=0, mean=True)
        np.testing.assert_array_equal(np.broadcast_to(whole.positions, 2), weights.sum(axis=0))
        for field in ("frequency", "bigram", "latest", "mean"):
            pooled = np.average([getattr(part, field) for part in parts], axis=0, weights=weights)
            np.testing.assert_allclose(getattr(whole, field), pooled, atol=1e-14)


@settings(deadline=None, max_examples=60)
@given(x=streams)
def test_frequency_grows_with_context_and_bounds_the_rest(x):
    found = lookback_statistics(x, 60, mean=True)
    sizes = found.contexts(np.arange(2, 62))
    assert np.all(np.diff(found.frequency) >= 0)
    assert np.all(np.diff(sizes.frequency) >= -1e-15)
    assert np.all(found.latest <= found.bigram + 1e-15)
    assert np.all(found.bigram <= found.frequency + 1e-15)
    assert np.all(found.mean <= found.bigram + 1e-12)
    np.testing.assert_allclose(np.nan_to_num(sizes.reliability("any")) * sizes.frequency, sizes.bigram, atol=1e-15)


def test_contexts_average_lookbacks():
    found = lookback_statistics(np.random.default_rng(0).integers(0, 9, 500), 30)
    sizes = found.contexts([2, 10, 32])
    np.testing.assert_allclose(sizes.frequency, [found.frequency[:k].mean() for k in (1, 9, 31)])
    tokens = found.contexts([2, 10, 32], denominator="tokens")
    np.testing.assert_allclose(tokens.frequency, sizes.frequency * [1 / 2, 9 / 10, 31 / 32])
    np.testing.assert_allclose(tokens.reliability("any"), sizes.reliability("any"), equal_nan=True)
    half = found.contexts([9, 10], second_half=True)  # t >= C / 2: t = 5 .. 8 and 5 .. 9
    np.testing.assert_allclose(half.frequency, [found.frequency[4:8].mean(), found.frequency[4:9].mean()])


def test_tokens_denominator_counts_the_first_token_of_each_disjoint_context():
    x = np.random.default_rng(0).integers(0, 9, 640)
    bigrams, tokens = (context_statistics(x, [64], denominator=d) for d in ("bigrams", "tokens"))
    assert (bigrams.positions[0], tokens.positions[0]) == (630, 640)
    np.testing.assert_allclose(tokens.frequency, bigrams.frequency * 630 / 640)


def test_sliding_and_disjoint_windows_agree_on_a_long_stationary_stream():
    x = np.random.default_rng(1).integers(0, 50, 400_000)
    sliding, disjoint = (context_statistics(x, [16, 64], windows=w) for w in ("sliding", "disjoint"))
    np.testing.assert_allclose(sliding.frequency, disjoint.frequency, atol=3e-3)
    np.testing.assert_allclose(sliding.reliability("any"), disjoint.reliability("any"), atol=3e-3)


def write_jsonl(path, documents):
    path.write_text("\n".join(json.dumps({"input_ids": list(map(int, d))}) for d in documents) + "\n\n")
    return path


def test_every_format_and_cut_of_a_stream_gives_the_same(tmp_path):
    x = np.random.default_rng(2).integers(1, 300, 5000)
    expected = lookback_statistics(x, 50, mean=True)
    np.save(tmp_path / "x.npy", x.astype(np.int32))
    x.astype(np.uint16).tofile(tmp_path / "x16.bin")
    x.astype(np.uint32).tofile(tmp_path / "x32.bin")
    write_jsonl(tmp_path / "x.jsonl", np.array_split(x, 7))
    for stream in (
        token_chunks(tmp_path / "x.npy"),
        token_chunks(tmp_path / "x16.bin", dtype="uint16"),
        token_chunks(tmp_path / "x32.bin", dtype="uint32"),
        token_chunks(tmp_path / "x.jsonl"),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        x.tolist(),
        iter(np.array_split(x, 13)),
    ):
        found = lookback_statistics(stream, 50, mean=True)
        for field in ("frequency", "bigram", "latest", "mean"):
            np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


def test_lines_of_jsonl_are_documents_once_their_end_is_named(tmp_path):
    documents = [[1, 2, 1, 2], [1, 2, 0], [2, 1]]
    path = write_jsonl(tmp_path / "x.jsonl", documents)
    chunks = list(token_chunks(path, end_of_document=0))
    assert [c.tolist() for c in chunks] == [[1, 2, 1, 2, 0], [1, 2, 0], [2, 1, 0]]
    assert lookback_statistics(iter(chunks), 9, end_of_document=0).bigram[-1] == pytest.approx(1 / 5)


def test_memory_does_not_grow_with_the_stream(tmp_path):
    peaks = []
    for tokens in (3_000_000, 12_000_000):
        path = tmp_path / f"{tokens}.bin"
        np.random.default_rng(0).integers(0, 50_257, tokens, dtype=np.uint16).tofile(path)
        tracemalloc.start()
        lookback_statistics(token_chunks(path, dtype="uint16"), 1022, vocabulary_size=50_257)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.02 * peaks[0]
    assert peaks[1] < 40e6  # the ids alone would be 96 MB


def test_bad_streams_are_refused():
    for stream, error, message in (
        ([1.0, 2.0], TypeError, "float64"),
        ([True, False], TypeError, "bool"),
        ([[1, 2], [3, 4]], ValueError, "one-dimensional"),
        ([1], ValueError, "no bigram"),
        ([], ValueError, "no bigram"),
        ([1, -2, 3], ValueError, "id -2 at position 1"),
        ([1, 2**31, 3], ValueError, "id 2147483648 at position 1"),
    ):
        with pytest.raises(error, match=message):
            lookback_statistics(np.array(stream), 4)
    with pytest.raises(ValueError, match=r"id 9 at position 2 is outside \[0, 8\]"):
        lookback_statistics([1, 2, 9], 4, vocabulary_size=9)
    with pytest.raises(ValueError, match="end_of_document=-1"):
        lookback_statistics([1, 2], 1, end_of_document=-1)
    with pytest.raises(TypeError, match="integer"):
        lookback_statistics([1, 2], 1.5)
    with pytest.raises(ValueError, match="max_lookback=-1"):
        lookback_statistics([1, 2], -1)
    with pytest.raises(ValueError, match="vocabulary_size=0"):
        lookback_statistics([1, 2], 1, vocabulary_size=0)
    for sizes in ([1], [], [2.5], [[4, 5], [6, 7]]):
        with pytest.raises(ValueError, match="context_sizes"):
            context_statistics([1, 2], sizes)
    with pytest.raises(ValueError, match="look-back 4 allows at most 6"):
        lookback_statistics([1, 2], 4).contexts([7])
    for keyword in ("windows", "denominator"):
        with pytest.raises(ValueError, match=f"{keyword}='other'"):
            context_statistics([1, 2], [2], **{keyword: "other"})
    with pytest.raises(ValueError, match="was not counted"):
        context_statistics([1, 2], [2]).reliability("mean")
    with pytest.raises(ValueError, match="kind='other'"):
        context_statistics([1, 2], [2]).reliability("other")


def test_bad_files_are_refused(tmp_path):
    def refuse(name, message, content=b"", **keywords):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
            list(token_chunks(path, **keywords))

    refuse("empty.bin", "is empty", dtype="uint16")
    refuse("empty.jsonl", "is empty")
    refuse("odd.bin", "3 bytes are not a whole number of uint16", b"abc", dtype="uint16")
    refuse("x.txt", "unknown format", b"1 2 3")
    refuse("cut.jsonl", "line 2 is not an object", b'{"input_ids": [1]}\n{"input_ids": [1, ')
    refuse("text.jsonl", "line 1: input_ids must be", b'{"input_ids": ["a"]}')
    refuse("large.jsonl", "line 1: input_ids must be", b'{"input_ids": [9223372036854775808]}')
    refuse("keys.jsonl", "line 1 is not an object with input_ids", b'{"text": "a"}')
    whole = tmp_path / "whole.npy"
    np.save(whole, np.arange(1000))
    refuse("cut.npy", "not a whole .npy", whole.read_bytes()[:500])
    np.save(whole, np.ones(3))
    refuse("float.npy", "float64 of shape", whole.read_bytes())
    path = tmp_path / "x.bin"
    path.write_bytes(b"ab")
    with pytest.raises(ValueError, match="dtype=None"):
        list(token_chunks(path))
    with pytest.raises(FileNotFoundError):
        list(token_chunks(tmp_path / "absent.npy"))


def test_progress_counts_every_token(capsys):
    pytest.importorskip("tqdm")
    lookback_statistics(np.arange(1500) % 7, 4, progress=True)
    assert "1.50k" in capsys.readouterr().err
