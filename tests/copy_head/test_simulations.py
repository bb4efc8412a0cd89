"""Training and sampling against the theory, and the diagnostics of chains against closed forms."""

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.copy_head import (
    effective_sample_size,
    hmc,
    linear,
    pair_counts,
    sample_reduced,
    sample_tokens,
    sgld,
    split_rhat,
    sweep,
    train,
    train_blocks,
)
from statmech_attn.copy_head.training import Blocks, Energy, Parameters, block_energy, mean_parameters


def directional(function, at, direction, width=1e-5):
    def shifted(width):
        return function(type(at)(*(x + width * d for x, d in zip(at, direction, strict=True))))

    values = shifted(width), shifted(-width)
    return (values[0] - values[1]) / (2 * width)


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_energy_on_data(attention, boundary):
    """Value by the definition, gradient by differences."""
    rng = np.random.default_rng(2)
    model = sa.CopyHead(6, 3, 20, 2.0, attention=attention, boundary=boundary, temperature=0.7)
    tokens = sample_tokens(model, rng)
    energy = Energy(model, pair_counts(tokens, 3), 20)
    at = Parameters(*(rng.standard_normal(shape) for shape in ((6, 6), (1,), (3, 3))))
    value, slope = energy(at)
    X = np.eye(3)[tokens]
    A = energy.attention(at.C, at.b)
    error = energy.G @ X - A @ X @ at.W
    expected = np.sum(error**2) / (2 * model.kappa * 6) + np.sum(at.C**2) / (2 * 0.7) + np.sum(at.W**2) / (2 * 0.7)
    if attention == "linear":
        expected += at.b[0] ** 2 / (2 * 0.7 * (1 / 9 + 2 / 18))
    assert value == pytest.approx(expected, rel=1e-12)
    direction = [rng.standard_normal(x.shape) for x in at]
    exact = sum(np.sum(d * s) for d, s in zip(direction, slope, strict=True))
    assert directional(lambda x: energy(x)[0], at, direction) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
def test_energy_of_all_blocks(boundary):
    rng = np.random.default_rng(5)
    model = sa.CopyHead(5, 3, 7, 2.0, attention="linear", boundary=boundary)
    tokens = sample_tokens(model, rng)
    at = Blocks(*(rng.standard_normal(shape) for shape in ((5, 5), (3, 3), (3, 5), (5, 3), (3, 3))))
    value, slope = block_energy(model, tokens, at)
    X = np.eye(3)[tokens]
    C = at.M + X @ at.N @ X.transpose(0, 2, 1) + X @ at.R + (X @ at.Q.T).transpose(0, 2, 1)
    G = Energy(model, pair_counts(tokens, 3), 7).G
    error = G @ X - C / 5 @ X @ at.W
    expected = np.sum(error**2) / (2 * 2.0 * 5) + sum(np.sum(x * x) / 2 for x in at)
    assert value == pytest.approx(expected, rel=1e-12)
    direction = [rng.standard_normal(x.shape) for x in at]
    exact = sum(np.sum(d * s) for d, s in zip(direction, slope, strict=True))
    assert directional(lambda x: block_energy(model, tokens, x)[0], at, direction) == pytest.approx(exact, rel=1e-7)


def spread(values):
    """Mean and three standard errors over independent data sets."""
    return np.mean(values, axis=0), 3 * np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


