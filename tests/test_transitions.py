"""Located transitions: against algebra, and against the table of the two-token model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import statmech_attn as sa
from tests.small_theories import Scalar

MODEL = sa.PositionalSemantic(alpha=1.24, omega=0.3)


def linear_excess(row):
    return row.test_error - row.linear_baseline


def test_coexistence_of_the_cubic():
    # the quartic potential is even at p = 0: u = -1 and u = +1 are equally deep
    below = sa.trace(Scalar(-0.2), "p", (-0.3, 0.3), {"u": -1.2})
    above = sa.trace(Scalar(0.2), "p", (-0.3, 0.3), {"u": 1.2})
    jump = sa.coexistence(below, above)
    assert jump.parameter == pytest.approx(0.0, abs=1e-9)
    assert [state[0] for state in jump.states] == pytest.approx([-1, 1], abs=1e-8)
    assert jump.residual < 1e-9
    assert jump.state_residual <= 1e-8


def test_coexistence_says_no():
    below = sa.trace(Scalar(-0.2), "p", (-0.3, -0.1), {"u": -1.2})
    above = sa.trace(Scalar(-0.2), "p", (-0.3, -0.1), {"u": 1.2})
    with pytest.raises(ValueError, match="cross nowhere"):
        sa.coexistence(below, above)
    with pytest.raises(ValueError, match="differ in more than p"):
        sa.coexistence(below, sa.trace(Scalar(0.2, "parabola", 1.0), "p", (0.1, 0.3)))
    # a branch and its own copy have the same potential everywhere: that is no coexistence
    with pytest.raises(ValueError, match="cross nowhere"):
        sa.coexistence(below, below)


@dataclasses.dataclass(frozen=True)
class Cusp(Scalar):
    """a u - u^3 + p = 0: folds on the cusp 27 p^2 = 4 a^3."""

    a: float = 1.0

    def f(self, u):
        return self.a * u - u**3 + self.p

    def potential(self, state, rule):
        u = float(state[0])
        return -(self.a * u**2 / 2 - u**4 / 4 + self.p * u)


def test_line_of_folds_is_the_cusp():
    branch = sa.trace(Cusp(-1.5, start=-1.4), "p", (-1.5, 1.5))
    line = sa.critical_line(branch.events[0], "a", (0.05, 2.0), at=[0.3, 1.7])
    assert line["p"] ** 2 == pytest.approx(4 * line["a"] ** 3 / 27, rel=1e-5)
    assert line["a"][[0, -1]] == pytest.approx([0.05, 2.0])
    (row,) = line.at(0.3)
    assert row.parameter**2 == pytest.approx(4 * 0.3**3 / 27, rel=1e-6)


def test_line_of_coexistence_stays_at_zero():
    below = sa.trace(Cusp(-0.2), "p", (-0.3, 0.3), {"u": -1.2})
    above = sa.trace(Cusp(0.2), "p", (-0.3, 0.3), {"u": 1.2})
    line = sa.critical_line(sa.coexistence(below, above), "a", (0.2, 2.0))
    assert line["p"] == pytest.approx(0.0, abs=1e-7)
    assert line.states[1][:, 0] == pytest.approx(np.sqrt(line["a"]), abs=1e-6)


def test_wrong_lines():
    (event,) = sa.trace(Scalar(1.0, "parabola", 1.0), "p", (-1.0, 1.0)).events
    with pytest.raises(ValueError, match="parameter='p' is the one in which"):
        sa.critical_line(event, "p", (-1.0, 1.0))
    with pytest.raises(ValueError, match="does not hold the transition"):
        sa.critical_line(event, "start", (2.0, 3.0))
    with pytest.raises(ValueError, match="no other branch starts there"):
        sa.switch(event, (-1.0, 1.0))
    with pytest.raises(ValueError, match="locate it again"):
        sa.critical_line(dataclasses.replace(event, event=None), "start", (0.0, 3.0))
    with pytest.raises(ValueError, match="order_parameter='v' is not one of u"):
        sa.locate(sa.trace(Scalar(1.0, "parabola", 1.0), "p", (0.5, 1.0)), sa.SymmetryBreaking("v"))


# omega: alpha_c, alpha_l, pitchfork in m, pitchfork in theta, semantic stable above, positional unstable above
TABLE = {
    0.0: (0.6149, 0.7460, 0.1069, 0.5122, 0.5376, 0.784),
    0.1: (0.7509, 0.8929, 0.0857, 0.5558, 0.6018, 1.09),
    0.2: (0.9480, 1.1173, None, None, 0.6925, None),
    0.3: (1.2515, 1.4924, 0.0575, 0.7197, 0.8266, None),
    0.4: (1.7715, 2.2772, None, None, None, None),
}


@pytest.fixture(scope="module")
def lines():
    """Every line of the phase diagram from branches at one omega."""
    omegas = list(TABLE)
    semantic = sa.trace(
        MODEL, "alpha", (0.6, 1.8), start="semantic", accuracy=1e-4,
        events=[sa.SymmetryBreaking("m"), sa.SymmetryBreaking("theta"), sa.Crossing(linear_excess, "linear")],
    )  # fmt: skip
    positional = sa.trace(MODEL, "alpha", (0.05, 1.8), start="positional", accuracy=1e-4)
    stable, birth, beats = semantic.events
    at_zero = sa.trace(
        sa.PositionalSemantic(alpha=0.6), "alpha", (0.3, 1.0), start="positional", accuracy=1e-4,
        events=[sa.SymmetryBreaking("theta")],
    )  # fmt: skip
    jump = sa.coexistence(semantic, positional)
    events = (jump, beats, positional.events[0], birth, stable)
    # the rate at a pitchfork divides by a small amplitude and needs the finer rule
    found = [
        sa.critical_line(event, "omega", (0.0, 0.42), at=omegas, accuracy=1e-6 if event is birth else 1e-4)
        for event in events
    ]
    return [*found, sa.critical_line(at_zero.events[0], "omega", (0.0, 0.2), at=[0.0, 0.1, 0.2], accuracy=1e-4)]


@pytest.mark.slow
def test_table_of_lines(lines):
    for omega, row in TABLE.items():
        for k, (line, expected) in enumerate(zip(lines, row, strict=True)):
            if expected is not None:
                (found,) = line.at(omega)
                # the last column is given to two digits only
                within = (1e-3, 1e-3, 2e-3, 2e-3, 2e-3, 5e-3)[k]
                assert found.parameter == pytest.approx(expected, abs=within), (omega, k)
                assert found.residual <= 1e-8


def test_fold_of_the_positional_branch():
    """The branch runs past its upper pitchfork and turns back to it: at omega = 0.22, not at omega = 0.1."""
    found = {}
    for omega in (0.1, 0.22):
        model = sa.PositionalSemantic(alpha=1.0, omega=omega)
        branch = sa.trace(model, "alpha", (0.5, 2.5), start="positional", accuracy=1e-4)
        found[omega] = [event.parameter for event in branch.events if event.name == "fold"]
        if found[omega]:
            below, above = branch.at(found[omega][0] - 0.01), branch.at(found[omega][0] + 0.01)
            assert (len(below), len(above)) == (2, 0)
    assert found[0.1] == []
    assert found[0.22] == pytest.approx([1.9266], abs=2e-3)


def test_positional_branch_returns_to_the_uninformed_one():
    """At omega = 0 the m-pitchforks bound it on both sides, and r_theta = 1 lies in between."""
    model = sa.PositionalSemantic(alpha=0.6)
    branch = sa.trace(model, "alpha", (0.05, 1.5), start="positional", accuracy=1e-4)
    ends = [event.parameter for event in branch.events if event.name == "symmetry breaking in m"]
    base = sa.trace(model, "alpha", (0.05, 1.5), start="uninformed", accuracy=1e-4, events=[sa.SymmetryBreaking("m")])
    # the same points met from the side and on the symmetric branch
    assert ends == pytest.approx([event.parameter for event in base.events], abs=1e-6)


def test_random_starts_find_the_mixed_state():
    found = sa.solutions(sa.PositionalSemantic(alpha=0.65), 16, seed=1, accuracy=1e-4)
    assert sorted(s.branch for s in found) == ["mixed", "positional", "semantic", "uninformed"]
    mixed = next(s for s in found if s.branch == "mixed")
    assert sa.stability(mixed).unstable_directions == 1  # the saddle between the two ordered branches
    assert all(sa.stability(s).static for s in found if s.branch in ("positional", "semantic"))


def test_stability_of_a_solution_and_of_a_row():
    """Rates of a solution and of a row agree; the spectral radius is the positional branch's -3.97."""
    solution = sa.solve(MODEL, start="positional")
    exact = sa.stability(solution)
    assert exact.iteration == pytest.approx(3.97, abs=0.02)
    assert exact.unstable_directions == 0
    assert exact.jump_probability > 0
    assert not exact.replica_symmetric
    branch = sa.trace(MODEL, "alpha", (1.2, 1.3), start="positional", at=[1.24], events=[])
    (row,) = branch.at(1.24)
    assert row.stability.iteration == pytest.approx(exact.iteration, rel=5e-3)
    assert row.stability.rates["theta"] == pytest.approx(exact.rates["theta"], abs=2e-3)


REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference" / "positional_semantic_converged.csv"


@pytest.mark.skipif(not REFERENCE.exists(), reason="reference tables are not here")
@pytest.mark.parametrize("start", ["semantic", "positional"])
def test_branch_against_converged_table(start):
    rows = np.genfromtxt(REFERENCE, delimiter=",", names=True, dtype=None, encoding="utf-8")
    rows = rows[(rows["branch"] == start) & (rows["alpha"] > 1.0)][:4]
    branch = sa.trace(MODEL, "alpha", (1.0, 2.1), start=start, at=sorted(rows["alpha"]), events=[])
    for expected in rows:
        (row,) = branch.at(expected["alpha"])
        assert row["q"] == pytest.approx(expected["q"], abs=1e-4)
        assert row["m"] == pytest.approx(expected["positional_overlap"], abs=1e-4)
        assert row["theta"] == pytest.approx(expected["semantic_overlap"], abs=1e-4)
        assert row.train_loss == pytest.approx(expected["train_loss"], rel=3e-5)
