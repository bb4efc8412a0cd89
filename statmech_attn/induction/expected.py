"""Expected repetition of known sources: independent ids and stationary Markov chains.

The measured counterpart is `lookback_statistics`; both return a `Lookback`.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from statmech_attn.induction.repetition import Lookback

__all__ = ["expected_iid", "expected_markov", "expected_well_mixed", "stationary_distribution"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def expected_iid(marginal: ArrayLike, max_lookback: int) -> Lookback:
    """Exact repetition of independent ids.

        F(m) = sum_a pi_a (1 - (1 - pi_a)^m)

    and the bigram by the probability s_m that a word of m ids avoids it: s_m = s_{m-1} - pi_a pi_b s_{m-2}.

    Parameters
    ----------
    marginal : array_like, shape (V,)
        Probabilities pi of the ids.
    max_lookback : int
        M; time grows as V^2 M.

    Returns
    -------
    Lookback

    Raises
    ------
    ValueError
        If the marginal is not a probability vector or max_lookback is negative.

    Examples
    --------
    >>> expected_iid([0.5, 0.5], 2).frequency.tolist()
    [0.0, 0.5, 0.75]
    """
    pi = _probabilities("marginal", marginal)
    m = _lookbacks(max_lookback)
    missed = (1.0 - pi[:, None]) ** m
    others = (pi**2).sum() - pi**2
    # the last a stood d back: its successor was a (d = 1), or any id but a (d >= 2), and comes again
    latest = np.zeros(m.size)
    if m.size > 1:
        latest[1] = (pi**3).sum()
        latest[2:] = ((pi * others)[:, None] * pi[:, None] * missed[:, :-2]).sum(axis=0)
    # b = a: no two neighbouring a among the m ids and the cue
    clear = np.ones((m.size, pi.size))
    for k in m[2:]:
        clear[k] = (1.0 - pi) * (clear[k - 1] + pi * clear[k - 2])
    bigram = np.zeros(m.size)
    bigram[1:] = (1.0 - (1.0 - pi) * clear[:-1]) @ pi**2
    # b != a: the cue a cannot end the word a b, so it is the m ids before it that avoid the word
    for a, p in enumerate(pi):
        q = np.delete(p * pi, a)
        older, newer = np.zeros(q.size), np.ones(q.size)
        for k in m[1:]:
            older, newer = newer, newer - q * older
            bigram[k] += q @ (1.0 - newer)
    return Lookback((pi[:, None] * (1.0 - missed)).sum(axis=0), bigram, np.cumsum(latest))


def expected_markov(transition: ArrayLike, max_lookback: int) -> Lookback:
    """Exact repetition of a stationary Markov chain, by renewal.

        F(m)          = sum_a  pi_a P(return to a within m)
        F any (m)     = sum_ab pi_a P_ab P(return of the pair chain to ab within m)
        F latest (m)  = sum_ab pi_a P_ab^2 P(a is hit from b within m - 1)

    First passages f follow from the occupation probabilities u by u_n = sum_k f_k u'_{n-k}, with u' that
    of the target; the pair chain has u_ab(k) = (P^{k-1})_ba P_ab.

    Parameters
    ----------
    transition : array_like, shape (V, V)
        Rows sum to one; irreducible.
    max_lookback : int
        M; time grows as V^3 M + V^2 M^2, memory as V^2 M.

    Returns
    -------
    Lookback

    Raises
    ------
    ValueError
        If a row is not a probability vector, or the stationary distribution is not unique.

    Notes
    -----
    As m grows, the latest-successor reliability tends to sum_a pi_a sum_b P_ab^2.

    Examples
    --------
    >>> expected_markov([[0.0, 1.0], [1.0, 0.0]], 3).latest.tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    P = _transition(transition)
    pi = stationary_distribution(P)
    m = _lookbacks(max_lookback)
    powers = np.empty((m.size + 1, *P.shape))
    powers[0] = np.eye(pi.size)
    for k in range(m.size):
        powers[k + 1] = powers[k] @ P
    return Lookback(*_renewal(powers, P, pi, m.size))


