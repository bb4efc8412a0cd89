"""Branches: exact curves of one-dimensional theories, and the two-token model against its own solver."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import statmech_attn as sa
from statmech_attn import registry
from tests.small_theories import Scalar

FOLD = 2 / (3 * np.sqrt(3))


@pytest.fixture
def registered(monkeypatch):
    """Branches of the scalar theories can be read back from files."""
    monkeypatch.setitem(registry.THEORIES, "scalar", ("tests.small_theories", "Scalar"))


@pytest.mark.parametrize("maximum_step", [0.02, 0.1, 0.3])
def test_folds_of_the_cubic(maximum_step):
    branch = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), maximum_step=maximum_step)
    assert [event.name for event in branch.events] == ["fold", "fold"]
    assert np.abs([event.parameter for event in branch.events]) == pytest.approx(FOLD, abs=1e-9)
    assert [event.states[0][0] for event in branch.events] == pytest.approx([-1 / np.sqrt(3), 1 / np.sqrt(3)], abs=1e-6)
    assert all(event.residual < 1e-8 for event in branch.events)
    assert np.all(branch.residual <= branch.tol)
    assert np.all(np.diff(branch.arclength) > 0)
    assert np.abs(branch["u"] - branch["u"] ** 3 + branch.parameter).max() <= branch.tol


def test_every_evaluation_is_counted(monkeypatch):
    calls = []
    update = Scalar.update

    def counted(self, state, rule):
        calls.append(state)
        return update(self, state, rule)

    monkeypatch.setattr(Scalar, "update", counted)
    assert sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5)).evaluations == len(calls)


def test_symmetry_breaking_on_the_symmetric_branch():
    branch = sa.trace(Scalar(1.0, "pitchfork"), "p", (-1.0, 1.0))
    (event,) = branch.events
    assert event.name == "symmetry breaking in u"
    assert event.parameter == pytest.approx(0.0, abs=1e-6)
    assert np.array_equal(branch.static, branch.parameter > 0)


def test_symmetry_breaking_met_from_the_side():
    branch = sa.trace(Scalar(-1.0, "pitchfork", 1.0), "p", (-1.0, 1.0))
    (event,) = branch.events
    assert event.name == "symmetry breaking in u"
    assert event.parameter == pytest.approx(0.0, abs=1e-6)
    assert branch["u"][-1] == 0.0  # the end is located, not approached
    assert "pitchfork" in branch.ends[1]
    assert branch["u"] ** 2 == pytest.approx(-branch.parameter, abs=1e-8)


def test_switching_gives_both_arms():
    (event,) = sa.trace(Scalar(1.0, "pitchfork"), "p", (-1.0, 1.0)).events
    up, down = sa.switch(event, (-1.0, 1.0), at=[-0.5])
    assert up["u"] == pytest.approx(np.sqrt(np.maximum(-up.parameter, 0)), abs=1e-7)
    assert np.array_equal(down["u"], -up["u"])
    assert [row["u"] for row in (*up.at(-0.5), *down.at(-0.5))] == pytest.approx([np.sqrt(0.5), -np.sqrt(0.5)])
    assert [row["u"] for row in down.at(-0.3)] == pytest.approx([-np.sqrt(0.3)])


def test_parabola_has_both_signs():
    branch = sa.trace(Scalar(1.0, "parabola", 1.0), "p", (-1.0, 1.0))
    assert branch["u"].min() == pytest.approx(-1)
    assert branch["u"].max() == pytest.approx(1)
    assert np.abs(branch["u"] ** 2 - branch.parameter).max() <= branch.tol
    assert np.all(np.diff(branch.arclength) > 0)
    assert sorted(row["u"] for row in branch.at(0.3)) == pytest.approx([-np.sqrt(0.3), np.sqrt(0.3)], abs=1e-8)
    assert branch.at(-0.3) == ()
    (event,) = branch.events
    assert (event.name, event.parameter) == ("fold", pytest.approx(0.0, abs=1e-9))


@settings(max_examples=20, deadline=None, derandomize=True)
@example([0.3828125, -0.3828125, 0.38, -0.38])
@example([0.3848, -0.3848])  # a distance of 1e-4 from the folds
@given(st.lists(st.integers(-1400, 1400).map(lambda k: k / 1000), min_size=1, max_size=4, unique=True))
def test_requested_values_are_met_exactly(values):
    branch = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), at=values)
    for value in values:
        expected = [r.real for r in np.roots([-1, 0, 1, value]) if abs(r.imag) < 1e-9]
        if abs(abs(value) - FOLD) < 1e-6:
            continue
        rows = branch.at(value)
        assert [row.parameter for row in rows] == [value] * len(expected)
        assert sorted(row["u"] for row in rows) == pytest.approx(sorted(expected), abs=1e-7)
        assert np.sum(branch.parameter == value) == len(expected)


def test_potential_and_stability_of_the_cubic():
    branch = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5))
    inner = np.abs(branch["u"]) < 1 / np.sqrt(3)
    assert np.array_equal(branch.static, ~inner)  # F' = 2 - 3 u^2 > 1 between the folds
    u = branch["u"]
    assert branch.potential == pytest.approx(-(u**2 / 2 - u**4 / 4 + branch.parameter * u), abs=1e-12)


def test_user_function(caplog):
    crossing = sa.Crossing(lambda row: row["u"] - 0.25, "quarter")
    branch = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), events=[crossing])
    (event,) = branch.events
    assert event.parameter == pytest.approx(0.25**3 - 0.25, abs=1e-8)
    assert event.name == "quarter"


def test_resumed_equals_uninterrupted(tmp_path):
    whole = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5))

    class KilledError(Exception):
        pass

    def kill(rows, parameter, coordinates):
        if rows == 20:
            raise KilledError

    path = tmp_path / "walk.npz"
    with pytest.raises(KilledError):
        sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path, callback=kill)
    steps = []
    again = sa.trace(
        Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path, callback=lambda *a: steps.append(a)
    )
    assert 0 < len(steps) < len(whole)  # some of it was kept
    assert again.state.tobytes() == whole.state.tobytes()
    assert again.parameter.tobytes() == whole.parameter.tobytes()
    assert [str(e) for e in again.events] == [str(e) for e in whole.events]
    with pytest.raises(ValueError, match=r"another walk.*maximum_step"):
        sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path, maximum_step=0.1)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="not a complete result"):
        sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path)


def test_more_rows_continue_the_walk(tmp_path):
    path = tmp_path / "walk.npz"
    part = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path, max_rows=8)
    assert part.ends[1] == "the limit on the number of rows was reached"
    rest = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), checkpoint=path)
    assert rest.state.tobytes() == sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5)).state.tobytes()


def test_file_round_trip(registered, tmp_path):
    branch = sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5), at=[0.1])
    branch.save(tmp_path / "branch.npz")
    read = sa.load_branch(tmp_path / "branch.npz")
    for name in ("parameter", "state", "arclength", "residual", "potential", "u_squared", "static"):
        assert np.array_equal(getattr(read, name), getattr(branch, name)), name
    assert (read.ends, read.evaluations, read.theory) == (branch.ends, branch.evaluations, branch.theory)
    assert [str(e) for e in read.events] == [str(e) for e in branch.events]
    assert [row["u"] for row in read.at(0.2)] == [row["u"] for row in branch.at(0.2)]
    with pytest.raises(ValueError, match="holds a 'branch'"):
        sa.load(tmp_path / "branch.npz")


@pytest.mark.parametrize(
    ("parameter", "interval", "more", "message"),
    [
        ("beta", (0.1, 1.0), {}, "parameter='beta' is not a scalar parameter.*alpha, omega"),
        ("positional_target", (0.1, 1.0), {}, "not a scalar parameter"),
        ("alpha", (1.0, 1.0), {}, "low < high"),
        ("alpha", (1.0, 0.5), {}, "low < high"),
        ("alpha", (0.0, 1.0), {}, "alpha=0.0 must be positive"),
        ("alpha", 3.0, {}, "pair of numbers"),
        ("omega", (0.0, 1.5), {}, r"omega=1.5 must lie in \[0, 1\]"),
        ("alpha", (0.5, 2.0), {"at": [3.0]}, "lies outside"),
        ("alpha", (0.5, 2.0), {"start": "nowhere"}, "start='nowhere'"),
        ("alpha", (0.5, 2.0), {"maximum_step": 0.0}, "maximum_step"),
    ],
)
def test_wrong_input(parameter, interval, more, message):
    with pytest.raises(ValueError, match=message):
        sa.trace(sa.PositionalSemantic(alpha=1.0), parameter, interval, **more)


def test_a_start_that_does_not_exist_is_one_error():
    with pytest.raises(sa.ConvergenceError, match=r"semantic.*does not converge at any of"):
        sa.trace(sa.PositionalSemantic(alpha=0.2, omega=0.3), "alpha", (0.1, 0.4), start="semantic")


def test_semantic_branch_agrees_with_the_solver():
    model = sa.PositionalSemantic(alpha=1.24, omega=0.3)
    branch = sa.trace(model, "alpha", (0.6, 2.0), start="semantic", at=[0.9, 1.24, 2.0])
    for alpha in (0.9, 1.24, 2.0):
        (row,) = branch.at(alpha)
        solution = sa.solve(sa.replace(model, alpha=alpha), start="semantic")
        assert np.max(np.abs(row.state - solution.state) / model.scale(solution.state)) < 1e-7
        assert row.train_loss == pytest.approx(solution.train_loss, rel=1e-8)
        assert row.potential == row.train_loss
    assert np.all(branch.residual <= branch.tol)
    assert {e.name: round(e.parameter, 3) for e in branch.events} == {
        "symmetry breaking in m": 0.826,
        "symmetry breaking in theta": 0.719,
    }
    # below the stability line static stability is lost to m and to nothing else
    assert np.array_equal(branch.static, branch.parameter > branch.events[0].parameter)
    assert branch.stability[-1].replica_symmetric is False  # the proximal operator jumps


@pytest.mark.parametrize("parameter", ["omega", "sigma", "regularization"])
def test_any_scalar_parameter(parameter):
    model = sa.PositionalSemantic(alpha=1.24, omega=0.3)
    own = getattr(model, parameter)
    branch = sa.trace(model, parameter, (0.9 * own, 1.1 * own), start="semantic", accuracy=1e-4, events=[])
    assert branch.parameter[[0, -1]] == pytest.approx([0.9 * own, 1.1 * own])
    end = sa.solve(sa.replace(model, **{parameter: 1.1 * own}), start="semantic", accuracy=1e-4)
    assert branch["theta"][-1] == pytest.approx(end["theta"], rel=2e-4)


def test_library_does_not_print(capsys, caplog):
    with caplog.at_level(logging.WARNING):
        sa.trace(Scalar(-1.5, "cubic", -1.4), "p", (-1.5, 1.5))
    assert capsys.readouterr().out == ""
    assert not caplog.records
