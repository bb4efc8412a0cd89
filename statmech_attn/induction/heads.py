"""Scores of attention heads: do they find, copy and predict what followed the last time?

Attention A[..., q, k] of query q to key k: rows sum to one, no query sees a later key. Every metric
acts on the last axes and keeps the leading ones; a whole model may be given as one array
(layers, heads, T, T) or as the sequence of per-layer arrays that transformer libraries return. With
ids of shape (batch, T) the batch is the axis before the heads: (batch, heads, T, T) a layer. Arrays
may be anything numpy reads, or tensors with ``detach``, ``cpu``, ``double`` and ``numpy``.

Prefix matching, logit attribution and associative recall follow Aoyama, Wilcox and Schneider
(arXiv 2511.16893) and Olsson et al. (arXiv 2209.11895): s distinct ids repeated twice, 2 s tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "Recall",
    "StrongestHead",
    "associative_recall",
    "copy_advantage",
    "duplicate_token",
    "in_context_score",
    "logit_attribution",
    "prefix_matching",
    "previous_token",
    "repeated_prefix_matching",
    "repeated_sequences",
    "strongest_head",
    "uniform_attention",
    "uniform_baseline",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Attention = Any  # an array or tensor (..., T, T), or a sequence of them, one a layer

TOLERANCE = 5e-3
"""Largest error of a row's sum and of a weight that must vanish: half precision passes."""


@dataclass(frozen=True)
class StrongestHead:
    """Largest score of a model and the head that has it; `layer` is None for a single layer."""

    score: float
    layer: int | None
    head: int


@dataclass(frozen=True, eq=False)
class Recall:
    """Associative recall: share of right tokens ranked first, and their mean rank (0 is best)."""

    accuracy: FloatArray
    mean_rank: FloatArray


def repeated_sequences(
    half_length: int, samples: int, vocabulary_size: int, rng: np.random.Generator | int
) -> IntArray:
    """Random sequences of distinct ids, each repeated twice.

    Parameters
    ----------
    half_length : int
        s, distinct ids a sequence; the published probe takes min(50, C / 2).
    samples : int
        Number of sequences; the published probe takes 100.
    vocabulary_size : int
        Ids are drawn from 0 .. vocabulary_size - 1.
    rng : numpy.random.Generator or int
        Generator or seed.

    Returns
    -------
    ndarray of int, shape (samples, 2 half_length)

    Raises
    ------
    ValueError
        If half_length exceeds the vocabulary or a number is not positive.

    Examples
    --------
    >>> repeated_sequences(3, 2, 10, 0)
    array([[5, 9, 6, 5, 9, 6],
           [9, 8, 0, 9, 8, 0]])
    """
    if not 1 <= half_length <= vocabulary_size:
        raise ValueError(f"half_length={half_length}: must lie in 1 .. vocabulary_size={vocabulary_size}")
    if samples < 1:
        raise ValueError(f"samples={samples}: must be at least 1")
    generator = np.random.default_rng(rng)
    half = np.stack([generator.choice(vocabulary_size, half_length, replace=False) for _ in range(samples)]).astype(
        np.int64
    )
    return np.concatenate([half, half], axis=1)


