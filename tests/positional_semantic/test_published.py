"""The authors' own nodes and iteration reproduce the tables they published: a test of the equations alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.positional_semantic.published import DEGREE_7, DEGREE_11


@pytest.mark.parametrize(("rule", "degree"), [(DEGREE_7, 7), (DEGREE_11, 11)])
def test_degree_of_the_plane_rules(rule: tuple[np.ndarray, np.ndarray], degree: int) -> None:
    nodes, weights = rule
    moments = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945, 0, 10395]
    for i in range(degree + 1):
        for j in range(degree + 1 - i):
            assert weights @ (nodes[:, 0] ** i * nodes[:, 1] ** j) == pytest.approx(
                moments[i] * moments[j], rel=1e-12, abs=1e-12
            )
    power = degree + 1
    assert abs(weights @ nodes[:, 0] ** power - moments[power]) > 5e-3 * moments[power]


@pytest.mark.parametrize("branch", ["semantic", "positional"])
def test_published_table(reference: Callable[[str], list[dict[str, str]]], branch: str) -> None:
    rows = [
        r
        for r in reference("positional_semantic_replica.csv")
        if r["branch"] == branch and r["omega"] == "0.3" and float(r["alpha"]) >= 0.1
    ]
    assert len(rows) >= 18
    for row in rows:
        solution = sa.solve(sa.PositionalSemantic(float(row["alpha"]), 0.3), branch, rule="published")
        names = ("q", "positional_overlap", "semantic_overlap")
        for name, value in zip(names, solution.state, strict=False):
            assert abs(value) == pytest.approx(abs(float(row[name])), abs=1e-4)
        assert solution["V"] == pytest.approx(float(row["V"]), abs=0.03)
        assert solution.train_loss == pytest.approx(-float(row["free_entropy"]), abs=2e-6)
        assert 2 * solution.test_error == pytest.approx(float(row["mse"]), abs=5e-5)


def test_published_rule_is_not_converged() -> None:
    model = sa.PositionalSemantic(0.792727272727, 0.3)
    published = sa.solve(model, "semantic", rule="published")
    assert published["theta"] > 1.2 * sa.solve(model, "semantic").require()["theta"]
    assert np.isnan(published.quadrature_error), "and it does not claim an error"


def test_monte_carlo_rule() -> None:
    model = sa.PositionalSemantic(2.0, 0.3)
    exact = sa.solve(model, "semantic")
    sampled = sa.solve(model.under("monte_carlo", samples=20_000, seed=3), exact)
    assert sampled.converged
    assert np.all(np.abs(sampled.state - exact.state)[[0, 2, 3]] < 5 * sampled.errors[[0, 2, 3]])
    again = sa.solve(model.under("monte_carlo", samples=20_000, seed=3), exact)
    np.testing.assert_array_equal(again.state, sampled.state)
