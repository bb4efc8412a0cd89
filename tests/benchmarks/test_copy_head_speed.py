"""Critical numbers of samples by curves of stationary points, against searching states sample by sample."""

import time

import numpy as np
import pytest
from scipy import optimize

import statmech_attn as sa
from statmech_attn.copy_head import critical_samples, scaling_exponents


def seconds(function):
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


def test_softmax_coexistence(capsys):
    """Against a root search on the difference of actions of two solved states, at equal accuracy 1e-8."""
    model = sa.CopyHead(32, 16, 1, 2.0, value_variance=0.25)
    critical_samples(model)  # compiles
    found, ours = min((seconds(lambda: critical_samples(model)) for _ in range(5)), key=lambda pair: pair[1])

    def difference(samples):
        here = sa.replace(model, samples=samples)
        return sa.solve(here, start="copy").action - sa.solve(here, start="pooling").action

    search, plain = seconds(lambda: optimize.brentq(difference, 1000.0, 1500.0, rtol=1e-9))
    assert found.coexistence == pytest.approx(search, rel=1e-8)
    with capsys.disabled():
        print(f"\nsoftmax critical_samples {ours * 1e3:.2f} ms, {plain / ours:.0f} times faster than solving states")
    assert ours < 0.01 * 2  # 10 ms, twice that on a busy machine
    assert plain > 2 * ours


def test_scaling_grids(capsys):
    grid = [(V * ratio, V) for V in (8, 16, 32, 64, 128) for ratio in (16, 32, 64, 128, 256) if V * ratio <= 8192]
    linear = sa.CopyHead(64, 8, 1, attention="linear")
    critical_samples(linear)
    _, map_grid = seconds(lambda: scaling_exponents(linear, *zip(*grid, strict=True), "crossover"))
    lengths = 2 ** np.arange(5, 13)
    _, softmax_grid = seconds(
        lambda: scaling_exponents(sa.CopyHead(64, 8, 1), lengths.tolist(), (lengths // 4).tolist(), "coexistence")
    )
    with capsys.disabled():
        print(f"\n22-point linear grid {map_grid:.1f} s; softmax L = 2^5..2^12 {softmax_grid:.2f} s")
    assert map_grid < 10  # 5 s on a free core
    assert softmax_grid < 5
