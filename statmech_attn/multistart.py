"""Solutions that no named start reaches: Newton from random starts, copies under a symmetry counted once."""

from __future__ import annotations

import math

import numpy as np

from statmech_attn.fixed_point import solve
from statmech_attn.theory import Array, Solution, Theory, accuracy_of

__all__ = ["solutions"]


def solutions(
    theory: Theory,
    starts: int = 24,
    *,
    seed: int | np.random.Generator,
    tol: float = 1e-8,
    accuracy: float | None = None,
) -> tuple[Solution, ...]:
    """All solutions found from random starts, by increasing potential, unstable ones included.

    Parameters
    ----------
    theory : Theory
        The model.
    starts : int
        Number of random starts: there is no proof that all solutions are found.
    seed : int or numpy.random.Generator
        Source of the starts.
    tol, accuracy : float
        As for :func:`.solve`.

    Returns
    -------
    tuple of Solution
        One for every orbit of the theory's symmetries.

    Notes
    -----
    Starts scatter about the named ones: even order parameters by factors of log-normal width one half, odd ones
    uniformly within their scale. Newton's method is run under the cheapest rule and new solutions are polished.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> found = sa.solutions(sa.PositionalSemantic(alpha=0.65), seed=1)
    >>> [s.branch for s in found]
    ['semantic', 'positional', 'mixed', 'uninformed']
    """
    accuracy = accuracy_of(theory, accuracy)
    if starts < 1:
        raise ValueError(f"starts={starts!r} must be at least 1")
    random = np.random.default_rng(seed)
    found: list[Solution] = []
    for _ in range(starts):
        guess = dict(zip(theory.order_parameters, _random_state(theory, random).tolist(), strict=True))
        rough = solve(theory, guess, method="newton", tol=1e-6, accuracy=math.inf)
        if not rough.converged or any(_same(theory, rough.state, other.state) for other in found):
            continue
        solution = solve(theory, _snapped(theory, rough.state), method="newton", tol=tol, accuracy=accuracy)
        if solution.converged and not any(_same(theory, solution.state, other.state) for other in found):
            found.append(solution)
    rule = theory.rules(accuracy)[0]
    return tuple(sorted(found, key=lambda s: theory.potential(s.state, rule)))


def _random_state(theory: Theory, random: np.random.Generator) -> Array:
    """A feasible state about a named start."""
    state = theory.initial(str(random.choice(theory.starts)))
    odd = np.any(theory.symmetries < 0, axis=0)
    state = np.where(odd, 0.0, state * np.exp(0.5 * random.standard_normal(state.size)))
    overlap = np.where(odd, random.uniform(-1, 1, state.size) * theory.scale(state), 0.0)
    overlap *= random.integers(0, 2, state.size)  # half of them zero: solutions that keep a symmetry
    while theory.infeasibility(state + overlap):
        overlap *= 0.7
    return state + overlap


def _snapped(theory: Theory, state: Array) -> dict[str, float]:
    """Odd order parameters of the size of the tolerance set to zero, where their symmetry puts them."""
    odd = np.any(theory.symmetries < 0, axis=0)
    tiny = odd & (np.abs(state) < 1e-4 * theory.scale(state))
    return dict(zip(theory.order_parameters, np.where(tiny, 0.0, state).tolist(), strict=True))


def _same(theory: Theory, a: Array, b: Array) -> bool:
    """Whether a symmetry maps one state to the other, to 1e-3 of the scale."""
    images = [b]
    for signs in theory.symmetries:
        images += [image * signs for image in images]
    return any(bool(np.max(np.abs(a - image) / theory.scale(b)) < 1e-3) for image in images)
