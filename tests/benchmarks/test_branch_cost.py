"""What branches and lines cost, in evaluations and seconds.

Run with ``-s`` to see the figures.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.positional_semantic import linear_excess
from tests.small_theories import Scalar

FOLD = 2 / (3 * np.sqrt(3))


@pytest.mark.parametrize("step", [0.1, 0.3])
def test_no_more_evaluations_than_pycont(step):
    """u - u^3 + p = 0 through both folds, with the same longest step in the (u, p) plane.

    pycont-lite with and without its search for bifurcations, and without its stability analysis, which needs more than
    one dimension; ours with both.
    """
    pycont = pytest.importorskip("pycont")
    branch = sa.trace(Scalar(-1.5, start=-1.4), "p", (-1.5, 1.5), maximum_step=step)
    ours = branch.evaluations
    error = max(abs(abs(event.parameter) - FOLD) for event in branch.events)
    length = np.hypot(np.diff(branch["u"]), np.diff(branch.parameter)).max()
    start = float(branch["u"][0])
    for label, lean in (("with bifurcations", {}), ("lean", {"bifurcation_detection": False})):
        calls = []

        def equation(u, p, calls=calls):
            calls.append(p)
            return u - u**3 + p

        settings = {"tolerance": branch.tol, "param_min": -1.5, "param_max": 1.5, "analyze_stability": False, **lean}
        result = pycont.arclengthContinuation(
            equation, np.array([start]), -1.5, 1e-6, length, min(0.02, length), 1000, settings, verbosity="off"
        )
        folds = [event for event in result.events if event.kind in ("LP", "FOLD")]
        theirs = max((abs(abs(event.p) - FOLD) for event in folds), default=np.nan)
        print(f"\nlongest step {length:.3f}: {ours} evaluations, folds to {error:.0e}; pycont-lite {label}: "
              f"{len(calls)}, {len(folds)} folds to {theirs:.0e}; ratio {len(calls) / ours:.1f}")  # fmt: skip
        assert ours <= len(calls)
        assert not theirs < error


def test_thirteen_omegas(monkeypatch):
    """alpha_c and alpha_l at 13 omegas in [0, .42], at accuracy 1e-4, from nothing, in one process."""
    calls = []
    channel = sa.PositionalSemantic.hats

    def counted(self, state, rule):
        calls.append(1)
        return channel(self, state, rule)

    monkeypatch.setattr(sa.PositionalSemantic, "hats", counted)
    model = sa.PositionalSemantic(alpha=1.24, omega=0.3)
    sa.solve(model)  # compiled code is loaded
    calls.clear()
    began = time.perf_counter()
    omegas = np.linspace(0, 0.42, 13)
    settings = {"accuracy": 1e-4}
    semantic = sa.trace(
        model, "alpha", (1.1, 1.6), start="semantic", events=[sa.Crossing(linear_excess, "linear")], **settings
    )
    positional = sa.trace(model, "alpha", (1.1, 1.6), start="positional", events=[], **settings)
    found = [
        sa.critical_line(event, "omega", (0.0, 0.42), at=omegas, **settings)
        for event in (sa.coexistence(semantic, positional), semantic.events[0])
    ]
    seconds = time.perf_counter() - began
    print(f"\nalpha_c and alpha_l at 13 omegas: {seconds:.1f} s, {len(calls)} evaluations of updates and potentials")
    assert all(len(line.at(omega)) == 1 for line in found for omega in omegas)
    assert seconds < 30
