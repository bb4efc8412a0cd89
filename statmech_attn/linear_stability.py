r"""Three kinds of stability of a fixed point x = F(x), under three names because they differ.

* of the *iteration*: x <- F(x) converges nearby iff the spectral radius of F' is below one. A property of the
  algorithm: damping or acceleration cure eigenvalues below -1.
* *static*, of the potential: its Hessian loses definiteness through real eigenvalues of F' above one, and only they
  count. In a direction that breaks a sign symmetry of the state F' is a block of its own, for one order parameter the
  rate :math:`r_i=\partial F_i/\partial x_i`; r_i = 1 is a pitchfork.
* *replica-symmetric*: whether the replica-symmetric equations themselves hold. The replicon must be below one; it is
  infinite where the proximal operator jumps, so the smooth part is given beside the probability of jumps.

A continuous symmetry that a state breaks gives F' the eigenvalue one along its orbit (a flat direction of the
potential). That is not marginal stability: these directions are left out of all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from statmech_attn.fixed_point import jacobian
from statmech_attn.theory import Array, Theory, accuracy_of

__all__ = ["Stability", "across", "blocks", "rate_of", "stability", "stability_of"]

#: Relative amplitude at which odd components are differentiated. A quadrature error of 1e-5 in F_i is one of 3e-4 in
#: F_i/x_i here, and more below; the terms left out are of relative order 1e-6, 1e-3 without extrapolation.
AMPLITUDE = 3e-2


@dataclass(frozen=True)
class Stability:
    """Stability of a state.

    Attributes
    ----------
    eigenvalues : (n,) complex array
        Of F' across the flat directions, by decreasing real part.
    rates : dict
        Largest real eigenvalue in each symmetry-odd direction; above one the state is unstable to it.
        -inf where none is real.
    replicon : float
        Smooth part of the replicon; nan for a theory without one.
    jump_probability : float
        Probability of two wells that exchange in the proximal operator; nan for a theory without one.
    """

    eigenvalues: npt.NDArray[np.complex128]
    rates: dict[str, float]
    replicon: float
    jump_probability: float

    @property
    def iteration(self) -> float:
        """Spectral radius of F': plain iteration converges where it is below one."""
        return float(np.max(np.abs(self.eigenvalues), initial=0.0))

    @property
    def unstable_directions(self) -> int:
        """Number of real eigenvalues of F' above one."""
        real = np.abs(self.eigenvalues.imag) <= 1e-6 * np.abs(self.eigenvalues)
        return int(np.sum(real & (self.eigenvalues.real > 1)))

    @property
    def static(self) -> bool:
        """Whether the potential is stable: no real eigenvalue of F' above one."""
        return self.unstable_directions == 0

    @property
    def replica_symmetric(self) -> bool:
        """Whether the replicon is below one and nothing jumps (False where it is unknown)."""
        return self.replicon < 1 and not self.jump_probability > 0

    def __str__(self) -> str:
        rates = "".join(f", {name} {rate:.4g}" for name, rate in self.rates.items())
        jumps = ", infinite by jumps" if self.jump_probability > 0 else ""
        return (
            f"iteration: spectral radius {self.iteration:.4g}; potential: {self.unstable_directions} unstable "
            f"directions{rates}; replicon {self.replicon:.4g} (smooth part){jumps}"
        )


def blocks(theory: Theory, state: Array) -> tuple[list[int], dict[str, list[int]]]:
    """Order parameters that keep the symmetries of a state, and by name the groups that break them alike.

    F' does not couple different groups.
    """
    symmetries = theory.symmetries
    kept = symmetries[np.all(symmetries * state == state, axis=1)]
    even: list[int] = []
    odd: dict[tuple[float, ...], list[int]] = {}
    for i in range(state.size):
        signs = tuple(kept[:, i].tolist())
        (even if all(s > 0 for s in signs) else odd.setdefault(signs, [])).append(i)
    return even, {"+".join(theory.order_parameters[i] for i in group): group for group in odd.values()}


