"""The linear layer: closed form, minimisers, and its limit."""

from __future__ import annotations

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.positional_semantic import linear_baseline, linear_layer
from statmech_attn.positional_semantic.data import instance
from tests.positional_semantic.layers import random_layer


def test_closed_form_is_least_squares() -> None:
    data = instance(random_layer(3, 1, 2), 40)
    layer = linear_layer(data)
    seen = (data.tokens + data.positions).transpose(1, 0, 2).reshape(3, -1)
    wanted = (data.target @ data.tokens).transpose(1, 0, 2).reshape(3, -1)
    mixing, *_ = np.linalg.lstsq(seen.T, wanted.T, rcond=None)
    assert layer.mixing == pytest.approx(mixing.T, rel=1e-10)
    loss = np.sum((wanted - layer.mixing @ seen) ** 2) / (2 * 40 * 40)
    assert layer.train_loss == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize("method", ["lbfgs", "gradient_descent", "adam"])
def test_training_reaches_the_closed_form(method: str) -> None:
    data = instance(random_layer(3, 1, 1), 60)
    trained = linear_layer(data, method)
    assert trained.status.kind == "converged"
    assert trained.mixing == pytest.approx(linear_layer(data).mixing, abs=1e-6)


@pytest.mark.parametrize("gram", ["exact", "limit"])
def test_limit_is_the_baseline(gram: str) -> None:
    model = sa.PositionalSemantic(alpha=4.0, omega=0.3)
    baseline = linear_baseline(0.5, 0.3)
    layers = {d: [linear_layer(instance(model, d, seed, gram=gram)) for seed in range(8)] for d in (250, 500)}
    means = {d: np.mean([(x.train_loss / 4, x.test_error) for x in found], axis=0) for d, found in layers.items()}
    spread = np.std([(x.train_loss / 4, x.test_error) for x in layers[500]], axis=0, ddof=1) / np.sqrt(8)
    assert np.all(np.abs(2 * means[500] - means[250] - baseline) < 4 * np.sqrt(6) * spread)


def test_too_few_data() -> None:
    data = instance(sa.PositionalSemantic(alpha=1.0), 1, teacher_moments="sampled")
    with pytest.raises(ValueError, match="data of n = 1, dimension = 1 do not determine W"):
        linear_layer(data)


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="method='newton' is not one of closed form, lbfgs, gradient_descent, adam"):
        linear_layer(instance(sa.PositionalSemantic(alpha=1.0), 10), "newton")
