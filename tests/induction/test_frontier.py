"""Pareto frontier, violations and the monotone boundary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statmech_attn.induction import MonotoneBoundary, monotone_boundary, pareto_frontier

GRID = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
F, R = (axis.ravel() for axis in np.meshgrid(GRID, GRID))
LABEL = F * R >= 0.08

points = st.lists(st.tuples(st.sampled_from(GRID), st.sampled_from(GRID), st.booleans()), min_size=1, max_size=30).map(
    lambda rows: tuple(np.array(column) for column in zip(*rows, strict=True))
)


def test_five_by_five_grid():
    found = pareto_frontier(F, R, LABEL)
    assert list(zip(found.frequency, found.reliability, strict=True)) == [(0.1, 0.9), (0.3, 0.3), (0.9, 0.1)]
    assert found.violations.size == 0


@given(data=points)
def test_frontier_by_definition(data):
    f, r, label = data

    def dominates(i, j):
        return f[i] >= f[j] and r[i] >= r[j] and (f[i] > f[j] or r[i] > r[j])

    emerged = np.flatnonzero(label)
    minimal = {(f[i], r[i]) for i in emerged if not any(dominates(i, j) for j in emerged)}
    against = [i for i in np.flatnonzero(~label) if any(dominates(i, j) for j in emerged)]
    found = pareto_frontier(f, r, label)
    assert set(zip(found.frequency, found.reliability, strict=True)) == minimal
    assert len(found.frequency) == len(minimal)
    assert found.violations.tolist() == against


def test_boundary_recovers_its_weights():
    rng = np.random.default_rng(0)
    f, r = rng.uniform(0.01, 1.0, (2, 40_000))
    truth = MonotoneBoundary(4.0, 1.5, 2.5)
    fit = monotone_boundary(f, r, rng.random(f.size) < truth.probability(f, r), ridge=1e-9)
    for name in ("intercept", "frequency_weight", "reliability_weight"):
        assert getattr(fit, name) == pytest.approx(getattr(truth, name), rel=0.05)


def test_boundary_of_the_grid_separates_it():
    fit = monotone_boundary(F, R, LABEL)
    np.testing.assert_array_equal(fit.probability(F, R) > 0.5, LABEL)
    assert fit.frequency_weight == pytest.approx(fit.reliability_weight, rel=1e-3)  # the grid is symmetric
    np.testing.assert_allclose(fit.probability(GRID, np.minimum(fit.reliability(GRID), 1.0))[1:], 0.5)


def test_weights_stay_non_negative_on_contrary_data():
    fit = monotone_boundary(F, R, F < 0.4)
    assert fit.frequency_weight == 0.0
    assert fit.reliability_weight >= 0.0
    assert np.isnan(MonotoneBoundary(1.0, 1.0, 0.0).reliability(0.5))
    assert MonotoneBoundary(1.0, 1.0, 0.0).probability(0.5, 0.0) > 0.0
    assert MonotoneBoundary(1.0, 1.0, 1.0).probability(0.5, 0.0) == 0.0


def test_bad_points_are_refused():
    assert pareto_frontier([0.5], [0.5], [0]).frequency.size == 0
    for arguments, message in (
        (([0.5], [0.5, 0.6], [1]), "must be equal"),
        (([1.5], [0.5], [1]), r"frequency=1\.5"),
        (([0.5], [np.nan], [1]), "reliability=nan"),
        (([0.5], [0.5], [2]), "labels"),
    ):
        with pytest.raises(ValueError, match=message):
            pareto_frontier(*arguments)
    with pytest.raises(ValueError, match="both outcomes"):
        monotone_boundary(F, R, np.ones(25))
    with pytest.raises(ValueError, match="must be positive"):
        monotone_boundary([0.0, 0.5], [0.5, 0.5], [0, 1])
    with pytest.raises(ValueError, match="ridge=0"):
        monotone_boundary(F, R, LABEL, ridge=0.0)
