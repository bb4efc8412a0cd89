"""``statmech-attn trace`` and ``diagram`` as their user calls them."""

from __future__ import annotations

import csv
import io
import json

import pytest

import statmech_attn as sa
from statmech_attn.cli import main

TRACE = ["trace", "positional-semantic", "--alpha", "1.24", "--omega", "0.3", "--accuracy", "1e-4"]


def test_trace(capsys, tmp_path):
    path = tmp_path / "branch.npz"
    command = [*TRACE, "--interval", "0.7", "1.3", "--start", "semantic", "--at", "1.24", "--output", str(path)]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "symmetry breaking in m at alpha = 0.826" in table
    assert "theta vanishes" in table
    branch = sa.load_branch(path)
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["theta"] for row in result["rows"]] == branch["theta"].tolist()
    assert [event["name"] for event in result["events"]] == ["symmetry breaking in m", "symmetry breaking in theta"]
    assert result["evaluations"] == branch.evaluations
    assert main([*command, "--csv", "--progress"]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["alpha"]) for row in rows] == branch.parameter.tolist()
    assert "row 2: alpha = " in err


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--interval", "2", "1"], 2, "low < high"),
        (["--interval", "1", "2", "--parameter", "beta"], 2, "parameter='beta' is not a scalar parameter"),
        (["--interval", "1", "2", "--start", "nowhere"], 2, "start='nowhere' is not one of"),
        (["--interval", "0.1", "0.3", "--start", "semantic"], 1, "does not converge"),
    ],
)
def test_trace_says_what_is_wrong(capsys, more, code, message):
    assert main([*TRACE, *more]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_diagram(capsys, tmp_path):
    stem = str(tmp_path / "plane")
    command = ["diagram", "positional-semantic", "--alpha", "1", "1.5", "3", "--omega", "0.28", "0.3", "2", "--json",
               "--output", stem, "--checkpoint", str(tmp_path / "checkpoint.npz")]  # fmt: skip
    assert main(command) == 0
    transitions = json.loads(capsys.readouterr().out)
    alpha_c = {t["omega"]: t["alpha"] for t in transitions if t["start"] == "positional|semantic"}
    assert alpha_c[0.3] == pytest.approx(1.2515, abs=1e-3)
    alpha_l = [t["alpha"] for t in transitions if t["name"] == "linear baseline" and t["start"] == "semantic"]
    assert alpha_l[-1] == pytest.approx(1.4924, abs=1e-3)
    for suffix in (".png", ".csv", "_transitions.csv", ".npz"):
        assert (tmp_path / f"plane{suffix}").stat().st_size > 100
    assert sa.load_diagram(stem + ".npz").failures == ()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--alpha", "2", "1", "3"], "--alpha 2 1 3: needs LOW < HIGH"),
        (["--alpha", "1", "2", "2.5"], "whole number of POINTS"),
        (["--omega", "0", "1.5", "2"], "omega=1.5"),
        (["--workers", "0"], "--workers 0"),
    ],
)
def test_diagram_says_what_is_wrong(capsys, more, message, tmp_path):
    assert main(["diagram", "positional-semantic", "--output", str(tmp_path / "x"), *more]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
