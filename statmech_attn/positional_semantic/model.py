"""The two-token positional-versus-semantic model as a theory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from statmech_attn.positional_semantic import state_equations as equations
from statmech_attn.positional_semantic.attention import effective_target
from statmech_attn.positional_semantic.observables import linear_baseline, mean_loss
from statmech_attn.positional_semantic.rules import TABLE, rules_for
from statmech_attn.theory import Array, Theory

if TYPE_CHECKING:
    from statmech_attn.positional_semantic.layer import AttentionLayer
    from statmech_attn.positional_semantic.runs import Overlaps

__all__ = ["PositionalSemantic"]


@dataclass(frozen=True)
class PositionalSemantic:
    r"""Dot-product attention with tied rank-one queries and keys, learning a mixed positional and semantic target.

    Two tokens x_l ~ N(0, sigma^2 I_d); the teacher's attention is (1 - omega) softmax(h* h*^T) + omega A with
    h*_l = Q*.x_l / sqrt(d) (Q* of unit entries); the student sees x_l + p_l with p_1 = -p_2 of norm
    `positional_strength` and minimises the squared error over its own Q with an l2 penalty, on n = alpha d samples,
    d -> infinity. Source: Cui, Behrens, Krzakala, Zdeborova, arXiv 2402.03902.

    Parameters
    ----------
    alpha : float
        Samples per dimension, n/d; positive.
    omega : float
        Share of the positional target, in [0, 1].
    sigma : float
        Standard deviation of the tokens, positive.
    regularization : float
        Strength lambda of the penalty lambda/2 |Q|^2, positive.
    positional_target : 2x2 tuple
        Positional attention A, finite.
    positional_strength : float
        Norm of the positional vectors, positive.

    Notes
    -----
    Order parameters: q = sigma^2 |Q|^2/d self overlap, m = Q.p_1/sqrt(d) positional overlap, theta = sigma^2 Q.Q*/d
    teacher (semantic) overlap, V variance. Observables: `train_loss` (minimum of the regularised loss over d),
    `test_error` (half the mean squared error), `linear_baseline` (test error of the best linear layer), `replicon`
    (smooth part of the stability of replica symmetry, below one where stable), `jump_weight` (part of V_hat that comes
    from jumps of the proximal operator; replica symmetry is unstable wherever it is positive), `jump_probability` (over
    eta and zeta_v, that the loss has two wells which exchange as zeta_u varies), and the indicators `mass_defect`,
    `negative_weight` of the quadrature.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of its range.

    Examples
    --------
    >>> PositionalSemantic(alpha=1.24, omega=0.3).sigma
    0.5
    """

    alpha: float
    omega: float = 0.0
    sigma: float = 0.5
    regularization: float = 0.01
    positional_target: tuple[tuple[float, float], tuple[float, float]] = ((0.6, 0.4), (0.4, 0.6))
    positional_strength: float = 1.0

    name: ClassVar[str] = "positional-semantic"
    order_parameters: ClassVar[tuple[str, ...]] = ("q", "m", "theta", "V")
    starts: ClassVar[tuple[str, ...]] = ("uninformed", "positional", "semantic")
    broken: ClassVar[Mapping[str, str]] = {"positional": "m", "semantic": "theta"}
    rule_name: ClassVar[str] = ""
    control: ClassVar[str] = "alpha"
    settings: ClassVar[Mapping[str, Any]] = {}
    symmetries: ClassVar[Array] = np.array([[1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, 1.0]])

    def __post_init__(self) -> None:
        for name in ("alpha", "omega", "sigma", "regularization", "positional_strength"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"{name}={value!r} must be a real number")
            if name == "omega":
                if not 0 <= value <= 1:
                    raise ValueError(f"omega={value!r} must lie in [0, 1]")
            elif not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r} must be positive and finite")
            object.__setattr__(self, name, float(value))
        try:
            target = np.asarray(self.positional_target, dtype=np.float64)
        except (TypeError, ValueError):
            target = np.full((2, 2), np.nan)
        if target.shape != (2, 2) or not np.all(np.isfinite(target)):
            raise ValueError(f"positional_target={self.positional_target!r} must be a finite 2x2 matrix")
        object.__setattr__(self, "positional_target", tuple(tuple(row) for row in target.tolist()))

    def layer(self) -> AttentionLayer:
        """The same model in the general form: per-token overlaps, for simulation and as a check.

        Examples
        --------
        >>> PositionalSemantic(alpha=1.24, omega=0.3).layer().tokens
        2
        """
        from statmech_attn.positional_semantic.layer import AttentionLayer
        from statmech_attn.positional_semantic.spectrum import Spectrum

        positions = (self.positional_strength, -self.positional_strength)
        return AttentionLayer(
            alpha=self.alpha,
            spectrum=Spectrum.isotropic(self.sigma**2, positions),
            positional_target=self.positional_target,
            omega=self.omega,
            regularization=self.regularization,
        )

    def overlaps(self, state: Array) -> Overlaps:
        """A state as overlaps of the two tokens: the same q and theta, opposite m."""
        from statmech_attn.positional_semantic.runs import Overlaps

        q, m, theta, _ = state
        return Overlaps(np.full((2, 1, 1), q), np.array([[m], [-m]]), np.full((2, 1, 1), theta))

    def name_overlaps(self, q: Array, m: Array, theta: Array) -> dict[str, float]:
        """Overlaps of the two tokens by the names of the order parameters (V has none)."""
        return {"q": float(q.mean()), "m": float(m[0, 0] - m[1, 0]) / 2, "theta": float(theta.mean())}

    # ---- the contract of statmech_attn.theory.Theory

    def odd_slope(self, state: Array, rule: Any, group: list[int]) -> None:
        """By differences."""

    def flat_directions(self, state: Array) -> Array:
        """None."""
        return np.empty((0, state.size))

    def rules(self, accuracy: float) -> tuple[int, ...]:
        """Rows of :data:`.rules.TABLE` from the one meant for `accuracy` to the finest."""
        return rules_for(accuracy)

    def replicates(self, rule: Any) -> tuple[Any, ...]:
        """None."""
        return ()

    def under(self, rule: str, **options: Any) -> Theory:
        """The model under ``"published"`` (the authors' nodes and iteration) or ``"monte_carlo"`` integrals.

        Options of the latter: `samples`, `seed`.
        """
        from statmech_attn.positional_semantic.monte_carlo import MonteCarlo
        from statmech_attn.positional_semantic.published import Published

        known: dict[str, type[PositionalSemantic]] = {"published": Published, "monte_carlo": MonteCarlo}
        if rule not in known:
            raise ValueError(f"rule={rule!r} is not one of {', '.join(known)}")
        return known[rule](**{f.name: getattr(self, f.name) for f in fields(PositionalSemantic)}, **options)

    def hats(self, state: Array, rule: Any) -> equations.Hats:
        """Conjugate order parameters of a feasible state."""
        return equations.hats(self, state, equations.channel(self, state, rule))

    def update(self, state: Array, rule: Any) -> Array:
        """New (q, m, theta, V)."""
        if self.infeasibility(state):
            return np.full(4, np.nan)
        return equations.prior(self, self.hats(state, rule))

    def potential(self, state: Array, rule: Any) -> float:
        """Training loss with the conjugates of the state itself."""
        return equations.free_energy(self, state, self.hats(state, rule))

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        """See the class."""
        averages = equations.channel(self, state, rule)
        q, m, theta, V = state
        a1, a2, constant = effective_target(self.positional_target)
        return {
            "train_loss": equations.free_energy(self, state, equations.hats(self, state, averages)),
            "test_error": mean_loss(m, theta, q, self.sigma, self.omega, a1, a2, TABLE[rule][2], TABLE[rule][5])
            + constant * self.sigma**2 * self.omega**2,
            "linear_baseline": linear_baseline(self.sigma, self.omega),
            "replicon": self.alpha * averages.smooth,
            "jump_weight": self.alpha * averages.delta / V,
            "jump_probability": averages.jump_probability,
            "mass_defect": averages.mass_defect,
            "negative_weight": averages.negative_weight,
        }

    def infeasibility(self, state: Array) -> str:
        """q, V > 0 and theta^2 < sigma^2 q (Cauchy-Schwarz)."""
        q, _, theta, V = state.tolist()
        if not all(map(math.isfinite, state.tolist())):
            return f"the state {state.tolist()} is not finite"
        if not q > 0 or not V > 0:
            return f"q={q:.6g} and V={V:.6g} must be positive"
        if not theta * theta < self.sigma**2 * q:
            return f"theta={theta:.6g} must satisfy theta^2 < sigma^2 q = {self.sigma**2 * q:.6g}"
        return ""

    def scale(self, state: Array) -> Array:
        """q, sqrt(q), sigma sqrt(q), V, with q at least 1e-10 sigma^2: strong regularization drives it to zero."""
        q = max(float(state[0]), 1e-10 * self.sigma**2)
        root = math.sqrt(q)
        return np.array([q, root, self.sigma * root, state[3]])

    def initial(self, start: str) -> Array:
        """Of the order of the states at moderate alpha, with m or theta of the order of its bound if it is broken."""
        s2 = self.sigma**2
        q = 0.2 * s2
        state = np.array([q, 0.0, 0.0, 0.7 * s2 / self.regularization])
        if start == "positional":
            state[1] = 0.25 * self.positional_strength
        if start == "semantic":
            state[2] = 0.7 * self.sigma * math.sqrt(q)
        return state

    def branch(self, state: Array) -> str:
        """By the overlaps that do not vanish (to 1e-5 of their scale)."""
        _, positional, semantic, _ = np.abs(state) > 1e-5 * self.scale(state)
        return {(False, False): "uninformed", (True, False): "positional", (False, True): "semantic"}.get(
            (bool(positional), bool(semantic)), "mixed"
        )