def expected_well_mixed(transition: ArrayLike, max_lookback: int) -> Lookback:
    """Repetition when earlier positions are as good as independent of the cue.

        F ~ sum_a pi_a (1 - (1 - pi_a)^m),    F any ~ sum_ab q (1 - (1 - q)^m),  q = pi_a P_ab
        F latest ~ sum_a pi_a (1 - (1 - pi_a)^m) sum_b P_ab^2

    Parameters and errors as in `expected_markov`; time V^2 M. Good for chains that forget within the
    look-back; no error bound is given: compare with `expected_markov`.

    Examples
    --------
    >>> expected_well_mixed([[0.5, 0.5], [0.5, 0.5]], 2).frequency.round(12).tolist()
    [0.0, 0.5, 0.75]
    """
    P = _transition(transition)
    pi = stationary_distribution(P)
    m = _lookbacks(max_lookback)
    cue = pi[:, None] * (1.0 - (1.0 - pi[:, None]) ** m)
    q = (pi[:, None] * P).ravel()
    bigram = np.array([q @ (1.0 - (1.0 - q) ** k) for k in m])
    return Lookback(cue.sum(axis=0), bigram, (P**2).sum(axis=1) @ cue)


def stationary_distribution(transition: ArrayLike) -> FloatArray:
    """The probability vector with pi P = pi.

    Raises
    ------
    ValueError
        If the chain has more than one.

    Examples
    --------
    >>> stationary_distribution([[0.5, 0.5], [1.0, 0.0]]).round(4).tolist()
    [0.6667, 0.3333]
    """
    P = _transition(transition)
    system = np.vstack([P.T - np.eye(len(P)), np.ones(len(P))])
    pi, _, rank, _ = np.linalg.lstsq(system, np.append(np.zeros(len(P)), 1.0))
    if rank < len(P):
        raise ValueError("transition: the chain has more than one stationary distribution")
    pi = np.maximum(pi, 0.0)
    return np.asarray(pi / pi.sum())


def _lookbacks(max_lookback: int) -> IntArray:
    if max_lookback < 0:
        raise ValueError(f"max_lookback={max_lookback}: must not be negative")
    return np.arange(max_lookback + 1)


def _probabilities(name: str, value: ArrayLike) -> FloatArray:
    p = np.asarray(value, dtype=np.float64)
    if p.ndim != 1 or p.size == 0 or not (p >= 0.0).all() or not abs(p.sum() - 1.0) < 1e-9:
        raise ValueError(f"{name} of shape {p.shape}, sum {p.sum():g}: must be non-negative and sum to one")
    return p


def _transition(value: ArrayLike) -> FloatArray:
    P = np.asarray(value, dtype=np.float64)
    if P.ndim != 2 or P.shape[0] != P.shape[1] or P.size == 0:
        raise ValueError(f"transition of shape {P.shape}: must be (V, V)")
    bad = ~((P >= 0.0).all(axis=1) & (np.abs(P.sum(axis=1) - 1.0) < 1e-9))
    if bad.any():
        raise ValueError(f"transition: row {int(np.argmax(bad))} is not a probability vector")
    return P


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _renewal(powers, P, pi, length):  # type: ignore[no-untyped-def]
    """Frequency, bigram and latest at look-backs 0 .. length - 1."""
    cue, bigram, latest = np.zeros(length), np.zeros(length), np.zeros(length)
    first, pair, hit = np.zeros(length), np.zeros(length), np.zeros(length)
    for a in range(pi.size):
        u = powers[:, a, a].copy()
        for n in range(1, length):
            first[n] = u[n]
            for k in range(1, n):
                first[n] -= first[k] * u[n - k]
            cue[n] += pi[a] * first[n]
        for b in range(pi.size):
            p = P[a, b]
            if pi[a] * p == 0.0:
                continue
            v = powers[:, b, a].copy()
            for n in range(1, length):
                # the bigram comes back after n steps; a comes first n - 1 steps after b
                pair[n] = p * v[n - 1]
                hit[n] = v[n - 1]
                for k in range(1, n):
                    pair[n] -= pair[k] * p * v[n - k - 1]
                    hit[n] -= hit[k] * u[n - k]
                bigram[n] += pi[a] * p * pair[n]
                latest[n] += pi[a] * p * p * hit[n]
    return np.cumsum(cue), np.cumsum(bigram), np.cumsum(latest)
