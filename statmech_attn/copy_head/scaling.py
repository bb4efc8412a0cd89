r"""Numbers of samples at which a copy head emerges, and how they scale with context length and vocabulary.

Linear attention. *Pooling*: the Hessian at A = 0 turns singular (pitchfork, always of second order). *Crossover*:
squared cosine between A and G one half, on the ordered branch; no transition, as pooling acts as a field on g.
Closed forms, with P_0 of the J channel alone and P_c of the copy channel alone:

.. math::
    P_0=\frac{\kappa VL}{\sigma_W\sqrt{v_m}},\ P_{pool}=\tfrac12[b+\sqrt{b^2+4P_0^2}],\quad
    b=\lambda\kappa V^2(1+\tfrac{V-1}L),\quad P_c=\frac{\kappa L^{3/2}V}{\sqrt{V-1}\,\sigma_C\sigma_W} .

With all L^2 logits fluctuating, copying sets in at
:math:`\frac{\kappa L^2}2[1+\sqrt{1+4(V-1)/(L\sigma_W^2\sigma_C^2)}]\frac V{V-1}`: P_c, so L^{3/2} V^{1/2}, only when
cold.

Softmax attention. First order: *coexistence* P* of pooling and copying between the *spinodals* where copying begins
and pooling ends. What starts from small logits finds the latter,
:math:`P_{s2}\simeq\frac{\kappa L^2}{2e\sigma_C^2}(1+\theta)\frac V{V-1}`, of order L^2, not P* of order L ln^2 L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from statmech_attn.copy_head import fluctuations, linear, softmax
from statmech_attn.copy_head.model import CopyHead
from statmech_attn.copy_head.observables import alignment
from statmech_attn.theory import Array, replace

__all__ = ["CriticalSamples", "ScalingFit", "closed_forms", "critical_samples", "scaling_exponents"]

#: Backgrounds of the row mean field; P* moves by less than 1 % when they are quadrupled (L >= 32, T <= 1).
BACKGROUNDS = 1024


@dataclass(frozen=True)
class CriticalSamples:
    """Critical numbers of samples; None where the model has no such point.

    Attributes
    ----------
    pooling, crossover : float or None
        Linear attention: onset of pooling (second order); alignment one half.
    copy_spinodal, coexistence, pooling_spinodal : float or None
        Softmax attention: copying becomes metastable; equal actions (first order); pooling becomes unstable.
    """

    pooling: float | None = None
    crossover: float | None = None
    copy_spinodal: float | None = None
    coexistence: float | None = None
    pooling_spinodal: float | None = None


def critical_samples(model: CopyHead) -> CriticalSamples:
    """All critical numbers of samples of a model (``model.samples`` is not used).

    Parameters
    ----------
    model : CopyHead
        Any attention and ensemble.

    Returns
    -------
    CriticalSamples

    Examples
    --------
    >>> import statmech_attn as sa
    >>> softmax = sa.CopyHead(24, 8, samples=1, noise=4.0, value_variance=0.25)
    >>> print(f"{sa.copy_head.critical_samples(softmax).coexistence:.0f}")
    1320
    >>> linear = sa.CopyHead(32, 4, samples=1, noise=4.0, attention="linear")
    >>> found = sa.copy_head.critical_samples(linear)
    >>> print(f"{found.pooling:.1f} {found.crossover:.0f}")
    56.8 2176
    """
    if model.attention == "softmax":
        if model.ensemble == "posterior":
            return _mean_field_transition(model)
        folds = softmax.folds(model)
        if math.isnan(folds.coexistence):
            return CriticalSamples()
        return CriticalSamples(
            copy_spinodal=folds.copy_spinodal,
            coexistence=folds.coexistence,
            pooling_spinodal=folds.pooling_spinodal,
        )
    pooling = _pooling(model)
    return CriticalSamples(pooling=pooling, crossover=_crossover(model, pooling or 1.0))


def _pooling(model: CopyHead) -> float | None:
    def lowest(log_samples: float) -> float:
        hessian = linear.hessian_at_zero(replace(model, samples=math.exp(log_samples)))
        return float(np.linalg.eigvalsh(hessian / np.sqrt(np.outer(np.diag(units), np.diag(units))))[0])

    units = linear.forms(model).prior
    guess = math.log(closed_forms(model)["pooling"])
    low, high = max(0.0, guess - 3.0), max(1.0, guess + 1.0)
    while lowest(high) > 0:
        high += 1.0
    if lowest(low) < 0:
        return None  # ordered with a single sample
    return math.exp(optimize.brentq(lowest, low, high, xtol=1e-13, rtol=1e-13))


def _crossover(model: CopyHead, onset: float) -> float | None:
    """Alignment one half on the ordered branch, reached from the copying side.

    The unknowns are the state and P at a given alignment, in logarithms (which keep the signs): where copying is very
    steep in P, or for L >> V^3 jumps, alignment is still a good coordinate.
    """
    samples = max(0.5 * closed_forms(model)["copy"], 1.05 * onset)
    while True:
        here = replace(model, samples=samples)
        state = here.initial("ordered")
        begin = alignment(here, here.sums(state))
        if begin > 0.5:
            break
        samples *= 1.5
    first = replace(model, samples=1.05 * onset)
    if alignment(first, first.sums(first.initial("ordered"))) > 0.5:
        return None  # copying comes with the order itself

    def equations(y: Array, target: float) -> Array:
        there = replace(model, samples=math.exp(y[-1]))
        x = np.exp(y[:-1])
        return np.append(linear.update(there, x) / x - 1, alignment(there, linear.sums(there, x)) - target)

    y = np.append(np.log(state), math.log(samples))
    for target in np.linspace(begin, 0.5, 2 + int(20 * (begin - 0.5))):
        found = optimize.root(equations, y, args=(target,), tol=1e-12)
        y = found.x
        if not np.max(np.abs(equations(y, target))) < 1e-8:
            raise RuntimeError(f"{model}: the state of alignment {target:.3f} was not found ({found.message})")
    return math.exp(y[-1])


def _mean_field_transition(model: CopyHead) -> CriticalSamples:
    """Folds of the curve P(s) of the row mean field, followed from pooling to copying, and equal actions between."""
    L, n = model.context_length, model.target_rows
    grid = np.geomspace(0.02 / L, 0.7, 80)
    t = float(fluctuations.relax_from_prior(replace(model, samples=1.0), BACKGROUNDS)[1])
    samples = float(softmax.sample_curve(replace(model, ensemble="map"), np.array([softmax.gap(grid[0], L)]))[0])
    points = np.empty((grid.size, 3))  # s, t, P

    def on_curve(a: float, guess: tuple[float, float]) -> tuple[float, float]:
        return fluctuations.point_on_curve(model, n * (1 / L + (1 - 1 / L) * a), guess, BACKGROUNDS)

    for i, a in enumerate(grid):
        if i > 1:  # the grid is geometric: predict on straight lines of the logarithms
            t, samples = points[i - 1, 1:] ** 2 / points[i - 2, 1:]
        t, samples = on_curve(a, (t, samples))
        if math.isnan(t):
            raise RuntimeError(f"{model}: the curve of stationary points was lost at a_G={a:.4g}")
        points[i] = n * (1 / L + (1 - 1 / L) * a), t, samples
        steps = np.diff(points[: i + 1, 2])
        if (steps < 0).any() and samples > 1.2 * points[np.argmax(steps < 0), 2]:
            points = points[: i + 1]  # beyond the transition
            break
    P = points[:, 2]
    rises = np.diff(P) > 0
    falls = np.flatnonzero(~rises)
    if falls.size == 0 or not rises[falls[0] :].any():
        return CriticalSamples()
    top = int(falls[0])
    bottom = top + int(np.argmax(rises[top:]))
    if top == 0 or P[bottom] > P[top] * (1 - 1e-9):
        return CriticalSamples()

    def fold(k: int, sign: float) -> float:
        guess = (float(points[k, 1]), float(P[k]))
        bounds = (math.log(grid[k - 1]), math.log(grid[k + 1]))

        def height(x: float) -> float:
            return sign * on_curve(math.exp(x), guess)[1]

        found = optimize.minimize_scalar(height, bounds=bounds, method="bounded", options={"xatol": 1e-5})
        return float(sign * found.fun)

    high, low = fold(top, -1.0), fold(bottom, 1.0)

    def difference(log_samples: float) -> float:
        here = replace(model, samples=math.exp(log_samples))
        values = []
        for branch in (points[: top + 1], points[bottom:]):
            guess = np.array([np.interp(log_samples, np.log(branch[:, 2]), branch[:, k]) for k in (0, 1)])
            state = fluctuations.state_at(here, guess, BACKGROUNDS)
            values.append(fluctuations.potential(here, state, BACKGROUNDS))
        return values[1] - values[0]

    margin = 0.02 * math.log(high / low)  # Newton is ill-conditioned at the folds
    coexistence = math.exp(
        optimize.brentq(difference, math.log(low) + margin, math.log(high) - margin, xtol=1e-10, rtol=1e-10)
    )
    return CriticalSamples(copy_spinodal=low, coexistence=coexistence, pooling_spinodal=high)


def closed_forms(model: CopyHead) -> dict[str, float]:
    """Asymptotic forms of the critical numbers of samples.

    Returns
    -------
    dict
        Linear: ``pooling`` (J channel alone, without bulk), ``copy`` (copy channel alone; with the bulk for the
        posterior). Softmax: ``coexistence`` (the pooling state taken as uniform; too low for L <= 32) and
        ``pooling_spinodal``, both of the joint maximum.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> forms = closed_forms(sa.CopyHead(64, 64, samples=1))
    >>> {name: round(value) for name, value in forms.items()}
    {'coexistence': 1181, 'pooling_spinodal': 2194}
    """
    L, V, kappa = model.context_length, model.vocabulary_size, model.kappa
    product = math.sqrt(model.logit_prior * model.value_prior)
    if model.attention == "linear":
        P0 = kappa * V * L / math.sqrt(model.value_prior * model.uniform_prior)
        b = model.determinant * kappa * V**2 * (1 + (V - 1) / L)
        copy = kappa * L**1.5 * V / math.sqrt(V - 1) / product
        if model.ensemble == "posterior":
            copy = kappa * L**2 / 2 * (1 + math.sqrt(1 + 4 * (V - 1) / L / product**2)) * V / (V - 1)
        return {"pooling": (b + math.sqrt(b * b + 4 * P0 * P0)) / 2, "copy": copy}
    # P_s2 = c (1 + d/P): a quadratic in P
    c = kappa * L**2 / (2 * math.e * model.logit_prior) * V / (V - 1)
    d = kappa * L * V / model.value_prior
    beta = np.linspace(0.5, math.log(L) + 8.0, 4000)
    a = np.array([softmax.weight(b, L) for b in beta])
    t, s = 1 + (L - 1) * a**2, 1 + (L - 1) * a

    def excess(log_samples: float) -> float:
        theta = d / math.exp(log_samples)
        bound = kappa * L * V * (L - 1) * beta**2 / (model.logit_prior * (V - 1))
        return math.exp(log_samples) - float(np.min(bound / (s**2 / (t + theta) - 1 / (1 + theta))))

    return {
        "coexistence": math.exp(optimize.brentq(excess, -20.0, 60.0)),
        "pooling_spinodal": (c + math.sqrt(c * c + 4 * c * d)) / 2,
    }


@dataclass(frozen=True)
class ScalingFit:
    """Least-squares fit ln P = constant + sum exponent ln size.

    Attributes
    ----------
    exponents, errors : dict
        Exponents of "L" and "V" (of "L" alone if V is constant or proportional to L on the grid), and half-widths of
        their confidence intervals. The points are exact, so these measure how far the law is from a power law.
    constant : float
    residual : float
        Largest deviation of ln P from the fit.
    context_lengths, vocabulary_sizes, samples : arrays
        Points of the fit.
    """

    exponents: dict[str, float]
    errors: dict[str, float]
    constant: float
    residual: float
    context_lengths: Array
    vocabulary_sizes: Array
    samples: Array


def scaling_exponents(
    model: CopyHead,
    context_lengths: Sequence[int],
    vocabulary_sizes: Sequence[int],
    quantity: str,
    *,
    log_squared: bool = False,
    confidence: float = 0.95,
) -> ScalingFit:
    """Fit the power law of a critical number of samples over pairs (L, V).

    Parameters
    ----------
    model : CopyHead
        All other parameters.
    context_lengths, vocabulary_sizes : sequences of int
        The grid as pairs, equally many.
    quantity : str
        An attribute of :class:`CriticalSamples`.
    log_squared : bool
        Fit P/ln^2 L instead of P.
    confidence : float
        Of the intervals, in (0, 1).

    Raises
    ------
    ValueError
        For an unknown quantity, fewer points than parameters + 1, or a point where the quantity does not exist.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> head = sa.CopyHead(64, 8, samples=1, attention="linear", prior="position")
    >>> fit = scaling_exponents(head, [128, 256, 512, 512, 1024], [8, 8, 8, 16, 16], "pooling")
    >>> print(f"L^{fit.exponents['L']:.2f} V^{fit.exponents['V']:.2f}")
    L^1.00 V^1.00
    """
    known = tuple(CriticalSamples.__dataclass_fields__)
    if quantity not in known:
        raise ValueError(f"quantity={quantity!r} is not one of {', '.join(known)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must lie in (0, 1)")
    L, V = np.asarray(context_lengths, dtype=np.float64), np.asarray(vocabulary_sizes, dtype=np.float64)
    if L.shape != V.shape or L.ndim != 1:
        raise ValueError(f"context_lengths and vocabulary_sizes must pair up, not have shapes {L.shape} and {V.shape}")
    values = []
    for length, size in zip(context_lengths, vocabulary_sizes, strict=True):
        value = getattr(critical_samples(replace(model, context_length=length, vocabulary_size=size)), quantity)
        if value is None:
            raise ValueError(f"context_length={length}, vocabulary_size={size}: the model has no {quantity}")
        values.append(value)
    samples = np.array(values)
    names = ["L", "V"]
    design = np.column_stack([np.log(L), np.log(V), np.ones(L.size)])
    if np.linalg.matrix_rank(design, tol=1e-6) < 3:
        names = ["L"]
        design = design[:, [0, 2]]
    freedom = L.size - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design, tol=1e-6) < design.shape[1]:
        raise ValueError(f"context_lengths={L.tolist()} are too few or too alike to fit {design.shape[1]} parameters")
    target = np.log(samples) - (2 * np.log(np.log(L)) if log_squared else 0.0)
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    deviation = target - design @ solution
    covariance = np.linalg.inv(design.T @ design) * float(deviation @ deviation) / freedom
    widths = stats.t.ppf(0.5 + confidence / 2, freedom) * np.sqrt(np.diag(covariance))
    return ScalingFit(
        exponents={name: float(x) for name, x in zip(names, solution, strict=False)},
        errors={name: float(x) for name, x in zip(names, widths, strict=False)},
        constant=float(solution[-1]),
        residual=float(np.max(np.abs(deviation))),
        context_lengths=L,
        vocabulary_sizes=V,
        samples=samples,
    )
