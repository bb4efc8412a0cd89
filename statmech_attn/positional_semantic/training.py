r"""Empirical risk minimisation of an attention layer on simulated data.

Minimises :math:`\sum_\mu\frac1{2d}|T x_\mu-S\tilde x_\mu|^2+\frac\lambda2|Q|^2` (see :mod:`.risk`) by gradient descent,
Adam or L-BFGS from a random start or one that knows of a branch. What the theory gives is the lowest minimum of a
branch; where replica symmetry is unstable, minimisers end in others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from statmech_attn.positional_semantic.data import Instance, LayerModel, instance
from statmech_attn.positional_semantic.minimisers import METHODS, check_minimiser, minimise
from statmech_attn.positional_semantic.risk import Risk, expected_error
from statmech_attn.positional_semantic.runs import Run, load_runs, overlaps, save_runs
from statmech_attn.theory import Array

__all__ = ["STARTS", "begin", "simulate", "train"]

log = logging.getLogger(__name__)

STARTS = ("random", "semantic", "positional", "hybrid", "mixed")


def begin(data: Instance, start: str | Array, noise: float = 0.1) -> Array:
    """Weights to begin at, (d, r): see :func:`train`.

    Columns of an informed start that know of nothing, and the noise on the others, are normal numbers of standard
    deviation `noise`; the entries of a random start have standard deviation one.
    """
    d, r, t = data.dimension, data.layer.student_rank, data.layer.teacher_rank
    if not isinstance(start, str):
        given = np.array(start, dtype=np.float64)
        if given.shape != (d, r) or not np.all(np.isfinite(given)):
            raise ValueError(f"start of shape {given.shape} must be finite and of shape {(d, r)}")
        return given
    if start not in STARTS:
        raise ValueError(f"start={start!r} is not one of {', '.join(STARTS)}, or an array of weights")
    normal = np.random.default_rng([data.seed, d, 1]).standard_normal((d, r))
    if start == "random":
        return normal
    if start == "hybrid" and r < 2:
        raise ValueError("start='hybrid' needs a student of rank 2 at least: one semantic and one positional column")
    # as in the starts of the theory: the position in the first column, or in the last of a hybrid
    semantic = 0 if start == "positional" else min(r - (start == "hybrid"), t)
    Q = noise * normal
    Q[:, :semantic] += data.teacher[:, :semantic]
    if start != "semantic":
        contrast = data.positions - data.positions.mean(axis=0)
        source = contrast if np.any(contrast) else data.positions
        if not np.any(source):
            raise ValueError(f"start={start!r} needs positional encodings that do not vanish")
        # what tells tokens apart most; its sign is that of the first token
        direction = np.linalg.svd(source, full_matrices=False)[2][0]
        sign = -1.0 if direction @ source[0] < 0 else 1.0
        Q[:, -1 if start == "hybrid" else 0] += sign * np.sqrt(d) * direction
    return Q


def train(
    model: LayerModel,
    dimension: int,
    method: str = "lbfgs",
    start: str | Array = "random",
    *,
    seed: int = 0,
    teacher_moments: str = "exact",
    gram: str = "exact",
    tol: float = 1e-6,
    max_iterations: int | None = None,
    learning_rate: float | None = None,
    progress: bool = False,
    callback: Callable[[int, float, float], object] | None = None,
) -> Run:
    """Draw data and minimise the empirical risk.

    Parameters
    ----------
    model : PositionalSemantic or AttentionLayer
        The model; n = round(alpha d) samples.
    dimension : int
        d.
    method : {"lbfgs", "gradient_descent", "adam"}
        See :func:`.minimisers.minimise`.
    start : {"random", "semantic", "positional", "hybrid", "mixed"} or (d, r) array
        Normal weights; columns of the teacher; in the first column the direction in which the encodings of the tokens
        differ most; the teacher, and that direction in the last column (for a student of rank two or more); or in the
        first (for a teacher that is not centred).
    seed : int
        Of data and start. The data do not depend on method and start.
    teacher_moments, gram : str
        See :func:`.data.instance`.
    tol : float
        Bound on the norm of the gradient over sqrt(d r).
    max_iterations, learning_rate : int, float, optional
        See :func:`.minimisers.minimise`.
    progress : bool
        Show a bar of iterations (tqdm, where installed).
    callback : callable, optional
        Called with (iteration, risk over d, gradient).

    Returns
    -------
    Run
        Its status says whether it converged; nothing is raised if not.

    Raises
    ------
    ValueError, TypeError
        For bad arguments, by name.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> run = sa.train(sa.PositionalSemantic(alpha=2.0, omega=0.3), 500, start="semantic")
    >>> print(run.status.kind, f"{run.overlaps.theta[0, 0, 0]:.2f} (theory 0.158)")
    converged 0.16 (theory 0.158)
    """
    check_minimiser(method, tol, max_iterations, learning_rate)
    data = instance(model, dimension, seed, teacher_moments=teacher_moments, gram=gram)
    weights = begin(data, start)
    history: dict[str, list[Any]] = {name: [] for name in ("loss", "gradient", "q", "m", "theta")}
    bar = _bar(METHODS[method] if max_iterations is None else max_iterations) if progress else None

    def note(iteration: int, Q: Array, value: float, slope: Array) -> None:
        gradient = float(np.sqrt(np.mean(slope**2)))
        found = overlaps(data, Q)
        row = (value / dimension, gradient, found.q, found.m, found.theta)
        for name, entry in zip(history, row, strict=True):
            history[name].append(entry)
        if bar is not None and iteration:
            bar.update()
        if callback is not None:
            callback(iteration, value / dimension, gradient)

    minimum = minimise(
        Risk(data), weights, method,
        tol=tol, max_iterations=max_iterations, learning_rate=learning_rate, observer=note,
    )  # fmt: skip
    if bar is not None:
        bar.close()
    Q = minimum.point
    error, spread = expected_error(data, Q)
    return Run(
        model=model,
        dimension=int(dimension),
        seed=int(seed),
        method=method,
        start=start if isinstance(start, str) else "given",
        status=minimum.status,
        weights=Q,
        overlaps=overlaps(data, Q),
        train_loss=minimum.value / dimension,
        test_error=error,
        test_error_error=spread,
        gradient=minimum.gradient,
        iterations=minimum.iterations,
        history={name: np.array(entries) for name, entries in history.items()},
    )


def _bar(total: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        log.warning("no progress bar: tqdm is not installed")
        return None
    return tqdm(total=total, unit="iteration")


def simulate(
    model: LayerModel,
    dimensions: int | Sequence[int],
    seeds: int | Sequence[int] = 8,
    *,
    method: str = "lbfgs",
    start: str = "random",
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[Run], object] | None = None,
    **settings: Any,
) -> list[Run]:
    """Runs at several dimensions and seeds; the same whatever computes them.

    Parameters
    ----------
    model : PositionalSemantic or AttentionLayer
        The model.
    dimensions : int or sequence of int
        d.
    seeds : int or sequence of int
        The seeds, or their number from 0 on.
    method : {"lbfgs", "gradient_descent", "adam", "amp"}
        A minimiser of :func:`train`, or approximate message passing.
    start : str
        See :func:`train`.
    executor : concurrent.futures.Executor, optional
        What computes the runs; default this process. ``sa.local_pool(2)`` serves, as do those of dask and mpi4py.
    checkpoint : path, optional
        File to keep finished runs in. A call with the same model, method, start and settings takes from it those of its
        dimensions and seeds that are done.
    callback : callable, optional
        Called with every run, in their order.
    **settings
        Passed to :func:`train` or :func:`.amp`.

    Returns
    -------
    list of Run
        In the order of dimensions, then seeds.

    Raises
    ------
    ValueError, TypeError
        For bad arguments, by name, or the checkpoint of another simulation.

    Examples
    --------
    >>> import statmech_attn as sa
    >>> runs = simulate(sa.PositionalSemantic(alpha=2.0), [50, 100], seeds=2, start="semantic")
    >>> [(run.dimension, run.seed) for run in runs]
    [(50, 0), (50, 1), (100, 0), (100, 1)]
    """
    sizes = _integers("dimensions", dimensions)
    numbers = _integers("seeds", range(seeds) if isinstance(seeds, (int, np.integer)) else seeds)
    if not sizes or not numbers:
        raise ValueError(f"dimensions={dimensions!r} and seeds={seeds!r} must leave something to run")
    if method != "amp" and method not in METHODS:
        raise ValueError(f"method={method!r} is not one of {', '.join((*METHODS, 'amp'))}")
    if not isinstance(start, str) or start not in STARTS:
        raise ValueError(f"start={start!r} is not one of {', '.join(STARTS)}")
    done: dict[tuple[int, int], Run] = {}
    shown = ("callback", "progress")
    key = {"method": method, "start": start, "settings": {k: v for k, v in settings.items() if k not in shown}}
    if checkpoint is not None:
        if os.path.exists(checkpoint):
            done = {(run.dimension, run.seed): run for run in load_runs(checkpoint, model, key)}
        save_runs(checkpoint, model, key, list(done.values()))
    jobs = [(d, seed) for d in sizes for seed in numbers]
    todo = [(model, d, method, start, seed, settings) for d, seed in jobs if (d, seed) not in done]
    found = iter(map(_one, todo) if executor is None else executor.map(_one, todo))
    runs = []
    for job in jobs:
        if job not in done:
            done[job] = run = next(found)
            if checkpoint is not None:
                save_runs(checkpoint, model, key, list(done.values()))
            if not run.converged:
                log.info("%s from the %s start, d = %d, seed %d: %s", method, start, *job, run.status)
        if callback is not None:
            callback(done[job])
        runs.append(done[job])
    return runs


def _integers(name: str, values: Any) -> list[int]:
    """Different integers as a list; one is a list of one."""
    several = list(values) if np.iterable(values) else [values]
    for value in several:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name}={values!r} must be an integer or integers, not {value!r}")
        if several.count(value) > 1:
            raise ValueError(f"{name}={values!r} must differ: runs of the same data would count several times")
    return [int(value) for value in several]


def _one(job: tuple[Any, int, str, str, int, dict[str, Any]]) -> Run:
    model, dimension, method, start, seed, settings = job
    if method == "amp":
        from statmech_attn.positional_semantic.amp import amp  # which imports this module

        return amp(model, dimension, start, seed=seed, **settings)
    return train(model, dimension, method, start, seed=seed, **settings)
