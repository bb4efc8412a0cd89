r"""The global proximal operator of the attention loss of any number of tokens and any rank.

.. math:: M(\omega)=\min_{z\in\mathbb R^{L\times r}}\ \sum_l\tfrac12(z_l-\omega_l)^\top V_l^{-1}(z_l-\omega_l)+\ell(z),
    \qquad g_l=V_l^{-1}(z_l-\omega_l),

and its derivative :math:`\partial g/\partial\omega=V^{-1}[(V^{-1}+\nabla^2\ell)^{-1}V^{-1}-1]`. The minimum is sought
downhill from the point itself, from patterns of signs over tokens and from the best point with columns reversed; the
next well is kept too, where one was found.
All arrays carry LANES points along their last axis (see :mod:`.row_attention`).
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
from numba import njit, prange

from statmech_attn.positional_semantic.attention import FAST
from statmech_attn.positional_semantic.row_attention import LANES, loss_derivatives, loss_space
from statmech_attn.theory import Array

__all__ = ["ROUND_OFF", "deepest_wells", "proximal_points", "response", "settle", "start_patterns", "work_space"]

#: Length of a Newton step after which the error is round-off.
ROUND_OFF = 1e-7
#: The same for points that move from call to call, whose minimisers end at an error of its square.
FOLLOWED = 1e-4
#: Length of a Newton step that does not leave a well.
SMALL = 0.2


@lru_cache
def start_patterns(tokens: int, rank: int) -> Array:
    """(k, L r) directions to start from: patterns of signs over the tokens, along every axis of rank space.

    All patterns up to four tokens, else sixteen (eight Walsh functions and their negatives).
    """
    if tokens <= 4:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=tokens)))
    else:
        walsh = [[(-1.0) ** bin(k & token).count("1") for token in range(tokens)] for k in range(8)]
        signs = np.array(walsh + [[-x for x in row] for row in walsh])
    if rank > 1:
        signs = signs[np.any(signs != signs[:, :1], axis=1)]  # contrasts between tokens
    patterns = signs[:, None, :, None] * np.eye(rank)[None, :, None, :]
    return np.ascontiguousarray(patterns.reshape(-1, tokens * rank))


@njit(error_model="numpy")
def work_space(L, r):  # type: ignore[no-untyped-def]
    """Arrays of :func:`deepest_wells`."""
    n = L * r
    points = (np.empty((n, LANES)), np.empty((n, LANES)), np.empty((n, LANES)), np.empty((n, LANES)))
    matrices = (np.empty((n, n, LANES)), np.empty((n, n, LANES)), np.empty((n, n, LANES)))
    numbers = (np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES))
    return points, matrices, numbers, np.empty((n, LANES)), loss_space(L, r)


@njit(error_model="numpy", fastmath=FAST)
def _cholesky(matrix, shift, factor, pivot):  # type: ignore[no-untyped-def]
    """Lower factor of matrix + shift (LANES,), its diagonal inverted; `pivot` is the smallest pivot of a lane.

    Where it is not positive the factor is of no use.
    """
    n = matrix.shape[0]
    pivot[:] = np.inf
    x = np.empty(LANES)
    for i in range(n):
        for j in range(i + 1):
            for p in range(LANES):
                x[p] = matrix[i, j, p]
            if i == j:
                for p in range(LANES):
                    x[p] += shift[p]
            for k in range(j):
                for p in range(LANES):
                    x[p] -= factor[i, k, p] * factor[j, k, p]
            if i == j:
                for p in range(LANES):
                    pivot[p] = min(pivot[p], x[p])
                    factor[i, i, p] = 1.0 / np.sqrt(max(x[p], 1e-300))
            else:
                for p in range(LANES):
                    factor[i, j, p] = x[p] * factor[j, j, p]


@njit(error_model="numpy", fastmath=FAST)
def _solve(factor, x):  # type: ignore[no-untyped-def]
    """Solve factor factor^T y = x (n, LANES) in place."""
    n = x.shape[0]
    for i in range(n):
        for k in range(i):
            for p in range(LANES):
                x[i, p] -= factor[i, k, p] * x[k, p]
        for p in range(LANES):
            x[i, p] *= factor[i, i, p]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            for p in range(LANES):
                x[i, p] -= factor[k, i, p] * x[k, p]
        for p in range(LANES):
            x[i, p] *= factor[i, i, p]


@njit(error_model="numpy", fastmath=FAST)
def _objective(z, w, precision, T, c, code, value, gradient, hessian, space):  # type: ignore[no-untyped-def]
    """The function to minimise with its gradient and (lower triangle of the) Hessian."""
    L, r, _ = precision.shape
    value[:] = 0.0
    gradient[:] = 0.0
    hessian[:] = 0.0
    for i in range(L):
        for a in range(r):
            for b in range(r):
                x = precision[i, a, b]
                for p in range(LANES):
                    gradient[i * r + a, p] += x * (z[i * r + b, p] - w[i * r + b, p])
                for p in range(LANES):
                    hessian[i * r + a, i * r + b, p] = x
            for p in range(LANES):
                value[p] += 0.5 * gradient[i * r + a, p] * (z[i * r + a, p] - w[i * r + a, p])
    loss_derivatives(z, T, c, code, value, gradient, hessian, space)


@njit(error_model="numpy")
def _positive(hessian, shift, factor, pivot):  # type: ignore[no-untyped-def]
    """Factor the Hessian, shifted lane by lane as far as it needs to be positive definite."""
    n = hessian.shape[0]
    shift[:] = 0.0
    for _ in range(60):
        _cholesky(hessian, shift, factor, pivot)
        done = True
        for p in range(LANES):
            if not pivot[p] > 0.0:
                done = False
                largest = 0.0
                for i in range(n):
                    largest = max(largest, abs(hessian[i, i, p]))
                shift[p] = max(4.0 * shift[p], 1e-2 * largest + 1e-12)
        if done:
            return


@njit(error_model="numpy")
def _descend(z, w, precision, T, c, code, known, is_known, value, space):  # type: ignore[no-untyped-def]
    """Minimise downhill from z (n, LANES) in place to a relative gain of 1e-7; `value` (LANES,) the minima.

    A lane stops early, with value infinity, where it has come to the well of `known`. Newton steps, the Hessian
    shifted until it is positive definite, the step halved until the function decreases.
    """
    (new, gradient, new_gradient, _), (hessian, new_hessian, factor), numbers, step, work = space
    new_value, shift, pivot, t, gain, _ = numbers
    n = z.shape[0]
    _objective(z, w, precision, T, c, code, value, gradient, hessian, work)
    for p in range(LANES):
        t[p] = 1.0
    for _ in range(100):
        _positive(hessian, shift, factor, pivot)
        for i in range(n):
            for p in range(LANES):
                step[i, p] = -gradient[i, p]
        _solve(factor, step)
        moving = False
        for p in range(LANES):
            if t[p] == 0.0:
                continue
            size = 0.0
            distance = 0.0
            length = 0.0
            g = 0.0
            for i in range(n):
                size += z[i, p] * z[i, p]
                distance += (z[i, p] - known[i, p]) ** 2
                length += step[i, p] * step[i, p]
                g -= 0.5 * step[i, p] * gradient[i, p]
            gain[p] = g
            if is_known and shift[p] == 0.0 and distance < 4e-3 * (0.1 + size):
                value[p] = np.inf
                t[p] = 0.0
            elif not g > (1e-7 if shift[p] == 0.0 else 1e-10) * value[p] + 1e-26:
                t[p] = 0.0  # where the Hessian is shifted the gain is too small a guess
            else:
                t[p] = min(1.0, (0.5 + 0.25 * np.sqrt(size)) / np.sqrt(length))
                moving = True
        if not moving:
            return
        for _ in range(40):
            for i in range(n):
                for p in range(LANES):
                    new[i, p] = z[i, p] + t[p] * step[i, p]
            _objective(new, w, precision, T, c, code, new_value, new_gradient, new_hessian, work)
            accepted = True
            for p in range(LANES):
                if t[p] > 0.0 and not new_value[p] <= value[p] - 1e-4 * t[p] * gain[p]:
                    accepted = False
                    t[p] = 0.5 * t[p] if t[p] > 1e-8 else 0.0
            if accepted:
                break
        for p in range(LANES):
            if t[p] > 0.0:
                value[p] = new_value[p]
        for i in range(n):
            for p in range(LANES):
                z[i, p] = new[i, p]
                gradient[i, p] = new_gradient[i, p]
        hessian[:] = new_hessian


@njit(error_model="numpy")
def deepest_wells(z, other, w, precision, T, c, code, patterns, minimum, second, space):  # type: ignore[no-untyped-def]
    """The deepest well into z (L r, LANES), which holds first guesses, and the next one found into `other`.

    `minimum` and `second` (LANES,) are their minima, to a relative 1e-7; `second` is infinite where a single well was
    found. `patterns` (k, L r) are further starts, scaled to the size of the point w; the point itself is one too.
    Without patterns the minimum is local, downhill from the guess.
    """
    trial, value = space[0][3], space[2][5]
    n = z.shape[0]
    amplitude = np.zeros(LANES)
    guess_is_point = True
    for i in range(n):
        for p in range(LANES):
            amplitude[p] += w[i, p] * w[i, p]
            guess_is_point = guess_is_point and z[i, p] == w[i, p]
    for p in range(LANES):
        amplitude[p] = max(0.5, np.sqrt(amplitude[p] / precision.shape[0]))
        second[p] = np.inf
    _descend(z, w, precision, T, c, code, z, False, minimum, space)
    other[:] = z
    r = precision.shape[1]
    starts = patterns.shape[0] + 1
    for k in range(starts + 2**r - 1 if starts > 1 else 0):
        if k == 0 and guess_is_point:
            continue
        for i in range(n):
            flip = -1.0 if k >= starts and ((k - starts + 1) >> (i % r)) & 1 else 1.0
            for p in range(LANES):
                if k == 0:
                    trial[i, p] = w[i, p]
                elif k < starts:
                    trial[i, p] = amplitude[p] * patterns[k - 1, i]
                else:
                    trial[i, p] = flip * z[i, p]
        _descend(trial, w, precision, T, c, code, z, True, value, space)
        for p in range(LANES):
            if value[p] < minimum[p]:
                second[p] = minimum[p]
                minimum[p] = value[p]
                for i in range(n):
                    other[i, p] = z[i, p]
                    z[i, p] = trial[i, p]
            elif value[p] < second[p]:
                second[p] = value[p]
                for i in range(n):
                    other[i, p] = trial[i, p]


@njit(error_model="numpy")
def settle(z, w, precision, T, c, code, known, tol, minimum, space):  # type: ignore[no-untyped-def]
    """Newton steps inside the well of z until one is shorter than `tol`; the error left is of the order of its square.

    Writes the minima (LANES,); `known`: a single descent left its end in `space`. True where every Hessian was positive
    definite and every step small, so that z has come to the bottom of the well in which it was.
    Leaves Hessian, its Cholesky factor (for :func:`response`), its shift (zero in a well) and the last step in `space`.
    """
    (_, gradient, _, _), (hessian, _, factor), numbers, step, work = space
    shift, pivot = numbers[1], numbers[2]
    n = z.shape[0]
    inside = True
    for k in range(4):
        if k > 0 or not known:
            _objective(z, w, precision, T, c, code, minimum, gradient, hessian, work)
        _positive(hessian, shift, factor, pivot)
        for i in range(n):
            for p in range(LANES):
                step[i, p] = -gradient[i, p]
        _solve(factor, step)
        largest = 0.0
        for i in range(n):
            for p in range(LANES):
                z[i, p] += step[i, p]
                largest = max(largest, abs(step[i, p]))
        inside = inside and largest < SMALL and np.max(shift) == 0.0
        if largest < tol:
            return inside
    return False


@njit(error_model="numpy")
def response(precision, factor, column, D):  # type: ignore[no-untyped-def]
    """D (L r, L r, LANES) = V^-1 [(V^-1 + Hess)^-1 V^-1 - 1] from the Cholesky factor of V^-1 + Hess."""
    L, r, _ = precision.shape
    for k in range(L):
        for b in range(r):
            column[:] = 0.0
            for a in range(r):
                column[k * r + a] = precision[k, a, b]
            _solve(factor, column)
            for p in range(LANES):
                column[k * r + b, p] -= 1.0
            for i in range(L):
                for a in range(r):
                    for p in range(LANES):
                        D[i * r + a, k * r + b, p] = precision[i, a, 0] * column[i * r, p]
                    for e in range(1, r):
                        for p in range(LANES):
                            D[i * r + a, k * r + b, p] += precision[i, a, e] * column[i * r + e, p]


@njit(error_model="numpy", parallel=True, cache=True)
def proximal_points(w, V, T, c, code, patterns, z):  # type: ignore[no-untyped-def]
    """Global proximal operator at many points.

    w (n, L r) points; V (L, r, r); T (n, L, L) targets; z (n, L r) first guesses, overwritten by the minimisers.
    Without patterns the minima are local, followed from the guesses. Returns minima (n,), numbers of wells seen (n,)
    and diagonal blocks of the response (n, L, r, r).
    """
    n, L, r = w.shape[0], V.shape[0], V.shape[1]
    precision = np.empty_like(V)
    for i in range(L):
        precision[i] = np.linalg.inv(V[i])
    minima = np.empty(n)
    wells = np.empty(n)
    blocks = np.empty((n, L, r, r))
    groups = (n + LANES - 1) // LANES
    tasks = 16
    for task in prange(tasks):
        space = work_space(L, r)
        points, here = np.empty((L * r, LANES)), np.empty((L * r, LANES))
        column = np.empty((L * r, LANES))
        target = np.empty((L, L, LANES))
        D = np.empty((L * r, L * r, LANES))
        other = np.empty((L * r, LANES))
        minimum, second = np.empty(LANES), np.empty(LANES)
        for group in range(task * groups // tasks, (task + 1) * groups // tasks):
            first = group * LANES
            for p in range(LANES):
                mu = min(first + p, n - 1)
                for i in range(L * r):
                    points[i, p] = w[mu, i]
                    here[i, p] = z[mu, i]
                for i in range(L):
                    for j in range(L):
                        target[i, j, p] = T[mu, i, j]
            second[:] = np.inf
            followed = patterns.shape[0] == 0 and settle(
                here, points, precision, target, c, code, False, FOLLOWED, minimum, space
            )
            if not followed:
                for p in range(LANES):
                    for i in range(L * r):
                        here[i, p] = z[min(first + p, n - 1), i]
                deepest_wells(here, other, points, precision, target, c, code, patterns, minimum, second, space)
                settle(here, points, precision, target, c, code, patterns.shape[0] == 0, ROUND_OFF, minimum, space)
            response(precision, space[1][2], column, D)
            for p in range(min(LANES, n - first)):
                minima[first + p] = minimum[p]
                wells[first + p] = 2.0 if second[p] < np.inf else 1.0
                for i in range(L * r):
                    z[first + p, i] = here[i, p]
                for i in range(L):
                    for a in range(r):
                        for b in range(r):
                            blocks[first + p, i, a, b] = D[i * r + a, i * r + b, p]
    return minima, wells, blocks
