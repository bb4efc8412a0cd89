r"""What a simulation of an attention layer gives: overlaps per token, losses, and how it ended.

Overlaps are defined up to the gauge :math:`Q\to QR`, R orthogonal, and up to transformations of the teacher that its
law and its attention do not see. A run is compared with a state of the theory in the gauge where its
:math:`\theta_l=Q^\top\Sigma_lQ_\star/d` and :math:`m_l=Q^\top p_l/\sqrt d` are nearest to those of the state.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from statmech_attn.positional_semantic.data import Instance
from statmech_attn.positional_semantic.gauge import OrderParameters, generators, rotated, signs
from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.store import read_archive, replacing, write_archive
from statmech_attn.theory import Array, Solution, Status, parameters_of

__all__ = ["Overlaps", "Run", "align", "cosines", "load_runs", "overlaps", "save_runs", "write_runs"]

#: Fields of a run that are numbers or strings.
PLAIN = (
    "dimension", "seed", "method", "start", "train_loss", "test_error", "test_error_error", "gradient", "iterations",
)  # fmt: skip


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
        """Overlaps and losses under their names in the theory, overlaps in the gauge of its state.

        ValueError if the theory is another model, or differs in a parameter.
        """
        theory: Any = solution.theory
        found = align(self.model.layer(), self.overlaps, self._wanted(solution))
        losses = {"train_loss": self.train_loss, "test_error": self.test_error}
        return {**theory.name_overlaps(*found), **losses}

    def departed(self, solution: Solution) -> bool:
        """Whether the weights left the branch of a solution.

        By squared cosines with the positional vectors and with the teacher (:func:`cosines`): one has fallen below a
        quarter of what it is in the solution, by more than the 1/d of chance, and the other is four times as large and
        above 0.1. So fluctuations about a small overlap, near a pitchfork, are no departure. Beyond rank one both may
        be large, in different columns: there one that vanishes in the solution must not be above 0.1 and 32/d.
        """
        layer = self.model.layer()
        found, wanted = cosines(layer, self.overlaps), cosines(layer, self._wanted(solution))
        for old, new in ((0, 1), (1, 0)):
            rest = found[old] + 1 / self.dimension
            gained = layer.student_rank > 1 and wanted[new] < 1e-9 and found[new] > 32 / self.dimension
            lost = rest < wanted[old] / 4 and found[new] > 4 * rest
            if found[new] > 0.1 and (gained or lost):
                return True
        return False

    def _wanted(self, solution: Solution) -> Overlaps:
        """Overlaps of a solution of the same layer."""
        theory: Any = solution.theory
        differ = _different(self.model.layer(), theory.layer()) if hasattr(theory, "layer") else ["model"]
        if differ:
            raise ValueError(
                f"a run of {self.model} is not comparable with {theory}: they differ in {', '.join(differ)}"
            )
        state = theory.overlaps(solution.state)
        return Overlaps(state.q, state.m, state.theta)

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


def _different(one: AttentionLayer, other: AttentionLayer) -> list[str]:
    """Names of the parameters in which two layers differ, whatever the rules of their integrals."""

    def values(layer: AttentionLayer, name: str) -> tuple[Any, ...]:
        return layer.spectrum.arrays if name == "spectrum" else (getattr(layer, name),)

    def same(a: Any, b: Any) -> bool:
        return bool(a == b if isinstance(a, str) else np.shape(a) == np.shape(b) and np.allclose(a, b, 1e-9, 1e-12))

    names = [field.name for field in fields(AttentionLayer)]
    return [n for n in names if not all(map(same, values(one, n), values(other, n)))]


def cosines(layer: AttentionLayer, found: Overlaps) -> tuple[float, float]:
    """Squared cosines of the weights with the positional vectors and with the teacher, averaged over tokens.

    No rotation of rank space changes them; they are of order 1/d for weights that know of nothing.
    """
    weights, _, positions, *_ = layer.spectrum.arrays
    sizes = np.trace(found.q, axis1=1, axis2=2)
    most = float(np.sum(sizes / layer.spectrum.token_variances * (weights @ positions**2)))
    teacher = np.trace(layer.spectrum.teacher_gram, axis1=1, axis2=2)
    return float(np.sum(found.m**2)) / (most or 1.0), float(np.sum(found.theta**2) / np.sum(sizes * teacher))


# ---- gauge


def align(layer: AttentionLayer, found: Overlaps, wanted: Overlaps) -> Overlaps:
    """The overlaps in the gauge nearest to wanted ones: theta and m, in the sum of squares.

    By orthogonal Procrustes in the student's rank space and, where the law of the teacher's rows allows flips and
    rotations (:func:`.gauge.signs`, :func:`.gauge.generators`), angle by angle in that of the teacher.
    """
    best, score = found, -np.inf
    flips = {tuple(teacher) for _, teacher in signs(1, layer.spectrum)}
    planes = [teacher for _, teacher in generators(1, layer.spectrum)]
    state = OrderParameters(*found, found.q)
    # the identity first: it stays where flips make no difference
    for flip in sorted(flips, reverse=True):
        right = np.diag(flip)
        for _ in range(50 if planes else 1):
            left = _nearest(
                np.einsum("lij,jk,lmk->im", found.theta, right, wanted.theta)
                + np.einsum("li,lm->im", found.m, wanted.m),
            )
            product = np.einsum("lij,im,lmk->jk", found.theta, left, wanted.theta)
            for E in planes:
                # over 1 + sin E + (1 - cos) E^2
                angle = np.arctan2(np.sum(right @ E * product), -np.sum(right @ E @ E * product))
                right = right @ (np.eye(len(E)) + np.sin(angle) * E + (1 - np.cos(angle)) * E @ E)
        turned = Overlaps(*rotated(state, left, right)[:3])
        value = float(np.sum(turned.theta * wanted.theta) + np.sum(turned.m * wanted.m))
        if value > score + 1e-12:
            best, score = turned, value
    return best


def _nearest(product: Array) -> Array:
    """Orthogonal R of largest tr R^T product."""
    u, _, v = np.linalg.svd(product)
    return np.asarray(u @ v)


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


def save_runs(path: str | os.PathLike[str], model: Any, key: Mapping[str, Any], runs: Sequence[Run]) -> None:
    """Keep runs of a model; `key` says how they were made, in JSON-ready values."""
    header = {
        "key": {**key, "model": model.name, "parameters": parameters_of(model)},
        "runs": [{**{n: getattr(run, n) for n in PLAIN}, "status": vars(run.status)} for run in runs],
    }
    arrays = {
        f"{k}.{name}": array
        for k, run in enumerate(runs)
        for name, array in {"weights": run.weights, **run.overlaps._asdict(), **_prefixed(run.history)}.items()
    }
    write_archive(path, "simulation", header, arrays)


def load_runs(path: str | os.PathLike[str], model: Any, key: Mapping[str, Any]) -> list[Run]:
    """Runs kept by :func:`save_runs`; ValueError if those are of another model or were made otherwise."""
    header, arrays = read_archive(path, "simulation")
    wanted = json.loads(json.dumps({**key, "model": model.name, "parameters": parameters_of(model)}))
    differ = [name for name, value in wanted.items() if header["key"].get(name) != value]
    if differ:
        raise ValueError(f"checkpoint={str(path)!r} belongs to another simulation: its {', '.join(differ)} differ")
    runs = []
    for k, plain in enumerate(header["runs"]):
        own = {n.removeprefix(f"{k}."): array for n, array in arrays.items() if n.startswith(f"{k}.")}
        history = {n.removeprefix("history."): array for n, array in own.items() if n.startswith("history.")}
        found = Overlaps(*(own[n] for n in Overlaps._fields))
        plain["status"] = Status(**plain["status"])
        runs.append(Run(model=model, weights=own["weights"], overlaps=found, history=history, **plain))
    return runs


def _prefixed(history: Mapping[str, Array]) -> dict[str, Array]:
    return {f"history.{name}": values for name, values in history.items()}
