"""Comparison of runs with a theory, on synthetic records with known answers."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.comparison import Comparison, _averages, _limit
from statmech_attn.theory import Solution


@dataclasses.dataclass(frozen=True)
class Record:
    """A made-up run."""

    dimension: int
    values: dict[str, float]
    converged: bool = True
    left: bool = False
    seed: int = dataclasses.field(default_factory=itertools.count().__next__)

    def departed(self, solution: Solution) -> bool:
        return self.left

    def numbers(self, solution: Solution) -> dict[str, float]:
        return self.values


@pytest.fixture(scope="module")
def solution() -> Solution:
    return sa.solve(sa.PositionalSemantic(alpha=2.0, omega=0.3), start="semantic")


def records(
    solution: Solution, power: float, slope: float, shift: float = 0.0, dimensions: tuple[int, ...] = (100, 300, 1000)
) -> list[Record]:
    """Normal numbers about theta + shift + slope / d^power."""
    rng = np.random.default_rng(1)
    return [
        Record(d, {"theta": solution["theta"] + shift + slope * d**-power + 0.001 * rng.standard_normal()})
        for d in dimensions
        for _ in range(200)
    ]


@pytest.mark.parametrize(("power", "law"), [(1.0, "1/d"), (0.5, "1/sqrt d")])
def test_extrapolation_finds_the_law(solution: Solution, power: float, law: str) -> None:
    limit = sa.compare(records(solution, power, 1.0), solution)["theta"]
    assert limit.law == law
    assert abs(limit.z) < 3
    assert limit.slope == pytest.approx(1.0, rel=0.05)
    assert limit.p > 0.01
    # chosen by the data, 1/sqrt d carries the distance to the limit of 1/d
    assert limit.error < 2e-4 if law == "1/d" else 0.01 < limit.error < 0.05


@pytest.mark.parametrize(
    ("dimensions", "seeds", "power"), [((125, 250, 500, 1000), 8, 0.5), ((250, 500), 2, 0.5), ((50, 200, 500), 4, 1.0)]
)
def test_tails_of_z(dimensions: tuple[int, ...], seeds: int, power: float) -> None:
    """Data with a correction 1/d and spreads 1/d^power: |z| > 2 in 4.6 % of the cases, > 3 in 0.3 %, at power 1/2."""
    rng = np.random.default_rng(0)
    z, repeats = [], 2000
    for _ in range(repeats):
        samples = {d: 3 / d + d**-power * rng.standard_normal(seeds) for d in dimensions}
        z.append(abs(_limit("x", _averages(samples), 0.0, 0.0).z))
    assert np.mean(np.array(z) > 2) < 0.046 + 4 * math.sqrt(0.046 / repeats)
    assert np.mean(np.array(z) > 3) < 0.0027 + 4 * math.sqrt(0.0027 / repeats)
    if power == 0.5:
        assert np.mean(np.array(z) > 2) > 0.046 - 4 * math.sqrt(0.046 / repeats)


def test_variances_are_pooled_unless_they_differ() -> None:
    rng = np.random.default_rng(0)
    pooled = _averages({d: d**-0.5 * rng.standard_normal(20) for d in (100, 400)})
    assert pooled.pooled
    assert pooled.variance[0] == pytest.approx(4 * pooled.variance[1])
    separate = {d: d**-2.0 * rng.standard_normal(20) for d in (100, 400)}
    found = _averages(separate)
    assert not found.pooled
    assert found.variance == pytest.approx([np.var(x, ddof=1) / 20 for x in separate.values()])
    # a single run has an error from the others, if all have one variance
    assert _averages({100: [0.1, 0.3], 200: [0.2]}).variance == pytest.approx([0.01, 0.01])


def test_a_shifted_theory_is_refuted(solution: Solution) -> None:
    comparison = sa.compare(records(solution, 1.0, 1.0, shift=0.002), solution)
    assert comparison.largest_z > 5
    assert abs(comparison.at("theta")[0].z) > 5


def test_means_and_errors(solution: Solution) -> None:
    values = [0.1, 0.2, 0.6]
    comparison = sa.compare([Record(10, {"theta": x}) for x in values], solution)
    (mean,) = comparison.at("theta")
    assert (mean.runs, mean.mean) == (3, pytest.approx(0.3))
    assert mean.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(3))
    t = (0.3 - solution["theta"]) / mean.error
    tail = 0.5 - t / (2 * math.sqrt(2 + t * t))  # of Student's t with two degrees of freedom
    assert 0.5 * math.erfc(mean.z / math.sqrt(2)) == pytest.approx(tail, rel=1e-3)


def test_one_dimension_has_no_limit(solution: Solution) -> None:
    comparison = sa.compare(records(solution, 1.0, 1.0, dimensions=(100,)), solution)
    assert comparison["theta"].law == "none"
    assert math.isnan(comparison["theta"].z)
    assert comparison.largest_z == abs(comparison.at("theta")[0].z)
    assert [row["dimension"] for row in comparison.rows()] == [100]
    assert "no limit of infinite d: it takes runs at two dimensions" in str(comparison)


def test_two_dimensions_leave_no_choice(solution: Solution) -> None:
    limit = sa.compare(records(solution, 0.5, 1.0, dimensions=(100, 1000)), solution)["theta"]
    assert limit.law == "1/d"
    assert math.isnan(limit.p)


def test_unconverged_runs_are_left_out_and_counted(solution: Solution) -> None:
    good = records(solution, 1.0, 1.0)
    bad = [Record(100, {"theta": 99.0}, converged=False) for _ in range(3)]
    comparison = sa.compare([*bad, *good], solution)
    assert comparison["theta"] == sa.compare(good, solution)["theta"]
    assert comparison.excluded == {100: 3, 300: 0, 1000: 0}
    assert "did not converge, left out: 3 at d = 100" in str(comparison)
    with pytest.raises(ValueError, match="of 3 runs 3 did not converge"):
        sa.compare(bad, solution)


def test_runs_on_another_branch_are_left_out_and_counted(solution: Solution) -> None:
    good = [Record(100, {"m": 0.01 * k, "theta": 0.15}) for k in (-1, 0, 1)]
    comparison = sa.compare([*good, Record(100, {"m": 0.25, "theta": 0.01}, left=True)], solution)
    assert comparison.departed == {100: 1}
    assert comparison.at("theta")[0].mean == pytest.approx(0.15)
    assert "ended on another branch, left out: 1 at d = 100" in str(comparison)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300])
def test_equal_runs_have_no_error(solution: Solution, value: float) -> None:
    exact = [Record(d, {"train_loss": value}) for d in (10, 20, 40) for _ in range(3)]
    comparison = sa.compare(exact, solution)
    for found in (*comparison.at("train_loss"), comparison["train_loss"]):
        assert found.error == 0
        assert math.isnan(found.z)
    assert comparison["train_loss"].value == pytest.approx(value)


def test_the_same_data_twice_are_refused(solution: Solution) -> None:
    runs = [Record(100, {"theta": 0.1 * k}, seed=k) for k in range(3)]
    with pytest.raises(ValueError, match=r"runs must not have the same data, .* several of d = 100, seed 1"):
        sa.compare([*runs, runs[1]], solution)


def test_a_solution_that_is_not_converged_is_said(solution: Solution) -> None:
    poor = dataclasses.replace(solution, status=sa.Status("stalled", "no step left"))
    assert "theory not converged: no step left" in str(sa.compare(records(solution, 1.0, 1.0), poor))
    assert "not converged" not in str(sa.compare(records(solution, 1.0, 1.0), solution))


def test_table_and_file(solution: Solution, tmp_path: Path) -> None:
    comparison: Comparison = sa.compare(records(solution, 1.0, 1.0), solution)
    lines = str(comparison).splitlines()
    assert lines[1].split() == ["d", "runs", "simulation", "error", "theory", "z", "correction", "p"]
    assert [line.split()[1] for line in lines[2:6]] == ["100", "300", "1000", "inf"]
    comparison.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["law"] for row in rows] == ["", "", "", "1/d"]
    assert float(rows[-1]["value"]) == comparison["theta"].value
    with pytest.raises(KeyError, match="there is no 'x' to compare; there are theta"):
        comparison["x"]


def test_picture(solution: Solution) -> None:
    from matplotlib.figure import Figure

    from statmech_attn.plotting import plot_comparison

    axes = Figure().add_subplot()
    plot_comparison(axes, sa.compare(records(solution, 0.5, 1.0), solution), "theta", label="runs")
    assert axes.get_xlabel() == "1/√d"
    assert axes.get_ylabel() == "theta"
    plot_comparison(axes, sa.compare(records(solution, 1.0, 1.0, dimensions=(100,)), solution), "theta")
