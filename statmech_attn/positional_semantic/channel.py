r"""The four-dimensional channel integrals of the two-token model, fast and with their jumps resolved.

At overlaps (q, m, theta, V), with :math:`s=\sqrt{q-\theta^2/\rho}` and standard normal
:math:`\eta_u,\eta_v,\zeta_u,\zeta_v`,

.. math::
    \omega_u=\sqrt2 m+\tfrac{\theta}{\sqrt\rho}\eta_u+s\zeta_u,\qquad
    \omega_v=\tfrac{\theta}{\sqrt\rho}\eta_v+s\zeta_v,\qquad g=(z-\omega)/V,

z the global minimiser of |z - omega|^2/(2 V) + loss. The averages (Cui et al. 2024, in teacher-first form) are
E g^2, E g_u, E g.zeta, E g.eta and E M. Four things make them fast and accurate:

1. *Teacher plane*: the averages over zeta have a kink where the two-well region is born, on the curve
   D(eta) = d1 + d2 + V sigma^2 (d1 - d2)^2/4 - 1/(V sigma^2) = 0, d = T - 1/2; Gauss-Legendre nodes are split there.
2. *zeta_v*: trapezoid, which converges exponentially for a Gaussian weight.
3. *zeta_u*: on a line of fixed (eta, zeta_v) the minimiser u grows monotonically with omega_u, with at most a jump at
   c. Integrating in u instead of omega_u needs one equation for v only and stays analytic at the cusp:
   omega_u = u + V loss_u, weight phi(zeta_u) (d omega_u/du) du/s. Panels start at the jump.
4. Lines and panels are worked on in blocks of `LANES`, branch-free, so that the loops vectorise.

Every line is checked (mass one, no negative weight, converged); the few that fail are done again by the scalar
integrator of this module, which finds any number of jumps.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from statmech_attn.positional_semantic.attention import FAST, exp, loss_derivatives, teacher_attention
from statmech_attn.positional_semantic.proximal import local_minimum, proximal_point

LANES = 32
# Rows of the scratch block; a row holds one number of each lane. Rows are addressed as scratch[ROW * LANES + lane]
# with constants, which lets LLVM prove that they do not overlap.
T1, T2, MEAN, WV, U_LOW, V_LOW, U_HIGH, V_HIGH, W_LOW, W_HIGH, V0, V1, V2, V3 = range(14)
JUMP, U_PLUS, V_PLUS, U_MINUS, V_MINUS, CHANGE = range(8, 14)
RESIDUAL, NEGATIVE, MASS, G_U, G_V, G_G, G_ZETA, MINIMUM, TRACE, SMOOTH, DELTA = range(14, 25)
ROWS = 25
SUMS = ROWS - RESIDUAL
# Rows of the table of lines
WEIGHT, ETA_U, ETA_V, ZETA_V, LINE_T1, LINE_T2, LINE_MEAN, LINE_WV, EXCESS, CENTRE, SHIFT, QUARTIC = range(12)

# Only the entry point is cached: linked from a cache, the others could not be inlined, and the last digits would depend
# on which process compiled first.
jit = njit(error_model="numpy", fastmath=FAST)


@jit
def teacher_grid(n, reach, quadrants, V, sigma2, omega, a1, a2):  # type: ignore[no-untyped-def]
    """Nodes (eta_u, eta_v, weight, T_11, T_22) of the teacher plane, split on the curve D(eta) = 0.

    `quadrants` is 1 (both positive), 2 (eta_v > 0) or 4; `n` (nodes, weights) is a Gauss-Legendre rule on [0, 1].
    Weights sum to one.
    """
    nodes, weights = n
    count = nodes.size
    sigma = math.sqrt(sigma2)
    out = np.empty((5, quadrants * count * count * 4))
    size = 0
    cuts = np.empty(5)
    for quadrant in range(quadrants):
        sign_u = 1.0 - 2.0 * (quadrant % 2)
        sign_v = 1.0 - 2.0 * (quadrant // 2)
        for j in range(count):
            eta_v = sign_v * reach * nodes[j]
            # roots of D along eta_u in [0, reach], at most three
            found = 1
            cuts[0] = 0.0
            scan = 24
            previous = 0.0
            for i in range(scan + 1):
                x = reach * i / scan
                value = _saddle_excess(sign_u * x, eta_v, sigma, V, sigma2, omega, a1, a2)
                if i > 0 and (value > 0.0) != (previous > 0.0) and found < 4:
                    low, high = reach * (i - 1) / scan, x
                    for _ in range(40):
                        middle = 0.5 * (low + high)
                        at = _saddle_excess(sign_u * middle, eta_v, sigma, V, sigma2, omega, a1, a2)
                        if (at > 0.0) == (previous > 0.0):
                            low = middle
                        else:
                            high = middle
                    cuts[found] = 0.5 * (low + high)
                    found += 1
                previous = value
            cuts[found] = reach
            for k in range(found):
                width = cuts[k + 1] - cuts[k]
                for i in range(count):
                    eta_u = sign_u * (cuts[k] + width * nodes[i])
                    t1, t2 = teacher_attention(sigma * eta_u, sigma * eta_v, omega, a1, a2)
                    out[0, size] = eta_u
                    out[1, size] = eta_v
                    out[2, size] = weights[j] * width * weights[i] * math.exp(-0.5 * (eta_u * eta_u + eta_v * eta_v))
                    out[3, size] = t1
                    out[4, size] = t2
                    size += 1
    total = 0.0
    for i in range(size):
        total += out[2, i]
    for i in range(size):
        out[2, i] /= total
    return out[:, :size]


@jit
def _saddle_excess(eta_u, eta_v, sigma, V, sigma2, omega, a1, a2):  # type: ignore[no-untyped-def]
    """D(eta): positive where z = 0 at omega = 0 is a saddle, so that the line through it has two wells."""
    t1, t2 = teacher_attention(sigma * eta_u, sigma * eta_v, omega, a1, a2)
    return t1 + t2 - 1.0 + 0.25 * V * sigma2 * (t1 - t2) ** 2 - 1.0 / (V * sigma2)


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _newton_step(u, v, wu, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """One branch-free Newton step on z + V grad loss(z) = omega.

    Returns the step (du, dv), the minimum it predicts, and dz/d omega_u. Where the Hessian is not safely positive
    definite it is shifted (Gershgorin).
    """
    value, lu, lv, luu, luv, lvv = loss_derivatives(u, v, t1, t2, sigma2)
    ru = u - wu + V * lu
    rv = v - wv + V * lv
    a = 1.0 + V * luu
    b = V * luv
    d = 1.0 + V * lvv
    shift = abs(b) - min(min(a, d), 0.0) + 1.0 if a * d - b * b < 1e-3 * (a + d) else 0.0
    a += shift
    d += shift
    inverse = 1.0 / (a * d - b * b)
    du = -(d * ru - b * rv) * inverse
    dv = -(a * rv - b * ru) * inverse
    minimum = value + 0.5 * ((u - wu) * (u - wu) + (v - wv) * (v - wv) + du * ru + dv * rv) / V
    return du, dv, minimum, d * inverse, -b * inverse


@jit
def _jump_lanes(S, V, sigma2, steps):  # type: ignore[no-untyped-def]
    """Jump position c of each lane's line and both minimisers there, by a joint Newton iteration.

    Both minima are followed together with the condition M(z_plus) = M(z_minus); since dM/d omega_u = (omega_u - u)/V,
    c <- c + V (M_plus - M_minus)/(u_plus - u_minus). CHANGE holds the size of the last step.
    """
    for _ in range(steps):
        for i in range(LANES):
            t1 = S[T1 * LANES + i]
            t2 = S[T2 * LANES + i]
            wv = S[WV * LANES + i]
            c = S[JUMP * LANES + i]
            u = S[U_PLUS * LANES + i]
            v = S[V_PLUS * LANES + i]
            w = S[U_MINUS * LANES + i]
            y = S[V_MINUS * LANES + i]
            du, dv, plus, du_dc, dv_dc = _newton_step(u, v, c, wv, V, t1, t2, sigma2)
            dw, dy, minus, dw_dc, dy_dc = _newton_step(w, y, c, wv, V, t1, t2, sigma2)
            dc = V * (plus - minus) / max(u + du - w - dw, 1e-3)
            dc = min(max(dc, -0.3), 0.3)
            du = min(max(du + du_dc * dc, -0.4), 0.4)
            dv = min(max(dv + dv_dc * dc, -0.4), 0.4)
            dw = min(max(dw + dw_dc * dc, -0.4), 0.4)
            dy = min(max(dy + dy_dc * dc, -0.4), 0.4)
            S[JUMP * LANES + i] = c + dc
            S[U_PLUS * LANES + i] = u + du
            S[V_PLUS * LANES + i] = v + dv
            S[U_MINUS * LANES + i] = w + dw
            S[V_MINUS * LANES + i] = y + dy
            S[CHANGE * LANES + i] = abs(du) + abs(dv) + abs(dw) + abs(dy) + abs(dc)


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _end_lanes(S, u_row, v_row, w_row, V, sigma2, steps):  # type: ignore[no-untyped-def]
    """Newton steps towards the minimiser where a panel ends; that end needs no more than a tenth of s.

    They start from the guess in the rows or from omega itself, whichever is lower: the expansion behind the guess
    fails where V is large, and there omega is nearly a zero of the loss.
    """
    for i in range(LANES):
        u = S[u_row * LANES + i]
        v = S[v_row * LANES + i]
        wu = S[w_row * LANES + i]
        wv = S[WV * LANES + i]
        guess, _, _, _, _, _ = loss_derivatives(u, v, S[T1 * LANES + i], S[T2 * LANES + i], sigma2)
        there, _, _, _, _, _ = loss_derivatives(wu, wv, S[T1 * LANES + i], S[T2 * LANES + i], sigma2)
        guess += ((u - wu) * (u - wu) + (v - wv) * (v - wv)) / (2.0 * V)
        S[u_row * LANES + i] = u if guess < there else wu
        S[v_row * LANES + i] = v if guess < there else wv
    for _ in range(steps):
        for i in range(LANES):
            u = S[u_row * LANES + i]
            v = S[v_row * LANES + i]
            du, dv, _, _, _ = _newton_step(
                u, v, S[w_row * LANES + i], S[WV * LANES + i], V, S[T1 * LANES + i], S[T2 * LANES + i], sigma2
            )
            S[u_row * LANES + i] = u + min(max(du, -0.4), 0.4)
            S[v_row * LANES + i] = v + min(max(dv, -0.4), 0.4)


@jit
def _panel_lanes(S, V, sigma2, s, nodes, weights, extrapolation, corrections):  # type: ignore[no-untyped-def]
    """Integrate each lane's panel u in [U_LOW, U_HIGH] of its line, given v at U_LOW.

    At each node v is extrapolated from the last nodes (polynomial coefficients in `extrapolation`), corrected by
    `corrections[k]` Newton steps of v + V loss_v = omega_v, and once more, to first order, in the integrands.
    """
    inverse_s = 1.0 / s
    norm = inverse_s / math.sqrt(2.0 * math.pi)
    for row in range(RESIDUAL, ROWS):
        for i in range(LANES):
            S[row * LANES + i] = 0.0
    for row in range(V0, V3 + 1):
        for i in range(LANES):
            S[row * LANES + i] = S[V_LOW * LANES + i]
    for k in range(nodes.size):
        x = nodes[k]
        c0 = extrapolation[k, 0]
        c1 = extrapolation[k, 1]
        c2 = extrapolation[k, 2]
        c3 = extrapolation[k, 3]
        for i in range(LANES):
            v = c0 * S[V0 * LANES + i] + c1 * S[V1 * LANES + i] + c2 * S[V2 * LANES + i] + c3 * S[V3 * LANES + i]
            S[V3 * LANES + i] = S[V2 * LANES + i]
            S[V2 * LANES + i] = S[V1 * LANES + i]
            S[V1 * LANES + i] = S[V0 * LANES + i]
            S[V0 * LANES + i] = v
        for _ in range(corrections[k]):
            for i in range(LANES):
                u = S[U_LOW * LANES + i] + (S[U_HIGH * LANES + i] - S[U_LOW * LANES + i]) * x
                v = S[V0 * LANES + i]
                _, _, lv, _, _, lvv = loss_derivatives(u, v, S[T1 * LANES + i], S[T2 * LANES + i], sigma2)
                step = (v + V * lv - S[WV * LANES + i]) / max(1.0 + V * lvv, 0.2)
                S[V0 * LANES + i] = v - min(max(step, -0.5), 0.5)
        for i in range(LANES):
            width = S[U_HIGH * LANES + i] - S[U_LOW * LANES + i]
            u = S[U_LOW * LANES + i] + width * x
            v = S[V0 * LANES + i]
            value, lu, lv, luu, luv, lvv = loss_derivatives(u, v, S[T1 * LANES + i], S[T2 * LANES + i], sigma2)
            residual = v + V * lv - S[WV * LANES + i]
            inverse = 1.0 / (1.0 + V * lvv)
            dv = -residual * inverse
            S[V0 * LANES + i] = v + dv
            gu = -(lu + luv * dv)
            gv = -(lv + lvv * dv)
            slope = 1.0 + V * (luu - V * luv * luv * inverse)
            zeta = (u - V * gu - S[MEAN * LANES + i]) * inverse_s
            w = norm * exp(-min(0.5 * zeta * zeta, 340.0)) * width * weights[k]
            lean = V * luv * inverse
            ratio = (1.0 + V * luu) * inverse
            S[TRACE * LANES + i] += w * (1.0 + ratio - 2.0 * slope)
            S[SMOOTH * LANES + i] += (
                w * ((1.0 - slope) ** 2 + 2.0 * lean * lean + (ratio - slope) ** 2) / max(slope, 0.01)
            )
            w *= slope
            gg = gu * gu + gv * gv
            S[RESIDUAL * LANES + i] += abs(dv * w)
            S[NEGATIVE * LANES + i] += min(w, 0.0)
            S[MASS * LANES + i] += w
            S[G_U * LANES + i] += w * gu
            S[G_V * LANES + i] += w * gv
            S[G_G * LANES + i] += w * gg
            S[G_ZETA * LANES + i] += w * gu * zeta
            S[MINIMUM * LANES + i] += w * (0.5 * V * gg + value + lv * dv)


@jit
def _end_guess(x, wv, difference, excess, shift, quartic, stiffness):  # type: ignore[no-untyped-def]
    """First guess (u, v) of the minimiser at omega_u = CENTRE + x, from the expansion in :func:`line_table`."""
    target = abs(x) / stiffness
    y = math.sqrt(0.25 * max(excess, 0.0) / quartic)
    y += min((0.25 * target / quartic) ** (1.0 / 3.0), target / max(-excess, 1e-3))
    for _ in range(2):
        y -= (y * (4.0 * quartic * y * y - excess) - target) / max(12.0 * quartic * y * y - excess, 0.05)
    y = max(y, abs(x) - 2.0)
    u = shift + y if x > 0.0 else shift - y
    return u, (wv + 0.5 * stiffness * difference * u) / (1.0 + 0.25 * stiffness * u * u)


@jit
def line_table(teacher, zeta_nodes, zeta_weights, mean, slope, s, V, sigma2, negligible):  # type: ignore[no-untyped-def]
    """Lines of fixed (eta, zeta_v): one column each, with rows WEIGHT to QUARTIC.

    Lines of weight below `negligible` are dropped; the weights that stay sum to one. With the attention linear in its
    logits and v eliminated, the function to minimise is, to fourth order in x = u - SHIFT and up to a constant,
    sigma^2 [QUARTIC x^4 - EXCESS x^2/2 - (omega_u - CENTRE) x/(V sigma^2)]:
    where EXCESS is positive the line has two wells, which exchange at omega_u = CENTRE. Starting values only: from the
    third order on, the loss itself adds terms of order v^3.
    """
    stiffness = V * sigma2
    lines = np.empty((12, teacher.shape[1] * zeta_nodes.size))
    size = 0
    total = 0.0
    for t in range(teacher.shape[1]):
        t1 = teacher[3, t]
        t2 = teacher[4, t]
        difference = t1 - t2
        for j in range(zeta_nodes.size):
            weight = teacher[2, t] * zeta_weights[j]
            if weight < negligible:
                continue
            wv = slope * teacher[1, t] + s * zeta_nodes[j]
            total += weight
            lines[WEIGHT, size] = weight
            lines[ETA_U, size] = teacher[0, t]
            lines[ETA_V, size] = teacher[1, t]
            lines[ZETA_V, size] = zeta_nodes[j]
            lines[LINE_T1, size] = t1
            lines[LINE_T2, size] = t2
            lines[LINE_MEAN, size] = mean + slope * teacher[0, t]
            lines[LINE_WV, size] = wv
            excess = t1 + t2 - 1.0 + 0.25 * (stiffness * difference * difference - wv * wv) - 1.0 / stiffness
            quartic = max(0.125 + stiffness * (stiffness * difference * difference - wv * wv) / 32.0, 0.04)
            shift = -stiffness * difference * wv / (32.0 * quartic)
            shift = min(max(shift, -0.5), 0.5)
            lines[EXCESS, size] = excess + 12.0 * quartic * shift * shift
            lines[CENTRE, size] = -stiffness * (
                0.5 * difference * wv + shift * (excess + 8.0 * quartic * shift * shift)
            )
            lines[SHIFT, size] = shift
            lines[QUARTIC, size] = quartic
            size += 1
    for i in range(size):
        lines[WEIGHT, i] /= total
    return lines[:, :size]


@jit
def find_jumps(lines, s, V, sigma2, reach):  # type: ignore[no-untyped-def]
    """For every line (c, u_plus, v_plus, u_minus, v_minus) of its jump; c is NaN where there is none in sight.

    c is infinite where the search failed.
    """
    stiffness = V * sigma2
    n = lines.shape[1]
    jumps = np.full((5, n), np.nan)
    wanted = np.empty(n, np.int64)
    size = 0
    for line in range(n):
        # the jump stays near CENTRE; a line on which it is out of range needs no search
        if lines[EXCESS, line] > 0.0 and abs(lines[CENTRE, line] - lines[LINE_MEAN, line]) < s * reach + 0.5:
            wanted[size] = line
            size += 1
    S = np.zeros(ROWS * LANES)
    for block in range(0, size, LANES):
        for i in range(LANES):
            line = wanted[min(block + i, size - 1)]
            t1 = lines[LINE_T1, line]
            t2 = lines[LINE_T2, line]
            wv = lines[LINE_WV, line]
            half = math.sqrt(0.25 * lines[EXCESS, line] / lines[QUARTIC, line])
            up = lines[SHIFT, line] + half
            um = lines[SHIFT, line] - half
            lean = 0.5 * stiffness * (t1 - t2)
            S[T1 * LANES + i] = t1
            S[T2 * LANES + i] = t2
            S[WV * LANES + i] = wv
            S[JUMP * LANES + i] = lines[CENTRE, line]
            S[U_PLUS * LANES + i] = up
            S[V_PLUS * LANES + i] = (wv + lean * up) / (1.0 + 0.25 * stiffness * up * up)
            S[U_MINUS * LANES + i] = um
            S[V_MINUS * LANES + i] = (wv + lean * um) / (1.0 + 0.25 * stiffness * um * um)
        for _ in range(5):
            _jump_lanes(S, V, sigma2, 2)
            worst = 0.0
            for i in range(LANES):
                worst = max(worst, S[CHANGE * LANES + i])
            if worst < 1e-6:
                break
        for i in range(min(LANES, size - block)):
            line = wanted[block + i]
            if S[U_PLUS * LANES + i] < S[U_MINUS * LANES + i] + 1e-4:
                continue  # one well: both ran to the same minimiser
            jumps[0, line] = S[JUMP * LANES + i] if S[CHANGE * LANES + i] < 1e-6 else np.inf
            for row in range(1, 5):
                jumps[row, line] = S[(JUMP + row) * LANES + i]
    return jumps


@jit
def _integrate_panels(lines, index, sign, begin, sums, s, V, sigma2, reach, rule):  # type: ignore[no-untyped-def]
    """Add the integrals over panels to `sums` (SUMS, lines).

    Panel p lies on line index[p]; sign -1 means that it is reflected, z -> -z. begin[:, p] = (u, v) at its low end
    if that is a jump; NaN if it starts at the low end of the range.
    """
    nodes, weights, extrapolation, corrections = rule
    stiffness = V * sigma2
    S = np.zeros(ROWS * LANES)
    for block in range(0, index.size, LANES):
        inside = False
        for i in range(LANES):
            p = min(block + i, index.size - 1)
            line = index[p]
            difference = lines[LINE_T1, line] - lines[LINE_T2, line]
            excess = lines[EXCESS, line]
            wv = sign[p] * lines[LINE_WV, line]
            mu = sign[p] * lines[LINE_MEAN, line]
            centre = sign[p] * lines[CENTRE, line]
            shift = sign[p] * lines[SHIFT, line]
            S[T1 * LANES + i] = lines[LINE_T1, line]
            S[T2 * LANES + i] = lines[LINE_T2, line]
            S[MEAN * LANES + i] = mu
            S[WV * LANES + i] = wv
            S[W_LOW * LANES + i] = mu - s * reach
            S[W_HIGH * LANES + i] = mu + s * reach
            u, v = _end_guess(mu + s * reach - centre, wv, difference, excess, shift, lines[QUARTIC, line], stiffness)
            S[U_HIGH * LANES + i] = u
            S[V_HIGH * LANES + i] = v
            if math.isnan(begin[0, p]):
                inside = True
                u, v = _end_guess(
                    mu - s * reach - centre, wv, difference, excess, shift, lines[QUARTIC, line], stiffness
                )
                S[U_LOW * LANES + i] = u
                S[V_LOW * LANES + i] = v
            else:
                S[U_LOW * LANES + i] = begin[0, p]
                S[V_LOW * LANES + i] = begin[1, p]
        _end_lanes(S, U_HIGH, V_HIGH, W_HIGH, V, sigma2, 4)
        if inside:
            _end_lanes(S, U_LOW, V_LOW, W_LOW, V, sigma2, 4)
        for i in range(LANES):
            S[U_HIGH * LANES + i] = max(S[U_HIGH * LANES + i], S[U_LOW * LANES + i])
        _panel_lanes(S, V, sigma2, s, nodes, weights, extrapolation, corrections)
        for i in range(min(LANES, index.size - block)):
            line = index[block + i]
            for row in range(SUMS):
                sums[row, line] += S[(RESIDUAL + row) * LANES + i] * (
                    sign[block + i] if row == G_U - RESIDUAL or row == G_V - RESIDUAL else 1.0
                )


@jit
def _connected(u, v, u_end, v_end, wv, V, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """Whether omega_u(u) grows all the way from (u, v) to (u_end, v_end) on one line."""
    for k in range(8):
        x = u + (u_end - u) * (k + 1) / 8.0
        for _ in range(8):
            _, _, lv, luu, luv, lvv = loss_derivatives(x, v, t1, t2, sigma2)
            dv = -(v + V * lv - wv) / max(1.0 + V * lvv, 0.2)
            if abs(dv) < 1e-7:
                break
            v += min(max(dv, -0.2), 0.2)
        if 1.0 + V * lvv <= 0.0 or 1.0 + V * (luu - V * luv * luv / (1.0 + V * lvv)) <= 0.0:
            return False
    return abs(v - v_end) < 1e-6


@jit
def follow_line(mean, wv, s, V, t1, t2, sigma2, reach, cells):  # type: ignore[no-untyped-def]
    """The global minimiser along one line: columns (u, v at the start, u, v at the end) of its jump-free stretches.

    Scalar and slow, for any number of jumps: the minimiser is found in `cells` + 1 points from the neighbour's and
    from both sides of u = 0; where two neighbours are not connected by a local minimum, the jump is bisected.
    """
    stretches = np.empty((4, cells + 16))
    tries = 12  # cuts of a line; it has a few jumps, and what is no local minimum could be cut for ever
    cuts = 0
    step = 2.0 * s * reach / cells
    w_a = mean - s * reach
    u_a, v_a, _ = proximal_point(w_a, wv, V, t1, t2, sigma2)
    stretches[0, 0] = u_a
    stretches[1, 0] = v_a
    size = 0
    # ends of the interval at hand, and of those put aside
    aside = np.empty((3, tries + 2))
    for k in range(cells):
        w_b = mean - s * reach + (k + 1) * step
        u_b, v_b, best = local_minimum(u_a, v_a, w_b, wv, V, t1, t2, sigma2)
        for start in (0.7, -0.7, w_b):
            u, v, value = local_minimum(start, wv, w_b, wv, V, t1, t2, sigma2)
            if value < best:
                u_b, v_b, best = u, v, value
        aside[0, 0], aside[1, 0], aside[2, 0] = w_b, u_b, v_b
        waiting = 1
        while waiting > 0:
            w_b, u_b, v_b = aside[0, waiting - 1], aside[1, waiting - 1], aside[2, waiting - 1]
            if _connected(u_a, v_a, u_b, v_b, wv, V, t1, t2, sigma2) or cuts >= tries or size >= cells + 14:
                w_a, u_a, v_a = w_b, u_b, v_b
                waiting -= 1
                continue
            cuts += 1
            low_w, low_u, low_v = w_a, u_a, v_a
            while True:
                middle = 0.5 * (low_w + w_b)
                if middle <= low_w or middle >= w_b:
                    break
                ul, vl, left = local_minimum(low_u, low_v, middle, wv, V, t1, t2, sigma2)
                ur, vr, right = local_minimum(u_b, v_b, middle, wv, V, t1, t2, sigma2)
                merged = abs(ul - ur) + abs(vl - vr) < 1e-9
                if abs(ul - low_u) < abs(ul - u_b) if merged else left < right:
                    low_w, low_u, low_v = middle, ul, vl
                else:
                    w_b, u_b, v_b = middle, ur, vr
            if _connected(u_a, v_a, low_u, low_v, wv, V, t1, t2, sigma2):
                stretches[2, size] = low_u
                stretches[3, size] = low_v
                size += 1
                stretches[0, size] = u_b
                stretches[1, size] = v_b
                w_a, u_a, v_a = w_b, u_b, v_b
            else:
                aside[0, waiting], aside[1, waiting], aside[2, waiting] = low_w, low_u, low_v
                waiting += 1
    stretches[2, size] = u_a
    stretches[3, size] = v_a
    return stretches[:, : size + 1]


@jit
def line_integral(mean, wv, s, V, t1, t2, sigma2, reach, nodes, weights, pieces, cells):  # type: ignore[no-untyped-def]
    """The SUMS integrals of one line, each stretch of :func:`follow_line` cut into `pieces` panels."""
    sums = np.zeros(SUMS)
    stretches = follow_line(mean, wv, s, V, t1, t2, sigma2, reach, cells)
    for k in range(stretches.shape[1]):
        v = stretches[1, k]
        if k > 0:
            _, lu, _, _, _, _ = loss_derivatives(stretches[0, k], v, t1, t2, sigma2)
            c = stretches[0, k] + V * lu
            sums[DELTA - RESIDUAL] += _delta_term(
                stretches[0, k] - stretches[2, k - 1], v - stretches[3, k - 1], (c - mean) / s, s
            )
        width = (stretches[2, k] - stretches[0, k]) / pieces
        for piece in range(pieces):
            for node in range(nodes.size):
                u = stretches[0, k] + width * (piece + nodes[node])
                for _ in range(50):
                    _, _, lv, _, _, lvv = loss_derivatives(u, v, t1, t2, sigma2)
                    dv = -(v + V * lv - wv) / max(1.0 + V * lvv, 0.2)
                    v += min(max(dv, -0.2), 0.2)
                    if abs(dv) < 1e-14 * (1.0 + abs(v)):
                        break
                value, lu, lv, luu, luv, lvv = loss_derivatives(u, v, t1, t2, sigma2)
                slope = 1.0 + V * (luu - V * luv * luv / (1.0 + V * lvv))
                zeta = (u + V * lu - mean) / s
                w = width * weights[node] * math.exp(-0.5 * zeta * zeta) / (s * math.sqrt(2.0 * math.pi))
                lean = V * luv / (1.0 + V * lvv)
                ratio = (1.0 + V * luu) / (1.0 + V * lvv)
                sums[TRACE - RESIDUAL] += w * (1.0 + ratio - 2.0 * slope)
                sums[SMOOTH - RESIDUAL] += (
                    w * ((1.0 - slope) ** 2 + 2.0 * lean * lean + (ratio - slope) ** 2) / max(slope, 0.01)
                )
                w *= slope
                gg = lu * lu + lv * lv
                sums[RESIDUAL - RESIDUAL] += abs(dv * w)
                sums[NEGATIVE - RESIDUAL] += min(w, 0.0)
                sums[MASS - RESIDUAL] += w
                sums[G_U - RESIDUAL] -= w * lu
                sums[G_V - RESIDUAL] -= w * lv
                sums[G_G - RESIDUAL] += w * gg
                sums[G_ZETA - RESIDUAL] -= w * lu * zeta
                sums[MINIMUM - RESIDUAL] += w * (0.5 * V * gg + value)
    return sums


@jit
def _delta_term(du, dv, zeta, s):  # type: ignore[no-untyped-def]
    """What a jump by (du, dv) at zeta_u adds to V E tr(dg/d omega) on its line: |dz|^2/du times the density."""
    return (du * du + dv * dv) / du * math.exp(-0.5 * zeta * zeta) / (math.sqrt(2.0 * math.pi) * s)


@jit
def line_sums(lines, s, V, sigma2, reach, panel_rules, tolerance):  # type: ignore[no-untyped-def]
    """Integrals over zeta_u of every line, (SUMS, lines), and the number of lines left to the scalar integrator.

    `panel_rules` are pairs of rules for a whole line and for a panel that starts at a jump, in the order in which
    they are tried on a line; the next is taken as long as the line's weight times (mass defect + negative weight +
    residual) exceeds `tolerance`. Not a number if more than half of the lines would be left.
    """
    n = lines.shape[1]
    jumps = find_jumps(lines, s, V, sigma2, reach)
    sums = np.zeros((SUMS, n))
    waiting = np.ones(n, np.bool_)
    index = np.empty(2 * n, np.int64)
    sign = np.empty(2 * n)
    begin = np.empty((2, 2 * n))
    for full, half in panel_rules:
        # panels that start at a jump from the front, whole lines from the back
        front = 0
        back = 2 * n
        for line in range(n):
            c = jumps[0, line]
            if not waiting[line] or math.isinf(c):
                continue
            sums[:, line] = 0.0
            if abs(c - lines[LINE_MEAN, line]) < s * reach:
                for side in range(2):
                    index[front] = line
                    sign[front] = 1.0 - 2.0 * side
                    begin[0, front] = sign[front] * jumps[1 + 2 * side, line]
                    begin[1, front] = sign[front] * jumps[2 + 2 * side, line]
                    front += 1
                sums[DELTA - RESIDUAL, line] = _delta_term(
                    jumps[1, line] - jumps[3, line],
                    jumps[2, line] - jumps[4, line],
                    (c - lines[LINE_MEAN, line]) / s,
                    s,
                )
            else:
                back -= 1
                index[back] = line
                sign[back] = 1.0
                begin[:, back] = np.nan
        _integrate_panels(lines, index[:front], sign[:front], begin[:, :front], sums, s, V, sigma2, reach, half)
        _integrate_panels(lines, index[back:], sign[back:], begin[:, back:], sums, s, V, sigma2, reach, full)
        left = 0
        for line in range(n):
            defect = (
                abs(sums[MASS - RESIDUAL, line] - 1.0)
                - sums[NEGATIVE - RESIDUAL, line]
                + sums[RESIDUAL - RESIDUAL, line]
            )
            waiting[line] = not (lines[WEIGHT, line] * defect <= tolerance and defect < 0.5)
            left += waiting[line]
        if left == 0:
            break
    if 2 * left > n:
        # far from any solution of interest every line has several jumps: better no number than a wait of a minute
        sums[:] = np.nan
        return sums, left
    nodes, weights = panel_rules[-1][1][:2]
    for line in range(n):
        if waiting[line]:
            sums[:, line] = line_integral(
                lines[LINE_MEAN, line],
                lines[LINE_WV, line],
                s,
                V,
                lines[LINE_T1, line],
                lines[LINE_T2, line],
                sigma2,
                reach,
                nodes,
                weights,
                2,
                24,
            )
    return sums, left


@njit(error_model="numpy", fastmath=FAST, cache=True)
def channel_averages(m, theta, q, V, sigma2, omega, a1, a2, quadrants, rule):  # type: ignore[no-untyped-def]
    """Averages over eta and zeta at given overlaps, by a quadrature `rule` (see :mod:`.rules`).

    Returns an array with entries named by the constants below: E g_u, E|g|^2, E g.zeta, E g.eta, E M, V E tr dg/d omega
    (smooth part), its jump part, V^2 E|dg/d omega|^2 (smooth part), the share of lines with a jump, then the indicators
    mass defect, negative weight, number of lines and of lines that needed the scalar integrator.
    """
    teacher_rule, reach, zeta, panel_rules, negligible, tolerance = rule
    sigma = math.sqrt(sigma2)
    slope = theta / sigma
    s = math.sqrt(q - slope * slope)
    teacher = teacher_grid(teacher_rule, reach, quadrants, V, sigma2, omega, a1, a2)
    lines = line_table(teacher, zeta[0], zeta[1], math.sqrt(2.0) * m, slope, s, V, sigma2, negligible)
    sums, again = line_sums(lines, s, V, sigma2, reach + 0.3, panel_rules, tolerance)
    out = np.zeros(13)
    for i in range(lines.shape[1]):
        w = lines[WEIGHT, i]
        gu = w * sums[G_U - RESIDUAL, i]
        gv = w * sums[G_V - RESIDUAL, i]
        out[0] += gu
        out[1] += w * sums[G_G - RESIDUAL, i]
        out[2] += w * sums[G_ZETA - RESIDUAL, i] + lines[ZETA_V, i] * gv
        out[3] += lines[ETA_U, i] * gu + lines[ETA_V, i] * gv
        out[4] += w * sums[MINIMUM - RESIDUAL, i]
        out[5] += w * sums[TRACE - RESIDUAL, i]
        out[6] += w * sums[DELTA - RESIDUAL, i]
        out[7] += w * sums[SMOOTH - RESIDUAL, i]
        out[8] += w if sums[DELTA - RESIDUAL, i] > 0.0 else 0.0
        out[9] += w * abs(sums[MASS - RESIDUAL, i] - 1.0)
        out[10] += w * sums[NEGATIVE - RESIDUAL, i]
    out[11] = lines.shape[1]
    out[12] = again
    return out