# The theory averages over data; at finite P its first correction is of relative order V/P.
@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@pytest.mark.parametrize("samples", [300, 1018])
def test_adam_finds_the_joint_maximum_of_linear_attention(samples, boundary):
    model = sa.CopyHead(16, 4, samples, 4.0, attention="linear", boundary=boundary)
    theory = sa.solve(model, start="ordered").require()
    rng = np.random.default_rng(samples)
    layers = [train(model, sample_tokens(model, rng), rng=rng) for _ in range(6)]
    assert max(layer.gradient for layer in layers) < 1e-6
    measured = [[x.measured.m, x.measured.g, x.measured.alignment, x.measured.test_loss] for x in layers]
    mean, error = spread(measured)
    expected = np.array([theory["m"], theory["g"], theory.alignment, theory.loss])
    np.testing.assert_array_less(np.abs(mean - expected), error + 2 * 4 / samples * np.abs(expected))


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
def test_adam_hysteresis_of_softmax(boundary):
    """Up from small logits on the pooling branch, down from copying on the other; theory on both."""
    model = sa.CopyHead(24, 8, 1, 4.0, value_variance=0.25, boundary=boundary)
    critical = sa.copy_head.critical_samples(model)
    samples = np.linspace(critical.copy_spinodal, critical.pooling_spinodal, 5)[1:-1]
    for start, branch, path in (("random", "pooling", samples), ("copy", "copy", samples[::-1])):
        for P, layer in sweep(model, path, start, rng=np.random.default_rng(7)):
            theory = sa.solve(sa.replace(model, samples=P), start=branch).require()
            assert layer.measured.g == pytest.approx(theory.a_G, abs=0.006)
            assert layer.measured.test_loss == pytest.approx(theory.loss, abs=0.02)


def test_adam_with_all_blocks_is_the_offset_model():
    model = sa.CopyHead(16, 4, 203, 4.0, attention="linear")
    theory = sa.solve(model, start="ordered").require()
    rng = np.random.default_rng(0)
    for start in ("random", theory):
        energy, _, A = train_blocks(model, sample_tokens(model, rng), start, rng=rng, steps=500)
        m, g = linear.project(model, A) * np.sign(A.sum())
        assert (m, g) == pytest.approx((theory["m"], theory["g"]), abs=0.02)
        assert energy - 203 / (2 * 4.0) == pytest.approx(theory.action, abs=0.15)
    with pytest.raises(ValueError, match="attention='softmax' must be 'linear'"):
        train_blocks(sa.CopyHead(8, 3, 9), np.zeros((9, 8), dtype=int), rng=rng)


