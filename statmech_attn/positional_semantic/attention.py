r"""The two-token attention loss and its derivatives, and the teacher's attention.

With :math:`u=(z_1-z_2)/\sqrt2`, :math:`v=(z_1+z_2)/\sqrt2` the diagonal of
:math:`S(z)=\mathrm{softmax}(zz^\top)` is :math:`S_{11}=s(u^2+uv)`, :math:`S_{22}=s(u^2-uv)`, `s` the logistic
function, and the loss of one sample (Cui et al. 2024, the limit of the squared error) is

.. math:: \ell(u,v)=\sigma^2\left[(S_{11}-T_{11})^2+(S_{22}-T_{22})^2\right].

A target row that does not sum to one shifts `T` and adds a constant (:func:`effective_target`).
"""

from __future__ import annotations

import math

from numba import njit, types
from numba.extending import intrinsic

__all__ = ["effective_target", "loss", "loss_derivatives", "teacher_attention"]

Target = tuple[tuple[float, float], tuple[float, float]]

# contract, arcp, nsz keep NaN and infinity intact; they let LLVM use fused multiply-add and vectorise selects.
FAST = {"contract", "arcp", "nsz"}


@intrinsic
def _bits(typing_context, x):  # type: ignore[no-untyped-def]
    """The bits of a float64 as int64."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), codegen


@intrinsic
def _from_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float64 that has these bits."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), codegen


@njit(error_model="numpy", fastmath=FAST, inline="always")
def exp(x):  # type: ignore[no-untyped-def]
    """exp(x) for -700 < x < 700 to 3e-16, without a branch or a call, so that loops over it vectorise.

    x = n ln 2 + r with |r| <= ln(2)/2; exp(r) by its Taylor series to order 12; 2^n through the exponent bits.
    Adding 1.5 * 2^52 rounds to the nearest integer and leaves n in the low bits.
    """
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _from_bits((_bits(shifted) << 52) + 4607182418800017408)  # type: ignore[call-arg]


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _exponentials(u, v):  # type: ignore[no-untyped-def]
    """exp(-u^2) and exp(u v), clipped where the logistic functions are saturated to 1e-73.

    What is cut off u^2 is taken off |u v| too: the logit u^2 - |u v| need not be large where both are.
    """
    excess = max(u * u - 170.0, 0.0)
    product = u * v
    product -= min(max(product, -excess), excess)
    return exp(-min(u * u, 170.0)), exp(min(max(product, -340.0), 340.0))


@njit(error_model="numpy", fastmath=FAST, inline="always")
def loss_derivatives(u, v, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """Loss and its first and second derivatives at (u, v): l, l_u, l_v, l_uu, l_uv, l_vv.

    t1, t2 are the diagonal of the (effective) target attention, sigma2 the token variance. Both logistic
    functions come from exp(-u^2), exp(u v) and one division; 1 - S is formed without cancellation.
    """
    e, x = _exponentials(u, v)
    p = x + e
    r = 1.0 + e * x
    inverse = 1.0 / (p * r)
    s1 = x * r * inverse
    not_s1 = e * r * inverse
    s2 = p * inverse
    not_s2 = e * x * p * inverse
    slope1 = s1 * not_s1
    slope2 = s2 * not_s2
    error1 = s1 - t1
    error2 = s2 - t2
    c = 2.0 * sigma2
    # derivatives with respect to the logits a = u^2 + u v and b = u^2 - u v
    la = c * error1 * slope1
    lb = c * error2 * slope2
    laa = c * slope1 * (slope1 + error1 * (not_s1 - s1))
    lbb = c * slope2 * (slope2 + error2 * (not_s2 - s2))
    au = 2.0 * u + v
    bu = 2.0 * u - v
    return (
        sigma2 * (error1 * error1 + error2 * error2),
        au * la + bu * lb,
        u * (la - lb),
        2.0 * (la + lb) + au * au * laa + bu * bu * lbb,
        (la - lb) + u * (au * laa - bu * lbb),
        u * u * (laa + lbb),
    )


@njit(error_model="numpy")
def loss(u, v, t1, t2, sigma2):  # type: ignore[no-untyped-def]
    """Loss of one sample, with the library's exponential (an independent form of `loss_derivatives`)."""
    s1 = 1.0 / (1.0 + math.exp(-u * u - u * v))
    s2 = 1.0 / (1.0 + math.exp(-u * u + u * v))
    return sigma2 * ((s1 - t1) ** 2 + (s2 - t2) ** 2)


def effective_target(target: Target) -> tuple[float, float, float]:
    """Diagonal (a1, a2) of the equivalent row-stochastic target, and the constant it leaves per sigma^2 omega^2.

    Row 1 of S - T has entries e and -e - r with r the row's excess over one, so its squared norm is
    2 (e + r/2)^2 + r^2/2: a shift of T_11 by r/2 and a constant; likewise row 2.
    """
    excess1 = target[0][0] + target[0][1] - 1.0
    excess2 = target[1][0] + target[1][1] - 1.0
    return (
        float(target[0][0] - excess1 / 2),
        float(target[1][1] - excess2 / 2),
        float((excess1**2 + excess2**2) / 4),
    )


@njit(error_model="numpy", fastmath=FAST, inline="always")
def teacher_attention(u, v, omega, a1, a2):  # type: ignore[no-untyped-def]
    """Diagonal (T_11, T_22) of (1 - omega) softmax(h h^T) + omega A at the teacher's rotated index (u, v)."""
    e, x = _exponentials(u, v)
    t1 = x / (x + e)
    t2 = 1.0 / (1.0 + e * x)
    return (1.0 - omega) * t1 + omega * a1, (1.0 - omega) * t2 + omega * a2
