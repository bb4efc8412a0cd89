r"""What a state of the copy head does: weights, alignment, coverage, values and losses.

The loss per position, training and test alike at the order of the data average, at the conditional mean of W is

.. math:: \ell=\frac{|G|^2}L-\frac2{LV}[(V-1)w_\perp s+w_Ju]+\frac1{LV}[(V-1)w_\perp^2t+w_J^2r],

and a posterior sample of W adds :math:`\frac{\kappa V}P[(V-1)\frac t{t+\theta}+\frac r{r+\theta}]` (derived here: W has
V columns of covariance kappa L (R + kappa L/sigma_W^2)^{-1}).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from statmech_attn.copy_head import linear
from statmech_attn.copy_head.action import Sums, exact_action, mean_values, normal_equations, sums_of
from statmech_attn.theory import Array, Solution

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = ["Measured", "alignment", "describe", "excess_coverage", "loss", "losses", "measure"]


def loss(model: CopyHead, sums: Sums) -> float:
    """Mean squared error per position at the mean values W, averaged over data."""
    L, V = model.context_length, model.vocabulary_size
    t, s, r, u = sums
    w, w_mean = mean_values(model, sums)
    fit = (V - 1) * w * (w * t - 2 * s) + w_mean * (w_mean * r - 2 * u)
    return model.target_rows / L + fit / (L * V)


def alignment(model: CopyHead, sums: Sums) -> float:
    """Squared cosine between A and G; nan for A = 0."""
    return sums.s**2 / (model.target_rows * sums.t) if sums.t > 0 else math.nan


def describe(model: CopyHead, state: Array) -> dict[str, float]:
    """Observables of a state of the theory.

    Returns
    -------
    dict
        ``c_1`` = m - g, ``c_G`` = g (linear) or ``a_1`` = 1 - a_G, ``a_G`` (softmax): weights of 11^T/L and G;
        ``alignment``: squared cosine between A and G; ``coverage``: part of |A|^2 in the span of the mean directions
        (both nan for A = 0);
        ``w_perp``, ``w_J``: values on token differences and on the mean token;
        ``loss``: at the mean W; ``sampled_loss``: at a sample of W.
    """
    L, V = model.context_length, model.vocabulary_size
    sums = model.sums(state)
    t, s, r, _ = sums
    if model.attention == "linear":
        f = linear.forms(model)
        x = state[: f.t.size]
        in_span = float(f.t @ (x * x))
        weights = {"c_1": float(x[0] - x[1]), "c_G": float(x[1])}
    else:
        a = float((s / model.target_rows - 1 / L) / (1 - 1 / L))
        in_span = 1 + model.target_rows * (1 - 1 / L) * a * a
        weights = {"a_1": 1 - a, "a_G": a}
    w, w_mean = mean_values(model, sums)
    noise = model.kappa * V / model.samples * ((V - 1) * t / (t + model.ridge) + r / (r + model.ridge))
    here = loss(model, sums)
    return {
        **weights,
        "alignment": float(alignment(model, sums)),
        "coverage": float(in_span / t) if t > 0 and in_span > 0 else math.nan,
        "w_perp": float(w),
        "w_J": float(w_mean),
        "loss": float(here),
        "sampled_loss": float(here + noise),
    }


def excess_coverage(theory: Solution, m: Array, g: Array, t: Array) -> Array:
    """Coverage of simulated states after taking off the fluctuations that the theory predicts.

    The part of |A|^2 in the span of 11^T/L and G - 11^T/L over t less what the theory has outside that span: one up to
    fluctuations where the theory holds, less where directions that it does not know have learned something.

    Parameters
    ----------
    theory : Solution
        State of a :class:`.model.CopyHead` of cyclic boundary.
    m, g, t : arrays
        Weights and |A|^2 of samples; for softmax attention m = 1.

    Raises
    ------
    ValueError
        For the open boundary, whose first row is a direction of its own.
    """
    model: Any = theory.theory
    if model.boundary != "cyclic":
        raise ValueError(f"boundary={model.boundary!r} must be 'cyclic'")
    predicted = model.sums(theory.state).t
    outside = predicted * (1 - theory.observables["coverage"]) if predicted > 0 else 0.0
    return np.asarray((m**2 + (model.context_length - 1) * g**2) / (t - outside))


class Measured(NamedTuple):
    """Of one attention matrix on data: see :func:`measure`."""

    m: float
    g: float
    t: float
    alignment: float
    coverage: float
    train_loss: float
    test_loss: float
    action: float


def losses(model: CopyHead, A: Array, W: Array, pairs: Array, count: float) -> float:
    """Mean squared error per position of A and W on data of `count` sequences given by its pair counts."""
    R, B = normal_equations(model, A, pairs)
    total = count * model.target_rows - 2 * np.sum(W * B) + np.sum(W * (R @ W))
    return float(total / (count * model.context_length))


def measure(model: CopyHead, A: Array, W: Array, pairs: Array, count: float) -> Measured:
    """What an attention matrix and values do on training data (pair counts of `count` sequences) and on fresh data.

    The sign symmetry A -> -A, W -> -W of linear attention is fixed so that m >= 0 (m, g and W are of that sign).
    The test loss is the exact expectation over fresh iid sequences.

    Raises
    ------
    ValueError
        If A or W has the wrong shape.
    """
    V = model.vocabulary_size
    W = np.asarray(W, dtype=np.float64)
    if W.shape != (V, V):
        raise ValueError(f"W of shape {W.shape} must be ({V}, {V}), the vocabulary size squared")
    sums = sums_of(model, A)
    x = linear.project(model, A)
    if model.attention == "linear" and x[0] < 0:
        x = -x
    in_span = float(linear.forms(model).t @ (x * x))
    return Measured(
        m=float(x[0]),
        g=float(x[1]),
        t=sums.t,
        alignment=alignment(model, sums),
        coverage=in_span / sums.t if sums.t > 0 else math.nan,
        train_loss=losses(model, A, W, pairs, count),
        test_loss=losses(model, A, W, _expected_pairs(model), 1.0),
        action=exact_action(model, A, pairs),
    )


def _expected_pairs(model: CopyHead) -> Array:
    """Expected pair counts of one sequence of iid uniform tokens."""
    L, V = model.context_length, model.vocabulary_size
    pairs = np.full((L, V, L, V), 1 / V**2)
    for i in range(L):
        pairs[i, :, i, :] = np.eye(V) / V
    return pairs
