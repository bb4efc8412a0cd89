"""Published and converged reference tables, read where they are present."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# compilation makes first calls slow; the same examples every time
settings.register_profile("statmech_attn", deadline=None, derandomize=True)
settings.load_profile("statmech_attn")

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"


@pytest.fixture
def reference() -> Callable[[str], list[dict[str, str]]]:
    """Rows of a reference table by file name; skips the test where the table is absent."""

    def read(name: str) -> list[dict[str, str]]:
        path = REFERENCE / name
        if not path.is_file():
            pytest.skip(f"reference table {name} is not present")
        with path.open() as file:
            return list(csv.DictReader(file))

    return read