def uniform_attention(length: int) -> FloatArray:
    """Causal attention 1 / (q + 1) to every key k <= q: its scores are the baselines.

    Examples
    --------
    >>> uniform_attention(2)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    if length < 1:
        raise ValueError(f"length={length}: must be at least 1")
    return np.asarray(np.tril(np.ones((length, length))) / np.arange(1.0, length + 1.0)[:, None])


def uniform_baseline(half_length: int) -> float:
    """Prefix-matching score of uniform attention, (H_2s - H_s) / s, about ln 2 / s.

    Examples
    --------
    >>> [round(uniform_baseline(s), 5) for s in (16, 25, 32, 50)]
    [0.04236, 0.02733, 0.02142, 0.01376]
    """
    if half_length < 1:
        raise ValueError(f"half_length={half_length}: must be at least 1")
    return float(special.digamma(2 * half_length + 1) - special.digamma(half_length + 1)) / half_length


def repeated_prefix_matching(attention: Attention) -> FloatArray:
    """Prefix-matching score on s distinct ids repeated twice: mean of A[q, q - s + 1], q = s .. 2s - 1.

    Parameters
    ----------
    attention : array (..., 2s, 2s) or sequence of arrays, one a layer
        Attention weights.

    Returns
    -------
    ndarray
        Score of every head, in the leading shape. An ideal induction head has 1, uniform attention
        `uniform_baseline`.

    Raises
    ------
    ValueError
        If a layer is not causal, a row does not sum to one, or the length is odd.

    Examples
    --------
    >>> round(float(repeated_prefix_matching(uniform_attention(32))), 5)
    0.04236
    """

    def score(weights: FloatArray) -> FloatArray:
        length = weights.shape[-1]
        if length % 2:
            raise ValueError(f"attention: length {length} is odd; the sequence must be one half repeated twice")
        half = length // 2
        q = np.arange(half, length)
        return np.asarray(weights[..., q, q - half + 1].mean(axis=-1))

    return _each_layer(attention, score)


def previous_token(attention: Attention) -> FloatArray:
    """Previous-token score, mean of A[q, q - 1] over q = 1 .. T - 1.

    Examples
    --------
    >>> float(previous_token(np.eye(4)))
    0.0
    """

    def score(weights: FloatArray) -> FloatArray:
        if weights.shape[-1] < 2:
            return np.full(weights.shape[:-2], np.nan)
        return np.asarray(np.diagonal(weights, -1, -2, -1).mean(axis=-1))

    return _each_layer(attention, score)


def prefix_matching(
    attention: Attention,
    ids: ArrayLike,
    *,
    denominator: Literal["matched", "all"] = "matched",
    keys: Literal["every", "latest"] = "every",
) -> FloatArray:
    """Prefix-matching score on any ids: attention to what followed earlier occurrences of the token.

        M[q, k] = 1 iff 1 <= k <= q and x[k - 1] = x[q]

    Parameters
    ----------
    attention : array (..., T, T) or sequence of arrays, one a layer
        Attention weights.
    ids : array_like of int, shape (T,) or (batch, T)
        Tokens attended over; a batch is the axis before the heads.
    denominator : {"matched", "all"}
        Mean over the rows that have a match, or sum divided by all T rows, the smaller convention of
        common interpretability libraries.
    keys : {"every", "latest"}
        Every earlier match, or only the last one.

    Returns
    -------
    ndarray
        In the leading shape; NaN where no row has a match (0 for "all").

    Raises
    ------
    TypeError
        If ids are not integers.
    ValueError
        If shapes disagree or the attention is not causal with rows that sum to one.

    Notes
    -----
    k = q counts: after "a a" the key that followed the first a is the query itself.

    Examples
    --------
    >>> float(prefix_matching(uniform_attention(4), [7, 8, 7, 8]).round(4))
    0.2917
    """
    x = _ids(ids)
    match = np.zeros((*x.shape, x.shape[-1]), dtype=bool)
    match[..., 1:] = x[..., :, None] == x[..., None, :-1]
    return _masked(attention, x, match & np.tri(x.shape[-1], dtype=bool), denominator, keys)


def duplicate_token(
    attention: Attention, ids: ArrayLike, *, denominator: Literal["matched", "all"] = "matched"
) -> FloatArray:
    """Duplicate-token score: attention to earlier occurrences of the token.

        M[q, k] = 1 iff k < q and x[k] = x[q]

    Parameters and errors as in `prefix_matching`.

    Examples
    --------
    >>> float(duplicate_token(uniform_attention(4), [7, 8, 7, 8]).round(4))
    0.2917
    """
    x = _ids(ids)
    match = (x[..., :, None] == x[..., None, :]) & np.tri(x.shape[-1], k=-1, dtype=bool)
    return _masked(attention, x, match, denominator, "every")


def strongest_head(scores: ArrayLike) -> StrongestHead:
    """Largest score, the model's score, and where it is.

    Parameters
    ----------
    scores : array_like, shape (heads,) or (layers, heads)
        Average a batch away first. NaN entries are passed over.

    Raises
    ------
    ValueError
        For other shapes or when every score is NaN.

    Examples
    --------
    >>> strongest_head([[0.1, 0.2], [0.9, 0.3]])
    StrongestHead(score=0.9, layer=1, head=0)
    """
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"scores of shape {array.shape}: must be (heads,) or (layers, heads)")
    if np.isnan(array).all():
        raise ValueError("scores: every head is NaN (undefined)")
    index = np.unravel_index(int(np.nanargmax(array)), array.shape)
    layer = int(index[0]) if array.ndim == 2 else None
    return StrongestHead(float(array[index]), layer, int(index[-1]))


def logit_attribution(head_output: Any, unembedding: Any, ids: ArrayLike) -> FloatArray:
    """Share of a head's direct logits that goes to the right next token, on ids repeated twice.

    The head's output at q, times the unembedding of the s sample ids, minus its mean over them, is
    rectified; the score is the mean over the second half of target / sum.

    Parameters
    ----------
    head_output : array (..., 2s, d)
        What each head adds to the residual stream.
    unembedding : array (d, V)
        Unembedding matrix.
    ids : array_like of int, shape (2s,) or (batch, 2s)
        s distinct ids repeated twice; a batch is the axis before the heads: (batch, heads, 2s, d).

    Returns
    -------
    ndarray
        In the leading shape. Chance is about 1 / s, an ideal head has 1. Queries without a positive
        logit are left out; NaN where none is left.

    Raises
    ------
    TypeError, ValueError
        If ids are not integers, not a distinct half repeated twice or outside the vocabulary, or shapes
        disagree.

    Notes
    -----
    Targets are x[q + 1] for q = s .. 2s - 2, the queries of the second half with a known next token.

    Examples
    --------
    >>> ids = np.array([0, 1, 2, 0, 1, 2])
    >>> output = np.eye(3)[np.roll(ids, -1)]
    >>> float(logit_attribution(output, np.eye(3), ids))
    1.0
    """
    output, matrix, x = _array(head_output, "head_output"), _array(unembedding, "unembedding"), _ids(ids)
    half = _repeated_half(x)
    if matrix.ndim != 2 or output.ndim < 2 or output.shape[-1] != matrix.shape[0]:
        raise ValueError(f"head_output {output.shape}, unembedding {matrix.shape}: must be (..., 2s, d) and (d, V)")
    _in_vocabulary(x, matrix.shape[1])
    _aligned("head_output", output.shape, x, length_axis=-2, batch_axis=-4)
    columns = np.moveaxis(matrix[:, x[..., :half]], 0, -2)  # (d, s) or (batch, d, s)
    if x.ndim == 2:
        columns = columns[:, None]
    logits = output[..., half : 2 * half - 1, :] @ columns
    rectified = np.maximum(logits - logits.mean(axis=-1, keepdims=True), 0.0)
    target = np.arange(half - 1)
    with np.errstate(invalid="ignore"):
        share = rectified[..., target, target + 1] / rectified.sum(axis=-1)
    return _mean_defined(share)


def associative_recall(logits: Any, ids: ArrayLike) -> Recall:
    """Rank of the right next token in the full vocabulary, in the second half of ids repeated twice.

    Parameters
    ----------
    logits : array (..., 2s, V)
        Next-token logits.
    ids : array_like of int, shape (2s,) or (batch, 2s)
        s distinct ids repeated twice; a batch is the axis before the tokens.

    Returns
    -------
    Recall
        accuracy = mean(rank = 0) and mean rank, in the leading shape. A tied token takes the middle of
        its tie, so constant logits have accuracy 0 and mean rank (V - 1) / 2.

    Raises
    ------
    TypeError, ValueError
        As `logit_attribution`; and if a logit is NaN.

    Examples
    --------
    >>> ids = np.array([0, 1, 2, 0, 1, 2])
    >>> associative_recall(np.eye(4)[np.roll(ids, -1)], ids)
    Recall(accuracy=array(1.), mean_rank=array(0.))
    """
    values, x = _array(logits, "logits"), _ids(ids)
    half = _repeated_half(x)
    _in_vocabulary(x, values.shape[-1])
    _aligned("logits", values.shape, x, length_axis=-2, batch_axis=-3)
    if np.isnan(values).any():
        raise ValueError("logits: contain NaN")
    second = values[..., half : 2 * half - 1, :]
    target = np.broadcast_to(x[..., half + 1 :, None], (*second.shape[:-1], 1))
    right = np.take_along_axis(second, target, axis=-1)
    rank = (second > right).sum(axis=-1) + ((second == right).sum(axis=-1) - 1) / 2.0
    return Recall(np.asarray((rank == 0.0).mean(axis=-1)), np.asarray(rank.mean(axis=-1)))


def in_context_score(losses: ArrayLike, early: int = 50, late: int = 500) -> FloatArray:
    """In-context learning score: loss at a late token minus loss at an early one (negative is learning).

    Parameters
    ----------
    losses : array_like, shape (..., T)
        Loss of each token, counted from 0.
    early, late : int
        Token positions; 50 and 500 follow Olsson et al. (arXiv 2209.11895).

    Raises
    ------
    ValueError
        If not 0 <= early < late < T.

    Examples
    --------
    >>> round(float(in_context_score(np.linspace(5, 3, 1001))), 9)
    -0.9
    """
    values = _array(losses, "losses")
    if not 0 <= early < late < values.shape[-1]:
        raise ValueError(f"early={early}, late={late}: must satisfy 0 <= early < late < {values.shape[-1]}")
    return np.asarray(values[..., late] - values[..., early])


def copy_advantage(losses: ArrayLike) -> FloatArray:
    """Mean loss of the first copy minus mean loss of the second, on ids repeated twice.

    Parameters
    ----------
    losses : array_like, shape (..., 2s)
        Loss of each token; the first token, which nothing predicts, may be NaN and is then left out.

    Raises
    ------
    ValueError
        If the length is odd or below four.

    Examples
    --------
    >>> float(copy_advantage([np.nan, 4.0, 1.0, 1.0]))
    3.0
    """
    values = _array(losses, "losses")
    length = values.shape[-1]
    if length % 2 or length < 4:
        raise ValueError(f"losses: length {length} must be even and at least 4")
    first = values[..., : length // 2]
    unpredicted = np.isnan(first[..., 0])
    mean = np.where(unpredicted, first[..., 1:].mean(axis=-1), first.mean(axis=-1))
    return np.asarray(mean - values[..., length // 2 :].mean(axis=-1))


def leading_axes(count: int, batched: bool) -> tuple[str, ...]:
    """Names of the axes before (query, key); two are (layer, head), or (sequence, head) of a batch."""
    return {
        0: (),
        1: ("head",),
        2: ("sequence" if batched else "layer", "head"),
        3: ("layer", "sequence", "head"),
    }[count]


def _array(value: Any, name: str) -> FloatArray:
    if hasattr(value, "detach"):  # a tensor: gradients, device and half precision stay behind
        value = value.detach().cpu().double().numpy()
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} of shape {array.shape}: must not be empty")
    return array


def _ids(ids: ArrayLike) -> IntArray:
    x = np.asarray(ids.detach().cpu().numpy() if hasattr(ids, "detach") else ids)
    if not np.issubdtype(x.dtype, np.integer):
        raise TypeError(f"ids of type {x.dtype}: must be integers")
    if x.ndim not in (1, 2) or x.size == 0:
        raise ValueError(f"ids of shape {x.shape}: must be (T,) or (batch, T) and not empty")
    return x.astype(np.int64)


def _in_vocabulary(x: IntArray, size: int) -> None:
    if x.min() < 0 or x.max() >= size:
        raise ValueError(f"ids in [{x.min()}, {x.max()}]: must lie in [0, {size - 1}], the vocabulary")


def _repeated_half(x: IntArray) -> int:
    half = int(x.shape[-1]) // 2
    rows = np.atleast_2d(x)
    if x.shape[-1] < 4 or x.shape[-1] % 2 or not np.array_equal(rows[:, :half], rows[:, half:]):
        raise ValueError(f"ids of shape {x.shape}: must be one half of at least 2 ids repeated twice")
    if any(np.unique(row[:half]).size < half for row in rows):
        raise ValueError("ids: the repeated half must be distinct ids")
    return half


def _aligned(name: str, shape: tuple[int, ...], x: IntArray, length_axis: int, batch_axis: int) -> None:
    if len(shape) < -length_axis or shape[length_axis] != x.shape[-1]:
        raise ValueError(f"{name} of shape {shape}: does not fit ids of length {x.shape[-1]}")
    if x.ndim == 2 and (len(shape) < -batch_axis or shape[batch_axis] != x.shape[0]):
        raise ValueError(f"{name} of shape {shape}: axis {batch_axis} must be the batch of {x.shape[0]} sequences")


def _mean_defined(values: FloatArray) -> FloatArray:
    defined = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, values, 0.0).sum(axis=-1) / defined.sum(axis=-1))


def _masked(attention: Attention, x: IntArray, match: NDArray[np.bool_], denominator: str, keys: str) -> FloatArray:
    if denominator not in ("matched", "all"):
        raise ValueError(f"denominator={denominator!r}: must be 'matched' or 'all'")
    if keys not in ("every", "latest"):
        raise ValueError(f"keys={keys!r}: must be 'every' or 'latest'")
    if keys == "latest":
        later = np.cumsum(match[..., ::-1], axis=-1)[..., ::-1]
        match = match & (later == 1)
    rows = match.any(axis=-1).sum(axis=-1) if denominator == "matched" else np.asarray(x.shape[-1])
    if x.ndim == 2:
        match, rows = match[:, None], rows[:, None] if rows.ndim else rows

    def score(weights: FloatArray) -> FloatArray:
        _aligned("attention", weights.shape, x, length_axis=-1, batch_axis=-4)
        total = np.einsum("...qk,...qk->...", weights, match)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / rows)

    return _each_layer(attention, score, batched=x.ndim == 2)


def _each_layer(attention: Attention, score: Callable[[FloatArray], FloatArray], batched: bool = False) -> FloatArray:
    """Score of each layer, one at a time, so that a model's attention is never copied whole."""
    if not isinstance(attention, tuple | list):
        weights = _array(attention, "attention")
        _check_attention(weights, batched)
        return np.asarray(score(weights))
    scores = []
    for layer, value in enumerate(attention):
        if value is None:
            raise ValueError(f"attention: layer {layer} is None; ask the model for its attention weights")
        weights = _array(value, f"attention of layer {layer}")
        _check_attention(weights, True, f"layer {layer}, ")
        scores.append(score(weights))
    if not scores or any(one.shape != scores[0].shape for one in scores):
        raise ValueError(f"attention: {len(scores)} layers of different shapes; all must be alike and not empty")
    return np.stack(scores)


def _check_attention(weights: FloatArray, batched: bool, where: str = "") -> None:
    if not 2 <= weights.ndim <= 5 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"attention: {where}shape {weights.shape} must be (T, T) with up to three axes before")
    for error, sentence in (
        (np.abs(weights.sum(axis=-1) - 1.0), "does not sum to one: off by"),
        (np.triu(np.abs(weights), 1).max(axis=-1), "attends to later keys (not causal): up to"),
        (-weights.min(axis=-1), "has negative weights: down to minus"),
    ):
        bad = np.argwhere(~(error <= TOLERANCE))  # a NaN is bad
        if bad.size:
            *leading, row = (int(i) for i in bad[0])
            names = leading_axes(len(leading), batched)
            place = "".join(f"{name} {i}, " for name, i in zip(names, leading, strict=True))
            raise ValueError(f"attention: {where}{place}row {row} {sentence} {error[tuple(bad[0])]:.2g}")
