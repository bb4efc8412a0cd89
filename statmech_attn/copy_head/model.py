"""Emergence of a copy head as a theory: the model, its ensembles, and the contract of :mod:`statmech_attn.theory`."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from statmech_attn.copy_head import fluctuations, linear, softmax
from statmech_attn.copy_head.action import Sums
from statmech_attn.copy_head.observables import describe
from statmech_attn.fixed_point import jacobian
from statmech_attn.theory import Array, Theory

__all__ = ["CopyHead"]

CHOICES = {
    "attention": ("softmax", "linear"),
    "prior": ("token+position", "position"),
    "boundary": ("cyclic", "open"),
    "ensemble": ("map", "posterior", "projected"),
}


@dataclass(frozen=True)
class CopyHead:
    r"""One attention layer with positional logits that learns to copy the previous token.

    Sequences X of L one-hot tokens out of V, iid uniform; target Y = G X, G the shift by one; output A X W. Linear
    attention A = (C + b)/L, softmax attention A = softmax(C) row by row; Gaussian priors on the logits C, their common
    offset b and the values W; Gaussian noise of variance kappa L on each entry of Y. See :mod:`.action`.

    Parameters
    ----------
    context_length : int
        L, at least 3.
    vocabulary_size : int
        V, at least 2.
    samples : float
        P, number of training sequences, at least 1 (a continuous control parameter of the theory).
    noise : float
        kappa_0; the noise variance of an entry is kappa L with kappa = T kappa_0.
    logit_variance : float
        Variance of a logit at T = 1; sigma_C^2 = T logit_variance.
    value_variance : float
        Variance of an entry of W at T = 1; sigma_W^2 = T value_variance.
    temperature : float
        T multiplies noise and both variances, so that the joint action is E/T: what maximises it does not depend on T,
        and the posterior contracts to it as T -> 0.
    attention : {"softmax", "linear"}
    prior : {"token+position", "position"}
        With logits from one-hot tokens and positions, C_ij = M_ij + N_{x_i x_j} + R_{x_i j} + Q_{i x_j}, a constant is
        cheap: it acts as an offset b of variance sigma_C^2 (1/V^2 + 2/(L V)). "position" has M alone. Softmax does not
        see an offset. Fluctuations of N, R and Q that depend on the tokens are not part of the theory.
    boundary : {"cyclic", "open"}
        Target of the first token: the last one, or nothing.
    ensemble : {"map", "posterior", "projected"}
        ``map``: the joint maximum over logits and values, what gradient descent with weight decay finds.
        ``posterior``: W integrated out and the other directions of A fluctuating; saddle point of the exact
        reduction for linear attention (:mod:`.linear`), row mean field for softmax (:mod:`.fluctuations`).
        ``projected``: W integrated out, but A confined to its mean directions. It leaves out the entropy of order L^2
        modes and is *not* the posterior; it is kept to show what that entropy does.

    Notes
    -----
    Order parameters. Linear: m and g of A = m 11^T/L + g (G - 11^T/L), for the open boundary also the sum of the first
    row, in the posterior also the strengths rho, tau of the fluctuations. Softmax: the logit gap beta
    of a copying row (map, projected), or s = <A, G> and t = |A|^2 (posterior).

    Branches. Linear: "ordered" (pooling that turns into copying smoothly), "disordered" (A = 0 on average) and
    "reversed", a metastable minimum where m and g have opposite signs. Softmax: "pooling" and "copy". Any other state
    that is not a minimum of the action is a "barrier", which no named start returns as converged.

    Observables: see :func:`.observables.describe`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of its range.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> head = sa.CopyHead(context_length=24, vocabulary_size=8, samples=1320, noise=4.0, value_variance=0.25)
    >>> for start in ("pooling", "copy"):
    ...     solution = sa.solve(head, start=start)
    ...     print(f"{start} {solution.a_G:.3f} {solution.loss:.3f}")
    pooling 0.011 0.847
    copy 0.276 0.311
    """

    context_length: int
    vocabulary_size: int
    samples: float
    noise: float = 1.0
    logit_variance: float = 1.0
    value_variance: float = 1.0
    temperature: float = 1.0
    attention: str = "softmax"
    prior: str = "token+position"
    boundary: str = "cyclic"
    ensemble: str = "map"

    name: ClassVar[str] = "copy-head"
    rule_name: ClassVar[str] = ""
    control: ClassVar[str] = "samples"

    def __post_init__(self) -> None:
        for name, least in (("context_length", 3), ("vocabulary_size", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise TypeError(f"{name}={value!r} must be an integer")
            if value < least:
                raise ValueError(f"{name}={value!r} must be at least {least}")
            object.__setattr__(self, name, int(value))
        for name in ("samples", "noise", "logit_variance", "value_variance", "temperature"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"{name}={value!r} must be a real number")
            if not (0 < value < math.inf and (name != "samples" or value >= 1)):
                least_text = "at least 1 and finite" if name == "samples" else "positive and finite"
                raise ValueError(f"{name}={value!r} must be {least_text}")
            object.__setattr__(self, name, float(value))
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(known)}")

    # ---- derived parameters

    @property
    def kappa(self) -> float:
        """kappa, noise at the temperature of the model."""
        return self.temperature * self.noise

    @property
    def logit_prior(self) -> float:
        """sigma_C^2."""
        return self.temperature * self.logit_variance

    @property
    def value_prior(self) -> float:
        """sigma_W^2."""
        return self.temperature * self.value_variance

    @property
    def uniform_prior(self) -> float:
        """v_m, variance of the normalised uniform mode of the logits: sigma_C^2 (1 + L/V)^2 or sigma_C^2."""
        if self.prior == "position":
            return self.logit_prior
        return self.logit_prior * (1 + self.context_length / self.vocabulary_size) ** 2

    @property
    def ridge(self) -> float:
        """theta = kappa L V/(sigma_W^2 P), the ridge constant in units of |A|^2."""
        return self.kappa * self.context_length * self.vocabulary_size / (self.value_prior * self.samples)

    @property
    def signal(self) -> float:
        """P/(kappa L V), prefactor of the fit in the action."""
        return self.samples / (self.kappa * self.context_length * self.vocabulary_size)

    @property
    def determinant(self) -> int:
        """lambda: 1 where W is integrated out, 0 for the joint maximum."""
        return int(self.ensemble != "map")

    @property
    def target_rows(self) -> int:
        """Rows of G that are not zero, |G|^2."""
        return self.context_length - int(self.boundary == "open")

    @property
    def _mean_field(self) -> bool:
        return self.attention == "softmax" and self.ensemble == "posterior"

    # ---- the contract of statmech_attn.theory.Theory

    @property
    def order_parameters(self) -> tuple[str, ...]:
        """Names of the order parameters, see the class."""
        if self.attention == "softmax":
            return ("s", "t") if self._mean_field else ("beta",)
        means = ("m", "g") if self.boundary == "cyclic" else ("m", "g", "first")
        return (*means, "rho", "tau") if self.ensemble == "posterior" else means

    @property
    def starts(self) -> tuple[str, ...]:
        """Named starts."""
        return ("pooling", "copy") if self.attention == "softmax" else ("ordered", "disordered", "reversed")

    @property
    def broken(self) -> Mapping[str, str]:
        """A -> -A, W -> -W is a symmetry of linear attention."""
        return {} if self.attention == "softmax" else {"ordered": "m"}

    @property
    def settings(self) -> Mapping[str, Any]:
        """Rows are averaged over sampled backgrounds: a less ambitious accuracy."""
        return {"accuracy": 1e-2} if self._mean_field else {}

    @property
    def symmetries(self) -> Array:
        """(1, n) signs that flip the mean attention, (0, n) for softmax."""
        names = self.order_parameters
        if self.attention == "softmax":
            return np.empty((0, len(names)))
        return np.array([[1.0 if name in ("rho", "tau") else -1.0 for name in names]])

    def odd_slope(self, state: Array, rule: Any, group: list[int]) -> None:
        """By differences."""

    def flat_directions(self, state: Array) -> Array:
        """None."""
        return np.empty((0, state.size))

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        """Numbers of row backgrounds of the mean field; (None,), exact, for the rest."""
        if not self._mean_field:
            return (None,)
        counts = (64, 256, 1024, 4096)
        return counts[1:] if accuracy < 1e-2 else counts

    def replicates(self, rule: Any) -> tuple[Any, ...]:
        """None."""
        return ()

    def under(self, rule: str, **options: Any) -> Theory:
        """There are no other rules."""
        raise ValueError(f"rule={rule!r} is not known: {self.name} has no named rules")

    def update(self, state: Array, rule: Any) -> Array:
        """F(state)."""
        if self._mean_field and np.all(state > 0):  # no harm in a derivative across the edge of the feasible states
            return fluctuations.update(self, state, rule)
        if self.infeasibility(state):
            return np.full(state.size, np.nan)
        if self.attention == "linear":
            return linear.update(self, state)
        return np.array([softmax.update(self, float(state[0]))])

    def potential(self, state: Array, rule: Any) -> float:
        """Action of the state (softmax: without the J channel, which is constant)."""
        if self.attention == "linear":
            return linear.potential(self, state)
        if self._mean_field:
            return fluctuations.potential(self, state, rule)
        return softmax.action_at(self, float(state[0]))

    def sums(self, state: Array) -> Sums:
        """t = |A|^2, s = <A, G>, r = |A1|^2, u = (A1).(G1) of a state."""
        if self.attention == "linear":
            return linear.sums(self, state)
        return fluctuations.sums(self, state) if self._mean_field else softmax.sums(self, float(state[0]))

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        """See :func:`.observables.describe`."""
        return {"action": self.potential(state, rule), **describe(self, state)}

    def infeasibility(self, state: Array) -> str:
        """Positive bulk; a softmax attention matrix inside the product of simplices."""
        if not np.all(np.isfinite(state)):
            return f"the state {state.tolist()} is not finite"
        if self._mean_field:
            s, t = state.tolist()
            L, n = self.context_length, self.target_rows
            if not 0 < s < n:
                return f"s={s:.6g} must lie between 0 and {n}, the number of rows with a target"
            least = n * ((s / n) ** 2 + (1 - s / n) ** 2 / (L - 1)) + (L - n) / L
            if not least <= t * (1 + 1e-12) < L:
                return f"t={t:.6g} must lie between {least:.6g}, its least value at s={s:.6g}, and {L}"
        elif self.attention == "linear" and self.ensemble == "posterior" and not min(state[-2:]) > 0:
            return f"rho={state[-2]:.6g} and tau={state[-1]:.6g} must be positive"
        return ""

    def scale(self, state: Array) -> Array:
        """Linear: amplitudes at which prior and likelihood balance; softmax: 1 for beta, else the state itself."""
        if self._mean_field:
            return np.abs(state)
        if self.attention == "softmax":
            return np.ones(1)
        L, V = self.context_length, self.vocabulary_size
        pool = (self.uniform_prior / self.value_prior) ** 0.25 / math.sqrt(L)
        copy = math.sqrt(math.sqrt(self.logit_prior * (V - 1) / self.value_prior) / L**1.5)
        means = np.array([pool, copy, pool][: linear.forms(self).t.size])
        return np.concatenate([means, np.abs(state[means.size :])])

    def initial(self, start: str) -> Array:
        """Linear: downhill from m > 0 and g > 0 or g < 0; softmax: the minimum of equal rows."""
        if self.attention == "linear":
            state = np.zeros(len(self.order_parameters))
            if self.ensemble == "posterior":
                state[-2:] = linear.bulk_at_zero(self)
            size = self.scale(state)
            if start == "disordered":
                return state
            state[0] = size[0]
            state[1] = size[1] if start == "ordered" else -size[1]
            # Alternating regression goes downhill and, from positive coefficients, keeps them positive.
            state = linear.descend(self, state)
            if self.branch(state) == "disordered":
                state[: size.size] *= np.isin(self.order_parameters, ("rho", "tau"))
            return state
        if self._mean_field and start == "pooling":
            return fluctuations.relax_from_prior(self, self.rules(math.inf)[0])
        gaps = softmax.states_at(self)
        beta = float(gaps[0] if start == "pooling" else gaps[-1])
        equal = softmax.sums(self, beta)
        return np.array([equal.s, equal.t] if self._mean_field else [beta])

    def branch(self, state: Array) -> str:
        """See the notes of the class. Minima are told from barriers by the eigenvalues of F' (all below one)."""
        if self.attention == "linear":
            m, g = state[:2] / self.scale(state)[:2]
            name = "disordered" if max(abs(m), abs(g)) < 1e-5 else "reversed" if m * g < 0 else "ordered"
            if name == "disordered":
                return name
        else:
            a = describe(self, state)["a_G"]
            name = "pooling" if softmax.gap(a, self.context_length) < softmax.watershed(self) else "copy"
        if self._mean_field:
            slope = fluctuations.slope(self, state, self.rules(math.inf)[0])
        else:
            slope = jacobian(lambda x: self.update(x, None), state, self, symmetric=False)
        return "barrier" if np.max(np.linalg.eigvals(slope).real) > 1 + 1e-6 else name
