"""Training: minima, certificates, starts, gauge, and z-scores against the theory."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.cli import main
from statmech_attn.positional_semantic.data import instance
from statmech_attn.positional_semantic.minimisers import minimise
from statmech_attn.positional_semantic.risk import Risk
from statmech_attn.positional_semantic.runs import Overlaps, align, overlaps
from statmech_attn.positional_semantic.training import begin, simulate
from tests.positional_semantic.layers import random_layer

MODEL = sa.PositionalSemantic(alpha=2.0, omega=0.3)
# at these both branches are stable, and the proximal operator does not jump
STRONG = sa.PositionalSemantic(alpha=4.0, omega=0.3, regularization=0.1, sigma=0.6)
STRONGER = sa.PositionalSemantic(alpha=4.0, omega=0.3, regularization=0.3, sigma=0.7)


def test_methods_reach_the_same_minimum() -> None:
    runs = {
        method: sa.train(MODEL, 150, method, "semantic", tol=1e-8) for method in ("lbfgs", "gradient_descent", "adam")
    }
    best = runs["lbfgs"]
    for run in runs.values():
        assert run.converged
        assert run.train_loss == pytest.approx(best.train_loss, rel=1e-10)
        assert run.weights == pytest.approx(best.weights, abs=1e-5)
        data = instance(MODEL, 150)
        assert np.sqrt(np.mean(Risk(data)(run.weights)[1] ** 2)) == pytest.approx(run.gradient, rel=1e-4)


def test_history() -> None:
    seen: list[int] = []
    run = sa.train(MODEL, 100, "gradient_descent", "semantic", callback=lambda k, loss, gradient: seen.append(k))
    history = run.history
    assert seen == list(range(run.iterations + 1))
    assert len(history["loss"]) == len(history["q"]) == run.iterations + 1
    assert np.all(np.diff(history["loss"]) <= 1e-12), "gradient descent goes down"
    assert history["loss"][-1] == run.train_loss
    assert np.array_equal(history["theta"][-1], run.overlaps.theta)


def test_a_run_that_is_not_converged_says_so() -> None:
    run = sa.train(MODEL, 100, "gradient_descent", max_iterations=5)
    assert not run.converged
    assert run.status.kind == "iteration limit"
    assert "maximum number of iterations reached" in str(run)
    assert run.iterations == 5


def test_a_function_without_minimum_is_not_converged() -> None:
    for method in ("lbfgs", "gradient_descent", "adam"):
        found = minimise(lambda x: (float(x.sum()), np.ones_like(x)), np.zeros(3), method, max_iterations=40)
        assert found.status.kind != "converged"


def test_a_wrong_gradient_stalls() -> None:
    found = minimise(lambda x: (float(x @ x), -2 * x), np.ones(3), "gradient_descent")
    assert found.status.kind == "stalled"


def test_fixed_step_is_plain_gradient_descent() -> None:
    run = sa.train(MODEL, 60, "gradient_descent", learning_rate=0.5, max_iterations=3)
    data = instance(MODEL, 60)
    Q = begin(data, "random")
    for _ in range(3):
        Q = Q - 0.5 * Risk(data)(Q)[1]
    assert run.weights == pytest.approx(Q, rel=1e-12)


def test_starts() -> None:
    data = instance(random_layer(3, 2, 2), 200)
    teacher, contrast = data.teacher, data.positions - data.positions.mean(axis=0)
    size = {}
    for start in ("random", "semantic", "positional", "hybrid"):
        Q = begin(data, start)
        size[start] = [
            abs(Q[:, k] @ column) / np.linalg.norm(Q[:, k]) / np.linalg.norm(column)
            for k, column in ((0, teacher[:, 0]), (1, teacher[:, 1]), (0, contrast[0]), (1, contrast[0]))
        ]
    assert min(size["semantic"][:2]) > 0.98
    assert size["positional"][2] > 0.7
    assert size["hybrid"][0] > 0.98
    assert size["hybrid"][3] > 0.7
    assert max(size["random"]) < 0.3
    assert np.array_equal(begin(data, Q), Q)


def test_runs_do_not_depend_on_workers() -> None:
    here = simulate(MODEL, [40, 60], 2, start="semantic")
    with sa.local_pool(2) as pool:
        there = simulate(MODEL, [40, 60], 2, start="semantic", executor=pool)
    assert [(r.dimension, r.seed) for r in there] == [(40, 0), (40, 1), (60, 0), (60, 1)]
    for one, other in zip(here, there, strict=True):
        assert np.array_equal(one.weights, other.weights)
        assert one.test_error == other.test_error


def test_alignment_undoes_the_gauge() -> None:
    rng = np.random.default_rng(0)
    layer = random_layer(3, 2, 2)
    data = instance(layer, 50)
    Q = rng.standard_normal((50, 2))
    wanted = overlaps(data, Q)
    angle = np.array([[np.cos(2.0), np.sin(2.0)], [np.sin(2.0), -np.cos(2.0)]])
    turned = align(layer, overlaps(data, Q @ angle), wanted)
    for a, b in zip(turned, wanted, strict=True):
        assert a == pytest.approx(b, abs=1e-12)


def test_signs_of_two_tokens() -> None:
    layer = MODEL.layer()
    for sign, other in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        found = Overlaps(np.full((2, 1, 1), 0.1), sign * np.array([[0.2], [-0.2]]), other * np.full((2, 1, 1), 0.1))
        for m, theta in ((0.2, 0.1), (0.2, 0.0), (0.0, 0.1)):
            wanted = MODEL.overlaps(np.array([0.1, m, theta, 1.0]))
            named = MODEL.name_overlaps(*align(layer, found, wanted))
            assert abs(named["m"]) == pytest.approx(0.2)
            assert not m or named["m"] > 0
            assert not theta or named["theta"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "newton"}, "method='newton' is not one of lbfgs, gradient_descent, adam"),
        ({"start": "sideways"}, "start='sideways' is not one of random, semantic, positional, hybrid"),
        ({"start": "hybrid"}, "needs a student of rank 2"),
        ({"start": np.zeros(3)}, r"start of shape \(3,\) must be finite and of shape \(20, 1\)"),
        ({"tol": 0.0}, "tol=0.0 must be positive"),
        ({"max_iterations": 0}, "max_iterations=0 must be at least 1"),
        ({"learning_rate": -1.0, "method": "adam"}, "learning_rate=-1.0 must be positive"),
        ({"learning_rate": 1.0}, "L-BFGS chooses its own steps"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sa.train(MODEL, 20, **arguments)


def test_nothing_to_run_is_named() -> None:
    with pytest.raises(ValueError, match="must leave something to run"):
        simulate(MODEL, 20, 0)
    with pytest.raises(ValueError, match="method='sgd' is not one of lbfgs, gradient_descent, adam, amp"):
        simulate(MODEL, 20, 1, method="sgd")


@pytest.mark.parametrize(
    ("model", "start", "dimensions"),
    [
        (MODEL, "semantic", [200, 400, 800]),
        (STRONG, "positional", [100, 200, 400]),
        (STRONGER, "semantic", [100, 200, 400]),
    ],
)
def test_theory(model: sa.PositionalSemantic, start: str, dimensions: list[int]) -> None:
    comparison = sa.compare(simulate(model, dimensions, 8, start=start), sa.solve(model, start=start).require())
    assert not any(comparison.excluded.values())
    assert comparison.largest_z < 4, comparison  # eight seeds: the tail of Student's t


def test_general_layer_meets_the_two_token_model() -> None:
    one = sa.train(MODEL, 80, start="semantic")
    other = sa.train(MODEL.layer(), 80, start="semantic")
    assert np.array_equal(one.weights, other.weights)


def test_gradient_descent_and_adam_at_scale() -> None:
    runs = [sa.train(MODEL, 500, method, "semantic") for method in ("lbfgs", "gradient_descent", "adam")]
    assert [run.train_loss for run in runs] == pytest.approx([runs[0].train_loss] * 3, rel=1e-7)
    assert [run.overlaps.theta[0, 0, 0] for run in runs] == pytest.approx(
        [runs[0].overlaps.theta[0, 0, 0]] * 3, abs=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", ["semantic", "positional"])
@pytest.mark.parametrize("model", [STRONG, STRONGER], ids=["regularization 0.1", "regularization 0.3"])
def test_theory_at_large_dimension(model: sa.PositionalSemantic, start: str) -> None:
    comparison = sa.compare(simulate(model, [500, 1000], 16, start=start), sa.solve(model, start=start).require())
    assert comparison.largest_z < 3, comparison


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_semantic_branch_at_large_dimension(alpha: float) -> None:
    model = sa.replace(MODEL, alpha=alpha)
    comparison = sa.compare(simulate(model, [500, 1000], 16, start="semantic"), sa.solve(model, start="semantic"))
    assert comparison.largest_z < 3, comparison


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["simulate", "positional-semantic", "--alpha", "2", "--omega", ".3"]
    line += ["--dimension", "60", "120", "--seeds", "3"]
    path = tmp_path / "runs.csv"
    assert main([*line, "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "branch semantic" in out
    assert len([row for row in out.splitlines() if row.split()[0] == "theta"]) == 3
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["dimension"], row["seed"]) for row in rows] == [(d, s) for d in ("60", "120") for s in "012"]
    assert main([*line, "--method", "adam", "--json"]) == 0
    assert '"branch": "semantic"' in capsys.readouterr().out
    assert main([*line, "--seeds", "1"]) == 2
    assert "--seeds 1 must be at least 2" in capsys.readouterr().err
