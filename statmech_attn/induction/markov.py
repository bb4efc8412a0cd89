"""Token sources with chosen statistics: Markov chains, controlled contexts, a copy process.

A chain with an exact marginal pi is built from a Gaussian matrix G by Sinkhorn scaling:

    P_ij = exp(beta G_ij + u_j) / sum_k exp(beta G_ik + u_k),   u such that pi P = pi
    G = sqrt(rho) Z[class(i), :] + sqrt(1 - rho) E[i, :]

beta sets the local dependency (0: independent ids), rho the likeness of rows within a class
(categoriality). The three properties are those of Aoyama, Wilcox and Schneider (arXiv 2511.16893), who
optimise a softmax chain towards them instead; the construction here is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

__all__ = [
    "ControlledContexts",
    "MarkovProcess",
    "controlled_contexts",
    "controlled_process",
    "copy_process",
    "cue_rate",
    "marginal_distribution",
    "sinkhorn",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Seed = np.random.Generator | int


def marginal_distribution(kind: Literal["uniform", "gaussian", "zipf"], vocabulary_size: int) -> FloatArray:
    """Distribution over ids.

    Parameters
    ----------
    kind : {"uniform", "gaussian", "zipf"}
        Equal; Gaussian in the id, mean V / 2 and standard deviation V / 8; Zipf, 1 / (id + 1). 1e-6 is
        added to every normalised probability, and the sum normalised again.
    vocabulary_size : int
        V, at least 2.

    Returns
    -------
    ndarray, shape (V,)

    Raises
    ------
    ValueError
        For another kind or size.

    Examples
    --------
    >>> marginal_distribution("zipf", 3).round(4).tolist()
    [0.5455, 0.2727, 0.1818]
    """
    if vocabulary_size < 2:
        raise ValueError(f"vocabulary_size={vocabulary_size}: must be at least 2")
    ids = np.arange(vocabulary_size, dtype=np.float64)
    weights = {
        "uniform": np.ones_like(ids),
        "gaussian": np.exp(-(((ids - vocabulary_size / 2.0) / (vocabulary_size / 8.0)) ** 2) / 2.0),
        "zipf": 1.0 / (ids + 1.0),
    }
    if kind not in weights:
        raise ValueError(f"kind={kind!r}: must be one of {', '.join(weights)}")
    p = weights[kind] / weights[kind].sum() + 1e-6
    return np.asarray(p / p.sum())


def sinkhorn(log_kernel: ArrayLike, marginal: ArrayLike, *, max_iterations: int = 100) -> FloatArray:
    """Transition matrix P = softmax over j of (K_ij + u_j) with the stationary distribution `marginal`.

    diag(marginal) P is the Sinkhorn scaling of exp(K) to equal marginals.

    Parameters
    ----------
    log_kernel : array_like, shape (V, V)
        K, finite.
    marginal : array_like, shape (V,)
        pi, positive, sums to one.
    max_iterations : int
        Newton steps.

    Returns
    -------
    ndarray, shape (V, V)
        Rows sum to one and max |pi P - pi| <= 1e-15.

    Raises
    ------
    ValueError
        If shapes disagree, the kernel is not finite or the marginal not positive.
    RuntimeError
        If the steps do not converge: the kernel is too sharp.

    Notes
    -----
    pi P - pi is the gradient of the convex function sum_i pi_i ln sum_j exp(K_ij + u_j) - pi.u, with Hessian
    diag(pi P) - P' diag(pi) P. Newton's method on it needs tens of V^3 steps for kernels on which
    alternate scaling of rows and columns needs 10^5 of V^2.

    Examples
    --------
    >>> P = sinkhorn([[1.0, 0.0], [0.0, 2.0]], [0.4, 0.6])
    >>> (np.array([0.4, 0.6]) @ P).round(12).tolist(), P.sum(axis=1).round(12).tolist()
    ([0.4, 0.6], [1.0, 1.0])
    """
    K, pi = np.asarray(log_kernel, dtype=np.float64), np.asarray(marginal, dtype=np.float64)
    if pi.ndim != 1 or not (pi > 0.0).all() or abs(pi.sum() - 1.0) > 1e-9:
        raise ValueError(f"marginal of shape {pi.shape}: must be positive and sum to one")
    if K.shape != (pi.size, pi.size) or not np.isfinite(K).all():
        raise ValueError(f"log_kernel of shape {K.shape}: must be finite and ({pi.size}, {pi.size})")
    u = np.log(pi)
    for _ in range(5):  # alternate scaling, to come near
        u += np.log(pi) - np.log(np.maximum(pi @ special.softmax(K + u, axis=1), 1e-300))
    P = special.softmax(K + u, axis=1)
    gradient = pi @ P - pi
    for _ in range(max_iterations):
        if np.abs(gradient).max() <= 1e-15:
            return np.asarray(P)
        # u is free up to a constant: 1 / V lifts that direction; a sharp P is nearly singular in others
        hessian = np.diag(pi @ P + 1e-15) - P.T @ (pi[:, None] * P) + 1.0 / pi.size
        step = np.linalg.solve(hessian, -gradient)
        length = 1.0
        while length > 1e-6:
            trial = special.softmax(K + u + length * step, axis=1)
            error = pi @ trial - pi
            if np.linalg.norm(error) < np.linalg.norm(gradient):
                break
            length /= 2.0
        else:
            break
        u, P, gradient = u + length * step, trial, error
    raise RuntimeError(f"the scaling did not converge: pi P - pi is up to {np.abs(gradient).max():.1e}")


@dataclass(frozen=True, eq=False)
class MarkovProcess:
    """A stationary Markov chain over ids.

    Attributes
    ----------
    transition : ndarray, shape (V, V)
        P[a, b], probability of b after a.
    marginal : ndarray, shape (V,)
        Its stationary distribution (`stationary_distribution` computes it).
    classes : ndarray of int, shape (V,), optional
        Class of every id, for the categoriality.

    Raises
    ------
    ValueError
        If a row is not a probability vector or the marginal is not stationary.

    Examples
    --------
    >>> chain = MarkovProcess(np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25]))
    >>> round(chain.entropy, 4)
    0.5721
    >>> chain.sample(8, 0)
    array([0, 0, 0, 0, 0, 1, 1, 1])
    """

    transition: FloatArray
    marginal: FloatArray
    classes: IntArray | None = None

    def __post_init__(self) -> None:
        P = np.asarray(self.transition, dtype=np.float64)
        pi = np.asarray(self.marginal, dtype=np.float64)
        if pi.shape != P.shape[:1] or P.shape != 2 * P.shape[:1]:
            raise ValueError(f"transition {P.shape}, marginal {pi.shape}: must be (V, V) and (V,)")
        if not (P >= 0.0).all() or not np.abs(P.sum(axis=1) - 1.0).max() < 1e-9:
            raise ValueError("transition: every row must be non-negative and sum to one")
        if not np.abs(pi @ P - pi).max() < 1e-9:
            raise ValueError(f"marginal: is not stationary; pi P - pi is up to {np.abs(pi @ P - pi).max():.1e}")
        if self.classes is not None and np.shape(self.classes) != pi.shape:
            raise ValueError(f"classes of shape {np.shape(self.classes)}: must be {pi.shape}, one an id")
        object.__setattr__(self, "transition", P)
        object.__setattr__(self, "marginal", pi)

    @property
    def entropy(self) -> float:
        """Entropy rate H(P | pi) in bits."""
        return float(self.marginal @ special.entr(self.transition).sum(axis=1) / np.log(2.0))

    @property
    def local_dependency(self) -> float:
        """Mutual information of neighbours, H(pi) - H(P | pi), in bits; 0 for independent ids."""
        return float(special.entr(self.marginal).sum() / np.log(2.0)) - self.entropy

    @property
    def categoriality(self) -> tuple[float, float]:
        """Mean cosine of the rows of two different ids, within classes and across them."""
        if self.classes is None:
            raise ValueError("classes=None: categoriality needs the class of every id")
        return _mean_cosines(self.transition, np.asarray(self.classes))

    @property
    def limiting_reliability(self) -> float:
        """sum_a pi_a sum_b P_ab^2: what the reliability of the latest successor tends to in long contexts."""
        return float(self.marginal @ (self.transition**2).sum(axis=1))

    def sample(self, size: int | tuple[int, ...], rng: Seed) -> IntArray:
        """Stationary sequences of ids; the last axis is time.

        Parameters
        ----------
        size : int or tuple of int
            Length, or (..., length) for independent sequences.
        rng : numpy.random.Generator or int
            Generator or seed.

        Raises
        ------
        ValueError
            If a size is not positive.
        """
        shape = _shape(size)
        uniform = np.random.default_rng(rng).random((int(np.prod(shape[:-1])), shape[-1]))
        ids = _sample_chain(uniform, _cumulative(self.transition), _cumulative(self.marginal))
        return np.asarray(ids.reshape(shape))


def controlled_process(
    marginal: ArrayLike,
    *,
    entropy: float | None = None,
    within: float = 0.5,
    classes: int = 8,
    rng: Seed,
) -> MarkovProcess:
    """Chain with an exact marginal, a target entropy rate and a target likeness of rows within classes.

    Parameters
    ----------
    marginal : array_like, shape (V,)
        Positive, sums to one.
    entropy : float, optional
        Entropy rate in bits, below that of the marginal; None for independent ids (no local dependency).
    within : float
        Mean cosine of rows within a class; not used for independent ids, whose rows are all alike.
    classes : int
        Number of classes, in 1 .. V / 2; ids are dealt out in turn.
    rng : numpy.random.Generator or int
        Generator or seed of Z and E.

    Returns
    -------
    MarkovProcess
        pi P = pi to 1e-14; entropy and cosine on target to 1e-6.

    Raises
    ------
    ValueError
        If a target is out of reach; the sentence gives the range.
    RuntimeError
        If Sinkhorn scaling does not converge.

    Notes
    -----
    Two nested root searches, beta for the entropy inside rho for the cosine: some hundred scalings, each
    tens of V^3 operations. V = 64 takes a fraction of a second, V in the thousands hours.

    Examples
    --------
    >>> chain = controlled_process(marginal_distribution("zipf", 64), entropy=3.5, within=0.6, rng=0)
    >>> round(chain.entropy, 4), round(chain.categoriality[0], 4)
    (3.5, 0.6)
    """
    pi = np.asarray(marginal, dtype=np.float64)
    if pi.ndim != 1 or not 1 <= classes <= pi.size // 2:
        raise ValueError(f"classes={classes}: must lie in 1 .. {pi.size // 2}, half the vocabulary")
    labels = np.arange(pi.size) % classes
    if entropy is None:
        return MarkovProcess(np.tile(pi, (pi.size, 1)), pi, labels)
    most = float(special.entr(pi).sum() / np.log(2.0))
    if not 0.0 < entropy < most:
        raise ValueError(f"entropy={entropy}: must lie strictly between 0 and {most:.6g} bits, that of the marginal")
    generator = np.random.default_rng(rng)
    Z, E = generator.standard_normal((classes, pi.size)), generator.standard_normal((pi.size, pi.size))

    def chain(rho: float) -> MarkovProcess | None:
        G = np.sqrt(rho) * Z[labels] + np.sqrt(1.0 - rho) * E

        def at(beta: float) -> MarkovProcess:
            return MarkovProcess(sinkhorn(beta * G, pi), pi, labels)

        beta = 1.0
        try:
            while at(beta).entropy > entropy:
                beta *= 1.5
        except (
            RuntimeError,
            np.linalg.LinAlgError,
        ):  # the kernel is too sharp to be scaled: the entropy is out of reach
            return None
        return at(_root(lambda x: at(x).entropy - entropy, 0.0, beta))

    def excess(rho: float) -> float:
        found = chain(rho)
        # rows alike in large classes cannot be sharp: out of reach lies on the side of too much likeness
        return (1.0 if found is None else found.categoriality[0]) - within

    lowest = chain(0.0)
    if lowest is None:
        raise ValueError(f"entropy={entropy}: is too low for this marginal and seed")
    low, high = lowest.categoriality[0], excess(1.0) + within
    made = chain(_root(excess, 0.0, 1.0)) if low <= within <= high else None
    if made is None or abs(made.categoriality[0] - within) > 1e-6:
        reached = "" if made is None else f"; the closest is {made.categoriality[0]:.4f}"
        raise ValueError(
            f"within={within}: must lie in [{low:.4f}, {high:.4f}] at entropy {entropy}, this seed{reached}"
        )
    return made


def cue_rate(frequency: float, reliability: float, rule: Literal["exact", "published"] = "exact") -> float:
    """Rate r at which a free position takes an id seen before, to reach a frequency of repeated cues.

    A repeated cue is followed by its successor, itself seen before, with probability b, and otherwise by
    a free draw, so the share of repeated cues solves f = f (b + (1 - b) r) + (1 - f) r:

        f = r / (1 - b + b r),    exact: r = a (1 - b) / (1 - a b) gives f = a
        published: r = a / (1 + b) gives f = a / (1 - b^2 + a b), which is a only where a = b

    Parameters
    ----------
    frequency, reliability : float
        a and b, in [0, 1].
    rule : {"exact", "published"}
        "published" as reported for arXiv 2511.16893.

    Raises
    ------
    ValueError
        For a value outside [0, 1] or another rule.

    Examples
    --------
    >>> round(cue_rate(0.5, 0.5), 4), round(cue_rate(0.5, 0.5, "published"), 4)
    (0.3333, 0.3333)
    """
    for name, value in (("frequency", frequency), ("reliability", reliability)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}={value}: must lie in [0, 1]")
    if rule == "published":
        return frequency / (1.0 + reliability)
    if rule != "exact":
        raise ValueError(f"rule={rule!r}: must be 'exact' or 'published'")
    if frequency == 1.0:
        return 1.0
    return frequency * (1.0 - reliability) / (1.0 - frequency * reliability)


@dataclass(frozen=True, eq=False)
class ControlledContexts:
    """Contexts with a chosen frequency and reliability in their second half, and what was measured.

    Attributes
    ----------
    ids : ndarray of int, shape (n, C)
        Contexts.
    rate : float
        r, rate of seen ids at free positions.
    expected_frequency : float
        f = r / (1 - b + b r).
    frequency, reliability : float
        Measured over the cues x[C/2] .. x[C-2]; reliability is NaN without a repeated cue.
    """

    ids: IntArray
    rate: float
    expected_frequency: float
    frequency: float
    reliability: float


def controlled_contexts(
    contexts: int,
    context_size: int,
    vocabulary_size: int,
    *,
    frequency: float,
    reliability: float,
    rule: Literal["exact", "published"] = "exact",
    rng: Seed,
) -> ControlledContexts:
    """Contexts whose first half repeats nothing and whose second half repeats as told.

    Parameters
    ----------
    contexts, context_size, vocabulary_size : int
        n, C (even, at least 8) and V (at least C: every free id is new to its context).
    frequency, reliability : float
        a, probability that a cue in the second half is repeated, and b, that its successor is then the
        one that followed it the last time.
    rule : {"exact", "published"}
        See `cue_rate`.
    rng : numpy.random.Generator or int
        Generator or seed.

    Returns
    -------
    ControlledContexts

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    The second half starts in its stationary state, so the expected frequency holds at each of its cues.
    A wrong successor is never one that followed the cue before, nor the cue itself: the reliabilities
    "any" and "latest" agree. In a context so short that no seen id qualifies, a new one is taken.

    Examples
    --------
    >>> made = controlled_contexts(2000, 64, 500, frequency=0.5, reliability=0.7, rng=0)
    >>> abs(made.frequency - 0.5) < 0.02, abs(made.reliability - 0.7) < 0.02
    (True, True)
    """
    if contexts < 1:
        raise ValueError(f"contexts={contexts}: must be at least 1")
    if context_size < 8 or context_size % 2:
        raise ValueError(f"context_size={context_size}: must be even and at least 8")
    if vocabulary_size < context_size:
        raise ValueError(f"vocabulary_size={vocabulary_size}: must be at least context_size={context_size}")
    rate = cue_rate(frequency, reliability, rule)
    repeats = 1.0 - reliability + reliability * rate
    expected = rate / repeats if repeats > 0.0 else frequency  # rate 0, reliability 1: a copy never ends
    uniform = np.random.default_rng(rng).random((contexts, context_size, 3))
    ids = _controlled(uniform, vocabulary_size, rate, reliability, expected)
    cues, kept = _second_half_counts(ids)
    total = contexts * (context_size // 2 - 1)
    return ControlledContexts(ids, rate, expected, cues / total, kept / cues if cues else np.nan)


def copy_process(marginal: ArrayLike, copy_probability: float, size: int | tuple[int, ...], rng: Seed) -> IntArray:
    """Sequences that copy: a cue seen before is followed by its last successor with probability p.

    Otherwise, and after a new cue, the id is drawn from the marginal.

    Parameters
    ----------
    marginal : array_like, shape (V,)
        Base distribution.
    copy_probability : float
        p, in [0, 1].
    size : int or tuple of int
        Length, or (..., length): each sequence starts afresh.
    rng : numpy.random.Generator or int
        Generator or seed.

    Returns
    -------
    ndarray of int, in the shape `size`

    Raises
    ------
    ValueError
        If the marginal is not a probability vector, p is outside [0, 1] or a size is not positive.

    Examples
    --------
    >>> copy_process([0.25, 0.25, 0.25, 0.25], 1.0, 10, 3)
    array([0, 2, 1, 0, 2, 1, 0, 2, 1, 0])
    """
    pi = np.asarray(marginal, dtype=np.float64)
    if pi.ndim != 1 or pi.size == 0 or not (pi >= 0.0).all() or abs(pi.sum() - 1.0) > 1e-9:
        raise ValueError(f"marginal of shape {pi.shape}: must be non-negative and sum to one")
    if not 0.0 <= copy_probability <= 1.0:
        raise ValueError(f"copy_probability={copy_probability}: must lie in [0, 1]")
    shape = _shape(size)
    uniform = np.random.default_rng(rng).random((int(np.prod(shape[:-1])), shape[-1], 2))
    return np.asarray(_copy(uniform, _cumulative(pi), copy_probability).reshape(shape))


def _shape(size: int | tuple[int, ...]) -> tuple[int, ...]:
    shape = size if isinstance(size, tuple) else (size,)
    if not shape or min(shape) < 1:
        raise ValueError(f"size={size}: must be positive")
    return shape


def _cumulative(p: FloatArray) -> FloatArray:
    # divided by its end, so that no draw below 1 can pass the last id of positive probability
    total = np.cumsum(p, axis=-1)
    return np.asarray(total / total[..., -1:])


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(optimize.brentq(function, low, high, xtol=1e-10, rtol=1e-10))


def _mean_cosines(rows: FloatArray, labels: IntArray) -> tuple[float, float]:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    names, label = np.unique(labels, return_inverse=True)
    # sums of cosines through sums of vectors: no V x V matrix of pairs
    sums = np.zeros((names.size, rows.shape[1]))
    np.add.at(sums, label, unit)
    sizes = np.bincount(label)
    same = float((sums**2).sum())
    everything = float((sums.sum(axis=0) ** 2).sum())
    pairs_within = float((sizes**2).sum()) - label.size
    pairs_across = float(label.size**2 - (sizes**2).sum())
    within = (same - label.size) / pairs_within if pairs_within else np.nan
    return within, (everything - same) / pairs_across if pairs_across else np.nan


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _sample_chain(uniform, rows, first):  # type: ignore[no-untyped-def]
    ids = np.empty(uniform.shape, dtype=np.int64)
    for n in range(uniform.shape[0]):
        ids[n, 0] = np.searchsorted(first, uniform[n, 0], side="right")
        for t in range(1, uniform.shape[1]):
            ids[n, t] = np.searchsorted(rows[ids[n, t - 1]], uniform[n, t], side="right")
    return ids


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _copy(uniform, cumulative, probability):  # type: ignore[no-untyped-def]
    ids = np.empty(uniform.shape[:2], dtype=np.int64)
    successor = np.empty(cumulative.size, dtype=np.int64)
    for n in range(ids.shape[0]):
        successor[:] = -1
        for t in range(ids.shape[1]):
            copied = successor[ids[n, t - 1]] if t > 0 else -1
            if copied >= 0 and uniform[n, t, 0] < probability:
                ids[n, t] = copied
            else:
                ids[n, t] = np.searchsorted(cumulative, uniform[n, t, 1], side="right")
            if t > 0:
                successor[ids[n, t - 1]] = ids[n, t]
    return ids


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _controlled(uniform, vocabulary_size, rate, reliability, start):  # type: ignore[no-untyped-def]
    ids = np.empty(uniform.shape[:2], dtype=np.int64)
    size = ids.shape[1]
    order = np.arange(vocabulary_size)  # the first `seen` entries are the ids of the context
    allowed = np.empty(size, dtype=np.int64)
    for n in range(ids.shape[0]):
        x = ids[n]
        seen = 0
        repeated = False  # is x[t - 1] a repeated cue
        for t in range(size):
            latest = -1
            if repeated:
                i = t - 2
                while x[i] != x[t - 1]:
                    i -= 1
                latest = x[i + 1]
            if latest >= 0 and uniform[n, t, 0] < reliability:
                x[t] = latest
                continue
            count = 0
            chance = rate if t > size // 2 else start if t == size // 2 else 0.0
            if uniform[n, t, 1] < chance:
                for k in range(seen):
                    taken = order[k] == x[t - 1]
                    for i in range(t - 1):
                        taken = taken or (x[i] == x[t - 1] and x[i + 1] == order[k])
                    if not taken:
                        allowed[count] = order[k]
                        count += 1
            repeated = count > 0
            if repeated:
                x[t] = allowed[int(uniform[n, t, 2] * count)]
            else:
                k = seen + int(uniform[n, t, 2] * (vocabulary_size - seen))
                order[seen], order[k] = order[k], order[seen]
                x[t] = order[seen]
                seen += 1
    return ids


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _second_half_counts(ids):  # type: ignore[no-untyped-def]
    """Repeated cues, and those followed by an earlier successor, among x[C/2] .. x[C-2]."""
    cues, kept = 0, 0
    for x in ids:
        for t in range(x.size // 2 + 1, x.size):
            found, right = False, False
            for i in range(t - 1):
                if x[i] == x[t - 1]:
                    found = True
                    right = right or x[i + 1] == x[t]
            cues += found
            kept += right
    return cues, kept
