r"""Approximate message passing for an attention layer, and its state evolution.

With rows :math:`\hat w_i` of the estimate, :math:`\tilde x=x+p` and damping :math:`\beta` an iteration is (Cui et al.
2024, the algorithm behind their state equations; here for any L, r, t)

.. math::
    \omega_{\mu l}&=\tfrac1{\sqrt d}\textstyle\sum_i\tilde x_{\mu l,i}\hat w_i-O_{\mu l},\qquad
    g_{\mu l}=V_l^{-1}(\mathrm{prox}-\omega_{\mu l}),\\
    \hat V_l&=-\alpha\,\overline{\partial g_l/\partial\omega_l},\\
    u_i&=\hat w_i+\Lambda_i^{-1}\big[\tfrac1{\sqrt d}\textstyle\sum_{\mu l}\tilde x_{\mu l,i}g_{\mu l}
    -\lambda\hat w_i\big],\qquad\Lambda_i=\lambda+\textstyle\sum_l\gamma_i^l\hat V_l,\\
    \hat w&\leftarrow(1-\beta)u+\beta\hat w,\qquad
    O_l\leftarrow(1-\beta)\,\tfrac1d\textstyle\sum_i\gamma_i^l\Lambda_i^{-1}\,g_l+\beta O_l .

The damped estimate remembers every u, and so does its Onsager term O: with it the iterates are Gaussian at every step,
and their covariance over times obeys the state evolution (:func:`state_evolution`). The derivative in :math:`\hat V` is
weak: where the proximal operator jumps it is taken from the channel average in Stein form at the present overlaps.
A fixed point is a stationary point of the risk with the limiting Gram matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from statmech_attn.positional_semantic.data import Instance, LayerModel, instance
from statmech_attn.positional_semantic.gauge import OrderParameters
from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.positional_semantic.layer_channel import symmetric_root
from statmech_attn.positional_semantic.layer_proximal import proximal_points, start_patterns
from statmech_attn.positional_semantic.risk import Risk, expected_error
from statmech_attn.positional_semantic.row_attention import CODES
from statmech_attn.positional_semantic.runs import Run, overlaps
from statmech_attn.positional_semantic.training import begin
from statmech_attn.theory import Array, Status

__all__ = ["Evolution", "amp", "state_evolution"]

#: Iterations between searches for the global minimum of every sample; in between it is followed.
SEARCH = 40


class Evolution(NamedTuple):
    """State evolution, a time along the first axis: q (k, L, r, r), m (k, L, r), theta (k, L, r, t), V (k, L, r, r)."""

    q: Array
    m: Array
    theta: Array
    V: Array


class _Denoiser:
    """The channel function g of the samples and V_hat, the minimisers followed from call to call."""

    def __init__(self, layer: AttentionLayer, target: Array) -> None:
        self.layer, self.target = layer, np.ascontiguousarray(target)
        self.c, self.code = layer.spectrum.token_variances, CODES[layer.student_activation]
        self.patterns = start_patterns(layer.tokens, layer.student_rank)
        self.z: Array | None = None
        self.two_wells = False

    def __call__(self, omega: Array, V: Array, search: bool) -> tuple[Array, Array]:
        """g (n, L, r) at omega (n, L, r), and minus its mean derivative, token by token (L, r, r)."""
        n, L, r = omega.shape
        points = omega.reshape(n, L * r)
        if self.z is None:
            self.z, search = points.copy(), True
        patterns = self.patterns if search else self.patterns[:0]
        _, wells, blocks = proximal_points(points, V, self.target, self.c, self.code, patterns, self.z)
        if search:
            self.two_wells = bool(np.any(wells > 1))
        g = np.einsum("lab,nlb->nla", np.linalg.inv(V), self.z.reshape(n, L, r) - omega)
        derivative = (np.ones(n) @ blocks.reshape(n, -1)).reshape(L, r, r) / n
        return g, -(derivative + derivative.transpose(0, 2, 1)) / 2


def _stein(layer: AttentionLayer, state: OrderParameters) -> Array | None:
    """V_hat in Stein form at a state, None where the state is infeasible."""
    vector = layer.state_of(state)
    if layer.infeasibility(vector):
        return None
    return layer.hats(vector, layer.averages(vector, layer.rules(1e-2)[0])).V


def _inverses(layer: AttentionLayer, V_hat: Array) -> Array | None:
    """(K, r, r) Lambda^-1 of every atom; None where it is not positive definite."""
    precision = np.einsum("kl,lab->kab", layer.spectrum.arrays[1], V_hat)
    precision += layer.regularization * np.eye(layer.student_rank)
    if not np.isfinite(precision).all():
        return None
    values, axes = np.linalg.eigh(precision)
    return np.einsum("kab,kb,kcb->kac", axes, 1 / values, axes) if values.min() > 0 else None


def amp(
    model: LayerModel,
    dimension: int,
    start: str | Array = "semantic",
    *,
    seed: int = 0,
    damping: float = 0.5,
    max_iterations: int = 200,
    tol: float = 1e-6,
    teacher_moments: str = "exact",
    evolution: int = 0,
    callback: Callable[[int, float], object] | None = None,
) -> Run:
    """Draw data and run approximate message passing.

    Parameters
    ----------
    model : PositionalSemantic or AttentionLayer
        The model; n = round(alpha d) samples.
    dimension : int
        d. Memory is that of the tokens, 8 n L d bytes, and a few arrays of n L r and d r numbers.
    start : {"semantic", "positional", "hybrid", "random"} or (d, r) array
        Weights to begin at, as for :func:`.train`.
    seed : int
        Of data and start.
    damping : float
        Weight of the old estimate, in [0, 1). Needed where F' has eigenvalues below -1 (see :func:`.stability`): those
        above -(1 + damping)/(1 - damping) are cured.
    max_iterations : int
        Limit of iterations.
    tol : float
        Bound on the undamped change of the estimate over its norm.
    teacher_moments : {"exact", "sampled"}
        See :func:`.data.instance`.
    evolution : int
        Samples of the state evolution to compute beside it, from the same start; 0: none.
    callback : callable, optional
        Called with (iteration, change).

    Returns
    -------
    Run
        `history` holds ``change`` (k,) and overlaps ``q``, ``m``, ``theta`` and variance ``V`` of every iterate, the
        start first; with `evolution` also ``evolution_q`` and so on. `train_loss` and `gradient` are those of the risk
        with limiting Gram matrices, whose stationary points are the fixed points. The status says whether it converged,
        stalled or left the feasible states: it must where replica symmetry fails.

    Raises
    ------
    ValueError, TypeError
        For bad arguments, by name.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> run = sa.amp(sa.PositionalSemantic(alpha=2.0, omega=0.3), 400, "semantic")
    >>> print(run.status.kind, f"{run.overlaps.theta[0, 0, 0]:.2f} (theory 0.158)")
    converged 0.16 (theory 0.158)
    """
    if not 0 <= damping < 1:
        raise ValueError(f"damping={damping!r} must lie in [0, 1)")
    for name, value, least in (("max_iterations", max_iterations, 1), ("evolution", evolution, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name}={value!r} must be an integer, at least {least}")
    if not tol > 0:
        raise ValueError(f"tol={tol!r} must be positive")
    data = instance(model, dimension, seed, teacher_moments=teacher_moments, gram="limit")
    first = begin(data, start)
    estimate, status, history = _iterate(data, first, damping, max_iterations, tol, callback)
    if evolution:
        beside = state_evolution(data, first, damping, len(history["change"]), samples=evolution, seed=seed)
        history |= {f"evolution_{name}": value for name, value in beside._asdict().items()}
    loss, slope = Risk(data)(estimate)
    error, spread = expected_error(data, estimate)
    return Run(
        model=model,
        dimension=int(dimension),
        seed=int(seed),
        method="amp",
        start=start if isinstance(start, str) else "given",
        status=status,
        weights=estimate,
        overlaps=overlaps(data, estimate),
        train_loss=loss / dimension,
        test_error=error,
        test_error_error=spread,
        gradient=float(np.sqrt(np.mean(slope**2))),
        iterations=len(history["change"]),
        history=history,
    )


def _first_width(layer: AttentionLayer) -> Array:
    """V to begin with, (L, r, r), of the order of the states at moderate alpha."""
    return layer.overlaps(layer.initial(layer.starts[0])).V


def _iterate(
    data: Instance,
    estimate: Array,
    damping: float,
    limit: int,
    tol: float,
    callback: Callable[[int, float], object] | None,
) -> tuple[Array, Status, dict[str, Array]]:
    """Message passing from an estimate (d, r): the last finite one, how it ended, history."""
    layer = data.layer
    n, L, d = data.tokens.shape
    flat, p = data.tokens.reshape(n * L, d), data.positions
    weights, variances, *_ = layer.spectrum.arrays
    atoms = _atom_of(data)
    denoise = _Denoiser(layer, data.target)
    V, onsager = _first_width(layer), np.zeros((n, L, layer.student_rank))
    history: dict[str, list[Any]] = {name: [] for name in ("change", "q", "m", "theta", "V")}

    def note() -> OrderParameters:
        found = overlaps(data, estimate)
        state = OrderParameters(found.q, found.m, found.theta, V)
        for name, value in state._asdict().items():
            history[name].append(value)
        return state

    status = Status("iteration limit", f"maximum number of iterations reached ({limit})")
    state, change = note(), float("inf")
    for iteration in range(limit):
        omega = ((flat @ estimate).reshape(n, L, -1) + p @ estimate) / np.sqrt(d) - onsager
        # a fixed point is one only if the minima are known to be global
        search = iteration % SEARCH == 0 or change <= tol
        g, curvature = denoise(omega, V, search)
        V_hat = _stein(layer, state) if denoise.two_wells else layer.alpha * curvature
        inverse = None if V_hat is None else _inverses(layer, V_hat)
        if inverse is None or V_hat is None:
            status = Status(
                "infeasible", f"iteration {iteration}: the local curvature is not positive; try more damping"
            )
            break
        field = (flat.T @ g.reshape(n * L, -1) + p.T @ np.einsum("nla->la", g)) / np.sqrt(d)
        step = np.einsum("iab,ib->ia", inverse[atoms], field - layer.regularization * estimate)
        size = float(np.linalg.norm(estimate + step))
        change = float(np.linalg.norm(step)) / size
        history["change"].append(change)
        if callback is not None:
            callback(iteration, change)
        if not np.isfinite(change) or size > 1e3 * np.sqrt(d):
            status = Status("infeasible", f"iteration {iteration}: the estimate diverges; try more damping")
            break
        new = np.einsum("k,kl,kab->lab", weights, variances, inverse)
        onsager = (1 - damping) * np.einsum("lab,nlb->nla", new, g) + damping * onsager
        V = (1 - damping) * new + damping * V
        estimate = estimate + (1 - damping) * step
        state = note()
        if change <= tol and search:
            status = Status("converged", f"converged: change {change:.1e} <= tol {tol:.1e}")
            break
    changes = history["change"]
    if status.kind == "iteration limit" and len(changes) > 40 and min(changes[-20:]) > 0.5 * min(changes[-40:-20]):
        status = Status(
            "stalled",
            f"the estimate still changes by {changes[-1]:.1e} > tol {tol:.1e} an iteration, and no less than before; "
            "so it does where replica symmetry is unstable",
        )
    return estimate, status, {name: np.array(values) for name, values in history.items()}


def _atom_of(data: Instance) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Number of the atom of every direction, from its variances and encodings."""
    _, variances, positions, *_ = data.layer.spectrum.arrays
    rows = np.concatenate([data.variances, np.sqrt(data.dimension) * data.positions]).T
    distance = np.abs(rows[:, None, :] - np.concatenate([variances, positions], axis=1)).max(axis=2)
    return np.asarray(np.argmin(distance, axis=1))


