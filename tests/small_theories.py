"""Theories of one equation f(u, p) = 0, as x = x + f(x): exact, so that continuation is tested against algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from statmech_attn.theory import Array


def cubic(u: float, p: float) -> float:
    """Folds at p = -+2/(3 sqrt 3)."""
    return u - u**3 + p


def pitchfork(u: float, p: float) -> float:
    """u = 0, and u = +-sqrt(-p)."""
    return -(u**3) - p * u


def parabola(u: float, p: float) -> float:
    """u = +-sqrt(p)."""
    return p - u**2


EQUATIONS: dict[str, Callable[[float, float], float]] = {"cubic": cubic, "pitchfork": pitchfork, "parabola": parabola}


@dataclass(frozen=True)
class Scalar:
    """f(u, p) = 0 for one of the functions above, by name."""

    p: float
    equation: str = "cubic"
    start: float = 0.0

    name: ClassVar[str] = "scalar"
    order_parameters: ClassVar[tuple[str, ...]] = ("u",)
    starts: ClassVar[tuple[str, ...]] = ("given",)
    broken: ClassVar[dict[str, str]] = {}
    settings: ClassVar[dict[str, Any]] = {}

    @property
    def symmetries(self) -> Array:
        return np.array([[-1.0]]) if self.equation == "pitchfork" else np.empty((0, 1))

    def f(self, u: float) -> float:
        return EQUATIONS[self.equation](u, self.p)

    def odd_slope(self, state: Array, rule: Any, group: list[int]) -> None:
        pass

    def flat_directions(self, state: Array) -> Array:
        return np.empty((0, state.size))

    def replicates(self, rule: Any) -> tuple[Any, ...]:
        return ()

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        return (None,)

    def update(self, state: Array, rule: Any) -> Array:
        return np.array([state[0] + self.f(float(state[0]))])

    def potential(self, state: Array, rule: Any) -> float:
        u = float(state[0])
        nodes, weights = np.polynomial.legendre.leggauss(5)
        return float(-sum(w * u / 2 * self.f(u * (1 + x) / 2) for x, w in zip(nodes, weights, strict=True)))

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        return {"potential_energy": self.potential(state, rule), "u_squared": float(state[0]) ** 2}

    def infeasibility(self, state: Array) -> str:
        return "" if math.isfinite(state[0]) else "not finite"

    def scale(self, state: Array) -> Array:
        return np.ones(1)

    def initial(self, start: str) -> Array:
        return np.array([self.start])

    def branch(self, state: Array) -> str:
        return "given"
