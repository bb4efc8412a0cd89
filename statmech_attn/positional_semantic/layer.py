"""A layer of any number of tokens, any ranks and any token covariances, as a theory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from statmech_attn.positional_semantic import layer_equations as equations
from statmech_attn.positional_semantic.gauge import (
    OrderParameters,
    generators,
    invariants,
    moved,
    rotated,
    rotation,
    signs,
)
from statmech_attn.positional_semantic.layer_channel import LayerChannel, layer_averages, symmetric_root
from statmech_attn.positional_semantic.layer_proximal import proximal_points, start_patterns
from statmech_attn.positional_semantic.layer_response import noise_of, response_of_hats
from statmech_attn.positional_semantic.layer_rules import EXPONENTS, Rule, nodes_of, product_rules, sobol_rules
from statmech_attn.positional_semantic.row_attention import CODES, attention
from statmech_attn.positional_semantic.spectrum import Spectrum
from statmech_attn.theory import Array, Theory

__all__ = ["AttentionLayer"]

#: Largest angle (radians) by which an update is turned back onto the state it came from.
LARGEST_ANGLE = 0.02


@dataclass(frozen=True)
class AttentionLayer:
    r"""Dot-product attention with tied low-rank queries and keys, learning a mixed positional and semantic target.

    L tokens x_l ~ N(0, Sigma_l) in d dimensions; the teacher's attention is
    :math:`T=(1-\omega)\,\mathrm{act}(h_\star h_\star^\top)+\omega A` with the index
    :math:`h_{\star l}=Q_\star^\top x_l/\sqrt d` of rank t; the student attends by
    :math:`S=\mathrm{act}(hh^\top)`, :math:`h_l=Q^\top(x_l+p_l)/\sqrt d` of rank r, and minimises
    :math:`\sum_\mu\frac1{2d}|T x_\mu-S(x_\mu+p)|^2+\frac\lambda2|Q|^2` on n = alpha d samples, d -> infinity.
    Source: Cui, Behrens, Krzakala, Zdeborova, arXiv 2402.03902, in the general form of its replica result.

    Parameters
    ----------
    alpha : float
        Samples per dimension, n/d; positive.
    spectrum : Spectrum
        Joint law of token covariances, positional encodings and teacher; gives L and t.
    positional_target : (L, L) nested tuple
        Positional attention A, finite.
    omega : float
        Share of the positional target, in [0, 1].
    regularization : float
        Strength lambda of the penalty lambda/2 |Q|^2, positive.
    student_rank : int
        r, at least 1.
    student_activation, teacher_activation : {"softmax", "sigmoid", "linear"}
        Row activation: softmax of a row, or the logistic function or the identity of every entry.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of its range, by name.

    Notes
    -----
    Order parameters, for every class of tokens of equal covariance: q (r, r) self overlap Q^T Sigma_l Q/d, theta (r, t)
    teacher overlap Q^T Sigma_l Q*/d, V (r, r) variance; m (r) positional overlap Q^T p_l/sqrt(d) of as many tokens as
    the positional vectors have dimensions (the others are combinations of these). An entry is named by its letter, the
    token where there are several classes, and its row and column where ranks exceed one: q, q_12, theta_2_11, m_1.
    :meth:`overlaps` gives them as arrays.

    Observables: `train_loss` (regularised, over d), `test_error` (half the mean squared error), `linear_baseline` (test
    error of the best linear layer), `replicon` (smooth part, below one where replica symmetry is stable),
    `jump_probability` (share of channel points with two wells), `virial_defect` (relative difference of the two forms
    of the training loss, zero at a solution for any quadrature), `gauge_angle` (rotation between a state and its
    image, in radians), and, where a rank exceeds one, numbers that no rotation of rank space changes
    (:func:`.gauge.invariants`).

    Integrals are over a product rule where the noise has at most four dimensions, L (r + t) <= 4, else over
    scrambled Sobol points, four independent scrambles, whose spread is the quadrature error (of three degrees of
    freedom: itself uncertain by a third). Where the proximal operator jumps both converge slowly; for two tokens of
    rank one :class:`.PositionalSemantic` resolves the jumps.

    Examples
    --------
    >>> from statmech_attn.positional_semantic import Spectrum
    >>> layer = AttentionLayer(2.0, Spectrum.isotropic(0.25, (1, -1)), ((0.6, 0.4), (0.4, 0.6)), student_rank=2)
    >>> layer.starts
    ('uninformed', 'positional', 'semantic', 'hybrid')
    >>> layer.order_parameters
    ('q_11', 'q_12', 'q_22', 'm_1', 'm_2', 'theta_11', 'theta_21', 'V_11', 'V_12', 'V_22')
    """

    alpha: float
    spectrum: Spectrum
    positional_target: tuple[tuple[float, ...], ...]
    omega: float = 0.0
    regularization: float = 0.01
    student_rank: int = 1
    student_activation: str = "softmax"
    teacher_activation: str = "softmax"

    name: ClassVar[str] = "attention-layer"
    rule_name: ClassVar[str] = ""
    control: ClassVar[str] = "alpha"

    def __post_init__(self) -> None:
        for name in ("alpha", "omega", "regularization"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
                raise TypeError(f"{name}={value!r} must be a real number")
            if name == "omega":
                if not 0 <= value <= 1:
                    raise ValueError(f"omega={value!r} must lie in [0, 1]")
            elif not 0 < value < math.inf:
                raise ValueError(f"{name}={value!r} must be positive and finite")
            object.__setattr__(self, name, float(value))
        if isinstance(self.spectrum, Mapping):
            object.__setattr__(self, "spectrum", Spectrum(**self.spectrum))
        if not isinstance(self.spectrum, Spectrum):
            raise TypeError(f"spectrum={self.spectrum!r} must be a Spectrum")
        rank = self.student_rank
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ValueError(f"student_rank={rank!r} must be an integer, at least 1")
        object.__setattr__(self, "student_rank", int(rank))
        L = self.spectrum.tokens
        try:
            target = np.asarray(self.positional_target, dtype=np.float64)
        except (TypeError, ValueError):
            target = np.full((L, L), np.nan)
        if target.shape != (L, L) or not np.all(np.isfinite(target)):
            raise ValueError(f"positional_target={self.positional_target!r} must be a finite {L}x{L} matrix")
        object.__setattr__(self, "positional_target", tuple(tuple(row) for row in target.tolist()))
        for name in ("student_activation", "teacher_activation"):
            if getattr(self, name) not in CODES:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(CODES)}")

    # ---- sizes

    @property
    def tokens(self) -> int:
        """L."""
        return self.spectrum.tokens

    @property
    def teacher_rank(self) -> int:
        """t."""
        return self.spectrum.teacher_rank

    def targets(self, index: Array) -> Array:
        """Targets T = (1 - omega) act(h h^T) + omega A, (n, L, L), at the teacher's index h (n, L, t)."""
        T = attention(index @ index.transpose(0, 2, 1), self.teacher_activation)
        return (1 - self.omega) * T + self.omega * np.array(self.positional_target)

    def layer(self) -> AttentionLayer:
        """Itself; the two-token model has the same method."""
        return self

    # ---- order parameters as arrays and as a vector

    @cached_property
    def _positional(self) -> tuple[tuple[int, ...], Array]:
        """Tokens whose m are order parameters, and the (L, k) matrix that gives all m from theirs."""
        positions = self.spectrum.arrays[2]
        chosen: tuple[int, ...] = ()
        for token in range(self.tokens):
            if np.linalg.matrix_rank(positions[:, [*chosen, token]], tol=1e-10 * np.abs(positions).max()) > len(chosen):
                chosen = (*chosen, token)
        others: Array = np.linalg.lstsq(positions[:, list(chosen)], positions, rcond=None)[0].T.astype(np.float64)
        return chosen, others

    @cached_property
    def _representatives(self) -> list[int]:
        """First token of every class."""
        return [self.spectrum.classes.index(c) for c in range(max(self.spectrum.classes) + 1)]

    @cached_property
    def order_parameters(self) -> tuple[str, ...]:
        """Names of the entries of a state."""
        r, t = self.student_rank, self.teacher_rank
        tokens = [f"_{token + 1}" for token in self._representatives] if len(self._representatives) > 1 else [""]
        places = [f"_{token + 1}" for token in self._positional[0]] if len(self._positional[0]) > 1 else [""]
        pairs = [f"_{a + 1}{b + 1}" for a in range(r) for b in range(a, r)] if r > 1 else [""]
        columns = [f"_{a + 1}" for a in range(r)] if r > 1 else [""]
        entries = [f"_{a + 1}{b + 1}" for a in range(r) for b in range(t)] if max(r, t) > 1 else [""]
        if not self._positional[0]:
            places = []
        return (
            *(f"q{token}{pair}" for token in tokens for pair in pairs),
            *(f"m{place}{column}" for place in places for column in columns),
            *(f"theta{token}{entry}" for token in tokens for entry in entries),
            *(f"V{token}{pair}" for token in tokens for pair in pairs),
        )

    def overlaps(self, state: Array) -> OrderParameters:
        """A state as arrays: q (L, r, r), m (L, r), theta (L, r, t), V (L, r, r)."""
        r, t, kinds = self.student_rank, self.teacher_rank, len(self._representatives)
        upper = np.triu_indices(r)
        sizes = np.cumsum([kinds * len(upper[0]), len(self._positional[0]) * r, kinds * r * t])
        q, m, theta, V = np.split(np.asarray(state, dtype=np.float64), sizes)
        of_token = list(self.spectrum.classes)

        def full(entries: Array) -> Array:
            matrices = np.zeros((kinds, r, r))
            matrices[:, upper[0], upper[1]] = entries.reshape(kinds, -1)
            matrices[:, upper[1], upper[0]] = entries.reshape(kinds, -1)
            return matrices[of_token]

        return OrderParameters(
            full(q), self._positional[1] @ m.reshape(-1, r), theta.reshape(kinds, r, t)[of_token], full(V)
        )

    def state_of(self, x: OrderParameters) -> Array:
        """The vector of a state given as arrays."""
        kinds, upper = self._representatives, np.triu_indices(self.student_rank)
        return np.concatenate(
            [
                x.q[kinds][:, upper[0], upper[1]].ravel(),
                x.m[list(self._positional[0])].ravel(),
                x.theta[kinds].ravel(),
                x.V[kinds][:, upper[0], upper[1]].ravel(),
            ]
        )

    def name_overlaps(self, q: Array, m: Array, theta: Array) -> dict[str, float]:
        """Overlaps per token by the names of the order parameters (V has none), averaged over tokens of a class."""
        of_class = np.array(self.spectrum.classes) == np.arange(len(self._representatives))[:, None]
        average = (of_class / of_class.sum(axis=1, keepdims=True))[list(self.spectrum.classes)]
        chosen, others = self._positional
        m = others @ np.linalg.pinv(others) @ m if chosen else m
        x = OrderParameters(np.tensordot(average, q, axes=1), m, np.tensordot(average, theta, axes=1), np.zeros_like(q))
        named = zip(self.order_parameters, self.state_of(x).tolist(), strict=True)
        return {name: value for name, value in named if not name.startswith("V")}

    # ---- the contract of statmech_attn.theory.Theory

    @property
    def starts(self) -> tuple[str, ...]:
        """Branches by the overlaps that do not vanish; "mixed" alone where the teacher is not centred."""
        if np.any(np.abs(self.spectrum.arrays[3]) > 1e-12):
            return ("mixed",) if self._positional[0] else ("semantic",)
        named = ("uninformed", "positional", "semantic") if self._positional[0] else ("uninformed", "semantic")
        return (*named, "hybrid") if self.student_rank > 1 and self._positional[0] else named

    @property
    def broken(self) -> Mapping[str, str]:
        """Order parameter whose sign symmetry a branch breaks, at rank one."""
        if self.student_rank > 1 or self.teacher_rank > 1 or "uninformed" not in self.starts:
            return {}
        first = {"positional": "m", "semantic": "theta"}
        return {
            branch: next(n for n in self.order_parameters if n.startswith(letter))
            for branch, letter in first.items()
            if branch in self.starts
        }

    @property
    def settings(self) -> Mapping[str, Any]:
        """Tolerance and accuracy that the default rules can meet."""
        return {"tol": 1e-7, "accuracy": 1e-3} if self._exact else {"tol": 1e-6, "accuracy": 3e-3}

    @property
    def _exact(self) -> bool:
        """Whether a product rule is affordable."""
        return self._dimension <= 4

    @property
    def _dimension(self) -> int:
        return self.tokens * (self.student_rank + self.teacher_rank)

    @cached_property
    def symmetries(self) -> Array:
        """Signs of a state under every flip of student and teacher columns."""
        rows = []
        L, r, t = self.tokens, self.student_rank, self.teacher_rank
        ones = OrderParameters(np.ones((L, r, r)), np.ones((L, r)), np.ones((L, r, t)), np.ones((L, r, r)))
        for student, teacher in signs(r, self.spectrum):
            flipped = rotated(ones, np.diag(student), np.diag(teacher))
            # all m of a column flip together
            rows.append(np.sign(self.state_of(flipped)))
        kept = [row for row in rows if np.any(row < 0)]
        return np.unique(np.array(kept), axis=0) if kept else np.empty((0, len(self.order_parameters)))

    def flat_directions(self, state: Array) -> Array:
        """(k, n) velocities of a state under the rotations that leave the layer as it is, those that move it."""
        x, scale = self.overlaps(state), self.scale(state)
        tangents = np.array([self.state_of(moved(x, *pair)) for pair in self._generators]).reshape(-1, state.size)
        if not len(tangents):
            return tangents
        # of an orbit of lower dimension, a basis
        _, lengths, basis = np.linalg.svd(tangents / scale, full_matrices=False)
        return np.asarray(basis[lengths > 1e-6] * scale)

    @cached_property
    def _generators(self) -> list[tuple[Array, Array]]:
        return generators(self.student_rank, self.spectrum)

    def rules(self, accuracy: float) -> tuple[Rule, ...]:
        """Rules from the one meant for `accuracy` to the finest."""
        return product_rules(accuracy) if self._exact else sobol_rules(accuracy, 4, 0)

    def replicates(self, rule: Rule) -> tuple[Rule, ...]:
        """The single scrambles of a Sobol rule."""
        return rule.single()

    def under(self, rule: str, **options: Any) -> Theory:
        """The layer under ``"product"`` or ``"sobol"`` integrals whatever the dimension, or under ``"stein"``.

        The last are Sobol points with V_hat in Stein's form throughout: noisier, but F stays smooth where jumps set in,
        as continuation through them needs. Options of both: `scrambles` (4), `seed` (0).
        """
        known: dict[str, type[AttentionLayer]] = {"product": Product, "sobol": Sobol, "stein": Stein}
        if rule not in known:
            raise ValueError(f"rule={rule!r} is not one of {', '.join(known)}")
        if rule == "product" and self._dimension > 6:
            raise ValueError(
                f"rule={rule!r} takes too many nodes in L (r + t) = {self._dimension} dimensions; at most 6"
            )
        return known[rule](**{f.name: getattr(self, f.name) for f in fields(AttentionLayer)}, **options)

    def averages(self, state: Array, rule: Rule) -> LayerChannel:
        """Channel averages of a feasible state."""
        nodes, weights = nodes_of(rule, self._dimension)
        return layer_averages(
            nodes,
            weights,
            self.overlaps(state),
            self.spectrum.teacher_gram,
            self.spectrum.token_variances,
            (self.omega, np.array(self.positional_target)),
            (CODES[self.student_activation], CODES[self.teacher_activation]),
            start_patterns(self.tokens, self.student_rank),
            rule.softness * float(np.mean(self.spectrum.token_variances)),
            rule.stein,
        )

    def hats(self, state: Array, averages: LayerChannel) -> equations.LayerHats:
        """Conjugates of a state; those that a symmetry of the state forbids are zero."""
        h = equations.layer_hats(self.alpha, self.overlaps(state), self.spectrum.teacher_gram, averages)
        even = self._even(state)
        return equations.LayerHats(*(x * mask for x, mask in zip(h, even, strict=True)))

    def _even(self, state: Array) -> OrderParameters:
        """Ones for the entries that the symmetries of a state leave alone, zero for the others."""
        kept = self.symmetries[np.all(self.symmetries * state == state, axis=1)]
        even = np.all(kept > 0, axis=0).astype(np.float64)
        x = self.overlaps(even)
        return x._replace(m=np.tile(np.any(x.m != 0, axis=0), (self.tokens, 1)).astype(np.float64))

    def update(self, state: Array, rule: Rule) -> Array:
        """New state, turned back onto the old one by small rotations of rank space."""
        if self.infeasibility(state):
            return np.full(state.size, np.nan)
        return self._turned(self._image(state, rule), state)[0]

    def _image(self, state: Array, rule: Rule) -> OrderParameters:
        h = self.hats(state, self.averages(state, rule))
        return equations.layer_prior(self.regularization, self.spectrum, h)

    def _turned(self, image: OrderParameters, state: Array) -> tuple[Array, float]:
        """An image in the frame nearest to a state, and the angle turned.

        Only by proper rotations, and only if they are as small as what quadrature makes of none: larger ones would
        make solutions of states that F turns.
        """
        plain = self.state_of(image)
        angle = 0.0
        if not np.all(np.isfinite(plain)):
            return plain, angle
        scale = self.scale(state)
        even = np.all(self.symmetries[np.all(self.symmetries * state == state, axis=1)] > 0, axis=0)
        # a rotation out of a frame that a symmetry of the state has fixed cannot come about
        pairs = [pair for pair in self._generators if np.any(even * self.state_of(moved(image, *pair)))]
        for _ in range(2 if pairs else 0):
            tangents = np.array([self.state_of(moved(image, *pair)) for pair in pairs])
            difference = (state - self.state_of(image)) / scale
            coefficients = np.linalg.lstsq((tangents / scale).T, difference, rcond=1e-6)[0].astype(np.float64)
            angle += float(np.linalg.norm(coefficients))
            if angle > LARGEST_ANGLE:
                return plain, angle
            image = rotated(image, *rotation(coefficients, pairs))
        return self.state_of(image), angle

    def odd_slope(self, state: Array, rule: Rule, group: list[int]) -> Array | None:
        """Under Stein's rules, for overlaps with position and teacher: :mod:`.layer_response`, at 8 times the points.

        They cost little beside the iterations that led to the state.
        """
        if not rule.stein or any(self.order_parameters[i][0] in "qV" for i in group):
            return None
        x, rho = self.overlaps(state), self.spectrum.teacher_gram
        noise = noise_of(*nodes_of(replace(rule, size=min(rule.size + 3, EXPONENTS[-1])), self._dimension), x, rho)
        points = noise.omega.reshape(len(noise.omega), -1)
        z, code = points.copy(), CODES[self.student_activation]
        patterns = start_patterns(self.tokens, self.student_rank)
        proximal_points(points, x.V, self.targets(noise.teacher), self.spectrum.token_variances, code, patterns, z)
        g = np.einsum("lab,nlb->nla", np.linalg.inv(x.V), z.reshape(noise.omega.shape) - noise.omega)
        columns = []
        for i in group:
            direction = self.overlaps(np.eye(state.size)[i])
            hats = response_of_hats(self.alpha, rho, noise, g, direction)
            columns.append(self.state_of(equations.layer_prior(self.regularization, self.spectrum, hats))[group])
        return np.array(columns).T

    def potential(self, state: Array, rule: Rule) -> float:
        """Training loss with the conjugates of the state itself."""
        averages = self.averages(state, rule)
        return self._free_energy(state, self.hats(state, averages), averages)

    def _free_energy(self, state: Array, h: equations.LayerHats, averages: LayerChannel) -> float:
        return equations.layer_free_energy(
            self.alpha, self.regularization, self.spectrum, self.overlaps(state), h, averages.envelope
        )

    def observables(self, state: Array, rule: Rule) -> dict[str, float]:
        """See the class."""
        averages = self.averages(state, rule)
        h = self.hats(state, averages)
        loss = self._free_energy(state, h, averages)
        other = equations.virial(self.alpha, self.regularization, self.spectrum, h, averages.loss)
        image = equations.layer_prior(self.regularization, self.spectrum, h)
        variance = averages.target_squares - averages.target**2
        found = {
            "train_loss": loss,
            "test_error": averages.test_error,
            "linear_baseline": float(0.5 * np.sum(variance @ self.spectrum.token_variances)),
            "replicon": equations.layer_replicon(self.alpha, self.regularization, self.spectrum, h, averages),
            "jump_probability": averages.two_wells,
            "virial_defect": loss / other - 1,
            "gauge_angle": self._turned(image, state)[1],
        }
        return found | (invariants(self.overlaps(state)) if max(self.student_rank, self.teacher_rank) > 1 else {})

    def infeasibility(self, state: Array) -> str:
        """q, V and q - theta rho^-1 theta^T (Cauchy-Schwarz) positive definite for every token."""
        if not np.all(np.isfinite(state)):
            return f"the state {np.asarray(state).tolist()} is not finite"
        x = self.overlaps(state)
        for name, matrices in (("q", x.q), ("V", x.V)):
            if not np.all(np.linalg.eigvalsh(matrices) > 0):
                return f"{name}={matrices[self._representatives].tolist()} must be positive definite"
        rest = x.q - x.theta @ np.linalg.solve(self.spectrum.teacher_gram, x.theta.transpose(0, 2, 1))
        if not np.all(np.linalg.eigvalsh(rest) > 0):
            return f"q - theta rho^-1 theta^T={rest[self._representatives].tolist()} must be positive definite"
        return ""

    def scale(self, state: Array) -> Array:
        """sqrt(q_aa q_bb), sqrt(q_aa/c), sqrt(q_aa rho_bb), sqrt(V_aa V_bb), with q at least 1e-10 c."""
        x, c = self.overlaps(state), self.spectrum.token_variances
        root = np.sqrt(np.maximum(np.diagonal(x.q, axis1=1, axis2=2), 1e-10 * c[:, None] ** 2))
        teacher = np.sqrt(np.diagonal(self.spectrum.teacher_gram, axis1=1, axis2=2))
        width = np.sqrt(np.abs(np.diagonal(x.V, axis1=1, axis2=2)))
        return self.state_of(
            OrderParameters(
                root[:, :, None] * root[:, None, :],
                root,
                root[:, :, None] * teacher[:, None, :],
                width[:, :, None] * width[:, None, :],
            )
        )

    def initial(self, start: str) -> Array:
        """Every column of the order of the states at moderate alpha: one at zero would be a saddle.

        The first columns take the teacher's directions in a semantic start, all take the position in a positional one,
        and in a hybrid one the last takes the position and the others the teacher.
        """
        r, t = self.student_rank, self.teacher_rank
        c, rho = self.spectrum.token_variances, self.spectrum.teacher_gram
        weights, _, positions, *_ = self.spectrum.arrays
        sizes = 0.6 * c[:, None, None] * np.diag(1 / (1 + 0.3 * np.arange(r)))
        m = np.zeros((self.tokens, r))
        theta = np.zeros((self.tokens, r, t))
        gram = (positions * weights[:, None]).T @ positions
        value, vector = np.linalg.eigh(gram)[0][-1], np.linalg.eigh(gram)[1][:, -1]
        place = 0.25 * math.sqrt(max(value, 0.0)) * vector * np.sign(vector[np.argmax(np.abs(vector) > 1e-9)])
        place = place / max(np.abs(vector).max(), 1e-9) / math.sqrt(self.tokens)
        if start in ("positional", "mixed"):
            m[:, 0] = place
        if start == "hybrid":
            m[:, -1] = place
        for column in np.flatnonzero(m[0]) if start in ("positional", "hybrid") and r > 1 else ():
            sizes[:, column, column] = 0.1 * c  # a column that attends by position fluctuates little
        if start in ("semantic", "hybrid", "mixed"):
            columns = min(r - (start == "hybrid"), t)
            theta[:, :columns] = 0.7 * np.sqrt(sizes[:, :columns]) @ np.eye(r, t) @ symmetric_root(rho)
        V = 0.7 * c[:, None, None] / self.regularization * np.eye(r)
        return self.state_of(OrderParameters(sizes, m, theta, V))

    def branch(self, state: Array) -> str:
        """By the overlaps that exceed ten times the accuracy of the rules; hybrid: no column has both."""
        visible = np.abs(state) > 10 * self.settings["accuracy"] * self.scale(state)
        x = self.overlaps(visible.astype(np.float64))
        positional, semantic = np.any(x.m != 0, axis=0), np.any(x.theta != 0, axis=(0, 2))
        if not np.any(positional) or not np.any(semantic):
            return "positional" if np.any(positional) else "semantic" if np.any(semantic) else "uninformed"
        return "mixed" if np.any(positional & semantic) else "hybrid"


@dataclass(frozen=True)
class Product(AttentionLayer):
    """The layer under product rules, up to six dimensions: ``layer.under("product")``."""

    rule_name: ClassVar[str] = "product"

    @property
    def _exact(self) -> bool:
        return True


@dataclass(frozen=True)
class Sobol(AttentionLayer):
    """The layer under scrambled Sobol points: ``layer.under("sobol", scrambles=4, seed=0)``."""

    scrambles: int = 4
    seed: int = 0

    rule_name: ClassVar[str] = "sobol"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("scrambles", 2), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name}={value!r} must be an integer, at least {least}")

    @property
    def _exact(self) -> bool:
        return False

    def rules(self, accuracy: float) -> tuple[Rule, ...]:
        """Rules of as many scrambles as asked for."""
        return sobol_rules(accuracy, self.scrambles, self.seed, self.rule_name == "stein")


@dataclass(frozen=True)
class Stein(Sobol):
    """The layer under Sobol points with V_hat in Stein's form: ``layer.under("stein", scrambles=4, seed=0)``."""

    rule_name: ClassVar[str] = "stein"