# ---- state evolution


def state_evolution(
    data: Instance, estimate: Array, damping: float, iterations: int, *, samples: int = 20_000, seed: int = 0
) -> Evolution:
    r"""Overlaps of damped message passing in the limit of infinite dimension, time by time.

    The damped estimates of different times are correlated: the indices omega of all times are drawn together, from
    their Gaussian law with covariance :math:`q^{ss'}_l-\theta^s_l\rho_l^{-1}\theta^{s'\top}_l`, sample by sample.
    Without damping a step is X <- F(X) of the state equations.

    Parameters
    ----------
    data : Instance
        Gives the model, and the teacher to which the start is correlated.
    estimate : (d, r) array
        Where message passing starts; its law in every atom is taken as normal, with its mean, its regression on the
        teacher and its residual covariance.
    damping : float
        As for :func:`amp`.
    iterations : int
        Steps.
    samples : int
        Sample paths; the error of an overlap is about that of message passing at n = samples.
    seed : int
        Of the paths.

    Returns
    -------
    Evolution
        iterations + 1 times, the start first.
    """
    layer, rng = data.layer, np.random.default_rng(seed)
    L, r, t = layer.tokens, layer.student_rank, layer.teacher_rank
    rho = layer.spectrum.teacher_gram
    root = symmetric_root(rho)
    eta = rng.standard_normal((samples, L, t))
    index = np.einsum("lab,nlb->nla", root, eta)
    denoise = _Denoiser(layer, layer.targets(index))
    prior = _Prior(layer, *_law(data, estimate))
    V = _first_width(layer)
    noise = _Path(samples, L, r, rng)
    rows: list[OrderParameters] = []
    g_all: list[Array] = []
    for step in range(iterations + 1):
        q, m, theta = prior.overlaps(step)
        rows.append(OrderParameters(q[-1], m, theta, V))
        if step == iterations:
            break
        explained = [a.theta @ np.linalg.solve(rho, theta.transpose(0, 2, 1)) for a in rows]
        z = noise.extend(np.array(q) - np.array(explained))
        omega = m + np.einsum("lab,nlb->nla", theta @ np.linalg.inv(root), eta) + z
        g, curvature = denoise(omega, V, step % SEARCH == 0)
        g_all.append(g)
        V_hat = layer.alpha * curvature
        if denoise.two_wells:
            stein = np.einsum("nla,nlb->lab", g, z) / samples @ np.linalg.inv(q[-1] - explained[-1])
            V_hat = -layer.alpha * (stein + stein.transpose(0, 2, 1)) / 2
        theta_hat = layer.alpha * np.einsum("nla,nlb->lab", g, eta) / samples @ np.linalg.inv(root)
        theta_hat += V_hat @ theta @ np.linalg.inv(rho)
        q_hat = [layer.alpha * np.einsum("nla,nlb->lab", old, g) / samples for old in g_all]
        inverse = _inverses(layer, V_hat)
        if inverse is None:
            inverse = np.full((len(layer.spectrum.weights), r, r), np.nan)
        prior.add(damping, inverse, layer.alpha * g.mean(axis=0), theta_hat, q_hat)
        weights, variances, *_ = layer.spectrum.arrays
        V = (1 - damping) * np.tensordot(weights[:, None] * variances, inverse, axes=(0, 0)) + damping * V
        if not np.all(np.isfinite(V)):
            break
    return Evolution(*(np.array([getattr(row, name) for row in rows]) for name in Evolution._fields))


