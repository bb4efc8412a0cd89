"""The copy head on the command line."""

import json

import pytest

import statmech_attn as sa
from statmech_attn.cli import main

SIZES = ["--context-length", "24", "--vocabulary-size", "8"]
PRIORS = ["--noise", "4", "--value-variance", "0.25"]


def test_solve_and_critical(capsys):
    assert main(["critical", "copy-head", *SIZES, *PRIORS, "--json"]) == 0
    found = {row["quantity"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert found["coexistence"] == pytest.approx(1320, abs=0.5)
    assert main(["solve", "copy-head", *SIZES, *PRIORS, "--samples", "1330", "--json"]) == 0
    solutions = json.loads(capsys.readouterr().out)
    assert [s["branch"] for s in solutions if s["equilibrium"]] == ["copy"]
    sizes = ["--context-length", "32", "--vocabulary-size", "32"]
    assert main(["critical", "copy-head", *sizes, "--ensemble", "projected"]) == 0
    assert capsys.readouterr().out == "no transition\n"


def test_simulate(capsys):
    sizes = ["--context-length", "8", "--vocabulary-size", "3", "--samples", "300", "--attention", "linear"]
    assert main(["simulate", "copy-head", *sizes, "--steps", "600", "--json"]) == 0
    found = {row["quantity"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    theory = sa.solve(sa.CopyHead(8, 3, 300, attention="linear"), start="ordered")
    assert found["g"] == pytest.approx(theory["g"], rel=0.05)
    for method in ("hmc", "sgld"):
        options = ["--method", method, "--start", "ordered", "--draws", "20", "--chains", "2"]
        assert main(["simulate", "copy-head", *sizes, *options]) == 0
        assert "effective_samples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", "0"], "samples=0.0 must be at least 1"),
        (["--samples", "9", "--start", "nowhere"], "--start 'nowhere' is not one of random, copy, pooling"),
        (["--samples", "9", "--temperature", "-1"], "temperature=-1.0 must be positive"),
    ],
)
def test_user_errors_are_one_sentence(options, message, capsys):
    assert main(["simulate", "copy-head", *SIZES, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_diagram(tmp_path, capsys):
    stem = tmp_path / "diagram"
    line = ["diagram", "copy-head", "--vocabulary-size", "8", *PRIORS, "--context-length", "16", "64", "3"]
    assert main([*line, "--output", str(stem), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["context_length"] for row in rows] == [16, 32, 64]
    head = sa.CopyHead(32, 8, samples=1, noise=4.0, value_variance=0.25)
    assert rows[1]["coexistence"] == sa.copy_head.critical_samples(head).coexistence
    assert (tmp_path / "diagram.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "diagram.csv").read_text().count("\n") == 4
    assert main([*line[:-3], "2", "64", "3"]) == 2
    assert "needs 3 <= LOW < HIGH" in capsys.readouterr().err
