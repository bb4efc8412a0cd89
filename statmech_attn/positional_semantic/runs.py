r"""What a simulation of an attention layer gives: overlaps per token, losses, and how it ended.

Overlaps are defined up to the gauge :math:`Q\to QR`, R orthogonal, and up to transformations of the teacher that its
law and its attention do not see. A run is compared with a state of the theory in the gauge where its
:math:`\theta_l=Q^\top\Sigma_lQ_\star/d` and :math:`m_l=Q^\top p_l/\sqrt d` are nearest to those of the state.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from statmech_attn.positional_semantic.data import Instance
from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.store import replacing
from statmech_attn.theory import Array, Solution, Status

__all__ = ["Overlaps", "Run", "align", "overlaps", "write_runs"]


class Overlaps(NamedTuple):
    """Per token: q (L, r, r) self overlap, m (L, r) positional overlap, theta (L, r, t) teacher overlap."""

    q: Array
    m: Array
    theta: Array


def overlaps(data: Instance, Q: Array) -> Overlaps:
    """Overlaps of weights Q, (d, r)."""
    d = data.dimension
    weighted = data.variances[:, :, None] * Q / d  # (L, d, r)
    return Overlaps(
        np.einsum("di,ldj->lij", Q, weighted),
        data.positions @ Q / np.sqrt(d),
        np.einsum("ldi,dj->lij", weighted, data.teacher),
    )


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Run:
    """A layer trained, or iterated by approximate message passing, on one instance.

    Attributes
    ----------
    model : PositionalSemantic or AttentionLayer
        The model.
    dimension, seed : int
        d, and the seed of data and start.
    method, start : str
        How the weights were found, and from where.
    status : Status
        How it ended.
    weights : (d, r) array
        Q, in the eigenbasis of the token covariances.
    overlaps : Overlaps
        Of the weights, in the gauge in which they were found.
    train_loss : float
        Regularised risk over d.
    test_error : float
        Error of a fresh sample (half the mean squared error).
    test_error_error : float
        Its standard error over the points of the average, for these weights.
    gradient : float
        Norm of the gradient of the risk over sqrt(d r).
    iterations : int
        Made in all.
    history : dict of arrays
        ``loss`` (k,) and ``gradient`` (k,) of every iteration, the start first, and the overlaps ``q``, ``m``,
        ``theta``.
    """

    model: Any
    dimension: int
    seed: int
    method: str
    start: str
    status: Status
    weights: Array
    overlaps: Overlaps
    train_loss: float
    test_error: float
    test_error_error: float
    gradient: float
    iterations: int
    history: dict[str, Array]

    @property
    def converged(self) -> bool:
        """Whether the weights are a minimum, or a fixed point, to tolerance."""
        return self.status.kind == "converged"

    def numbers(self, solution: Solution) -> dict[str, float]:
        """Overlaps and losses under their names in the theory, overlaps in the gauge of its state."""
        theory: Any = solution.theory
        state = theory.overlaps(solution.state)
        found = align(self.model.layer(), self.overlaps, Overlaps(state.q, state.m, state.theta))
        losses = {"train_loss": self.train_loss, "test_error": self.test_error}
        return {**theory.name_overlaps(*found), **losses}

    def __str__(self) -> str:
        lines = [
            f"{self.model}",
            f"{self.method} from the {self.start} start, d = {self.dimension}, seed {self.seed}: {self.status}",
            *(f"  {name:>10} = {np.array2string(value, precision=5)}" for name, value in _squeezed(self.overlaps)),
            f"  train_loss = {self.train_loss:.7g}",
            f"  test_error = {self.test_error:.7g} +- {self.test_error_error:.1g}",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _squeezed(found: Overlaps) -> list[tuple[str, Array]]:
    return [(name, np.squeeze(value)) for name, value in found._asdict().items()]


# ---- gauge


def align(layer: AttentionLayer, found: Overlaps, wanted: Overlaps) -> Overlaps:
    """The overlaps in the gauge nearest to wanted ones, by orthogonal Procrustes on theta and m.

    Where the teacher's rows have mean zero, and a covariance that is diagonal (or isotropic) in every atom, their signs
    (or any rotation of them) are free too. What the wanted theta and m leave open stays as it is found.
    """
    best, score = found, -np.inf
    isotropic, even = _teacher_freedom(layer)
    t = layer.teacher_rank
    for signs in product((1.0, -1.0), repeat=t if even else 0):
        right = np.diag(signs) if even else np.eye(t)
        for _ in range(50 if isotropic and t > 1 else 1):
            left = _nearest(
                np.einsum("lij,jk,lmk->im", found.theta, right, wanted.theta)
                + np.einsum("li,lm->im", found.m, wanted.m),
            )
            if isotropic and t > 1:
                right = _nearest(np.einsum("lij,im,lmk->jk", found.theta, left, wanted.theta))
        turned = Overlaps(left.T @ found.q @ left, found.m @ left, left.T @ found.theta @ right)
        value = float(np.sum(turned.theta * wanted.theta) + np.sum(turned.m * wanted.m))
        if value > score + 1e-12:
            best, score = turned, value
    return best


def _nearest(product: Array) -> Array:
    """Orthogonal R of largest tr R^T product."""
    u, _, v = np.linalg.svd(product)
    return np.asarray(u @ v)


def _teacher_freedom(layer: AttentionLayer) -> tuple[bool, bool]:
    """Whether the law of the teacher's rows is isotropic, and whether it is even in each of them."""
    _, _, _, mean, covariance = layer.spectrum.arrays
    diagonal = covariance * np.eye(layer.teacher_rank)
    even = not np.any(mean) and np.array_equal(diagonal, covariance)
    scale = covariance[:, :1, :1] * np.eye(layer.teacher_rank)
    return even and np.array_equal(scale, covariance), even


# ---- files


def write_runs(path: str | os.PathLike[str], runs: Sequence[Run], solution: Solution) -> None:
    """A row for every run as CSV, overlaps in the gauge of the solution."""
    rows: list[Mapping[str, Any]] = [
        {
            "method": run.method,
            "start": run.start,
            "dimension": run.dimension,
            "seed": run.seed,
            "status": run.status.kind,
            **run.numbers(solution),
            "gradient": run.gradient,
            "iterations": run.iterations,
        }
        for run in runs
    ]
    if not rows:
        raise ValueError("runs is empty: there is nothing to write")
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