def _law(data: Instance, estimate: Array) -> tuple[Array, Array, Array]:
    """In every atom mean (K, r), regression on the teacher (K, r, t) and residual covariance (K, r, r) of rows."""
    atoms = _atom_of(data)
    parts = []
    for a in range(len(data.layer.spectrum.weights)):
        rows, teacher = estimate[atoms == a], data.teacher[atoms == a]
        design = np.column_stack([np.ones(len(rows)), teacher])
        fit = np.linalg.lstsq(design, rows, rcond=None)[0]
        rest = rows - design @ fit
        parts.append((fit[0], fit[1:].T, rest.T @ rest / len(rows)))
    mean, slope, covariance = (np.array(x) for x in zip(*parts, strict=True))
    return mean, slope, covariance


class _Prior:
    """Law of the estimates of all times in every atom: mean, slope on the teacher, noise covariance between times."""

    def __init__(self, layer: AttentionLayer, mean: Array, slope: Array, covariance: Array) -> None:
        self.layer = layer
        self.mean, self.slope = [mean], [slope]
        self.noise = {(0, 0): covariance}
        self.inverse: list[Array] = []
        self.q_hat: dict[tuple[int, int], Array] = {}
        self.damping = 0.0

    def add(self, damping: float, inverse: Array, m_hat: Array, theta_hat: Array, q_hat: list[Array]) -> None:
        """The next estimate (1 - damping) Lambda^-1 b + damping w from the field b of the last one."""
        _, variances, positions, *_ = self.layer.spectrum.arrays
        now = len(self.mean) - 1
        self.damping = damping
        self.inverse.append(inverse)
        for s, one in enumerate(q_hat):
            self.q_hat[s, now] = np.tensordot(variances, one, axes=1)
        mean = np.einsum("kab,kb->ka", inverse, positions @ m_hat)
        slope = inverse @ np.tensordot(variances, theta_hat, axes=1)
        self.mean.append((1 - damping) * mean + damping * self.mean[-1])
        self.slope.append((1 - damping) * slope + damping * self.slope[-1])
        new = now + 1
        for s in range(new):
            self.noise[s, new] = (1 - damping) * self._with_field(s, now) + damping * self.noise[s, now]
        last = self.inverse[now] @ self.q_hat[now, now] @ self.inverse[now]
        cross = self._with_field(now, now)
        self.noise[new, new] = (
            (1 - damping) ** 2 * last
            + damping * (1 - damping) * (cross + cross.transpose(0, 2, 1))
            + damping**2 * self.noise[now, now]
        )

    def _with_field(self, s: int, now: int) -> Array:
        """Covariance of the noise of estimate s with that of Lambda^-1 b of time `now`."""
        total = np.zeros_like(self.noise[0, 0])
        for past in range(s):  # estimate s is sum over past of (1 - damping) damping^(s - 1 - past) Lambda^-1 b
            share = (1 - self.damping) * self.damping ** (s - 1 - past)
            total = total + share * self.inverse[past] @ self.q_hat[past, now] @ self.inverse[now]
        return total

    def overlaps(self, now: int) -> tuple[list[Array], Array, Array]:
        """q between every time and now, m and theta of now."""
        weights, variances, positions, tau, K = self.layer.spectrum.arrays
        by_token = (weights[:, None] * variances).T
        centre = [m + np.einsum("kab,kb->ka", s, tau) for m, s in zip(self.mean, self.slope, strict=True)]
        q = []
        for s in range(now + 1):
            second = centre[s][:, :, None] * centre[now][:, None, :]
            second = second + self.slope[s] @ K @ self.slope[now].transpose(0, 2, 1) + self.noise[s, now]
            q.append(np.tensordot(by_token, second, axes=1))
        m_now = np.einsum("k,kl,ka->la", weights, positions, centre[now])
        with_teacher = centre[now][:, :, None] * tau[:, None, :] + self.slope[now] @ K
        return q, m_now, np.tensordot(by_token, with_teacher, axes=1)


