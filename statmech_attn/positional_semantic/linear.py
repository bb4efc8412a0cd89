r"""The best linear layer on the data of an attention layer: tokens mixed by one matrix W, the same for all samples.

Minimises :math:`\sum_\mu\frac1{2d}|Tx_\mu-W\tilde x_\mu|^2`, at :math:`W=(\sum_\mu T_\mu B_\mu)(\sum_\mu C_\mu)^{-1}`
with the Gram matrices B, C of :mod:`.risk`. As d grows W tends to the mean of the teacher's attention, and its test
error to :func:`.linear_baseline` (Cui et al. 2024).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from statmech_attn.positional_semantic.data import Instance
from statmech_attn.positional_semantic.minimisers import METHODS, minimise
from statmech_attn.positional_semantic.risk import expected_error, quadratic
from statmech_attn.theory import Array, Status

__all__ = ["LinearLayer", "linear_layer"]


class LinearLayer(NamedTuple):
    """A linear layer.

    Attributes
    ----------
    mixing : (L, L) array
        W.
    train_loss : float
        Squared error of the training samples over 2 d, per dimension; there is no penalty.
    test_error, test_error_error : float
        Error of a fresh sample (half the mean squared error), and its standard error for this W.
    status : Status
        How it was found.
    """

    mixing: Array
    train_loss: float
    test_error: float
    test_error_error: float
    status: Status


def linear_layer(
    data: Instance, method: str = "closed form", *, tol: float = 1e-8, max_iterations: int | None = None
) -> LinearLayer:
    """Fit the linear layer in closed form, or train it.

    Parameters
    ----------
    data : Instance
        Of :func:`.data.instance`.
    method : {"closed form", "lbfgs", "gradient_descent", "adam"}
        Least squares, or a minimiser of :func:`.minimisers.minimise` from W = 0.
    tol : float
        Bound on the gradient by W, over n.
    max_iterations : int, optional
        Of the minimiser.

    Raises
    ------
    ValueError
        For an unknown method, or fewer data than tokens.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> from statmech_attn.positional_semantic import linear_baseline
    >>> from statmech_attn.positional_semantic.data import instance
    >>> layer = linear_layer(instance(sa.PositionalSemantic(alpha=2.0, omega=0.3), 800))
    >>> print(f"{layer.test_error:.5f} (large d: {linear_baseline(0.5, 0.3):.5f})")
    0.00200 (large d: 0.00197)
    """
    known = ("closed form", *METHODS)
    if method not in known:
        raise ValueError(f"method={method!r} is not one of {', '.join(known)}")
    form, n = quadratic(data), len(data.target)
    cross, gram = form.cross.mean(axis=0), form.gram.mean(axis=0)

    def error(W: Array) -> tuple[float, Array]:
        """Mean over samples, and its derivative."""
        slope = W @ gram - cross
        return form.constant / n + 0.5 * float(np.sum((slope - cross) * W)), slope

    if np.linalg.matrix_rank(gram, hermitian=True) < len(gram):
        raise ValueError(f"data of n = {n}, dimension = {data.dimension} do not determine W: more are needed")
    if method == "closed form":
        W, status = np.linalg.solve(gram, cross.T).T, Status("converged", "least squares in closed form")
    else:
        found = minimise(error, np.zeros_like(cross), method, tol=tol, max_iterations=max_iterations)
        W, status = found.point, found.status
    test_error, spread = expected_error(data, mixing=W)
    return LinearLayer(W, error(W)[0] * n / data.dimension, test_error, spread, status)
