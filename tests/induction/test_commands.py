"""The induction command line: tables in three forms, one-sentence errors, nothing half written."""

import argparse
import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from statmech_attn.induction import context_statistics, prefix_matching
from statmech_attn.induction.commands import add_parser


def call(line: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(required=True))
    options = parser.parse_args(["induction", *line.split()])
    return options.run(options)


def rows(line: str, capsys) -> list[dict]:
    """The same table from JSON and CSV."""
    assert call(line + " --json") == 0
    table = json.loads(capsys.readouterr().out)
    assert call(line + " --csv") == 0
    other = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert call(line) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(table) + 1
    assert len(other) == len(table)
    for one, two in zip(table, other, strict=True):
        for name, value in one.items():
            if isinstance(value, float | int):
                assert float(two[name]) == pytest.approx(value, rel=1e-15)
    return table


def test_law(capsys):
    table = rows("law --batch-size 4 1024 --context-size 64 2048", capsys)
    for row in table:
        expected = np.exp(13.26) / (row["batch_size"] ** 0.37 * row["context_size"] ** 0.62)
        assert row["updates"] == pytest.approx(expected, rel=1e-12)
    assert table[0]["extrapolation"] is None
    assert "batch_size up to 1024" in table[3]["extrapolation"]
    assert rows("law --batch-size 64 --context-size 64 --version v1", capsys)[0]["updates"] == pytest.approx(
        7831.05, abs=0.01
    )