@pytest.mark.parametrize("boundary", ["cyclic", "open"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_mean_parameters_are_the_state(attention, boundary):
    model = sa.CopyHead(16, 4, 1500, 4.0, value_variance=0.25, attention=attention, boundary=boundary)
    theory = sa.solve(model, start="copy" if attention == "softmax" else "ordered").require()
    at = mean_parameters(model, theory)
    A = Energy(model, np.zeros((16, 4, 16, 4)), 0).attention(at.C, at.b)
    np.testing.assert_allclose(sa.copy_head.sums_of(model, A), model.sums(theory.state), rtol=1e-10)


# Alignment and g within three standard errors plus what different data at finite P changes.
@pytest.mark.parametrize(
    ("temperature", "samples"),
    [(1.0, 2290), pytest.param(0.2, 203, marks=pytest.mark.slow), pytest.param(0.2, 1018, marks=pytest.mark.slow)],
)
def test_hmc_agrees_with_the_exact_reduction(temperature, samples):
    model = sa.CopyHead(16, 4, samples, 4.0, temperature=temperature, attention="linear", ensemble="posterior")
    theory = sa.solve(model, start="ordered").require()
    exact = sample_reduced(model, seed=2)
    assert max(split_rhat(x) for x in exact.values()) < 1.02
    chains = hmc(model, sample_tokens(model, np.random.default_rng(1)), theory, seed=3, draws=250, warmup=150, chains=2)
    assert np.all((chains.acceptance > 0.6) & (chains.acceptance < 0.98))
    for name in ("m", "g", "t", "alignment", "coverage"):
        assert chains.rhat(name) < 1.1, name
        bound = 3 * chains.error(name) + 0.03 * exact[name].mean()
        assert chains.mean(name) == pytest.approx(exact[name].mean(), abs=bound), name
    values = chains.values
    covered = sa.copy_head.excess_coverage(theory, values["m"], values["g"], values["t"])
    assert np.median(covered) == pytest.approx(1, abs=0.1)
    assert chains.mean("coverage") < 0.75  # what is left of it without the fluctuations
    # the loss of a sample of W; the loss at its mean is smaller by more than the error
    assert chains.mean("train_loss") == pytest.approx(theory.sampled_loss, abs=3 * chains.error("train_loss") + 0.01)
    assert chains.mean("train_loss") > theory.loss + 5 * chains.error("train_loss")


def test_saddle_misses_order_at_the_onset():
    """<|m|> is positive below P_pool; <m^2> there is about 1/h_mm, to 10 % well below it."""
    model = sa.CopyHead(32, 4, 1, attention="linear", ensemble="posterior", temperature=0.01)
    onset = sa.copy_head.critical_samples(model).pooling
    below = sa.replace(model, samples=0.3 * onset)
    found = sample_reduced(below, seed=0)["m"]
    assert np.mean(found**2) == pytest.approx(1 / linear.hessian_at_zero(below)[0, 0], rel=0.05)
    nearly = sample_reduced(sa.replace(model, samples=0.95 * onset), seed=0)["m"]
    assert nearly.mean() > 2 * found.mean()
    assert sa.solve(sa.replace(model, samples=0.95 * onset), start="ordered").status.kind == "absent"


@pytest.mark.slow
def test_hmc_of_softmax_agrees_with_the_row_mean_field():
    model = sa.CopyHead(32, 8, 1120, 2.0, value_variance=0.25, temperature=0.3, ensemble="posterior")
    tokens = sample_tokens(model, np.random.default_rng(4))
    for start in ("pooling", "copy"):
        theory = sa.solve(model, start=start).require()
        chains = hmc(model, tokens, theory, seed=5, draws=150, warmup=150, chains=2)
        assert chains.mean("g") == pytest.approx(theory.a_G, abs=3 * chains.error("g") + 0.01)


@pytest.mark.slow
def test_sgld_agrees_within_its_bias():
    model = sa.CopyHead(16, 4, 1018, 4.0, temperature=0.2, attention="linear", ensemble="posterior")
    theory = sa.solve(model, start="ordered").require()
    exact = sample_reduced(model, seed=2)["alignment"].mean()
    tokens = sample_tokens(model, np.random.default_rng(1))
    chains = sgld(model, tokens, theory, seed=3, draws=300, chains=2)
    assert chains.mean("alignment") == pytest.approx(exact, rel=0.1)
    assert chains.mean("g") == pytest.approx(theory["g"], rel=0.05)


def test_diagnostics_of_chains():
    """Effective size of an autoregression is n (1 - phi)/(1 + phi); shifted or widened chains are found out."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((4, 20000))
    assert effective_sample_size(noise) == pytest.approx(noise.size, rel=0.1)
    for phi in (0.5, 0.9, -0.4):
        x = np.empty_like(noise)
        x[:, 0] = noise[:, 0] / np.sqrt(1 - phi**2)
        for k in range(1, x.shape[1]):
            x[:, k] = phi * x[:, k - 1] + noise[:, k]
        assert effective_sample_size(x) == pytest.approx(x.size * (1 - phi) / (1 + phi), rel=0.15)
        assert split_rhat(x) < 1.01
    assert split_rhat(noise + np.arange(4)[:, None]) > 1.3
    assert split_rhat(noise * np.array([[1], [1], [1], [5]])) > 1.1
    assert split_rhat(np.exp(30 * noise)) < 1.01  # ranks do not mind heavy tails
    drift = noise[:1] + np.linspace(0, 3, noise.shape[1])
    assert split_rhat(drift) > 1.2
    with pytest.raises(ValueError, match="at least 4 draws"):
        split_rhat(noise[:, :3])


def test_seeds_and_bad_arguments():
    model = sa.CopyHead(8, 3, 40, 2.0)
    tokens = sample_tokens(model, np.random.default_rng(0))
    first, again, other = (
        hmc(model, tokens, "random", seed=seed, draws=8, warmup=5, chains=2).values["t"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first[0], first[1])
    with pytest.raises(ValueError, match="draws=0 must be at least 1"):
        hmc(model, tokens, "random", seed=0, draws=0)
    with pytest.raises(ValueError, match="step_size=0 must be positive"):
        sgld(model, tokens, "random", seed=0, step_size=0)
    with pytest.raises(ValueError, match="start='pool' is not one of random, copy"):
        train(model, tokens, "pool", rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="must be 'linear' and 'posterior'"):
        sample_reduced(model, seed=0)
