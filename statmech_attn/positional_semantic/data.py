r"""Training data of an attention layer at finite dimension, from an integer seed.

In the common eigenbasis of the token covariances every coordinate i belongs to an atom a of the spectrum (their numbers
in the ratio of the weights): :math:`x_{\mu l,i}=\sqrt{\gamma_a^l}\,\mathcal N(0,1)`, :math:`p_{l,i}=\pi_a^l/\sqrt d`,
and the teacher's row :math:`\tau_i` is normal with the mean and covariance of the atom. Any other basis is a rotation
of this one, under which risk and overlaps do not change.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.theory import Array

__all__ = ["Instance", "LayerModel", "instance"]

#: How the teacher's moments and the Gram matrices of tokens are taken: see :func:`instance`.
MOMENTS = ("exact", "sampled")
GRAMS = ("exact", "limit")


class LayerModel(Protocol):
    """A model with an attention layer behind it: :class:`.PositionalSemantic` or :class:`.AttentionLayer`."""

    def layer(self) -> AttentionLayer:
        """The layer in the general form."""
        ...


class Instance(NamedTuple):
    """Data of one training problem, in the common eigenbasis of the token covariances.

    Its memory is that of the tokens, 8 n L d bytes: 32 MB for n = 2000, L = 2, d = 1000.

    Attributes
    ----------
    layer : AttentionLayer
        Model drawn from.
    seed : int
        Of the generator.
    gram : {"exact", "limit"}
        Which Gram matrices the risk has.
    tokens : (n, L, d) array
        x, without the positional encodings.
    positions : (L, d) array
        p.
    variances : (L, d) array
        Diagonals of the token covariances.
    teacher : (d, t) array
        Q*.
    target : (n, L, L) array
        Attention T of the teacher.
    """

    layer: AttentionLayer
    seed: int
    gram: str
    tokens: Array
    positions: Array
    variances: Array
    teacher: Array
    target: Array

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.tokens.shape[2])


def instance(
    model: LayerModel, dimension: int, seed: int = 0, *, teacher_moments: str = "exact", gram: str = "exact"
) -> Instance:
    """Draw teacher, tokens and targets.

    Parameters
    ----------
    model : PositionalSemantic or AttentionLayer
        What to draw from; n = round(alpha d) samples.
    dimension : int
        d, at least every rank.
    seed : int
        Everything is a function of (seed, dimension).
    teacher_moments : {"exact", "sampled"}
        Exact: mean and covariance of the teacher's rows are in every atom those of the law. Atoms of too few
        directions are taken together: there the sums over directions hold that give the first moments, weighted by
        one, variances and encodings, and the second, weighted by one and variances (up to a scale, if the covariance
        of the teacher differs between these atoms). Sampled teachers have norms that fluctuate by O(1/sqrt d), which
        makes error bars of overlaps up to ten times larger.
    gram : {"exact", "limit"}
        Exact: the risk has the scalar products of the tokens. Limit: x x^T/d is replaced by its limit, the diagonal of
        the token variances, and x p^T/d, p p^T/d by zero, which removes most corrections of order 1/d.

    Returns
    -------
    Instance

    Raises
    ------
    ValueError, TypeError
        For another model, a dimension below a rank or without a sample, an unknown option, or too few directions
        for exact moments.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> data = instance(sa.PositionalSemantic(alpha=2.0, omega=0.3), dimension=50)
    >>> data.tokens.shape, data.teacher.shape, data.target.shape
    ((100, 2, 50), (50, 1), (100, 2, 2))
    """
    if not hasattr(model, "layer"):
        raise TypeError(f"model={model!r} must be a PositionalSemantic or an AttentionLayer")
    layer = model.layer()
    _check(layer, dimension, seed, teacher_moments, gram)
    n = round(layer.alpha * dimension)
    atoms = _atoms(layer, dimension)
    _, variances, positions, *_ = layer.spectrum.arrays
    rng = np.random.default_rng([seed, dimension])
    teacher = _teacher(layer, atoms, teacher_moments == "exact", rng)
    tokens = rng.standard_normal((n, layer.tokens, dimension))
    tokens *= np.sqrt(variances[atoms].T)
    index = tokens @ teacher / np.sqrt(dimension)
    target = layer.targets(index)
    encodings = positions[atoms].T / np.sqrt(dimension)
    return Instance(layer, seed, gram, tokens, encodings, variances[atoms].T.copy(), teacher, target)


def _check(layer: AttentionLayer, dimension: Any, seed: Any, teacher_moments: str, gram: str) -> None:
    for name, value, known in (("teacher_moments", teacher_moments, MOMENTS), ("gram", gram, GRAMS)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(known)}")
    for name, value, least in (("dimension", dimension, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name}={value!r} must be an integer")
        if value < least:
            raise ValueError(f"{name}={value!r} must be at least {least}")
    for name, rank in (("student", layer.student_rank), ("teacher", layer.teacher_rank)):
        if rank > dimension:
            raise ValueError(f"dimension={dimension} is below the rank {rank} of the {name}")
    if round(layer.alpha * dimension) < 1:
        raise ValueError(f"dimension={dimension} with alpha={layer.alpha!r} leaves no sample: n = alpha d rounds to 0")


def _atoms(layer: AttentionLayer, dimension: int) -> Any:
    """(d,) atom of every coordinate: shares of the weights, their sums rounded, ties to even."""
    ends = np.rint(np.round(np.cumsum(layer.spectrum.weights) * dimension, 6)).astype(int)
    return np.repeat(np.arange(ends.size), np.diff(ends, prepend=0))


def _teacher(layer: AttentionLayer, atoms: Any, exact: bool, rng: np.random.Generator) -> Array:
    """(d, t) rows of the teacher."""
    _, variances, positions, mean, covariance = layer.spectrum.arrays
    rows = rng.standard_normal((atoms.size, layer.teacher_rank))
    values, vectors = np.linalg.eigh(covariance)
    if exact:
        drawn = values[:, -1] > 0
        scale = np.sqrt(np.trace(covariance, axis1=1, axis2=2) / layer.teacher_rank)[atoms]
        weights = np.column_stack([np.ones(len(variances)), variances])[atoms]
        rows = _whitened(rows, np.where(drawn[atoms], atoms, -1), weights, positions[atoms], scale)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return np.asarray(mean[atoms] + np.einsum("iab,ib->ia", root[atoms], rows))


def _whitened(rows: Array, atoms: Any, weights: Array, positions: Array, scale: Array) -> Array:
    """Rows with the moments of N(0, I) in every atom, jointly in those too small; where `atoms` is -1, any."""
    count, rank, known = np.bincount(atoms[atoms >= 0], minlength=1), rows.shape[1], atoms >= 0
    least, rows = rank, rows.copy()
    while np.any(together := known & (count[atoms] <= least)):
        found = _jointly(rows[together], weights[together], positions[together], scale[together])
        if found is not None:
            rows[together] = found
            break
        if np.all(together == known):
            raise ValueError(
                f"teacher_moments='exact' needs more than {rank} directions in every atom, or more small atoms than "
                f"dimension={len(atoms)} has: take a larger dimension or teacher_moments='sampled'"
            )
        # too few of them: with the next larger atoms
        least *= 2
    for a in np.unique(atoms[known & ~together]):
        mine = atoms == a
        centred = rows[mine] - rows[mine].mean(axis=0)
        factor = np.linalg.cholesky(centred.T @ centred / len(centred))
        rows[mine] = np.linalg.solve(factor, centred.T).T
    return rows


def _jointly(rows: Array, weights: Array, positions: Array, scale: Array) -> Array | None:
    """Rows with first moments zero and second moments one, in sums with weights; None where they cannot be found.

    In turn, rows are projected and multiplied by matrices 1 - X_i linear in the weights that correct second moments.
    """
    first = np.column_stack([weights, positions]) * scale[:, None]
    second = weights * scale[:, None] ** 2
    second = second / np.maximum(second.sum(axis=0), 1e-300)
    inverse = np.linalg.pinv(second.T @ second, rcond=1e-10, hermitian=True)
    identity = np.eye(rows.shape[1])
    for _ in range(200):
        rows = rows - first @ np.linalg.lstsq(first, rows, rcond=1e-10)[0]
        excess = np.einsum("iw,ia,ib->wab", second, rows, rows) - identity
        size = np.abs(excess).max(initial=0.0)
        if size < 1e-12:
            return rows
        if not size < 1e3:
            return None
        X = np.tensordot(second, np.tensordot(inverse, excess, axes=1) / 2, axes=1)
        # no row by more than a quarter at a time
        rows = rows - np.einsum("iab,ib->ia", X, rows) * min(1.0, 0.25 / max(np.abs(X).max(), 1e-300))
    return None
