"""Published and converged reference tables, read where they are present."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# compilation makes first calls slow; the same examples every time
settings.register_profile("statmech_attn", deadline=None, derandomize=True)
settings.load_profile("statmech_attn")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the channel kernels once, before workers start.

    Machine code depends in its last digits on what a process compiled before, and some tests ask that processes agree.
    """
    if not hasattr(config, "workerinput"):
        code = (
            "import statmech_attn as sa; model = sa.PositionalSemantic(1.0); sa.solve(model, accuracy=1e-4);"
            "sa.amp(model, 40, max_iterations=2); layer = model.layer(); layer.update(layer.initial('semantic'),"
            "layer.rules(1e-2)[0])"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


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
