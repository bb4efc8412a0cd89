r"""Samples of the posterior of logits and values by Hamiltonian Monte Carlo and stochastic-gradient Langevin dynamics.

Both move in whitened parameters q = (C/sigma_C, b/sigma_b, W/sigma_W). HMC (Neal 2011) integrates 25 leapfrog steps
whose length is adapted in the warm-up (dual averaging, Hoffman and Gelman 2014); it is exact. SGLD (Welling and Teh
2011) takes dq = -(eps/2) grad U + sqrt(eps) noise with U estimated on minibatches; it is biased by the step size and
the noise of the minibatch. Convergence: rank-normalised split R-hat and bulk effective sample size of Vehtari,
Gelman, Simpson, Carpenter, Buerkner (2021), the definitions of ArviZ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy import stats
from scipy.special import ndtri

from statmech_attn.copy_head import linear
from statmech_attn.copy_head.action import normal_equations, sums_of
from statmech_attn.copy_head.data import Tokens, pair_counts
from statmech_attn.copy_head.model import CopyHead
from statmech_attn.copy_head.observables import alignment
from statmech_attn.copy_head.training import Energy, Parameters, begin
from statmech_attn.theory import Array, Solution

__all__ = ["Chains", "effective_sample_size", "hmc", "sample_reduced", "sgld", "split_rhat"]

#: What is recorded of a sample.
RECORDED = ("m", "g", "t", "alignment", "coverage", "train_loss", "energy")


@dataclass(frozen=True)
class Chains:
    """Observables of posterior samples.

    Attributes
    ----------
    values : dict of (chains, draws) arrays
        ``m``, ``g`` (sign fixed so that m >= 0), ``t`` = |A|^2, ``alignment``, ``coverage``, ``train_loss``,
        ``energy``.
    acceptance : (chains,) array
        Mean acceptance probability (HMC); nan for SGLD.
    step_size : (chains,) array
    """

    values: dict[str, Array]
    acceptance: Array
    step_size: Array

    def mean(self, name: str) -> float:
        """Mean over chains and draws."""
        return float(self.values[name].mean())

    def error(self, name: str) -> float:
        """Standard error of the mean: standard deviation over the root of the effective sample size."""
        x = self.values[name]
        return float(x.std(ddof=1) / math.sqrt(effective_sample_size(x)))

    def rhat(self, name: str) -> float:
        """Rank-normalised split R-hat; above 1.01 the chains disagree."""
        return split_rhat(self.values[name])


def _rank_normalise(x: Array) -> Array:
    ranks = stats.rankdata(x).reshape(x.shape)
    scores: Array = ndtri((ranks - 0.375) / (x.size + 0.25))
    return scores


def _split(x: Array) -> Array:
    x = np.atleast_2d(np.asarray(x, dtype=np.float64))
    half = x.shape[1] // 2
    if x.ndim != 2 or half < 2:
        raise ValueError(f"chains of shape {x.shape} must be (chains, draws) with at least 4 draws")
    return np.concatenate([x[:, :half], x[:, -half:]])


def _rhat(x: Array) -> float:
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean()
    between = x.mean(axis=1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return math.sqrt((n - 1) / n + between / within)


def split_rhat(chains: Array) -> float:
    """The larger of the rank-normalised split R-hats of x and of |x - median|, for (chains, draws).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((4, 1000))
    >>> print(f"{split_rhat(x):.2f} {split_rhat(x + np.arange(4)[:, None]):.2f}")
    1.00 1.56
    """
    x = _split(chains)
    return max(_rhat(_rank_normalise(x)), _rhat(_rank_normalise(np.abs(x - np.median(x)))))


def effective_sample_size(chains: Array) -> float:
    """Bulk effective sample size of (chains, draws): rank-normalised split chains, Geyer's initial monotone sequence.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((4, 1000))
    >>> bool(3000 < effective_sample_size(x) < 5000)
    True
    """
    x = _rank_normalise(_split(chains))
    n = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n] / n
    within = covariance[:, 0].mean() * n / (n - 1)
    total = within * (n - 1) / n + x.mean(axis=1).var(ddof=1)
    if total == 0:
        return float(x.size)
    rho = 1 - (within - covariance.mean(axis=0) * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = pairs > 0
    pairs = pairs[: len(pairs) if positive.all() else int(np.argmin(positive))]
    time = -1 + 2 * float(np.minimum.accumulate(pairs).sum())
    return x.size / max(time, 1 / math.log10(x.size))


class _Whitened:
    """Energy in whitened parameters as one vector, for one data set."""

    def __init__(self, model: CopyHead, pairs: Array, count: float) -> None:
        L, V = model.context_length, model.vocabulary_size
        self.model, self.pairs, self.count = model, pairs, count
        self.energy = Energy(model, pairs, count)
        self.units = tuple(map(math.sqrt, (model.logit_prior, self.energy.offset, model.value_prior)))
        self.cuts = (L * L, L * L + 1)
        self.shapes = ((L, L), (1,), (V, V))

    def parameters(self, q: Array) -> Parameters:
        parts = np.split(q, self.cuts)
        return Parameters(*(u * p.reshape(s) for u, p, s in zip(self.units, parts, self.shapes, strict=True)))

    def vector(self, at: Parameters) -> Array:
        return np.concatenate([(x / u if u > 0 else 0 * x).ravel() for x, u in zip(at, self.units, strict=True)])

    def __call__(self, q: Array) -> tuple[float, Array]:
        value, slope = self.energy(self.parameters(q))
        return value, np.concatenate([(u * d).ravel() for u, d in zip(self.units, slope, strict=True)])

    def record(self, q: Array, value: float) -> tuple[float, ...]:
        C, b, W = self.parameters(q)
        A = self.energy.attention(C, b)
        sums = sums_of(self.model, A)
        x = linear.project(self.model, A)
        in_span = float(linear.forms(self.model).t @ (x * x))
        sign = -1.0 if self.model.attention == "linear" and x[0] < 0 else 1.0
        R, B = normal_equations(self.model, A, self.pairs)
        loss = (self.energy.constant - 2 * np.sum(W * B) + np.sum(W * (R @ W))) / (
            self.count * self.model.context_length
        )
        return sign * x[0], sign * x[1], sums.t, alignment(self.model, sums), in_span / sums.t, float(loss), value


def _starts(
    target: _Whitened, start: str | Parameters | Solution, chains: int, seed: int | np.random.SeedSequence
) -> Iterator[tuple[Array, np.random.Generator]]:
    """For each chain, the start with logits spread like the prior, and a generator of its own."""
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    for child in root.spawn(chains):
        rng = np.random.default_rng(child)
        q = target.vector(begin(target.model, start, rng))
        q[: target.cuts[0]] += rng.standard_normal(target.cuts[0])
        yield q, rng


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name}={value!r} must be at least 1")


def hmc(
    model: CopyHead,
    tokens: Tokens,
    start: str | Parameters | Solution,
    *,
    seed: int | np.random.SeedSequence,
    draws: int = 500,
    warmup: int = 200,
    chains: int = 4,
    leapfrog: int = 25,
    target_acceptance: float = 0.8,
) -> Chains:
    """Hamiltonian Monte Carlo on (C, b, W).

    Parameters
    ----------
    model : CopyHead
        The model (its ensemble does not matter: this samples the posterior).
    tokens : (P, L) integers
        Training sequences.
    start : {"random", "copy"}, Parameters or Solution
        As for :func:`.training.train`; the logits of each chain get noise of the prior's size on top. Chains hardly
        tunnel between branches: start on the one that is meant.
    seed : int or SeedSequence
        Chains have streams of their own.
    draws, warmup, chains, leapfrog : int
        Samples kept and dropped per chain, chains, leapfrog steps per sample.
    target_acceptance : float
        For the step size, in (0, 1).
    """
    _check(draws=draws, warmup=warmup, chains=chains, leapfrog=leapfrog)
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance={target_acceptance!r} must lie in (0, 1)")
    target = _Whitened(model, pair_counts(tokens, model.vocabulary_size), len(tokens))
    values = np.empty((len(RECORDED), chains, draws))
    acceptance, lengths = np.empty(chains), np.empty(chains)
    for c, (start_q, rng) in enumerate(_starts(target, start, chains, seed)):
        q = start_q
        value, slope = target(q)
        step = first = 0.02
        log_mean, error = math.log(step), 0.0
        accepted = 0.0
        for k in range(warmup + draws):
            length = step * rng.uniform(0.8, 1.2)  # no resonance with the orbits
            p = rng.standard_normal(q.size)
            before = value + p @ p / 2
            new, new_slope = q, slope
            new_value = value
            with np.errstate(over="ignore", invalid="ignore"):  # a trajectory that diverges is rejected
                for _ in range(leapfrog):
                    p = p - 0.5 * length * new_slope
                    new = new + length * p
                    new_value, new_slope = target(new)
                    p = p - 0.5 * length * new_slope
                change = before - new_value - p @ p / 2
            probability = math.exp(min(0.0, float(change))) if math.isfinite(change) else 0.0
            if rng.uniform() < probability:
                q, value, slope = new, new_value, new_slope
            if k < warmup:  # dual averaging with the constants of Hoffman and Gelman
                n = k + 1
                error += ((target_acceptance - probability) - error) / (n + 10)
                log_step = math.log(10 * first) - math.sqrt(n) / 0.05 * error
                log_mean += n**-0.75 * (log_step - log_mean)
                step = math.exp(log_step if n < warmup else log_mean)
            else:
                accepted += probability / draws
                values[:, c, k - warmup] = target.record(q, value)
        acceptance[c], lengths[c] = accepted, step
    return Chains(dict(zip(RECORDED, values, strict=True)), acceptance, lengths)


def sgld(
    model: CopyHead,
    tokens: Tokens,
    start: str | Parameters | Solution,
    *,
    seed: int | np.random.SeedSequence,
    draws: int = 500,
    warmup: int = 4000,
    thin: int = 10,
    chains: int = 4,
    batch: int = 64,
    step_size: float = 1e-3,
) -> Chains:
    """Stochastic-gradient Langevin dynamics on minibatches, preconditioned by the prior.

    Parameters as :func:`hmc`, and

    batch : int
        Sequences per step, drawn with replacement.
    thin : int
        Steps from one kept sample to the next.
    step_size : float
        eps; the bias of |A|^2 is proportional to it. ``energy`` and ``train_loss`` are those of all the data.
    """
    _check(draws=draws, warmup=warmup, thin=thin, chains=chains, batch=batch)
    if not step_size > 0:
        raise ValueError(f"step_size={step_size!r} must be positive")
    V, count = model.vocabulary_size, len(tokens)
    whole = _Whitened(model, pair_counts(tokens, V), count)
    values = np.empty((len(RECORDED), chains, draws))
    for c, (start_q, rng) in enumerate(_starts(whole, start, chains, seed)):
        q = start_q
        for k in range(warmup + thin * draws):
            chosen = tokens[rng.integers(count, size=batch)]
            slope = _Whitened(model, pair_counts(chosen, V) * (count / batch), count)(q)[1]
            q = q - 0.5 * step_size * slope + math.sqrt(step_size) * rng.standard_normal(q.size)
            kept, remainder = divmod(k - warmup, thin)
            if kept >= 0 and remainder == thin - 1:
                values[:, c, kept] = whole.record(q, whole(q)[0])
    return Chains(dict(zip(RECORDED, values, strict=True)), np.full(chains, math.nan), np.full(chains, step_size))


@njit(error_model="numpy", cache=True)
def _reduced_action(y, sizes, t_form, r_form, s_form, u_form, prior):  # type: ignore[no-untyped-def]
    """S_4 of :mod:`.linear` at (x, ln rho, ln tau)."""
    L, V, p, theta, variance, rho_modes, tau_modes = sizes
    n = t_form.size
    x, rho, tau = y[:n], math.exp(y[n]), math.exp(y[n + 1])
    t, r, s, u, cost = rho / L + tau, rho, 0.0, 0.0, 0.0
    for i in range(n):
        t += t_form[i] * x[i] * x[i]
        r += r_form[i] * x[i] * x[i]
        s += s_form[i] * x[i]
        u += u_form[i] * x[i]
        for j in range(n):
            cost += prior[i, j] * x[i] * x[j] / 2
    cost += L * L / (2 * variance) * (rho / L + tau) - (rho_modes * y[n] + tau_modes * y[n + 1]) / 2
    cost += V * (V - 1) / 2 * math.log1p(t / theta) + V / 2 * math.log1p(r / theta)
    return cost - p * ((V - 1) * s * s / (t + theta) + u * u / (r + theta)) / 2


@njit(error_model="numpy", cache=True)
def _metropolis(y, warmup, scales, normals, uniforms, sizes, t_form, r_form, s_form, u_form, prior):  # type: ignore[no-untyped-def]
    """Metropolis, one coordinate of (x, ln rho, ln tau) at a time."""
    out = np.empty(normals.shape)
    value = _reduced_action(y, sizes, t_form, r_form, s_form, u_form, prior)
    for k in range(normals.shape[0]):
        for i in range(y.size):
            old = y[i]
            y[i] = old + scales[i] * normals[k, i]
            new = _reduced_action(y, sizes, t_form, r_form, s_form, u_form, prior)
            accepted = math.log(uniforms[k, i]) < value - new
            if accepted:
                value = new
            else:
                y[i] = old
            if k < warmup:  # towards an acceptance of 0.44
                scales[i] *= math.exp((0.56 if accepted else -0.44) / math.sqrt(k + 1.0))
        out[k] = y
    return out


def sample_reduced(
    model: CopyHead, *, seed: int | np.random.SeedSequence, draws: int = 20000, warmup: int = 2000, chains: int = 4
) -> dict[str, Array]:
    """Exact samples of the data-averaged posterior of linear attention, in its few variables (see :mod:`.linear`).

    Where the saddle point of the posterior is not enough: near the onset of pooling <|m|> does not vanish, and
    fluctuations of rho and tau shift alignment by some percent at small L.

    Returns
    -------
    dict of (chains, draws) arrays
        ``m``, ``g`` (sign fixed so that m >= 0), ``t``, ``alignment``, ``coverage``.

    Raises
    ------
    ValueError
        Unless attention is linear and the ensemble is the posterior.
    """
    if model.attention != "linear" or model.ensemble != "posterior":
        raise ValueError(
            f"attention={model.attention!r}, ensemble={model.ensemble!r} must be 'linear' and 'posterior' to be reduced"
        )
    _check(draws=draws, warmup=warmup, chains=chains)
    f = linear.forms(model)
    n = f.t.size
    state = model.initial("ordered")
    scales = np.append(0.1 * model.scale(state)[:n], [0.1, 0.1])
    L, V = float(model.context_length), float(model.vocabulary_size)
    sizes = (L, V, model.signal, model.ridge, model.logit_prior, float(f.rho_modes), float(f.tau_modes))
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    runs = []
    for child in root.spawn(chains):
        rng = np.random.default_rng(child)
        normals, uniforms = rng.standard_normal((warmup + draws, n + 2)), rng.uniform(size=(warmup + draws, n + 2))
        first = np.append(state[:n], np.log(state[n:]))
        run = _metropolis(first, warmup, scales.copy(), normals, uniforms, sizes, f.t, f.r, f.s, f.u, f.prior)
        runs.append(run[warmup:])
    samples = np.array(runs)
    x, bulk = samples[..., :n], np.exp(samples[..., n:])
    in_span, s = x**2 @ f.t, x @ f.s
    t = in_span + bulk[..., 0] / model.context_length + bulk[..., 1]
    sign = np.where(x[..., 0] < 0, -1.0, 1.0)
    return {
        "m": sign * x[..., 0],
        "g": sign * x[..., 1],
        "t": t,
        "alignment": s**2 / (model.target_rows * t),
        "coverage": in_span / t,
    }
