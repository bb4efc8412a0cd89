"""Emergence points: closed forms on a logistic, coverage under noise, censoring."""

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import expit

from statmech_attn.induction import emergence_point
from statmech_attn.induction.emergence import METHODS

MIDPOINT, WIDTH = 900.0, 0.12


def curve(steps, low=0.0, high=1.0):
    return low + (high - low) * expit(np.log(steps / MIDPOINT) / WIDTH)


def onset_reach() -> float:
    """Half width of the ramp nearest to a logistic of width 1: stationarity of the squared distance."""
    return optimize.brentq(
        lambda w: integrate.quad(lambda x: (expit(x) - 0.5 - x / (2.0 * w)) * x, 0.0, w)[0], 1.0, 4.0
    )


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("threshold", MIDPOINT * np.exp(WIDTH * np.log(0.1 / 0.9))),  # 691.4
        ("half_rise", MIDPOINT),
        ("logistic", MIDPOINT),
        ("onset", MIDPOINT * np.exp(-WIDTH * onset_reach())),  # 658.8
    ],
)
def test_closed_forms_on_a_logistic(method, expected):
    steps = np.geomspace(10, 100_000, 2000)
    found = emergence_point(steps, curve(steps), method)
    # the fitted plateaus of a ramp take up a little of the logistic's tails
    assert found.step == pytest.approx(expected, rel=3e-3 if method == "onset" else 1e-4)
    assert found.method == method
    assert found.censored == "no"


def test_onset_reach_is_the_constant_in_use():
    assert onset_reach() == pytest.approx(2.60, abs=0.005)


def test_definitions_disagree_on_a_noisy_coarse_curve():
    # 706, 917, 905 and 676 are one such draw about the noise-free 691, 900, 900 and 659
    steps = np.arange(50.0, 3001.0, 50.0)
    found = {m: [] for m in METHODS}
    for seed in range(40):
        score = curve(steps) + 0.03 * np.random.default_rng(seed).standard_normal(steps.size)
        for method in METHODS:
            found[method].append(emergence_point(steps, score, method).step)
    for method, reported in zip(METHODS, (706.0, 917.0, 905.0, 676.0), strict=True):
        assert min(found[method]) <= reported <= max(found[method])


@pytest.mark.parametrize("method", ["logistic", "onset"])
def test_fitted_intervals_cover_under_noise(method):
    steps = np.geomspace(100, 5000, 60)
    truth = emergence_point(steps, curve(steps), method).step
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        found = emergence_point(steps, curve(steps, 0.0, 1.0) + 0.02 * rng.standard_normal(60), method)
        hits += found.lower <= truth <= found.upper
    assert 0.90 <= hits / 300 <= 0.99


def test_crossings_lie_between_their_checkpoints():
    steps = np.array([0.0, 500.0, 1000.0, 2000.0])
    found = emergence_point(steps, [0.01, 0.02, 0.6, 0.9], "threshold")
    assert (found.lower, found.upper) == (500.0, 1000.0)
    assert found.step == pytest.approx(500.0 * 2.0 ** ((0.1 - 0.02) / 0.58))
    first = emergence_point(steps, [0.01, 0.6, 0.6, 0.9], "half_rise")
    assert (first.lower, first.upper) == (0.0, 500.0)
    assert 0.0 < first.step < 500.0


@pytest.mark.parametrize("method", METHODS)
def test_flat_curves_are_right_censored(method):
    found = emergence_point([10, 20, 40, 80, 160, 320], [0.014, 0.015, 0.013, 0.02, 0.03, 0.05], method)
    assert found.censored == "right"
    assert np.isnan(found.step)
    assert (found.lower, found.upper) == (320.0, np.inf)


@pytest.mark.parametrize("method", METHODS)
def test_curves_that_start_high_are_left_censored(method):
    found = emergence_point([10, 20, 40, 80, 160], [0.5, 0.6, 0.7, 0.8, 0.8], method)
    assert (found.censored, found.lower, found.upper) == ("left", 0.0, 10.0)


def test_midpoint_beyond_the_last_step_is_right_censored():
    steps = np.geomspace(100, 800, 60)
    assert emergence_point(steps, curve(steps), "logistic").censored == "right"


def test_baseline_sets_what_counts_as_a_rise():
    steps, score = np.arange(1.0, 9.0), [0.02, 0.02, 0.02, 0.03, 0.06, 0.09, 0.1, 0.1]
    assert emergence_point(steps, score, "half_rise").censored == "no"  # above 5 x .01376
    assert emergence_point(steps, score, "half_rise", baseline=0.0212).censored == "right"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1, 2, 3]), "shapes"),
        (([2, 1, 3], [0, 1, 1]), "steps"),
        (([1, 2, 3], [0, np.nan, 1]), "score: nan at step 2"),
        (([1, 2, 3], [0, 1, 1], "guess"), "method='guess'"),
        (([1, 2, 3], [0, 0.5, 1], "logistic"), "at least 5"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        emergence_point(*arguments)


def test_half_rise_of_a_curve_that_starts_above_its_half_is_left_censored():
    assert emergence_point([1, 2, 3], [0.05, 0.0, 0.09], "half_rise").censored == "left"
    assert emergence_point([1, 2, 3], [0.01, 0.0, 0.09], "half_rise").censored == "no"


@pytest.mark.parametrize("method", METHODS)
def test_jumps_and_noise_give_a_point_inside_the_curve_or_say_why_not(method):
    rng = np.random.default_rng(0)
    points = 0
    for trial in range(30):
        steps = np.sort(rng.choice(5000, rng.integers(6, 60), replace=False)).astype(float)
        score = (steps > 2000) * 0.8 + 0.01 * rng.random(steps.size) if trial % 2 else rng.random(steps.size)
        try:
            found = emergence_point(steps, score, method)
        except RuntimeError:
            continue
        if found.censored == "no":
            points += 1
            assert steps[0] <= found.step <= steps[-1]
            assert found.lower <= found.step <= found.upper
        else:
            assert np.isnan(found.step)
    assert points >= 15
