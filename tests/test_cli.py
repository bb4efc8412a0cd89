"""The command line as its user calls it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from statmech_attn.cli import main

SOLVE = ["solve", "positional-semantic", "--accuracy", "1e-4"]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SOLVE, "--alpha", "1.24", "--omega", "0.3"]) == 0
    out, err = capsys.readouterr()
    assert not err
    rows = {line.split()[-9]: line for line in out.splitlines() if len(line.split()) >= 9}
    assert rows["positional"].split()[0] == "*", "the positional branch is the equilibrium below alpha_c = 1.25"
    assert rows["semantic"].split()[0] == "semantic"
    assert float(rows["semantic"].split()[3]) == pytest.approx(0.11716, abs=2e-5)
    assert "linear layer: test error 0.00197" in out


def test_equilibrium_changes_at_the_transition(capsys: pytest.CaptureFixture[str]) -> None:
    for alpha, branch in (("1.2", "positional"), ("1.3", "semantic")):
        assert main([*SOLVE, "--alpha", alpha, "--omega", "0.3"]) == 0
        assert f"* {branch}" in capsys.readouterr().out


def test_json_and_csv_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SOLVE, "--alpha", "2", "--omega", "0.3", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert main([*SOLVE, "--alpha", "2", "--omega", "0.3", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["start"] for r in records] == [r["start"] for r in rows] == ["uninformed", "positional", "semantic"]
    for record, row in zip(records, rows, strict=True):
        assert float(row["q"]) == record["order_parameters"]["q"]
        assert float(row["train_loss"]) == record["observables"]["train_loss"]
        assert (row["equilibrium"] == "True") == record["equilibrium"] == (record["start"] == "semantic")


def test_absent_branch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SOLVE, "--alpha", "0.3", "--omega", "0.3"]) == 0
    assert "semantic: the semantic branch does not exist here" in capsys.readouterr().out
    assert main([*SOLVE, "--alpha", "0.3", "--omega", "0.3", "--start", "semantic"]) == 1
    assert "does not exist here" in capsys.readouterr().err


def test_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.png"
    assert main([*SOLVE, "--alpha", "1.24", "--omega", "0.3", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert main([*SOLVE, "--alpha", "1.24", "--plot", str(tmp_path / "picture.xyz")]) == 2
    assert "must end in .png, .pdf or .svg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "-1"], "alpha=-1.0 must be positive"),
        (["--alpha", "1", "--omega", "2"], "omega=2.0 must lie in [0, 1]"),
        (["--alpha", "1", "--start", "sideways"], "start='sideways' is not one of uninformed, positional, semantic"),
        (["--alpha", "1", "--tol", "0"], "tol=0.0 must be positive"),
    ],
)
def test_errors_of_the_user_are_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SOLVE, *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["solve"], ["solve", "nothing"], ["solve", "positional-semantic"], ["fly"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
    capsys.readouterr()


def test_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "statmech_attn", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().count(".") == 2
