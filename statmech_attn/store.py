"""Results on disk: every file is written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["load_arrays", "replacing", "save_arrays"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
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
        raise FileNotFoundError(f"path={str(target)!r}: the folder {str(target.parent)!r} does not exist")
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def save_arrays(
    path: str | os.PathLike[str], kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write numeric arrays and a JSON header as one .npz file, whole or not at all."""
    text = json.dumps({"kind": kind, "version": version, **header})
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, header=np.array(text), **arrays)


def load_arrays(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a file written by :func:`save_arrays`.

    Raises
    ------
    ValueError
        If the file is truncated, of another kind or of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            header = json.loads(str(data["header"]))
            found, number = header["kind"], header["version"]
            arrays = {name: data[name] for name in data.files if name != "header"}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"path={str(path)!r} is no readable file of statmech_attn: {error}") from error
    if (found, number) != (kind, version):
        raise ValueError(f"path={str(path)!r} holds a {found} of version {number}, not a {kind} of version {version}")
    return header, arrays