def rate_of(F: Callable[[Array], Array], theory: Theory, state: Array, rule: Any, group: list[int]) -> float:
    r"""1 - det(1 - F') on a group of odd order parameters; for a single one the rate r_i. One where a pitchfork is.

    F is odd in the group, so quotients at amplitudes w and 2 w leave an error of order w^4.
    """
    known = theory.odd_slope(state, rule, group)
    if known is None:
        narrow, wide = (quotients(F, theory, state, rule, group, amplitude) for amplitude in (AMPLITUDE, 2 * AMPLITUDE))
        known = (4 * narrow - wide) / 3
    slope = across(theory, state, known, group)
    return float(slope[0, 0]) if len(slope) == 1 else float(1 - np.linalg.det(np.eye(len(slope)) - slope))


def quotients(
    F: Callable[[Array], Array], theory: Theory, state: Array, rule: Any, group: list[int], amplitude: float
) -> Array:
    """F_j/x_i over a group of odd order parameters, i moved by an amplitude in units of the scale.

    Under a random rule F is odd only up to its error, of which the difference to the mirror image is free.
    """
    scale = theory.scale(state)
    columns = []
    for i in group:
        images = []
        for sign in (1, -1) if theory.replicates(rule) else (1,):
            shifted = state.copy()
            shifted[i] = sign * amplitude * scale[i]
            while theory.infeasibility(shifted) and abs(shifted[i]) > 1e-12 * scale[i]:
                shifted[i] /= 2  # a variance next to zero allows small overlaps only
            images.append(F(shifted)[group] / shifted[i])
        columns.append(np.mean(images, axis=0))
    return np.array(columns).T


def stability_of(theory: Theory, state: Array, slope: Array, observables: Mapping[str, float]) -> Stability:
    """Stability from F' (n, n) and the observables of a state."""
    everything = across(theory, state, slope, list(range(state.size)))
    eigenvalues = np.sort_complex(np.linalg.eigvals(everything).astype(np.complex128))[::-1]
    rates = {}
    for name, group in blocks(theory, state)[1].items():
        values = np.linalg.eigvals(across(theory, state, slope[np.ix_(group, group)], group))
        real = values.real[np.abs(values.imag) <= 1e-6 * np.abs(values)]
        rates[name] = float(np.max(real, initial=-math.inf))
    replicon, jumps = (observables.get(name, math.nan) for name in ("replicon", "jump_probability"))
    return Stability(eigenvalues, rates, replicon, jumps)


def across(theory: Theory, state: Array, slope: Array, group: list[int]) -> Array:
    """F' on a group of order parameters, in units of the scale, on the complement of the flat directions."""
    flat = theory.flat_directions(state)[:, group]
    scale = theory.scale(state)[group]
    scaled = slope * scale / scale[:, None]
    if not np.any(flat):
        return np.asarray(scaled)
    _, lengths, basis = np.linalg.svd(flat / scale)
    rest = basis[np.sum(lengths > 1e-6) :]
    return np.asarray(rest @ scaled @ rest.T)


def stability(found: Found, *, accuracy: float | None = None) -> Stability:
    """Stability of a solution or of a row of a branch.

    Parameters
    ----------
    found : Solution or Row
        What has `theory`, `state` and `observables`.
    accuracy : float
        Chooses the quadrature rule; default 1e-5, or what the theory sets.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import statmech_attn as sa
    >>> solution = sa.solve(sa.PositionalSemantic(alpha=1.24, omega=0.3), start="positional")
    >>> print({name: round(rate, 2) for name, rate in sa.stability(solution).rates.items()})
    {'theta': 0.33}
    """
    theory, state = found.theory, found.state
    rule = theory.rules(accuracy_of(theory, accuracy))[0]

    def update(x: Array) -> Array:
        return theory.update(x, rule)

    slope = jacobian(update, state, theory) + odd_slope(update, theory, state, rule)
    return stability_of(theory, state, slope, found.observables)


def odd_slope(F: Callable[[Array], Array], theory: Theory, state: Array, rule: Any) -> Array:
    """The blocks of F' that break the symmetries of a state, zero elsewhere: (n, n)."""
    slope = np.zeros((state.size, state.size))
    for group in blocks(theory, state)[1].values():
        known = theory.odd_slope(state, rule, group)
        if known is None:
            known = quotients(F, theory, state, rule, group, AMPLITUDE)
        slope[np.ix_(group, group)] = known
    return slope


class Found(Protocol):
    """What a stability can be asked of."""

    @property
    def theory(self) -> Theory: ...
    @property
    def state(self) -> Array: ...
    @property
    def observables(self) -> dict[str, Any]: ...
