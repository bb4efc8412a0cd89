"""Results on disk: versioned .npz archives with a JSON header, written whole or not at all, never unpickled."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from statmech_attn.registry import theory_class
from statmech_attn.theory import Solution, Status

if TYPE_CHECKING:
    from statmech_attn.theory import Array

__all__ = ["load", "read_archive", "replacing", "save", "write_archive"]

VERSION = 1
StrPath = str | os.PathLike[str]


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds.

    If the block raises, the temporary file is removed and whatever stood at `path` is untouched.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "table.csv"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("q,m\\n")
    >>> target.read_text()
    'q,m\\n'
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(target)!r}: the folder {str(target.parent)!r} does not exist")
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_archive(path: StrPath, kind: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write arrays and a JSON-ready header of a result of some `kind`."""
    text = json.dumps({"format": "statmech_attn", "version": VERSION, "kind": kind, **header})
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, header=np.array(text), **dict(arrays))  # type: ignore[arg-type]


def read_archive(path: StrPath, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays written by :func:`write_archive`; one clear ValueError for anything else."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
        written = header["format"], header["kind"]
    except (ValueError, KeyError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} is not a complete result of this package ({error})") from None
    if written != ("statmech_attn", kind):
        raise ValueError(f"{str(path)!r} holds a {written[1]!r} of {written[0]!r}, not a {kind!r}")
    if header.get("version") != VERSION:
        raise ValueError(f"{str(path)!r} has format version {header.get('version')!r}; this package reads {VERSION}")
    return header, arrays


def save(solution: Solution, path: StrPath) -> None:
    """Write a solution with its theory, certificate and history.

    Examples
    --------
    >>> import tempfile, statmech_attn as sa
    >>> path = tempfile.mkdtemp() + "/semantic.npz"
    >>> solution = sa.solve(sa.PositionalSemantic(alpha=2.0, omega=0.3), start="semantic")
    >>> sa.save(solution, path)
    >>> bool((sa.load(path).state == solution.state).all())
    True
    """
    numbers = ("residual", "tol", "quadrature_error", "accuracy")
    header = solution.to_dict() | {name: getattr(solution, name) for name in numbers}
    header["observables"] = solution.observables
    write_archive(
        path, "solution", header, {"state": solution.state, "errors": solution.errors, "history": solution.history}
    )


def load(path: StrPath) -> Solution:
    """Read a solution written by :func:`save`; a foreign, truncated or newer file is one clear ValueError."""
    header, arrays = read_archive(path, "solution")
    theory = theory_class(header["theory"])(**header["parameters"])
    values: dict[str, Any] = {f.name: header[f.name] for f in fields(Solution) if f.name in header}
    return Solution(**{**values, **arrays, "theory": theory, "status": Status(**header["status"])})
