"""Training data: moments, determinism, and the risk against its dense formula and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statmech_attn as sa
from statmech_attn.positional_semantic.data import Instance, instance
from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.positional_semantic.risk import Risk, expected_error, quadratic
from statmech_attn.positional_semantic.row_attention import CODES, attention
from statmech_attn.positional_semantic.spectrum import Spectrum
from tests.positional_semantic.layers import random_layer

MODEL = sa.PositionalSemantic(alpha=2.0, omega=0.3)


def dense_errors(data: Instance, Q: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """|T x - S (x + p)|^2 / 2 d of every sample, written out."""
    layer, d = data.layer, data.dimension
    errors = []
    for x in tokens:
        seen = x + data.positions
        teacher, student = x @ data.teacher / np.sqrt(d), seen @ Q / np.sqrt(d)
        T = attention(teacher @ teacher.T, layer.teacher_activation)
        T = (1 - layer.omega) * T + layer.omega * np.array(layer.positional_target)
        S = attention(student @ student.T, layer.student_activation)
        errors.append(np.sum((T @ x - S @ seen) ** 2) / (2 * d))
    return np.array(errors)


@pytest.mark.parametrize("activation", CODES)
@pytest.mark.parametrize(("L", "r", "t"), [(2, 1, 1), (3, 2, 1), (2, 2, 3), (4, 1, 2)])
def test_risk_is_the_dense_formula(L: int, r: int, t: int, activation: str) -> None:
    layer = random_layer(L, r, t, activation, activation)
    data = instance(layer, 40, seed=3)
    Q = np.random.default_rng(0).standard_normal((40, r))
    dense = dense_errors(data, Q, data.tokens).sum() + 0.5 * layer.regularization * np.sum(Q**2)
    assert Risk(data)(Q)[0] == pytest.approx(dense, rel=1e-12)


@given(
    L=st.integers(1, 4),
    r=st.integers(1, 3),
    t=st.integers(1, 3),
    student=st.sampled_from(sorted(CODES)),
    teacher=st.sampled_from(sorted(CODES)),
    gram=st.sampled_from(["exact", "limit"]),
    seed=st.integers(0, 1000),
)
def test_gradient_is_the_finite_difference(
    L: int, r: int, t: int, student: str, teacher: str, gram: str, seed: int
) -> None:
    risk = Risk(instance(random_layer(L, r, t, student, teacher, seed), 20, seed, gram=gram))
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((20, r))
    slope = risk(Q)[1]
    # along the gradient itself: the derivative does not cancel
    direction = slope / np.linalg.norm(slope) + 0.1 * rng.standard_normal((20, r))
    direction /= np.linalg.norm(direction)
    h = 2e-3
    values = [risk(Q + k * h * direction)[0] for k in (-3, -2, -1, 1, 2, 3)]
    difference = np.dot([-1, 9, -45, 45, -9, 1], values) / (60 * h)
    assert difference == pytest.approx(np.sum(slope * direction), rel=1e-8)


def test_limiting_gram_matrices() -> None:
    data = instance(random_layer(3, 1, 1), 50, gram="limit")
    form = quadratic(data)
    assert form.gram[7] == pytest.approx(np.diag(data.variances.mean(axis=1)))
    assert form.cross == pytest.approx(data.target @ form.gram)


def test_expected_error_is_that_of_fresh_samples() -> None:
    layer = random_layer(3, 2, 2)
    data = instance(layer, 30, seed=1)
    Q = np.random.default_rng(2).standard_normal((30, 2))
    value, error = expected_error(data, Q)
    rng = np.random.default_rng(5)
    fresh = rng.standard_normal((8_000, 3, 30)) * np.sqrt(data.variances)
    sampled = dense_errors(data, Q, fresh)
    spread = sampled.std() / np.sqrt(len(sampled))
    assert abs(value - sampled.mean()) < 4 * np.hypot(spread, error)
    assert error < 0.5 * spread
    limit = expected_error(data._replace(gram="limit"), Q)[0]
    assert abs(limit - sampled.mean()) > 10 * spread, (
        "at d = 30 the limiting Gram matrices are far from those of tokens"
    )


def test_moments_of_the_data() -> None:
    layer = random_layer(2, 1, 2)
    data = instance(sa.replace(layer, alpha=40.0), 500)
    weights, variances, positions, mean, covariance = layer.spectrum.arrays
    assert data.tokens.shape == (20_000, 2, 500)
    for a, mine in enumerate((np.arange(500) < 300, np.arange(500) >= 300)):
        assert mine.sum() == round(500 * weights[a])
        measured = (data.tokens[:, :, mine] ** 2).mean(axis=(0, 2))
        assert measured == pytest.approx(variances[a], rel=5 * np.sqrt(2 / (20_000 * mine.sum())))
        assert data.positions[:, mine] * np.sqrt(500) == pytest.approx(np.tile(positions[a], (mine.sum(), 1)).T)
        rows = data.teacher[mine]
        assert rows.mean(axis=0) == pytest.approx(mean[a], abs=1e-12)
        assert np.cov(rows.T, bias=True) == pytest.approx(covariance[a], abs=1e-12)
    softmax_rows = (data.target - 0.3 * np.array(layer.positional_target)).sum(axis=-1)
    assert softmax_rows == pytest.approx(0.7)


def test_sampled_teachers_fluctuate() -> None:
    norms = [np.mean(instance(MODEL, 200, s, teacher_moments="sampled").teacher ** 2) for s in range(200)]
    assert np.mean(norms) == pytest.approx(1, abs=4 * np.sqrt(2 / (200 * 200)))
    assert np.std(norms) == pytest.approx(np.sqrt(2 / 200), rel=0.2)
    assert np.mean(instance(MODEL, 200, 0).teacher ** 2) == pytest.approx(1, abs=1e-13)


EIGENVALUES = np.linspace(0.1, 0.9, 40)
MANY_ATOMS = {
    "density": Spectrum.density(lambda x: 2.5, (0.1, 0.5), lambda x: (x, x), lambda x: (1.0, -1.0)),
    "two ranks, two classes": Spectrum.density(
        lambda x: 2.5, (0.1, 0.5), lambda x: (x, 0.6 - x), lambda x: (x, -1.0), teacher_rank=2
    ),
    "eigenvalues": Spectrum.discrete(
        np.full(40, 1 / 40),
        np.tile(EIGENVALUES[:, None], (1, 2)),
        np.tile([1.0, -1.0], (40, 1)),
        teacher_covariance=EIGENVALUES[:, None, None] * [[[1.0, 0.3], [0.3, 1.0]]],
    ),
}


@pytest.mark.parametrize("dimension", [20, 40, 100])
@pytest.mark.parametrize("name", MANY_ATOMS)
def test_moments_of_teachers_with_few_directions_in_an_atom(name: str, dimension: int) -> None:
    law = MANY_ATOMS[name]
    layer = AttentionLayer(2.0, law, ((0.6, 0.4), (0.4, 0.6)))
    data = instance(layer, dimension, seed=1)
    *_, covariance = law.arrays
    atoms = [np.argmin(np.abs(law.arrays[1] - row).sum(axis=1)) for row in data.variances.T]
    wanted = np.einsum("li,iab->lab", data.variances, covariance[atoms]) / dimension
    assert np.einsum("li,ia,ib->lab", data.variances, data.teacher, data.teacher) / dimension == pytest.approx(
        wanted, abs=1e-10
    )
    assert wanted == pytest.approx(law.teacher_gram, rel=0.01)
    assert data.positions @ data.teacher == pytest.approx(0, abs=1e-12)
    assert data.teacher.mean(axis=0) == pytest.approx(0, abs=1e-12)
    sampled = instance(layer, dimension, seed=1, teacher_moments="sampled")
    assert np.abs(sampled.positions @ sampled.teacher).max() > 0.01


def test_large_atoms_keep_their_moments_beside_small_ones() -> None:
    law = Spectrum.discrete([0.5, *[0.5 / 30] * 30], [[0.2], *([x] for x in np.linspace(0.3, 0.8, 30))], [[1.0]] * 31)
    data = instance(AttentionLayer(2.0, law, ((1.0,),)), 60)
    large = data.teacher[data.variances[0] == 0.2]
    assert (large.mean(), np.mean(large**2)) == (pytest.approx(0, abs=1e-13), pytest.approx(1, abs=1e-13))
    assert np.sum(data.variances[0] * data.teacher[:, 0] ** 2) == pytest.approx(60 * law.teacher_gram.item(), rel=1e-10)


def test_left_over_directions_are_shared_evenly() -> None:
    rng = np.random.default_rng(0)
    layer = AttentionLayer(2.0, MANY_ATOMS["eigenvalues"], ((0.6, 0.4), (0.4, 0.6)))
    for dimension in (13, 20, 30, 50, 60):
        data = instance(layer, dimension, teacher_moments="sampled")
        assert data.variances.mean() == pytest.approx(0.5, abs=0.011), "half the distance of two eigenvalues"
    for _ in range(20):
        weights = rng.dirichlet(np.ones(7))
        law = Spectrum.discrete(weights, np.arange(1.0, 8)[:, None], np.ones((7, 1)))
        data = instance(AttentionLayer(2.0, law, ((1.0,),)), 101, teacher_moments="sampled")
        assert np.all(np.abs(np.bincount(data.variances[0].astype(int), minlength=8)[1:] - 101 * weights) <= 1)


def test_given_matrices_are_used_as_they_are() -> None:
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((30, 1))
    law = Spectrum.matrices([0.25 * np.eye(30)] * 2, rng.standard_normal((2, 30)) / np.sqrt(30), teacher)
    layer = AttentionLayer(2.0, law, ((0.6, 0.4), (0.4, 0.6)))
    data = instance(layer, 30)
    assert sorted(np.abs(data.teacher.ravel())) == pytest.approx(sorted(np.abs(teacher.ravel())))


def test_the_seed_decides_everything() -> None:
    one, same, other = instance(MODEL, 30, 1), instance(MODEL, 30, 1), instance(MODEL, 30, 2)
    for name in ("tokens", "teacher", "target"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(one.tokens, instance(MODEL, 30, 1, gram="limit").tokens)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (MODEL, {"dimension": 0}, "dimension=0 must be at least 1"),
        (MODEL, {"dimension": 10.5}, "dimension=10.5 must be an integer"),
        (MODEL, {"dimension": 10, "seed": -1}, "seed=-1 must be at least 0"),
        (sa.PositionalSemantic(alpha=0.01), {"dimension": 10}, "leaves no sample"),
        (random_layer(2, 5, 1), {"dimension": 4}, "dimension=4 is below the rank 5 of the student"),
        (random_layer(2, 1, 5), {"dimension": 4}, "dimension=4 is below the rank 5 of the teacher"),
        (random_layer(2, 1, 3), {"dimension": 5}, "needs more than 3 directions in every atom"),
        (sa.Status("converged", ""), {"dimension": 10}, "must be a PositionalSemantic or an AttentionLayer"),
        (MODEL, {"dimension": 10, "gram": "none"}, "gram='none' is not one of exact, limit"),
        (MODEL, {"dimension": 10, "teacher_moments": "no"}, "teacher_moments='no' is not one of exact, sampled"),
    ],
)
def test_bad_arguments_are_named(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        instance(model, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either weights or mixing must be given"),
        ({"weights": np.zeros((10, 1)), "mixing": np.eye(2)}, "either weights or mixing must be given"),
        ({"weights": np.zeros(10)}, r"weights of shape \(10,\) must have shape \(10, 1\)"),
        ({"mixing": np.eye(3)}, r"mixing of shape \(3, 3\) must have shape \(2, 2\)"),
    ],
)
def test_wrong_arguments_of_the_expected_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expected_error(instance(MODEL, 10), **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spectrum.isotropic(0.25, 5), "positions=5 must be a finite array"),  # type: ignore[arg-type]
        (
            lambda: Spectrum.discrete([1], [[0.2]], [[1]], teacher_covariance=1),
            r"teacher_covariance=1 must be a finite array of shape \(1, any, any\)",
        ),
        (
            lambda: Spectrum.discrete([1], [[0.2]], [[1]], teacher_mean=[[0.1]], teacher_rank=3),
            "teacher_rank=3 is not the rank 1 of teacher_mean",
        ),
        (
            lambda: Spectrum.discrete([1], [[0.2]], [[1]], teacher_covariance=[[[1, 1], [1, 1 + 1e-14]]]),
            "non-degenerate teacher index",
        ),
        (
            lambda: Spectrum.density(lambda x: 2.5, (0.1, 0.5), lambda x: (x,), lambda x: (1.0,), nodes=0),
            "nodes=0 must be an integer, at least 1",
        ),
    ],
)
def test_wrong_arguments_of_a_spectrum(make: Callable[[], Spectrum], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_teacher_of_any_size_is_not_degenerate() -> None:
    assert Spectrum.discrete([1], [[0.2]], [[1]], teacher_covariance=[[[1e-14]]]).teacher_rank == 1


def test_wrong_weights_are_named() -> None:
    with pytest.raises(ValueError, match=r"weights of shape \(10,\) must have shape \(10, 1\)"):
        Risk(instance(MODEL, 10))(np.zeros(10))