def test_fit(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    lines = ["batch_size,context_size,updates_lower,updates_upper"]
    rng = np.random.default_rng(0)
    for batch in (4, 16, 64, 256):
        for context in (32, 128, 512):
            updates = 573_779 / (batch**0.37 * context**0.62) * np.exp(0.2 * rng.standard_normal())
            lines.append(f"{batch},{context},{updates / 1.1},{updates * 1.1}")
    path.write_text("\n".join([*lines, "512,1024,600,"]) + "\n")  # the last one never emerged
    table = rows(f"fit {path} --method interval_censored", capsys)
    found = {row["name"]: row for row in table}
    assert found["context_exponent"]["lower"] < 0.62 < found["context_exponent"]["upper"]
    assert found["degrees_of_freedom"]["value"] == 9
    with pytest.raises(ValueError, match="row 0 has no emergence"):
        call(f"fit {path}")


def test_fit_without_a_maximum_returns_one(tmp_path, caplog):
    path = tmp_path / "runs.csv"
    sizes = [(4, 16), (4, 256), (64, 16), (64, 256), (16, 64)]
    path.write_text(
        "\n".join(["batch_size,context_size,updates_lower,updates_upper", *(f"{b},{c},1,100" for b, c in sizes)])
    )
    assert call(f"fit {path} --method interval_censored") == 1
    assert "maximum" in caplog.text or "maximised" in caplog.text


def test_repetition(tmp_path, capsys):
    ids = np.random.default_rng(0).integers(0, 100, 5000)
    ids.astype(np.uint16).tofile(tmp_path / "x.bin")
    line = f"repetition {tmp_path}/x.bin --dtype uint16 --context-size 16 64 --vocabulary-size 100"
    table = rows(line + " --windows disjoint --second-half --no-self-pairs --mean --end-of-document 0", capsys)
    expected = context_statistics(ids, [16, 64], second_half=True, self_pairs=False, mean=True, end_of_document=0)
    for i, row in enumerate(table):
        assert row["frequency"] == pytest.approx(expected.frequency[i])
        assert row["reliability_mean"] == pytest.approx(expected.reliability("mean")[i])
        assert row["repeated_bigrams"] == pytest.approx(row["frequency"] * row["reliability_any"])
    with pytest.raises(ValueError, match=r"outside \[0, 49\]"):
        call(line.replace("size 100", "size 50"))
    with pytest.raises(ValueError, match="give uint16 or uint32"):
        call(line.replace("--dtype uint16", ""))


def test_process(tmp_path, capsys):
    line = f"process markov --entropy 3.5 --within 0.6 --length 200000 --tokens {tmp_path}/ids.npy"
    found = {row["name"]: row for row in rows(line, capsys)}
    assert found["entropy_bits"]["expected"] == pytest.approx(3.5, abs=1e-6)
    for name in ("frequency", "reliability_any", "reliability_latest"):
        assert found[name]["measured"] == pytest.approx(found[name]["expected"], abs=0.01)
    assert np.load(tmp_path / "ids.npy").shape == (200_000,)
    line = "process controlled --vocabulary-size 500 --frequency 0.5 --reliability 0.7"
    line += f" --tokens {tmp_path}/ids.npy"
    found = {row["name"]: row for row in rows(line, capsys)}
    assert found["frequency"]["measured"] == pytest.approx(0.5, abs=0.03)
    assert np.load(tmp_path / "ids.npy").shape == (1000, 64)
    table = rows("process copy --copy-probability 0.9 --contexts 200", capsys)
    assert table[0]["reliability_latest"] > 0.9
    with pytest.raises(ValueError, match="entropy=9"):
        call("process markov --entropy 9")


def test_score(tmp_path, capsys):
    rng = np.random.default_rng(0)
    weights = rng.random((3, 2, 8, 8)) * np.tri(8)
    weights /= weights.sum(axis=-1, keepdims=True)
    ids = rng.integers(0, 3, 8)
    np.save(tmp_path / "a.npy", weights)
    np.savez(tmp_path / "a.npz", **{f"layer_{i}": weights[i % 3] for i in range(11)})
    np.save(tmp_path / "ids.npy", ids)
    table = rows(f"score {tmp_path}/a.npy --metric prefix-matching --ids {tmp_path}/ids.npy", capsys)
    expected = prefix_matching(weights, ids)
    assert len(table) == 6
    for row in table:
        assert row["score"] == pytest.approx(expected[row["layer"], row["head"]])
    table = rows(f"score {tmp_path}/a.npz --metric previous-token", capsys)
    by_layer = {row["layer"]: row["score"] for row in table if row["head"] == 0}
    assert by_layer[10] == by_layer[1]  # layer_10 is the eleventh, not the second
    assert by_layer[10] != by_layer[2]
    for metric in ("duplicate-token", "repeated-prefix-matching"):
        assert call(f"score {tmp_path}/a.npy --metric {metric} --ids {tmp_path}/ids.npy") == 0
    with pytest.raises(ValueError, match="needs the token ids"):
        call(f"score {tmp_path}/a.npy --metric prefix-matching")
    np.save(tmp_path / "ids.npy", ids.astype(float))
    with pytest.raises(ValueError, match="token ids must be integers"):
        call(f"score {tmp_path}/a.npy --metric prefix-matching --ids {tmp_path}/ids.npy")
    np.save(tmp_path / "a.npy", weights[..., ::-1])
    with pytest.raises(ValueError, match="layer 0, head 0, row 0 attends to later keys"):
        call(f"score {tmp_path}/a.npy")


def test_emergence(tmp_path, capsys):
    steps = np.geomspace(10, 10_000, 61)
    path = tmp_path / "curve.csv"
    np.savetxt(
        path,
        np.column_stack([steps, 1 / (1 + (900 / steps) ** 8)]),
        delimiter=",",
        header="step,score",
        comments="",
    )
    found = {row["method"]: row for row in rows(f"emergence {path}", capsys)}
    assert found["logistic"]["step"] == pytest.approx(900, rel=1e-6)
    path.write_text("step,score\n1,0.01\n2,0.02\n3,0.01\n4,0.01\n5,0.01\n")
    found = rows(f"emergence {path}", capsys)
    assert all(row["step"] is None and row["censored"] == "right" for row in found)  # JSON has no NaN


def test_frontier(tmp_path, capsys):
    grid = [0.1, 0.3, 0.5, 0.7, 0.9]
    path = tmp_path / "points.csv"
    lines = ["frequency,reliability,emerged", *(f"{f},{r},{int(f * r >= 0.08)}" for f in grid for r in grid)]
    path.write_text("\n".join(lines))
    table = rows(f"frontier {path}", capsys)
    found = [(row["frequency"], row["reliability"]) for row in table if row["kind"] == "frontier"]
    assert found == [(0.1, 0.9), (0.3, 0.3), (0.9, 0.1)]
    assert sum(row["kind"] == "boundary" for row in table) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 'step' is missing"),
        ("step,score\n", "is empty"),
        ("step,score\n1\n", "line 2 is short"),
        ("step,score\n1,x\n", "line 2: score='x' is not a number"),
        ("step,other\n1,2\n", "column 'score' is missing"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path, text, message):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        call(f"emergence {path}")


def test_bad_arrays_are_one_sentence(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01")
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 cut")
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match=f"{name}: is not a whole"):
            call(f"score {tmp_path}/{name}")
    with pytest.raises(OSError, match=r"absent\.npy"):
        call(f"score {tmp_path}/absent.npy")


def test_output_is_whole_or_absent(tmp_path, capsys):
    target = tmp_path / "law.csv"
    assert call(f"law --batch-size 64 --context-size 64 --csv --output {target}") == 0
    before = target.read_text()
    assert before.startswith("batch_size,")
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="batch_size=-1"):
        call(f"law --batch-size -1 --context-size 64 --output {target}")
    assert target.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["law.csv"]


def test_help_imports_no_numerics():
    code = (
        "import argparse, sys; from statmech_attn.induction.commands import add_parser;"
        "p = argparse.ArgumentParser(); add_parser(p.add_subparsers()); p.parse_args(['induction', '--help'])"
    )
    found = "print(sorted({'numba', 'numpy', 'scipy'} & set(sys.modules)))"
    check = f"import sys\ntry:\n    exec({code!r})\nfinally:\n    {found}"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
