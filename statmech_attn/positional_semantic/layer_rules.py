"""Quadrature of the general channel: product rules up to four dimensions, scrambled Sobol points beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from statmech_attn.quadrature import normal_product, sobol_normals
from statmech_attn.theory import Array

__all__ = ["Rule", "nodes_of", "product_rules", "sobol_rules"]

#: Accuracy a product rule is meant for (where nothing jumps), nodes on a half axis, reach, softness.
PRODUCTS = (
    (1e-2, 6, 4.3, 0.06),
    (1e-3, 8, 4.9, 0.05),
    (1e-4, 9, 5.4, 0.045),
    (1e-5, 10, 5.8, 0.04),
    (1e-6, 12, 6.3, 0.03),
    (0.0, 14, 6.8, 0.02),
)
#: Points of a scramble, as powers of two.
EXPONENTS = range(8, 17)


@dataclass(frozen=True)
class Rule:
    """A product rule (`seeds` empty; `size` nodes on a half axis) or scrambles of 2^size Sobol points each.

    `softness` is the width of :mod:`.layer_channel` over the mean variance of the tokens; `stein` asks for V_hat in
    Stein's form.
    """

    size: int
    softness: float
    reach: float = 0.0
    seeds: tuple[int, ...] = ()
    stein: bool = False

    def single(self) -> tuple[Rule, ...]:
        """The scrambles one by one."""
        return tuple(replace(self, seeds=(seed,)) for seed in self.seeds)


def product_rules(accuracy: float) -> tuple[Rule, ...]:
    """The product rule meant for `accuracy` and the next three; at least two in all.

    Not further: where the proximal operator jumps a finer grid gains little.
    """
    first = next(i for i, row in enumerate(PRODUCTS) if row[0] <= accuracy)
    first = min(first, len(PRODUCTS) - 2)
    return tuple(Rule(n, softness, reach) for _, n, reach, softness in PRODUCTS[first : first + 4])


def sobol_rules(accuracy: float, scrambles: int, seed: int, stein: bool = False) -> tuple[Rule, ...]:
    """Sobol rules from the one meant for `accuracy` to the finest, every level with scrambles of its own."""
    # the variances, the least precise: about 1e-2 with four scrambles of 2^8 points, falling almost like 1/N
    wanted = 8 if accuracy == math.inf else 8 + 1.2 * math.log2(1e-2 / accuracy)
    first = min(max(math.ceil(wanted), EXPONENTS[0]), EXPONENTS[-2])
    return tuple(
        Rule(
            e,
            0.06 * 2 ** ((8 - e) / 8),
            seeds=tuple(1000 * seed + scrambles * e + k for k in range(scrambles)),
            stein=stein,
        )
        for e in range(first, EXPONENTS[-1] + 1)
    )


@lru_cache(maxsize=16)
def nodes_of(rule: Rule, dimension: int) -> tuple[Array, Array]:
    """Nodes (n, dimension) and weights (n,) of a rule."""
    if not rule.seeds:
        # nodes outside the sphere of the reach weigh less than its tails
        return normal_product(rule.size, rule.reach, dimension, math.exp(-(rule.reach**2) / 2))
    parts = [sobol_normals(rule.size, dimension, seed)[0] for seed in rule.seeds]
    nodes = np.concatenate(parts)
    return nodes, np.full(len(nodes), 1 / len(nodes))
