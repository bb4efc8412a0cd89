"""One-pass repetition statistics against a plain dictionary version, in the same run."""

import time

import numpy as np
import pytest

from statmech_attn.induction import lookback_statistics

VOCABULARY, LOOKBACK = 50_257, 2046


def with_dictionaries(ids: list[int], lookback: int) -> tuple[np.ndarray, np.ndarray]:
    """Cumulative cue and bigram repeats by look-back."""
    cues, bigrams = np.zeros(lookback + 2), np.zeros(lookback + 2)
    last_cue: dict[int, int] = {}
    last_bigram: dict[tuple[int, int], int] = {}
    for p in range(len(ids) - 1):
        cue, bigram = ids[p], (ids[p], ids[p + 1])
        cues[min(p - last_cue.get(cue, -lookback - 1), lookback + 1)] += 1
        bigrams[min(p - last_bigram.get(bigram, -lookback - 1), lookback + 1)] += 1
        last_cue[cue] = last_bigram[bigram] = p
    return np.cumsum(cues[:-1]), np.cumsum(bigrams[:-1])


@pytest.mark.parametrize("source", ["uniform", "zipf"])
def test_tokens_a_second(source, capsys):
    rng = np.random.default_rng(0)
    tokens = 10_000_000
    if source == "uniform":
        ids = rng.integers(0, VOCABULARY, tokens)
    else:
        cumulative = np.cumsum(1.0 / np.arange(1.0, VOCABULARY + 1.0))
        ids = np.searchsorted(cumulative / cumulative[-1], rng.random(tokens))
    part = ids[: tokens // 20]
    found = lookback_statistics(part, LOOKBACK)  # compiles
    start = time.perf_counter()
    cues, bigrams = with_dictionaries(part.tolist(), LOOKBACK)
    plain = part.size / (time.perf_counter() - start)
    np.testing.assert_array_equal(np.rint(found.frequency * found.positions), cues)
    np.testing.assert_array_equal(np.rint(found.bigram * found.positions), bigrams)
    start = time.perf_counter()
    lookback_statistics(ids, LOOKBACK, vocabulary_size=VOCABULARY)
    fast = tokens / (time.perf_counter() - start)
    with capsys.disabled():
        print(f"\n{source}: {fast / 1e6:.1f} M tokens/s, {fast / plain:.0f} times dictionaries")
    assert fast > 20.0 * plain
