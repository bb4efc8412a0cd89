r"""Joint maximum of the posterior over logits and values by Adam with weight decay, from sufficient statistics.

The energy (minus the log posterior of C, b, W up to a constant) of attention A(C + b) and output A X W is

.. math:: U=\frac{|C|^2}{2\sigma_C^2}+\frac{b^2}{2\sigma_b^2}+\frac{|W|^2}{2\sigma_W^2}
    +\frac{1}{2\kappa L}\big[\textstyle\sum_\mu|Y_\mu|^2-2\,\mathrm{tr}W^TB+\mathrm{tr}W^TRW\big],

R and B linear in the pair counts H of the data: a step costs O(L^2 V^2 + L^3), whatever the number of sequences.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numba import njit

from statmech_attn.copy_head import softmax
from statmech_attn.copy_head.action import mean_values, shift
from statmech_attn.copy_head.data import Tokens, pair_counts, sample_tokens
from statmech_attn.copy_head.model import CopyHead
from statmech_attn.copy_head.observables import Measured, measure
from statmech_attn.theory import Array, Solution, replace

__all__ = [
    "Blocks",
    "Energy",
    "Parameters",
    "Trained",
    "begin",
    "block_energy",
    "mean_parameters",
    "offset_variance",
    "sweep",
    "train",
    "train_blocks",
]

logger = logging.getLogger(__name__)


class Parameters(NamedTuple):
    """Logits C (L, L), their offset b (1,), values W (V, V)."""

    C: Array
    b: Array
    W: Array


class Blocks(NamedTuple):
    """Logits M (L, L), N (V, V), R (V, L), Q (L, V) of positions and tokens, and values W (V, V)."""

    M: Array
    N: Array
    R: Array
    Q: Array
    W: Array


Parts = TypeVar("Parts", Parameters, Blocks)


def offset_variance(model: CopyHead) -> float:
    """sigma_b^2, prior variance of the offset of linear logits; 0 where there is none."""
    if model.attention == "softmax":
        return 0.0
    return (model.uniform_prior - model.logit_prior) / model.context_length**2


class Energy:
    """U of the module and its gradient, for given data.

    Parameters
    ----------
    model : CopyHead
        Sizes, variances, attention and boundary.
    pairs : (L, V, L, V) array
        Pair counts of the data.
    count : float
        Number of sequences in it.
    """

    def __init__(self, model: CopyHead, pairs: Array, count: float) -> None:
        L, V = model.context_length, model.vocabulary_size
        if pairs.shape != (L, V, L, V):
            raise ValueError(f"pairs of shape {pairs.shape} must be ({L}, {V}, {L}, {V})")
        self.model = model
        self.offset = offset_variance(model)
        self.G = shift(L, model.boundary)
        self.H = np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(L * L, V * V)
        self.constant = count * model.target_rows

    def attention(self, C: Array, b: Array) -> Array:
        """A of the logits."""
        return np.asarray(_attention(C, float(b[0]), self.model.attention == "linear"))

    def __call__(self, at: Parameters) -> tuple[float, Parameters]:
        """U and its derivatives; not finite where they overflow."""
        model, (C, b, W) = self.model, at
        energy, dC, db, dW = _energy(
            C,
            float(b[0]),
            W,
            self.H,
            self.G,
            model.attention == "linear",
            self.constant,
            model.kappa * model.context_length,
            model.logit_prior,
            self.offset,
            model.value_prior,
        )
        return energy, Parameters(dC, np.array([db]), dW)


@njit(error_model="numpy", cache=True)
def _attention(C, b, is_linear):  # type: ignore[no-untyped-def]
    L = C.shape[0]
    if is_linear:
        return (C + b) / L
    A = np.empty((L, L))
    for i in range(L):
        A[i] = np.exp(C[i] - C[i].max())
        A[i] /= A[i].sum()
    return A


@njit(error_model="numpy", cache=True)
def _energy(C, b, W, H, G, is_linear, constant, scale, logit_prior, offset, value_prior):  # type: ignore[no-untyped-def]
    """U and dU/d(C, b, W). Compiled for the many small operations: the large products are calls of BLAS anyway."""
    L, V = C.shape[0], W.shape[0]
    A = _attention(C, b, is_linear)
    left = np.empty((2, L * L))
    left[0] = np.dot(A.T, A).ravel()
    left[1] = np.dot(A.T, G).ravel()
    moments = np.dot(left, H)
    R, B = moments[0].reshape(V, V), moments[1].reshape(V, V)
    right = np.empty((V * V, 2))
    right[:, 0] = np.dot(W, W.T).ravel()
    right[:, 1] = W.ravel()
    pulled = np.dot(H, right)
    square = np.ascontiguousarray(pulled[:, 0]).reshape(L, L)
    target = np.ascontiguousarray(pulled[:, 1]).reshape(L, L)
    RW = np.dot(R, W)
    dA = (np.dot(A, square) - np.dot(G, target.T)) / scale
    if is_linear:
        dC = dA / L
    else:
        dC = np.empty((L, L))
        for i in range(L):
            dC[i] = A[i] * (dA[i] - np.sum(A[i] * dA[i]))
    energy = (constant - 2 * np.sum(W * B) + np.sum(W * RW)) / (2 * scale)
    energy += np.sum(C * C) / (2 * logit_prior) + np.sum(W * W) / (2 * value_prior)
    db = 0.0
    if offset > 0:
        energy += b * b / (2 * offset)
        db = dC.sum() + b / offset
    return energy, dC + C / logit_prior, db, (RW - B) / scale + W / value_prior


@dataclass(frozen=True)
class Trained:
    """A trained layer.

    Attributes
    ----------
    parameters : Parameters
    attention : (L, L) array
    energy : float
        U at the end.
    gradient : float
        Norm of the gradient of U in units of the prior, over the number of parameters' square root: small at a
        stationary point.
    measured : Measured
        Weights, alignment, coverage, losses.
    """

    parameters: Parameters
    attention: Array
    energy: float
    gradient: float
    measured: Measured


def mean_parameters(model: CopyHead, solution: Solution) -> Parameters:
    """Logits, offset and values of a state of the theory: where simulations of a branch begin."""
    L, V = model.context_length, model.vocabulary_size
    theory = solution.theory
    assert isinstance(theory, CopyHead)
    w, w_mean = mean_values(theory, theory.sums(solution.state))
    W = w * np.eye(V) + (w_mean - w) / V
    C = np.zeros((L, L))
    first = L - model.target_rows
    G = shift(L, model.boundary)[first:]
    if model.attention == "softmax":
        C[first:] = softmax.gap(solution.observables["a_G"], L) * (G - 1 / L)
        return Parameters(C, np.zeros(1), W)
    m, g = solution.state[:2]
    C[first:] = m + g * (L * G - 1)
    C[:first] = solution.state[2] if first else 0.0
    # The offset carries the share of the mean logit that costs least.
    share = 1 - model.logit_prior / model.uniform_prior
    b = share * C.mean()
    return Parameters(C - b, np.array([b]), W)


def begin(model: CopyHead, start: str | Parameters | Solution, rng: np.random.Generator) -> Parameters:
    """Parameters to begin at: see :func:`train`."""
    if isinstance(start, Parameters):
        return start
    if isinstance(start, Solution):
        return mean_parameters(model, start)
    L, V = model.context_length, model.vocabulary_size
    small = Parameters(*(0.1 * rng.standard_normal(shape) for shape in ((L, L), (1,), (V, V))))
    if start == "random":
        return small
    if start == "copy":
        size = 6.0 if model.attention == "softmax" else 0.5 * L
        return Parameters(small.C + size * shift(L, model.boundary), small.b, small.W + np.eye(V))
    raise ValueError(f"start={start!r} is not one of random, copy, a Parameters or a Solution")


def train(
    model: CopyHead,
    tokens: Tokens,
    start: str | Parameters | Solution = "random",
    *,
    rng: np.random.Generator,
    steps: int = 1500,
    learning_rate: float = 0.03,
    restarts: int = 1,
) -> Trained:
    """Minimise U by full-batch Adam (betas 0.9 and 0.999), the rate falling to zero in the last half.

    Parameters
    ----------
    model : CopyHead
        The model; the number of samples is that of the data.
    tokens : (P, L) integers
        Training sequences.
    start : {"random", "copy"}, Parameters or Solution
        Small random parameters; logits that copy; a layer; a state of the theory. A small start follows the pooling
        branch of softmax attention to its spinodal, however low the copying minimum lies.
    rng : numpy.random.Generator
        Draws the starts.
    steps, learning_rate, restarts : int, float, int
        The lowest energy of all restarts is returned. Near the onset of pooling and for L/V >= 16, 3000 steps or more
        are needed: see ``gradient`` of the result.

    Examples
    --------
    >>> import numpy as np, statmech_attn as sa
    >>> from statmech_attn.copy_head import sample_tokens, train
    >>> head = sa.CopyHead(16, 4, samples=1018, noise=4.0, attention="linear")
    >>> rng = np.random.default_rng(0)
    >>> layer = train(head, sample_tokens(head, rng), rng=rng)
    >>> print(f"{layer.measured.g:.2f} (theory {sa.solve(head, start='ordered')['g']:.2f})")
    0.10 (theory 0.10)
    """
    for name, value in (("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise ValueError(f"{name}={value!r} must be at least 1")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate={learning_rate!r} must be positive")
    pairs = pair_counts(tokens, model.vocabulary_size)
    energy = Energy(model, pairs, len(tokens))
    runs = [_adam(energy, begin(model, start, rng), steps, learning_rate) for _ in range(restarts)]
    logger.debug("energies of the restarts: %s", [value for value, _ in runs])
    lowest, best = min(runs, key=lambda run: run[0])
    units = (math.sqrt(model.logit_prior), math.sqrt(energy.offset), math.sqrt(model.value_prior))
    slope = np.concatenate([(d * unit).ravel() for d, unit in zip(energy(best)[1], units, strict=True)])
    A = energy.attention(best.C, best.b)
    sign = -1.0 if model.attention == "linear" and A.sum() < 0 else 1.0
    return Trained(
        parameters=best,
        attention=A,
        energy=lowest,
        gradient=float(np.sqrt(np.mean(slope**2))),
        measured=measure(model, sign * A, sign * best.W, pairs, len(tokens)),
    )


def _rate(step: int, steps: int) -> float:
    """Constant, then down a cosine to zero, so that Adam comes to rest."""
    return 1.0 if step < steps / 2 else 0.5 * (1 + math.cos(math.pi * (2 * step / steps - 1)))


def _adam(
    function: Callable[[Parts], tuple[float, Parts]], at: Parts, steps: int, learning_rate: float
) -> tuple[float, Parts]:
    """Minimise a function of several arrays that gives its value and gradient."""
    # One vector for all arrays: the moments are a few array operations a step.
    shapes = [x.shape for x in at]
    cuts = np.cumsum([x.size for x in at])[:-1]
    x = np.concatenate([part.ravel() for part in at])
    first, second = np.zeros(x.size), np.zeros(x.size)

    def split(flat: Array) -> Parts:
        return type(at)(*(p.reshape(shape) for p, shape in zip(np.split(flat, cuts), shapes, strict=True)))

    for k in range(steps):
        slope = np.concatenate([d.ravel() for d in function(split(x))[1]])
        first += 0.1 * (slope - first)
        second += 0.001 * (slope * slope - second)
        corrected = np.sqrt(second / (1 - 0.999 ** (k + 1))) + 1e-12
        x = x - learning_rate * _rate(k, steps) / (1 - 0.9 ** (k + 1)) * first / corrected
    end = split(x)
    return function(end)[0], end


def sweep(
    model: CopyHead,
    samples: Sequence[float],
    start: str | Parameters | Solution,
    *,
    rng: np.random.Generator,
    steps: int = 800,
    learning_rate: float = 0.03,
) -> Iterator[tuple[float, Trained]]:
    """Train at one number of samples after the other, each from the layer before; fresh data each time.

    Upwards from a random start and downwards from a copying one, softmax attention shows hysteresis.

    Yields
    ------
    samples, Trained
    """
    for P in samples:
        here = replace(model, samples=P)
        layer = train(here, sample_tokens(here, rng), start, rng=rng, steps=steps, learning_rate=learning_rate)
        start = layer.parameters
        yield P, layer


# ---- the full model with token and position logits


@njit(error_model="numpy", cache=True)
def _blocks(tokens, M, N, R, Q, W, open_boundary, scale):  # type: ignore[no-untyped-def]
    """Data part of the energy of C_ij = M_ij + N[x_i, x_j] + R[x_i, j] + Q[i, x_j], linear attention; gradients."""
    P, L = tokens.shape
    V = W.shape[0]
    dM, dN, dR, dQ, dW = np.zeros((L, L)), np.zeros((V, V)), np.zeros((V, L)), np.zeros((L, V)), np.zeros((V, V))
    energy = 0.0
    weights, output = np.zeros(V), np.zeros(V)
    for k in range(P):
        x = tokens[k]
        for i in range(L):
            weights[:] = 0.0  # attention summed over the positions of each token
            for j in range(L):
                weights[x[j]] += (M[i, j] + N[x[i], x[j]] + R[x[i], j] + Q[i, x[j]]) / L
            output[:] = 0.0
            for v in range(V):
                for w in range(V):
                    output[w] += weights[v] * W[v, w]
            if i > 0 or not open_boundary:
                output[x[i - 1]] -= 1.0
            for w in range(V):
                energy += output[w] * output[w]
            for v in range(V):
                slope = 0.0
                for w in range(V):
                    slope += output[w] * W[v, w]
                    dW[v, w] += weights[v] * output[w]
                slope /= L
                for j in range(L):
                    if x[j] == v:
                        dM[i, j] += slope
                        dN[x[i], v] += slope
                        dR[x[i], j] += slope
                        dQ[i, v] += slope
    return energy / (2 * scale), dM / scale, dN / scale, dR / scale, dQ / scale, dW / scale


def block_energy(model: CopyHead, tokens: Tokens, at: Blocks) -> tuple[float, Blocks]:
    """Energy of the full token-and-position model and its gradient."""
    energy, *slopes = _blocks(tokens, *at, model.boundary == "open", model.kappa * model.context_length)
    units = (*4 * (model.logit_prior,), model.value_prior)
    energy += sum(float(np.sum(x * x)) / (2 * unit) for x, unit in zip(at, units, strict=True))
    return float(energy), Blocks(*(d + x / unit for d, x, unit in zip(slopes, at, units, strict=True)))


def train_blocks(
    model: CopyHead,
    tokens: Tokens,
    start: str | Solution = "random",
    *,
    rng: np.random.Generator,
    steps: int = 1500,
    learning_rate: float = 0.03,
) -> tuple[float, Blocks, Array]:
    """Adam on linear attention with all four blocks of logits of one-hot tokens and positions.

    Parameters
    ----------
    start : {"random"} or Solution
        Small random blocks, which may end with token-dependent pooling; or a state of the theory, its offset shared
        among the blocks at least cost.

    Returns
    -------
    energy : float
    blocks : Blocks
    attention : (L, L) array
        Mean of A over the training sequences.

    Raises
    ------
    ValueError
        For softmax attention, where this is not implemented.
    """
    if model.attention != "linear":
        raise ValueError(f"attention={model.attention!r} must be 'linear' for the model with four blocks")
    L, V = model.context_length, model.vocabulary_size
    shapes = ((L, L), (V, V), (V, L), (L, V), (V, V))
    blocks = [0.1 * rng.standard_normal(shape) for shape in shapes]
    if isinstance(start, Solution):
        C, b, W = mean_parameters(model, start)
        # A constant costs least if each block has a share in proportion to 1/(its number of entries).
        weights = np.array([1 / (V * V), 1 / (L * V), 1 / (L * V)])
        shares = float(b[0]) * weights / weights.sum()
        blocks = [C, *(np.full(shape, share) for shape, share in zip(shapes[1:4], shares, strict=True)), W]
    elif start != "random":
        raise ValueError(f"start={start!r} is not 'random' or a Solution")
    energy, at = _adam(lambda x: block_energy(model, tokens, x), Blocks(*blocks), steps, learning_rate)
    A = at.M.copy()
    one = np.arange(L)
    for x in tokens:
        A += (at.N[np.ix_(x, x)] + at.R[np.ix_(x, one)] + at.Q[np.ix_(one, x)]) / len(tokens)
    return energy, at, A / L