class _Path:
    """Gaussian paths drawn a time at a time, from the covariance of the new time with all before."""

    def __init__(self, samples: int, tokens: int, rank: int, rng: np.random.Generator) -> None:
        self.shape, self.rng = (samples, tokens, rank), rng
        self.normals: list[Array] = []
        self.rows: list[list[Array]] = []

    def extend(self, covariance: Array) -> Array:
        """(n, L, r) values of the next time; covariance (k + 1, L, r, r) of every time, the new one last, with it."""
        row: list[Array] = []
        for s, before in enumerate(self.rows):
            rest = covariance[s].transpose(0, 2, 1) - sum(
                (row[k] @ before[k].transpose(0, 2, 1) for k in range(s)), np.zeros_like(covariance[s])
            )
            row.append(rest @ np.linalg.pinv(before[s], rcond=1e-6).transpose(0, 2, 1))
        rest = covariance[-1] - sum((x @ x.transpose(0, 2, 1) for x in row), np.zeros_like(covariance[-1]))
        row.append(symmetric_root((rest + rest.transpose(0, 2, 1)) / 2))
        self.rows.append(row)
        self.normals.append(self.rng.standard_normal(self.shape))
        return np.asarray(sum(np.einsum("lab,nlb->nla", x, e) for x, e in zip(row, self.normals, strict=True)))
