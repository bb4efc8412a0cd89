"""What the README shows, runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.slow
def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["jump"].parameter == pytest.approx(1.2515, abs=2e-4)
    assert names["check"].converged
    assert (tmp_path / "semantic.npz").exists()


def test_every_module_is_on_the_map() -> None:
    package = Path(__file__).parents[1] / "statmech_attn"
    for path in package.glob("*.py"):
        assert path.name.startswith("__") or path.name in README, f"{path.name} is missing in the map of the code"
    for path in (package / "positional_semantic").glob("*.py"):
        assert path.name.startswith("__") or path.name in README, f"{path.name} is missing in the map of the code"
