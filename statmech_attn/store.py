"""Results on disk: every file is written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


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
