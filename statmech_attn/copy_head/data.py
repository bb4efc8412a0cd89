"""Sequences of the copying task and their sufficient statistics.

The action and its gradients see the data only through how often token v stands at i together with w at j,
H[i, v, j, w] = sum_mu X_iv X_jw: L^2 V^2 numbers, whatever the number of sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from statmech_attn.theory import Array

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = ["pair_counts", "sample_tokens"]

Tokens = npt.NDArray[np.int64]


def sample_tokens(model: CopyHead, rng: np.random.Generator) -> Tokens:
    """(P, L) iid uniform tokens, P = ``model.samples`` rounded.

    Examples
    --------
    >>> import numpy as np, statmech_attn as sa
    >>> sample_tokens(sa.CopyHead(5, 3, samples=7), np.random.default_rng(0)).shape
    (7, 5)
    """
    return rng.integers(model.vocabulary_size, size=(round(model.samples), model.context_length))


def pair_counts(tokens: Tokens, vocabulary_size: int) -> Array:
    """H of (P, L) tokens, an (L, V, L, V) array.

    Raises
    ------
    ValueError
        If tokens are not a (P, L) array of integers in [0, V).
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"tokens of shape {tokens.shape} and type {tokens.dtype} must be a (P, L) array of integers")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocabulary_size):
        raise ValueError(f"tokens run from {tokens.min()} to {tokens.max()}; they must lie in [0, {vocabulary_size})")
    L, V = tokens.shape[1], vocabulary_size
    counts = np.zeros((L * V, L * V))
    for block in range(0, len(tokens), 4096):  # one-hot blocks of bounded size
        one_hot = np.zeros((len(tokens[block : block + 4096]), L * V))
        np.put_along_axis(one_hot, tokens[block : block + 4096] + V * np.arange(L), 1.0, axis=1)
        counts += one_hot.T @ one_hot
    return counts.reshape(L, V, L, V)
