"""Files are whole or absent, versioned, and never unpickled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import statmech_attn as sa
from statmech_attn.store import read_archive, replacing, write_archive


@pytest.fixture(scope="module")
def solution() -> sa.Solution:
    return sa.solve(sa.PositionalSemantic(1.24, 0.3), "semantic", accuracy=1e-4)


def test_round_trip(solution: sa.Solution, tmp_path: Path) -> None:
    sa.save(solution, tmp_path / "s.npz")
    again = sa.load(tmp_path / "s.npz")
    assert again.to_dict() == solution.to_dict()
    assert again.theory == solution.theory
    assert again.status == solution.status
    for name in ("state", "errors", "history"):
        np.testing.assert_array_equal(getattr(again, name), getattr(solution, name))
    assert json.loads(json.dumps(again.to_dict()))["parameters"]["omega"] == 0.3


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("new, but")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folder_and_file(solution: sa.Solution, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        sa.save(solution, tmp_path / "nowhere" / "s.npz")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        sa.load(tmp_path / "s.npz")


def test_truncated_foreign_and_newer_files_are_one_clear_error(solution: sa.Solution, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    sa.save(solution, path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="is not a complete result"):
            sa.load(path)
    np.savez(path, x=np.arange(3))
    with pytest.raises(ValueError, match="is not a complete result"):
        sa.load(path)
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="is not a complete result"):
        sa.load(path)
    write_archive(path, "branch", {}, {})
    with pytest.raises(ValueError, match="holds a 'branch'"):
        sa.load(path)
    write_archive(path, "solution", {"version": 99}, {})
    with pytest.raises(ValueError, match="format version 99"):
        read_archive(path, "solution")
