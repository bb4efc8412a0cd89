r"""Claims and their verdicts: is this equation right?

A claim says that two expressions are equal. :func:`check` looks for a witness against it and for a proof of it:

1. *sampling*: both sides at 20 or more seeded points of the domain, with 80 digits; they differ at a point by more than
   50 digits allow: the claim is **refuted** and the point is its witness. A compiled kernel that claims to be the left
   side is compared at the same points, to 1e-12.
2. *structural*: the difference, after the rewriting steps that the claim names, expands to zero over a common
   denominator: **proved**.
3. *simplification*: ``sympy.simplify`` of the difference is zero: **proved**.
4. Neither: what the samples say, **numerical**. A claim that cannot be sampled is **undecided**, which is a failure.

Sampling comes first because a proof is only as good as its rewriting steps: a wrong step cannot outvote a witness.
Sympy's ``equals`` is not used: it answers None where it does not know. Every stage has a time
limit that stops it.

A claim is a function that returns an :class:`Equation`, under the decorator :func:`claim`; its docstring opens with the
statement::

    @claim(certifies="package.module.function")
    def double_angle() -> Equation:
        '''sin 2x = 2 sin x cos x.'''
        x = sp.Symbol("x", real=True)
        return Equation(sp.sin(2 * x), 2 * sp.sin(x) * sp.cos(x), {x: (-3, 3)})

Its negative control is the same claim with a wrong right side (`Equation.wrong`, by default twice the right side): it
must be refuted, which shows that the claim can fail.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

import mpmath
import sympy as sp

__all__ = ["DIGITS", "Claim", "Equation", "Verdict", "check", "claim", "claims_of", "time_limit"]

DIGITS = 50
GUARD = 30
KERNEL_TOLERANCE = 1e-12
MOST_SECONDS = 10.0

Expr = Any  # sympy is untyped
Side = Any  # a sympy expression, a matrix or sequence of them, or a function of the sampled values in mpmath numbers
Kind = Literal["proved", "numerical", "refuted", "undecided"]


@dataclass(frozen=True)
class Equation:
    """What a claim says.

    Attributes
    ----------
    left, right : sympy expression, matrix or sequence of them; or a function
        The two sides. A function is called with the sampled values (mpmath numbers, in the order of `domain`) and
        returns one number or a sequence: such a claim can be numerical at best.
    domain : mapping of symbol to (low, high)
        Where to sample; integer symbols are sampled among the integers.
    rewrite : sequence of functions of an expression
        Steps that lead to the structural zero, in order.
    wrong : as `right`
        Mutated right side of the negative control; default twice the right side.
    instance : mapping
        What stands for undefined functions when both sides are sampled.
    kernel : function
        Compiled code that implements the left side: called with floats in the order of `domain`, or of `arguments`.
    arguments : sequence of expressions
        Arguments of the kernel, where they are not the symbols of the domain.
    points : int
        Number of samples.
    """

    left: Side
    right: Side
    domain: Mapping[Expr, tuple[float, float]]
    rewrite: Sequence[Callable[[Expr], Expr]] = ()
    wrong: Side = None
    instance: Mapping[Expr, Expr] = field(default_factory=dict)
    kernel: Callable[..., Any] | None = None
    arguments: Sequence[Expr] | None = None
    points: int = 20


@dataclass(frozen=True)
class Claim:
    """An equation with a name; pickled by it, and built where it is checked.

    Attributes
    ----------
    module, name : str
        Where the claim is defined.
    statement : str
        One line.
    build : function
        Returns the :class:`Equation`.
    certifies : tuple of str
        Dotted names of what the package implements by this equation; may be empty.
    limit : float
        Seconds of processor time after which each stage is stopped.
    reason : str
        Why the limit is above its default.
    """

    module: str
    name: str
    statement: str
    build: Callable[[], Equation]
    certifies: tuple[str, ...]
    limit: float = MOST_SECONDS
    reason: str = ""

    @property
    def identifier(self) -> str:
        """Module and name."""
        return f"{self.module.rpartition('.')[2]}.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str, str], Claim], tuple[str, str]]:
        return _find, (self.module, self.name)


def _find(module: str, name: str) -> Claim:
    found: Claim = getattr(import_module(module), name)
    return found


def claim(
    certifies: str | Sequence[str] = (), *, limit: float = MOST_SECONDS, reason: str = ""
) -> Callable[[Callable[[], Equation]], Claim]:
    """Decorator: the :class:`Claim` of a function that builds an equation.

    Parameters
    ----------
    certifies : str or sequence of str
        Dotted names of the functions of the package that implement the equation.
    limit : float
        Seconds of processor time after which each stage is stopped.
    reason : str
        Why it needs more than the default.
    """
    if limit > MOST_SECONDS and not reason:
        raise ValueError(f"limit={limit} is above {MOST_SECONDS:g} seconds and needs a reason")
    names = (certifies,) if isinstance(certifies, str) else tuple(certifies)

    def decorate(build: Callable[[], Equation]) -> Claim:
        if not build.__doc__:
            raise ValueError(f"claim {build.__name__} has no docstring to state it")
        statement = build.__doc__.strip().splitlines()[0]
        return Claim(build.__module__, build.__name__, statement, build, names, limit, reason)

    return decorate


def claims_of(module: Any) -> tuple[Claim, ...]:
    """Claims that a module defines, in order."""
    return tuple(c for c in vars(module).values() if isinstance(c, Claim) and c.module == module.__name__)


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Attributes
    ----------
    claim, statement, certifies
        Of the claim; the identifier of a control ends in " (control)".
    kind : {"proved", "numerical", "refuted", "undecided"}
    rung : str
        The stage that decided: "structural", "simplification", "50 digits", "witness", "kernel", or "" if none did.
    seconds : float
        Of processor time.
    witness : dict of str to str
        Values of the symbols and of both sides where a refuted claim fails; empty otherwise.
    kernel_error : float or None
        Largest relative difference from the kernel; None without one.
    detail : str
        What stopped or failed on the way.
    """

    claim: str
    statement: str
    certifies: tuple[str, ...]
    kind: Kind
    rung: str
    seconds: float = 0.0
    witness: Mapping[str, str] = field(default_factory=dict)
    kernel_error: float | None = None
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Proved or numerical."""
        return self.kind in ("proved", "numerical")

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


# ---- time limits


class _Expired(BaseException):
    """Not an Exception, so that no ``except Exception`` inside sympy swallows it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stop the body after `seconds` of processor time (TimeoutError); in the main thread of a process.

    Processor time, so that a verdict does not depend on what else the machine does. The alarm is repeated until it is
    heard: one that falls into a finalizer would be lost.

    Examples
    --------
    >>> try:
    ...     with time_limit(0.1):
    ...         while True:
    ...             pass
    ... except TimeoutError as error:
    ...     print(error)
    stopped after 0.1 seconds
    """

    def ring(*_: Any) -> None:
        raise _Expired

    handler = signal.signal(signal.SIGVTALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.5)
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Expired:
        raise TimeoutError(f"stopped after {seconds:g} seconds") from None
    finally:
        signal.signal(signal.SIGVTALRM, handler)


def _alarms() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _check_in_child(claim: Claim, control: bool) -> Verdict:
    """For threads, which no alarm can stop: a process of its own, which is killed."""
    paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
    seconds = 20 * claim.limit + 60  # of the clock, and the machine may be busy
    command = [sys.executable, "-c", "from derivations.claim import _child; _child()"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps((claim, control)), capture_output=True, timeout=seconds,
            env=os.environ | {"PYTHONPATH": paths}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _verdict(claim, control, "undecided", "", detail=f"stopped after {seconds:g} seconds")
    if done.returncode:
        return _verdict(claim, control, "undecided", "", detail=done.stderr.decode(errors="replace").strip()[-300:])
    verdict: Verdict = pickle.loads(done.stdout)
    return verdict


def _child() -> None:
    verdict = check(*pickle.load(sys.stdin.buffer))
    sys.stdout.buffer.write(pickle.dumps(verdict))


# ---- the ladder


def check(claim: Claim, control: bool = False) -> Verdict:
    """Climb the ladder for a claim, or for its negative control (which must come out refuted).

    Works in any thread of any process; away from the main thread the work is done in a child process.
    """
    if not _alarms():
        return _check_in_child(claim, control)
    start = time.process_time()
    verdict = _climb(claim, control)
    return replace(verdict, seconds=time.process_time() - start)


def _verdict(claim: Claim, control: bool, kind: Kind, rung: str, **more: Any) -> Verdict:
    name = claim.identifier + (" (control)" if control else "")
    return Verdict(name, claim.statement, claim.certifies, kind, rung, **more)


def _climb(claim: Claim, control: bool) -> Verdict:
    notes: list[str] = []

    def stage(name: str, work: Callable[[], Any]) -> Any:
        try:
            with time_limit(claim.limit):
                return work()
        except Exception as error:
            notes.append(f"{name}: {type(error).__name__}: {error}")
            return None

    def verdict(kind: Kind, rung: str, **more: Any) -> Verdict:
        return _verdict(claim, control, kind, rung, detail="; ".join(notes), **more)

    equation: Equation | None = stage("building", claim.build)
    if equation is None:
        return verdict("undecided", "")
    if control:
        equation = replace(equation, right=_mutated(equation), kernel=None)
    points = _points(equation, claim.identifier)
    sampled = stage("sampling", lambda: _sampled(equation, points))
    if sampled is None:
        return verdict("undecided", "")
    if sampled:
        return verdict("refuted", "witness", witness=sampled)
    error = None
    if equation.kernel is not None:
        compared = stage("kernel", lambda: _compared(equation, points))
        if compared is None:
            return verdict("undecided", "kernel")
        error, witness = compared
        if witness:
            return verdict("refuted", "kernel", kernel_error=error, witness=witness)
    if not (_is_function(equation.left) or _is_function(equation.right)):
        for rung, zero in (("structural", _structural_zero), ("simplification", _simplified_zero)):
            if stage(rung, lambda zero=zero: zero(equation)):  # type: ignore[misc]
                return verdict("proved", rung, kernel_error=error)
    return verdict("numerical", f"{DIGITS} digits", kernel_error=error)


def _mutated(equation: Equation) -> Side:
    right = equation.right
    if equation.wrong is not None:
        return equation.wrong
    if _is_function(right):
        return lambda *values: [2 * x for x in _entries(right(*values))]
    return [2 * x for x in _entries(right)]


def _is_function(side: Side) -> bool:
    return callable(side) and not isinstance(side, (sp.Basic, sp.MatrixBase))


def _entries(side: Side) -> list[Any]:
    """A side as a flat list of numbers or scalar expressions."""
    if isinstance(side, (int, float, mpmath.mpf, mpmath.mpc)):
        return [side]
    if isinstance(side, sp.MatrixBase) or not isinstance(side, sp.Basic):
        return [entry for part in side for entry in _entries(part)]
    return [side]


# ---- proofs


def _difference(equation: Equation) -> Iterator[Expr]:
    for left, right in zip(_entries(equation.left), _entries(equation.right), strict=True):
        difference = left - right
        for step in equation.rewrite:
            difference = step(difference)
        yield difference


def _structural_zero(equation: Equation) -> bool:
    return all(_vanishes(difference) for difference in _difference(equation))


def _vanishes(expression: Expr) -> bool:
    if expression == 0 or sp.expand(expression) == 0:
        return True
    numerator, _ = sp.fraction(sp.together(expression))
    return bool(sp.expand(numerator) == 0)


def _simplified_zero(equation: Equation) -> bool:
    return all(sp.simplify(difference) == 0 for difference in _difference(equation))


# ---- samples


def _points(equation: Equation, seed: str) -> Iterator[list[Any]]:
    """Seeded points of the domain as floats and integers, without end."""
    draw = random.Random(seed)
    while True:
        yield [
            draw.randint(int(low), int(high)) if symbol.is_integer else draw.uniform(low, high)
            for symbol, (low, high) in equation.domain.items()
        ]


def _evaluator(side: Side, equation: Equation) -> Callable[..., list[Any]]:
    """A side as a function of the sampled values."""
    if _is_function(side):
        return lambda *values: _entries(side(*values))
    entries = [sp.sympify(entry) for entry in _entries(side)]
    if equation.instance:
        entries = [entry.subs(equation.instance).doit() for entry in entries]
    free = set().union(*(entry.free_symbols for entry in entries)) - set(equation.domain)
    if free:
        raise ValueError(f"no domain for {', '.join(sorted(map(str, free)))}")
    if any(entry.atoms(sp.Float) for entry in entries):
        raise ValueError("a floating-point number in a claim: write a rational")
    function: Callable[..., list[Any]] = sp.lambdify(list(equation.domain), entries, modules="mpmath", cse=True)
    return function


def _values(side: Callable[..., list[Any]], point: Sequence[Any]) -> list[Any] | None:
    """Numbers of a side at a point; None where they do not exist."""
    try:
        values = [mpmath.mpmathify(x) for x in side(*map(mpmath.mpmathify, point))]
    except (ZeroDivisionError, OverflowError):
        return None
    return values if all(map(mpmath.isfinite, values)) else None


def _sampled(equation: Equation, points: Iterator[list[Any]]) -> dict[str, str]:
    """A witness against the claim; empty if both sides agree at all points."""
    with mpmath.workdps(DIGITS + GUARD):
        left, right = (_evaluator(side, equation) for side in (equation.left, equation.right))
        wanted = equation.points if equation.domain else 1
        found = 0
        for _, point in zip(range(10 * wanted), points, strict=False):
            a, b = _values(left, point), _values(right, point)
            if a is None or b is None:
                continue
            found += 1
            for x, y in zip(a, b, strict=True):
                # relative, down to what the guard digits leave of a difference between numbers of order one
                if abs(x - y) > mpmath.mpf(10) ** -DIGITS * max(abs(x), abs(y), mpmath.mpf(10) ** (10 - GUARD)):
                    return _witness(equation, point, x, y)
            if found == wanted:
                return {}
    raise ArithmeticError(f"only {found} of {wanted} points where both sides are finite")


def _witness(equation: Equation, point: Sequence[Any], left: Any, right: Any) -> dict[str, str]:
    values = {str(symbol): repr(value) for symbol, value in zip(equation.domain, point, strict=True)}
    return values | {"left": mpmath.nstr(left, 20), "right": mpmath.nstr(right, 20)}


def _compared(equation: Equation, points: Iterator[list[Any]]) -> tuple[float, dict[str, str]]:
    """Largest relative difference of the kernel from the left side, and a witness if it is too large.

    Relative to the largest entry where the kernel returns several: a small one may be a difference of large ones.
    """
    assert equation.kernel is not None
    worst = 0.0
    with mpmath.workdps(DIGITS + GUARD):
        left = _evaluator(equation.left, equation)
        arguments = None if equation.arguments is None else _evaluator(list(equation.arguments), equation)
        found = 0
        for _, point in zip(range(10 * equation.points), points, strict=False):
            exact = _values(left, point)
            if exact is None:
                continue
            found += 1
            given = point if arguments is None else [float(x) for x in arguments(*map(mpmath.mpmathify, point))]
            computed = [mpmath.mpf(float(x)) for x in _entries(equation.kernel(*given))]
            scale = max(map(abs, exact))
            for x, y in zip(exact, computed, strict=True):
                error = float(abs(x - y) / scale) if scale else float(abs(y))
                worst = max(worst, error)
                if not error <= KERNEL_TOLERANCE:
                    return error, _witness(equation, point, x, y)
            if found == equation.points:
                return worst, {}
    raise ArithmeticError(f"only {found} of {equation.points} points where the left side is finite")
