"""Action, averages and losses against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statmech_attn as sa
from statmech_attn.copy_head import (
    Sums,
    averaged_action,
    exact_action,
    mean_values,
    measure,
    pair_counts,
    prior_cost,
    sample_tokens,
    shift,
    sums_of,
)
from statmech_attn.copy_head.action import averaged_gradient, normal_equations
from statmech_attn.copy_head.observables import alignment, loss
from statmech_attn.copy_head.training import Energy, Parameters

BOUNDARIES = ("cyclic", "open")


def head(**changes):
    defaults = {"samples": 12, "noise": 1.7, "value_variance": 0.6, "attention": "linear"}
    return sa.CopyHead(**{"context_length": 5, "vocabulary_size": 3, **defaults, **changes})


def one_hot(tokens, V):
    return np.eye(V)[tokens]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_action_is_the_marginal_likelihood_of_a_gaussian_process(attention, boundary):
    """Values integrated out: outputs are a Gaussian process with kernel sigma_W^2 (A X)(A X)^T + kappa L 1."""
    rng = np.random.default_rng(3)
    model = head(attention=attention, boundary=boundary, ensemble="posterior", temperature=0.8)
    L, V, P = 5, 3, 12
    tokens = sample_tokens(model, rng)
    A = rng.standard_normal((L, L))
    if attention == "softmax":
        A = np.exp(A) / np.exp(A).sum(axis=1, keepdims=True)
    X = one_hot(tokens, V)
    features = (A @ X).reshape(P * L, V)
    targets = (shift(L, boundary) @ X).reshape(P * L, V)
    noise = model.kappa * L
    kernel = model.value_prior * features @ features.T + noise * np.eye(P * L)
    _, logdet = np.linalg.slogdet(kernel)
    minus_log = V * (logdet + P * L * np.log(2 * np.pi)) / 2 + np.sum(targets * np.linalg.solve(kernel, targets)) / 2
    constant = np.sum(targets**2) / (2 * noise) + V * P * L / 2 * np.log(2 * np.pi * noise)
    ours = exact_action(model, A, pair_counts(tokens, V)) - prior_cost(model, A) + constant
    assert abs(ours - minus_log) < 1e-10 * abs(minus_log)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.slow
def test_without_the_determinant_it_is_the_minimum_over_values(boundary):
    rng = np.random.default_rng(4)
    model = head(boundary=boundary, prior="position")
    pairs = pair_counts(sample_tokens(model, rng), 3)
    A = rng.standard_normal((5, 5))
    energy = Energy(model, pairs, 12)
    R, B = normal_equations(model, A, pairs)
    W = np.linalg.solve(R + model.kappa * 5 / model.value_prior * np.eye(3), B)
    constant = energy.constant / (2 * model.kappa * 5)
    value, slope = energy(Parameters(5 * A, np.zeros(1), W))
    assert value - constant == pytest.approx(exact_action(model, A, pairs), rel=1e-12)
    assert np.max(np.abs(slope.W)) < 1e-12


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("ensemble", ["map", "posterior"])
@pytest.mark.parametrize(("L", "V"), [(3, 2), (4, 3), (5, 2)])
def test_data_average_equals_enumeration(L, V, ensemble, boundary):
    """R and B averaged over all V^L sequences, times P, give S_d, the values and the loss."""
    rng = np.random.default_rng(L * V)
    model = head(context_length=L, vocabulary_size=V, ensemble=ensemble, boundary=boundary, samples=7.5)
    every = np.array(list(itertools.product(range(V), repeat=L)))
    pairs = pair_counts(every, V) * (model.samples / len(every))
    A = rng.standard_normal((L, L))
    sums = sums_of(model, A)
    assert exact_action(model, A, pairs) - prior_cost(model, A) == pytest.approx(
        averaged_action(model, sums), rel=1e-12
    )

    w, w_mean = mean_values(model, sums)
    J = np.full((V, V), 1 / V)
    W = w * (np.eye(V) - J) + w_mean * J
    R, B = normal_equations(model, A, pairs)
    ridge = model.kappa * L / model.value_prior * np.eye(V)
    np.testing.assert_allclose(np.linalg.solve(R + ridge, B), W, atol=1e-13)
    X = one_hot(every, V)
    direct = np.sum((shift(L, boundary) @ X - A @ X @ W) ** 2) / len(every) / L
    assert loss(model, sums) == pytest.approx(direct, rel=1e-12)
    measured = measure(model, A, W, pairs, model.samples)
    assert measured.train_loss == pytest.approx(direct, rel=1e-12)
    assert measured.test_loss == pytest.approx(direct, rel=1e-12)

    # a posterior sample of W: V columns of covariance kappa L (R + ridge)^-1
    extra = V * np.trace(R @ np.linalg.inv(R + ridge)) * model.kappa * L / (model.samples * L)
    t, _, r, _ = sums
    formula = model.kappa * V / model.samples * ((V - 1) * t / (t + model.ridge) + r / (r + model.ridge))
    assert formula == pytest.approx(extra, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    t=st.floats(0.1, 10), s=st.floats(-3, 3), r=st.floats(0.1, 10), u=st.floats(-3, 3),
    ensemble=st.sampled_from(["map", "posterior"]),
)  # fmt: skip
def test_gradient_of_the_averaged_action(t, s, r, u, ensemble):
    model = head(ensemble=ensemble)
    here = np.array([t, s, r, u])
    gradient = averaged_gradient(model, Sums(*here))
    for k in range(4):
        step = 1e-5 * np.eye(4)[k]
        difference = averaged_action(model, Sums(*(here + step))) - averaged_action(model, Sums(*(here - step)))
        assert gradient[k] == pytest.approx(difference / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("prior", ["position", "token+position"])
def test_prior_cost_of_linear_attention_is_that_of_its_covariance(prior, boundary):
    """Against the Gaussian of covariance sigma_C^2 1 + sigma_b^2 over all L^2 logits."""
    rng = np.random.default_rng(0)
    model = head(prior=prior, boundary=boundary, context_length=4)
    sigma_b2 = 0.0 if prior == "position" else model.logit_prior * (1 / 9 + 2 / 12)
    covariance = model.logit_prior * np.eye(16) + sigma_b2
    A = rng.standard_normal((4, 4))
    c = 4 * A.ravel()
    assert prior_cost(model, A) == pytest.approx(c @ np.linalg.solve(covariance, c) / 2, rel=1e-12)


def test_bad_matrices_and_tokens_are_named():
    model = head(attention="softmax")
    pairs = np.zeros((5, 3, 5, 3))
    with pytest.raises(ValueError, match=r"A must have positive rows that sum to one"):
        exact_action(model, np.full((5, 5), 0.3), pairs)
    with pytest.raises(ValueError, match=r"A of shape \(4, 5\) must be a finite \(5, 5\) matrix"):
        sums_of(model, np.zeros((4, 5)))
    with pytest.raises(ValueError, match=r"tokens run from 0 to 3; they must lie in \[0, 3\)"):
        pair_counts(np.array([[0, 3]]), 3)
    with pytest.raises(ValueError, match=r"must be a .P, L. array of integers"):
        pair_counts(np.array([[0.5, 1.0]]), 3)
    with pytest.raises(ValueError, match=r"W of shape \(2, 2\)"):
        measure(head(), np.zeros((5, 5)), np.zeros((2, 2)), pairs, 1)


def test_alignment_of_no_attention_is_undefined():
    model = head()
    assert np.isnan(alignment(model, sums_of(model, np.zeros((5, 5)))))
    assert np.isnan(measure(model, np.zeros((5, 5)), np.eye(3), np.ones((5, 3, 5, 3)), 1).coverage)
