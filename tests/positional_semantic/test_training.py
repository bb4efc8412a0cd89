"""Training: minima, certificates, starts, gauge, and z-scores against the theory."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.cli import main
from statmech_attn.positional_semantic import training
from statmech_attn.positional_semantic.data import instance
from statmech_attn.positional_semantic.minimisers import minimise
from statmech_attn.positional_semantic.risk import Risk
from statmech_attn.positional_semantic.runs import Overlaps, Run, align, load_runs, overlaps
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


@pytest.mark.parametrize(("method", "rate"), [("gradient_descent", 1e6), ("adam", 1e200)])
def test_divergence_is_said_and_not_returned(method: str, rate: float) -> None:
    run = sa.train(MODEL, 50, method, learning_rate=rate, max_iterations=100)
    assert run.status.kind == "stalled"
    assert "diverged" in run.status.sentence
    assert "take a lower learning_rate" in run.status.sentence
    assert np.isfinite(run.train_loss)
    assert len(run.history["loss"]) == run.iterations + 1


def test_too_large_a_rate_is_said() -> None:
    run = sa.train(MODEL, 50, "adam", "semantic", learning_rate=1e6, max_iterations=100)
    assert "above the start; take a lower learning_rate" in run.status.sentence


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


@pytest.mark.parametrize(("r", "t"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 1)])
def test_starts_are_those_of_the_theory(r: int, t: int) -> None:
    """Columns are the teacher's where theta of the theory's start is not zero, and the position where m is not."""
    layer = random_layer(2, r, t)
    data = instance(layer, 50)
    (place,) = begin(data, "positional", noise=0.0)[:, :1].T
    assert place @ (data.positions[0] - data.positions[1]) > 0
    for start in ("semantic", "positional", "mixed", *["hybrid"] * (r > 1)):
        wanted = layer.overlaps(layer.initial(start))
        column = np.pad(data.teacher, ((0, 0), (0, max(r - t, 0))))[:, :r] * np.any(wanted.theta != 0, axis=(0, 2))
        column = column + place[:, None] * np.any(wanted.m != 0, axis=0)
        assert np.array_equal(begin(data, start, noise=0.0), column), start


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


FREE = {
    "rotations": (np.eye(3), np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]),
    "flip of all": (np.array([[1.0, 0.5], [0.5, 1.0]]), -np.eye(2)),
    "rotation of two": (np.diag([1.0, 1.0, 2.0]), np.array([[0.8, 0.6, 0.0], [0.6, -0.8, 0.0], [0.0, 0.0, -1.0]])),
}


@pytest.mark.parametrize("name", FREE)
def test_alignment_undoes_what_the_law_of_the_teacher_allows(name: str) -> None:
    covariance, free = FREE[name]
    rng, t = np.random.default_rng(0), len(covariance)
    law = sa.Spectrum.discrete([1.0], [[0.25, 0.25]], [[1.0, -1.0]], teacher_covariance=[covariance])
    layer = sa.AttentionLayer(2.0, law, ((0.6, 0.4), (0.4, 0.6)), student_rank=2)
    wanted = Overlaps(np.array([np.diag([1.0, 2.0])] * 2), rng.standard_normal((2, 2)), rng.standard_normal((2, 2, t)))
    found = wanted._replace(theta=wanted.theta @ free)
    for a, b in zip(align(layer, found, wanted), wanted, strict=True):
        assert a == pytest.approx(b, abs=1e-7)
    # of another law it is no symmetry
    other = layer.spectrum.discrete([1.0], [[0.25, 0.25]], [[1.0, -1.0]], teacher_mean=[np.arange(1.0, t + 1)])
    aligned = align(sa.replace(layer, spectrum=other), found, wanted)
    assert max(np.abs(a - b).max() for a, b in zip(aligned, wanted, strict=True)) > 0.1


@pytest.mark.parametrize(("r", "t"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_runs_that_left_are_found_at_every_rank(r: int, t: int) -> None:
    """Weights of every kind beside states of every kind, in a frame of their own."""
    target = ((0.6, 0.4), (0.4, 0.6))
    layer = sa.AttentionLayer(2.0, sa.Spectrum.isotropic(0.5, (1, -1), t), target, student_rank=r)
    data, rng = instance(layer, 200), np.random.default_rng(0)
    model = sa.solve(MODEL, "semantic")
    run = sa.train(layer, 200, max_iterations=1)
    kinds = ("semantic", "positional", *["hybrid"] * (r > 1))
    for end in kinds:
        Q = begin(data, end) @ np.linalg.qr(rng.standard_normal((r, r)))[0]
        there = dataclasses.replace(run, overlaps=overlaps(data, Q))
        for kind in kinds:
            solution = dataclasses.replace(model, theory=layer, state=layer.initial(kind))
            assert there.departed(solution) == (end != kind), (end, kind)


def test_fluctuations_near_a_pitchfork_are_no_departure() -> None:
    """At alpha = .76, d = 200 the semantic overlap is small, and m nearly as large in some instances: all are kept."""
    model = sa.PositionalSemantic(alpha=0.76, omega=0.3)
    solution = sa.solve(model, "semantic")
    comparison = sa.compare(simulate(model, 200, 24, start="semantic"), solution)
    assert comparison.departed == {200: 0}
    # a run of the positional branch further up is one
    model = sa.PositionalSemantic(alpha=2.0, omega=0.3)
    assert sa.train(model, 200, start="positional").departed(sa.solve(model, "semantic"))


def test_only_the_same_physics_is_compared() -> None:
    run = sa.train(MODEL, 50, start="semantic")
    solution = sa.solve(MODEL, "semantic")
    numbers = run.numbers(solution)
    for theory in (MODEL.layer(), MODEL.under("published"), MODEL.layer().under("sobol")):
        state = np.append(solution.state, []) if theory.name == MODEL.name else theory.initial("semantic")
        other = run.numbers(dataclasses.replace(solution, theory=theory, state=state))
        assert list(numbers.values()) == pytest.approx(list(other.values()))
    for change in ({"alpha": 2.1}, {"omega": 0.2}, {"regularization": 0.02}):
        other = dataclasses.replace(solution, theory=sa.replace(MODEL, **change))
        with pytest.raises(ValueError, match=f"they differ in {next(iter(change))}"):
            run.numbers(other)
    with pytest.raises(ValueError, match="they differ in spectrum"):
        run.numbers(dataclasses.replace(solution, theory=sa.replace(MODEL, sigma=0.6)))
    with pytest.raises(ValueError, match="they differ in model"):
        run.numbers(dataclasses.replace(solution, theory=sa.CopyHead(4, 4, 1.0)))


def test_an_interrupted_simulation_resumes(tmp_path: Path) -> None:
    path = tmp_path / "runs.npz"

    def stop(run: Run) -> None:
        if run.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(MODEL, [40, 60], 2, start="semantic", checkpoint=path, callback=stop)
    there = {run.seed: run for run in load_runs(path, MODEL, {})}
    assert list(there) == [0, 1]
    straight = simulate(MODEL, [40, 60], 2, start="semantic")
    resumed = simulate(MODEL, [40, 60], 2, start="semantic", checkpoint=path)
    for one, other in zip(straight, resumed, strict=True):
        for field in dataclasses.fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            if isinstance(a, (dict, tuple)):
                a, b = (list(x.values() if isinstance(x, dict) else x) for x in (a, b))
                assert all(map(np.array_equal, a, b)), field.name
            else:
                assert np.array_equal(a, b), field.name
    # all is done: nothing is computed, and more can be asked for
    again = simulate(MODEL, [40, 60, 30], 1, start="semantic", checkpoint=path, executor=_OnlyOf(30))
    assert [(run.dimension, run.seed) for run in again] == [(40, 0), (60, 0), (30, 0)]
    for change in ({"start": "positional"}, {"gram": "limit"}, {"method": "adam"}):
        arguments: dict[str, Any] = {"start": "semantic", **change}
        with pytest.raises(ValueError, match="belongs to another simulation: its"):
            simulate(MODEL, 40, 1, checkpoint=path, **arguments)
    with pytest.raises(ValueError, match="belongs to another simulation: its parameters differ"):
        simulate(sa.replace(MODEL, alpha=1.0), 40, 1, start="semantic", checkpoint=path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        simulate(MODEL, 40, 1, checkpoint=tmp_path / "none" / "runs.npz")


class _OnlyOf(Executor):
    """Computes jobs of one dimension, and refuses others."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def map(self, function: Any, jobs: Any, **options: Any) -> Any:  # type: ignore[override]
        assert {job[1] for job in jobs} == {self.dimension}
        return map(function, jobs)


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
        ({"max_iterations": 0}, "max_iterations=0 must be an integer, at least 1"),
        ({"max_iterations": 2.5}, "max_iterations=2.5 must be an integer, at least 1"),
        ({"learning_rate": -1.0, "method": "adam"}, "learning_rate=-1.0 must be positive"),
        ({"learning_rate": 1.0}, "L-BFGS chooses its own steps"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sa.train(MODEL, 20, **arguments)


@pytest.mark.parametrize(
    ("dimensions", "seeds", "message"),
    [
        ([30.9], 2, "dimensions=[30.9] must be an integer or integers, not 30.9"),
        (30, [0.7, 1.2], "seeds=[0.7, 1.2] must be an integer or integers, not 0.7"),
        (30.0, 2, "dimensions=30.0 must be an integer or integers, not 30.0"),
        ([30, 30], 2, "dimensions=[30, 30] must differ"),
        (30, [0, 1, 0], "seeds=[0, 1, 0] must differ"),
    ],
)
def test_what_to_run_must_be_different_integers(dimensions: Any, seeds: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        simulate(MODEL, dimensions, seeds)


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
    assert comparison.largest_z < 4, comparison


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
    assert main([*line, "--method", "gradient_descent", "--json", "--dimension", "60", "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert found["excluded"] == found["departed"] == {"60": 0}
    assert {row["dimension"] for row in found["rows"]} == {60}
    assert "--seeds 2: errors from fewer than 4 runs are rough" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "amp", "--gram", "limit"], "--gram limit is not an option of --method amp"),
        (["--dimension", "60", "60"], "dimensions=[60, 60] must differ"),
        (["--output", "/none/runs.csv"], "cannot write '/none/runs.csv': its folder does not exist"),
        (["--checkpoint", "/none/runs.npz"], "the folder '/none' does not exist"),
        (["--start", "hybrid"], "start='hybrid' is not one of uninformed, positional, semantic"),
    ],
)
def test_wrong_options_are_named_before_the_runs(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_one", lambda job: pytest.fail("ran"))
    assert main(["simulate", "positional-semantic", "--alpha", "2", "--omega", ".3", *options]) == 2
    assert message in capsys.readouterr().err


def test_runs_that_cannot_be_compared_are_a_numerical_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """At alpha = 2, d = 40 one of two positional starts ends elsewhere."""
    line = "simulate positional-semantic --alpha 2 --omega .3 --dimension 40 --seeds 2 --start positional"
    assert main(line.split()) == 1
    assert "of 2 runs 0 did not converge and 1 ended on another branch" in capsys.readouterr().err


def test_without_a_solution_nothing_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_one", lambda job: pytest.fail("ran"))
    line = "simulate positional-semantic --alpha .1 --omega .3 --start semantic"
    assert main(line.split()) == 1
    assert "theory, start semantic" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "it has list"),
        ('{"weights"', "is not JSON"),
        (
            '{"weights": [1], "variances": [[1]], "positions": [[1]], "rank": 2}',
            "it has weights, variances, positions, rank",
        ),
        ('{"weights": [1]}', "must be a JSON object of weights, variances, positions and, optionally, teacher_mean"),
    ],
)
def test_wrong_spectrum_files_are_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "law.json"
    path.write_text(text)
    assert main(["solve", "attention-layer", "--alpha", "2", "--spectrum", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error


@pytest.mark.slow
def test_a_teacher_that_is_not_centred(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "law.json"
    law = {"weights": [1], "variances": [[1, 1]], "positions": [[1, -1]], "teacher_mean": [[0.5]]}
    path.write_text(json.dumps(law))
    line = f"simulate attention-layer --alpha 4 --omega .3 --regularization .1 --spectrum {path} --start mixed"
    assert main([*line.split(), "--dimension", "60", "120", "--seeds", "4"]) == 0
    assert "branch mixed" in capsys.readouterr().out
