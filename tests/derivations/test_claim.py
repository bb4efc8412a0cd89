"""The engine: every rung, witnesses, limits, workers."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import sympy as sp

import derivations
import statmech_attn as sa
from derivations.claim import Equation, check, claim, time_limit
from statmech_attn.cli import main
from statmech_attn.diagram import local_pool

x, y = sp.symbols("x y", real=True)
n = sp.Symbol("n", integer=True)


@claim("math.hypot")
def expands() -> Equation:
    """(x + y)^2 = x^2 + 2 x y + y^2."""
    return Equation((x + y) ** 2, x**2 + 2 * x * y + y**2, {x: (-1, 1), y: (-1, 1)})


@claim()
def over_a_common_denominator() -> Equation:
    """1/(x - 2) - 1/(x + 2) = 4/(x^2 - 4)."""
    return Equation(1 / (x - 2) - 1 / (x + 2), 4 / (x**2 - 4), {x: (-1, 1)})


@claim()
def by_rewriting() -> Equation:
    """sin 2x = 2 sin x cos x, when told to expand it."""
    return Equation(sp.sin(2 * x), 2 * sp.sin(x) * sp.cos(x), {x: (-3, 3)}, rewrite=[sp.expand_trig])


@claim()
def by_simplification() -> Equation:
    """sin^4 - cos^4 = -cos 2x."""
    return Equation(sp.sin(x) ** 4 - sp.cos(x) ** 4, -sp.cos(2 * x), {x: (-3, 3)})


@claim()
def by_numbers() -> Equation:
    """The integral of exp(-t) from x to infinity is exp(-x)."""
    import mpmath

    return Equation(lambda t: mpmath.quad(lambda s: mpmath.exp(-s), [t, mpmath.inf]), sp.exp(-x), {x: (0, 2)})


@claim()
def by_integers() -> Equation:
    """(-1)^n = cos(pi n)."""
    return Equation((-1) ** n, sp.cos(sp.pi * n), {n: (-9, 9)}, wrong=1)


@claim()
def false() -> Equation:
    """sqrt(x^2) = x, false for negative x."""
    return Equation(sp.sqrt(x**2), x, {x: (-1, 1)})


@claim()
def nearly() -> Equation:
    """x + 10^-45 = x: true to 45 digits."""
    return Equation(x + sp.Integer(10) ** -45, x, {x: (1, 2)})


@claim()
def wrong_step() -> Equation:
    """sin x = x, with a rewriting step that proves anything."""
    return Equation(sp.sin(x), x, {x: (-1, 1)}, rewrite=[lambda e: sp.Integer(0)])


@claim()
def vacuous() -> Equation:
    """0 = 0: it cannot fail."""
    return Equation(x - x, 0, {x: (-1, 1)})


@claim()
def nowhere() -> Equation:
    """1/(x - x) = y: no point at all."""
    hole = lambda a, b: a / 0  # noqa: E731
    return Equation(hole, y, {x: (-1, 1), y: (-1, 1)})


@claim()
def holes() -> Equation:
    """(n^2 - 1)/(n - 1) = n + 1, undefined at some of the sampled integers."""
    return Equation(lambda k: (k**2 - 1) / (k - 1), n + 1, {n: (-2, 2)})


@claim()
def no_domain() -> Equation:
    """x + y = y + x without a domain for y."""
    return Equation(lambda a: a, x + y, {x: (-1, 1)})


@claim()
def with_a_float() -> Equation:
    """x/2 = .5 x: a float has 16 digits."""
    return Equation(x / 2, 0.5 * x, {x: (-1, 1)})


@claim(limit=1)
def runaway_proof() -> Equation:
    """A true claim whose expansion has 10^9 terms: the samples remain."""
    z = sp.symbols("z:12", real=True)
    shifted = sum((k + 1) * w for k, w in enumerate(z))
    rest = sum(k * w for k, w in enumerate(z))
    return Equation(shifted**40, (sum(z) + rest + y) ** 40, dict.fromkeys(z, (0, 1)) | {y: (0, 0)}, wrong=rest)


@claim(limit=1)
def endless() -> Equation:
    """Its construction never ends."""
    while True:
        pass


@claim("math.sin")
def kernel() -> Equation:
    """sin x in floating point."""
    return Equation(sp.sin(x), sp.sin(x), {x: (0.1, 1)}, kernel=math.sin)


@claim("math.sin")
def bad_kernel() -> Equation:
    """sin x with an error of 1e-10."""
    return Equation(sp.sin(x), sp.sin(x), {x: (0.1, 1)}, kernel=lambda t: math.sin(t) * (1 + 1e-10))


@claim()
def nan_kernel() -> Equation:
    """sin x that returns no number."""
    return Equation(sp.sin(x), sp.sin(x), {x: (0.1, 1)}, kernel=lambda t: math.nan)


@pytest.mark.parametrize(
    ("item", "kind", "rung"),
    [
        (expands, "proved", "structural"),
        (over_a_common_denominator, "proved", "structural"),
        (by_rewriting, "proved", "structural"),
        (by_simplification, "proved", "simplification"),
        (by_numbers, "numerical", "50 digits"),
        (by_integers, "proved", "structural"),
        (holes, "numerical", "50 digits"),
        (false, "refuted", "witness"),
        (nearly, "refuted", "witness"),
        (wrong_step, "refuted", "witness"),
        (kernel, "proved", "structural"),
        (bad_kernel, "refuted", "kernel"),
        (nan_kernel, "refuted", "kernel"),
        (nowhere, "undecided", ""),
        (no_domain, "undecided", ""),
        (with_a_float, "undecided", ""),
        (endless, "undecided", ""),
        (runaway_proof, "numerical", "50 digits"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_ladder(item: derivations.Claim, kind: str, rung: str) -> None:
    verdict = check(item)
    assert (verdict.kind, verdict.rung) == (kind, rung), verdict
    assert verdict.holds == (kind in ("proved", "numerical"))
    assert bool(verdict.witness) == (kind == "refuted")
    assert bool(verdict.detail) or kind != "undecided"


def test_witness_is_a_counterexample() -> None:
    witness = check(false).witness
    assert float(witness["x"]) < 0
    assert float(witness["left"]) == -float(witness["right"]) == pytest.approx(-float(witness["x"]))
    assert check(false).witness == witness, "the same points every time"


def test_what_equals_does_not_know_is_not_proved() -> None:
    # sympy answers None for the difference of these two numbers
    root = sp.sqrt(2) ** sp.sqrt(2)
    digits = sp.Rational(sp.N(root, 40))

    @claim()
    def close() -> Equation:
        """2^(1/sqrt 2) is a rational number of forty digits: false, in the forty-first."""
        return Equation(x + root, x + digits, {x: (0, 1)})

    assert check(close).kind == "refuted"


def test_controls() -> None:
    assert check(expands, control=True).kind == "refuted"
    assert check(by_integers, control=True).kind == "refuted"
    assert check(expands, control=True).claim.endswith("(control)")
    # twice nothing is nothing: a claim that cannot fail is found out
    assert check(vacuous, control=True).kind == "proved"


def test_time_limit_stops_a_runaway_simplification() -> None:
    z = sp.symbols("z:12")
    with pytest.raises(TimeoutError, match=r"0\.2 seconds"), time_limit(0.2):
        sp.expand(sum(z) ** 60)
    with time_limit(5):
        assert sp.simplify(sp.sin(x) ** 2 + sp.cos(x) ** 2) == 1


def test_time_limit_is_not_swallowed() -> None:
    def stubborn() -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    with pytest.raises(TimeoutError), time_limit(0.2):
        stubborn()


def test_longer_limits_need_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        claim(limit=60)


def test_a_claim_states_itself() -> None:
    with pytest.raises(ValueError, match="no docstring"):
        claim()(lambda: Equation(x, x, {}))


def test_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(expands)) is expands
    assert len(pickle.dumps(expands)) < 200


@pytest.mark.slow
def test_same_verdicts_on_any_executor() -> None:
    chosen = [derivations.find(f"gaussian.{name}") for name in ("stein", "determinant_lemma", "envelope")]
    serial = [check(c) for c in chosen]
    with ThreadPoolExecutor(2) as threads, local_pool(1) as processes:
        for executor in (threads, processes):
            found = list(executor.map(check, chosen))
            assert [replace(v, seconds=0.0) for v in found] == [replace(v, seconds=0.0) for v in serial]
        # in a thread too, a limit stops
        assert threads.submit(check, endless).result().kind == "undecided"


def test_report() -> None:
    report = sa.verify(claim="gaussian.determinant_lemma")
    assert not report.failures
    assert "proved" in str(report)
    assert '"rung": "structural"' in report.to_json()
    assert not sa.verify("gaussian", "gaussian.determinant_lemma", controls=True).failures
    failed = derivations.Report((check(false), check(nowhere)))
    assert len(failed.failures) == 2
    assert "x=-0." in str(failed)
    assert "1 refuted, 1 undecided" in str(failed)


def test_exit_codes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["verify", "--claim", "gaussian.determinant_lemma"]) == 0
    assert main(["verify", "--claim", "gaussian.no_such"]) == 2
    assert main(["verify", "no_model"]) == 2
    assert main(["verify", "gaussian", "--claim", "proximal.replicon"]) == 2
    monkeypatch.setattr(derivations, "claims", lambda family=None: (false,))
    assert main(["verify", "--json"]) == 1
    assert '"kind": "refuted"' in capsys.readouterr().out
