"""Comparison of runs with a theory, on synthetic records with known answers."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.comparison import Comparison
from statmech_attn.theory import Solution


@dataclass(frozen=True)
class Record:
    """A made-up run."""

    dimension: int
    values: dict[str, float]
    converged: bool = True

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
    assert limit.error < 2e-4


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
    assert mean.z == pytest.approx((0.3 - solution["theta"]) / mean.error)
    limit = comparison["theta"]
    assert (limit.law, limit.value, limit.degrees) == ("constant", mean.mean, 0)


def test_two_dimensions_leave_no_choice(solution: Solution) -> None:
    limit = sa.compare(records(solution, 0.5, 1.0, dimensions=(100, 1000)), solution)["theta"]
    assert limit.law == "1/d"
    assert math.isnan(limit.p)


def test_unconverged_runs_are_left_out_and_counted(solution: Solution) -> None:
    good = records(solution, 1.0, 1.0)
    bad = [Record(100, {"theta": 99.0}, converged=False)] * 3
    comparison = sa.compare([*bad, *good], solution)
    assert comparison["theta"] == sa.compare(good, solution)["theta"]
    assert comparison.excluded == {100: 3, 300: 0, 1000: 0}
    assert "did not converge, left out: 3 at d = 100" in str(comparison)
    with pytest.raises(ValueError, match="of 3 runs 3 did not converge"):
        sa.compare(bad, solution)


def test_runs_on_another_branch_are_left_out_and_counted(solution: Solution) -> None:
    good = [Record(100, {"m": 0.01 * k, "theta": 0.15}) for k in (-1, 0, 1)]
    comparison = sa.compare([*good, Record(100, {"m": 0.25, "theta": 0.01})], solution)
    assert comparison.departed == {100: 1}
    assert comparison["theta"].value == pytest.approx(0.15)
    assert "ended on another branch, left out: 1 at d = 100" in str(comparison)


def test_equal_runs_have_no_error(solution: Solution) -> None:
    exact = [Record(d, {"train_loss": solution.train_loss}) for d in (10, 20) for _ in range(2)]
    comparison = sa.compare(exact, solution)
    assert [m.z for m in comparison.at("train_loss")] == [0.0, 0.0]


def test_table_and_file(solution: Solution, tmp_path: Path) -> None:
    comparison: Comparison = sa.compare(records(solution, 1.0, 1.0), solution)
    lines = str(comparison).splitlines()
    assert lines[1].split() == ["d", "runs", "simulation", "error", "theory", "z", "correction", "p"]
    assert [line.split()[1] for line in lines[2:]] == ["100", "300", "1000", "inf"]
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
