r"""The quadrature and iteration behind the tables published with the paper, to test the equations against them.

Student first: :math:`\omega=\pm m+\sqrt q\,\xi`, :math:`h^\star=(\theta/\sqrt q)\,\xi+\sqrt{\rho-\theta^2/q}\;y`, both
token planes by the 12-node, degree-7 rule of Stroud and Secrest; :math:`\hat V=-\alpha\mathbb E[g\cdot\xi]/\sqrt q+
\theta\hat\theta/q`, :math:`\hat\theta=\alpha\mathbb E[g\cdot y]/\sqrt{\rho-\theta^2/q}`; the *local* minimiser reached
from z = 0; damping .8 from one start a branch; stop when no overlap moves by more than 1e-4 (V is not tested). The
training loss uses the 28-node, degree-11 rule of Rabinowitz and Richter. Sources: Cui, Behrens, Krzakala, Zdeborova,
arXiv 2402.03902, and the notebook released with it.

Its numbers are not converged: 12 x 12 nodes cannot see the jumps of the proximal operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from statmech_attn.positional_semantic import state_equations as equations
from statmech_attn.positional_semantic.attention import effective_target, loss, teacher_attention
from statmech_attn.positional_semantic.model import PositionalSemantic
from statmech_attn.positional_semantic.proximal import local_minimum
from statmech_attn.theory import Array

__all__ = ["Published"]


def _plane_rule(orbits: list[tuple[float, float, float]]) -> tuple[Array, Array]:
    """Nodes (n, 2) and weights for two standard normals; an orbit (weight, a, b) is (+-a, +-b) and (+-b, +-a)."""
    nodes, weights = [], []
    for weight, a, b in orbits:
        for point in sorted({(i * x, j * y) for x, y in ((a, b), (b, a)) for i in (1, -1) for j in (1, -1)}):
            nodes.append(point)
            weights.append(weight)
    w = np.array(weights)
    return math.sqrt(2) * np.array(nodes), w / w.sum()


_ROOT5 = math.sqrt(5)
DEGREE_7 = _plane_rule(
    [(1 / 36, math.sqrt(3), 0.0)]
    + [((5 + 2 * e * _ROOT5) / 45, x, x) for e in (1, -1) for x in [math.sqrt((9 - 3 * e * _ROOT5) / 8)]]
)
DEGREE_11 = _plane_rule(
    [
        (0.8176645817675417e-3, 2.757816396257008, 0.0),
        (0.4363323129985824e-1, math.sqrt(3), 0.0),
        (0.5373255214498174, 0.6280515301597559, 0.0),
        (0.3636102608321520e-2, math.sqrt(1.5), math.sqrt(4.5)),
        (0.9817477042468103e-1, math.sqrt(0.5), math.sqrt(1.5)),
    ]
)


@njit(error_model="numpy", cache=True)
def _student_first(q, m, theta, V, sigma, omega, a1, a2, nodes, weights):  # type: ignore[no-untyped-def]
    """E (g_1 - g_2), E|g|^2, E g.xi, E g.y, E M; nodes of both planes in token coordinates."""
    out = np.zeros(5)
    root = math.sqrt(q)
    spread = math.sqrt(sigma * sigma - theta * theta / q)
    half = math.sqrt(0.5)
    for i in range(weights.size):
        x1, x2 = nodes[i, 0], nodes[i, 1]
        w1 = root * x1 + m
        w2 = root * x2 - m
        for j in range(weights.size):
            h1 = theta / root * x1 + spread * nodes[j, 0]
            h2 = theta / root * x2 + spread * nodes[j, 1]
            t1, t2 = teacher_attention((h1 - h2) * half, (h1 + h2) * half, omega, a1, a2)
            u, v, minimum = local_minimum(0.0, 0.0, (w1 - w2) * half, (w1 + w2) * half, V, t1, t2, sigma * sigma)
            g1 = ((u + v) * half - w1) / V
            g2 = ((v - u) * half - w2) / V
            w = weights[i] * weights[j]
            out[0] += w * (g1 - g2)
            out[1] += w * (g1 * g1 + g2 * g2)
            out[2] += w * (g1 * x1 + g2 * x2)
            out[3] += w * (g1 * nodes[j, 0] + g2 * nodes[j, 1])
            out[4] += w * minimum
    return out


@njit(error_model="numpy", cache=True)
def _test_error(q, m, theta, sigma, omega, a1, a2, nodes, weights):  # type: ignore[no-untyped-def]
    """E loss(h*, omega) on the same nodes."""
    root = math.sqrt(q)
    spread = math.sqrt(sigma * sigma - theta * theta / q)
    half = math.sqrt(0.5)
    total = 0.0
    for i in range(weights.size):
        w1 = root * nodes[i, 0] + m
        w2 = root * nodes[i, 1] - m
        for j in range(weights.size):
            h1 = theta / root * nodes[i, 0] + spread * nodes[j, 0]
            h2 = theta / root * nodes[i, 1] + spread * nodes[j, 1]
            t1, t2 = teacher_attention((h1 - h2) * half, (h1 + h2) * half, omega, a1, a2)
            value = loss((w1 - w2) * half, (w1 + w2) * half, t1, t2, sigma * sigma)
            total += weights[i] * weights[j] * value
    return total


@dataclass(frozen=True)
class Published(PositionalSemantic):
    """The model as the authors solved it: ``solve(model, start, rule="published")``."""

    settings: ClassVar[Mapping[str, Any]] = {
        "method": "damped",
        "damping": 0.8,
        "tol": 1e-4,
        "max_iterations": 300,
        "accuracy": math.inf,
    }

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        """The one rule."""
        return (DEGREE_7,)

    def hats(self, state: Array, rule: Any) -> equations.Hats:
        """Conjugates in student-first form."""
        q, m, theta, V = state.tolist()
        a1, a2, _ = effective_target(self.positional_target)
        g_m, g_g, g_xi, g_y, envelope = _student_first(q, m, theta, V, self.sigma, self.omega, a1, a2, *rule)
        theta_hat = self.alpha * g_y / math.sqrt(self.sigma**2 - theta**2 / q)
        return equations.Hats(
            q=self.alpha * g_g,
            m=self.alpha * g_m,
            theta=theta_hat,
            V=-self.alpha * g_xi / math.sqrt(q) + theta * theta_hat / q,
            envelope=envelope,
        )

    def scale(self, state: Array) -> Array:
        """The stop is on the plain change of the overlaps; V is not tested."""
        return np.array([1.0, 1.0, 1.0, math.inf])

    def initial(self, start: str) -> Array:
        """The authors' starts, one a branch for all parameters."""
        starts = {
            "uninformed": (0.0206838209589, 0.0, 0.0, 14.575),
            "positional": (0.0206838209589, 0.2, 0.0, 14.575),
            "semantic": (0.906838209589, 0.0002, 0.3472, 14.575),
        }
        return np.array(starts[start])

    def branch(self, state: Array) -> str:
        """The larger overlap names the branch: the loose stop leaves the other at some 1e-4."""
        _, m, theta, _ = np.abs(state)
        if max(m, theta) < 1e-3:
            return "uninformed"
        return "positional" if m > theta else "semantic"

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        """Training loss (conjugates of the 12-node rule, envelope of the 28-node rule) and test error (28 nodes)."""
        q, m, theta, _ = state.tolist()
        a1, a2, constant = effective_target(self.positional_target)
        conjugates = self.hats(state, rule)._replace(envelope=self.hats(state, DEGREE_11).envelope)
        return {
            "train_loss": equations.free_energy(self, state, conjugates),
            "test_error": _test_error(q, m, theta, self.sigma, self.omega, a1, a2, *DEGREE_11)
            + constant * self.sigma**2 * self.omega**2,
        }
