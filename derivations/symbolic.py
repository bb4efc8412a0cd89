"""The package's own functions, run on symbols.

Where a formula of the code is plain arithmetic, a claim need not repeat it: :func:`on_symbols` gives the function with
the elementary functions of :mod:`math` replaced by sympy's. What is proved is then the code itself. :func:`step` and
:func:`per_boundary` make claims of functions that return two sides.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, MappingProxyType, SimpleNamespace
from typing import Any

import sympy as sp

from derivations.claim import Claim, Equation, claim

__all__ = ["Pair", "on_symbols", "per_boundary", "step"]

#: Left and right side of a claim: expressions, or lists of them.
Pair = tuple[Any, Any]

_MATH = SimpleNamespace(
    exp=sp.exp,
    expm1=lambda x: sp.exp(x) - 1,
    log=sp.log,
    log1p=lambda x: sp.log(1 + x),
    sqrt=sp.sqrt,
    e=sp.E,
    inf=math.inf,
    nan=math.nan,
)


def on_symbols(function: Any, **names: Any) -> Callable[..., Any]:
    """The function, compiled or not, with elementary functions that take symbols, and other `names` replaced.

    Examples
    --------
    >>> from statmech_attn.copy_head import softmax
    >>> on_symbols(softmax.weight)(sp.Symbol("b"), 3)
    (1 - exp(-b))/(1 + 2*exp(-b))
    """
    plain = getattr(function, "py_func", function)
    namespace = {**plain.__globals__, "math": _MATH}
    for name, value in plain.__globals__.items():
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType) and inner.__globals__ is plain.__globals__:
            namespace[name] = FunctionType(inner.__code__, namespace, name, inner.__defaults__)
    namespace.update(names)
    return FunctionType(plain.__code__, namespace, plain.__name__, plain.__defaults__)


def _domain(sides: Iterable[Any]) -> dict[Any, tuple[float, float]]:
    """Where to sample the symbols of a claim: sizes as they occur, else by sign."""
    free = sorted({y for side in sides for x in sp.flatten([side]) for y in sp.sympify(x).free_symbols}, key=str)
    usual = {"L": (4, 40), "V": (3, 30), "n": (4, 40), "a": (0.05, 0.9), "P": (10, 500)}
    return {x: (1, 8) if x.is_integer else usual.get(str(x), (0.2, 3) if x.is_positive else (-2, 2)) for x in free}


def step(
    *certifies: str,
    wrong: Callable[[Any], Any] | None = None,
    rewrite: Sequence[Callable[[Any], Any]] = (),
    kernel: Callable[..., Any] | None = None,
    arguments: Sequence[Any] | None = None,
    domain: Mapping[Any, tuple[float, float]] = MappingProxyType({}),
    **more: Any,
) -> Callable[[Callable[[], Pair]], Claim]:
    """Decorator: the claim that the two sides which a function returns are equal, sampled where its symbols live.

    Parameters
    ----------
    *certifies : str
        Names of the package's code, from the family on: "softmax.weight" in the module copy_head.
    wrong : function of the right side
        What the negative control puts in its place; by default twice as much.
    rewrite : sequence of functions
        Steps that lead from the difference of the sides to a structural zero.
    kernel, arguments
        Code that computes the left side and the expressions it is called with, see :class:`.claim.Equation`.
    domain : mapping
        Where to sample symbols for which their sign does not say enough.
    **more
        As :func:`.claim.claim`.
    """

    def decorate(build: Callable[[], Pair]) -> Claim:
        @functools.wraps(build)
        def equation() -> Equation:
            left, right = build()
            mutated = None if wrong is None else wrong(right)
            where = {**_domain((left, right, arguments or [])), **domain}
            return Equation(left, right, where, rewrite, mutated, kernel=kernel, arguments=arguments)

        family = f"statmech_attn.{build.__module__.rpartition('.')[2]}"
        return claim([f"{family}.{name}" for name in certifies], **more)(equation)

    return decorate


def per_boundary(*certifies: str, **more: Any) -> Callable[[Callable[[str], Pair]], None]:
    """Decorator of a function of the boundary: the two claims `name_cyclic` and `name_open` of its module."""

    def decorate(build: Callable[[str], Pair]) -> None:
        for boundary in ("cyclic", "open"):

            @functools.wraps(build)
            def sides(boundary: str = boundary) -> Pair:
                return build(boundary)

            assert build.__doc__
            sides.__name__ = f"{build.__name__}_{boundary}"
            opening, *rest = build.__doc__.splitlines()
            sides.__doc__ = "\n".join([f"{opening.rstrip('.')}; {boundary} boundary.", *rest])
            vars(sys.modules[build.__module__])[sides.__name__] = step(*certifies, **more)(sides)

    return decorate
