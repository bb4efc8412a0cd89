"""Imports only go down: numerics and contract, then theories, then faces, which nothing imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "statmech_attn"
FACES = {"branch_commands", "cli", "plotting", "verification", "__main__"}
THEORIES = {p.name for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").exists()}


def imports(path: Path) -> set[str]:
    """First-level names of this package that a module imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("statmech_attn"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("statmech_attn.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    home = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    used = imports(path) - {home}
    if home in FACES:
        return
    assert not used & FACES, "nothing imports a face"
    if home in THEORIES:
        assert not used & THEORIES, "theories do not know each other"
    else:
        assert not used & THEORIES, "numerics know only the contract"


def test_help_is_quick() -> None:
    import subprocess
    import sys

    code = "import sys, statmech_attn.cli; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
