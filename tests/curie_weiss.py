"""The Curie-Weiss magnet as a theory: m = tanh((m + h)/T), whose solutions are known in closed form.

A magnetisation m0 solves it at h = 0 for T = m0 / artanh(m0); the free energy is m^2/2 - T ln 2 cosh((m + h)/T).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from statmech_attn.theory import Array, Theory


@dataclass(frozen=True)
class CurieWeiss:
    temperature: float
    field: float = 0.0

    name: ClassVar[str] = "curie-weiss"
    order_parameters: ClassVar[tuple[str, ...]] = ("m",)
    starts: ClassVar[tuple[str, ...]] = ("paramagnetic", "ferromagnetic")
    broken: ClassVar[Mapping[str, str]] = {"ferromagnetic": "m"}
    rule_name: ClassVar[str] = ""
    control: ClassVar[str] = "temperature"
    settings: ClassVar[Mapping[str, Any]] = {}
    symmetries: ClassVar[Array] = np.array([[-1.0]])  # of the model without a field, which is the one tested

    def __post_init__(self) -> None:
        if not (0 < self.temperature < math.inf and math.isfinite(self.field)):
            raise ValueError(f"temperature={self.temperature} must be positive and finite, field={self.field} finite")

    def odd_slope(self, state: Array, rule: Any, group: list[int]) -> None:
        pass

    def flat_directions(self, state: Array) -> Array:
        """None."""
        return np.empty((0, state.size))

    def rules(self, accuracy: float) -> tuple[Any, ...]:
        return (None,)

    def replicates(self, rule: Any) -> tuple[Any, ...]:
        """None."""
        return ()

    def under(self, rule: str, **options: Any) -> Theory:
        raise ValueError(f"rule={rule!r}: there is none")

    def update(self, state: Array, rule: Any) -> Array:
        return np.tanh((state + self.field) / self.temperature)

    def potential(self, state: Array, rule: Any) -> float:
        m = float(state[0])
        return m * m / 2 - self.temperature * math.log(2 * math.cosh((m + self.field) / self.temperature))

    def observables(self, state: Array, rule: Any) -> dict[str, float]:
        return {"free_energy": self.potential(state, rule)}

    def infeasibility(self, state: Array) -> str:
        return "" if np.all(np.isfinite(state)) else f"m={state[0]} is not finite"

    def scale(self, state: Array) -> Array:
        return np.ones(1)

    def initial(self, start: str) -> Array:
        return np.array([0.9 if start == "ferromagnetic" else 0.0])

    def branch(self, state: Array) -> str:
        return "ferromagnetic" if abs(state[0]) > 1e-5 else "paramagnetic"


def temperature_of(m: float) -> float:
    """Temperature at which m solves the equation without a field."""
    return m / math.atanh(m)
