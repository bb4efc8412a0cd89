"""The map equation -> claim -> code -> test is complete and true."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from derivations import FAMILIES, claims
from derivations.readme import EXEMPT, README, formulas, table

CERTIFIED = {name for c in claims() for name in c.certifies}


@pytest.mark.parametrize("name", formulas())
def test_every_public_formula_has_a_claim(name: str) -> None:
    assert name in CERTIFIED, f"{name} implements a formula and no claim certifies it"


@pytest.mark.parametrize("name", sorted(CERTIFIED | set(EXEMPT)))
def test_certified_code_exists(name: str) -> None:
    package, _, rest = name.partition(".")
    found = import_module(package)
    for part in rest.split("."):
        found = getattr(found, part, None) or import_module(f"{found.__name__}.{part}")
    assert callable(found) or isinstance(found, property)


def test_readme_shows_the_map() -> None:
    assert table() in README.read_text(), "run python -m derivations.readme"


@pytest.mark.parametrize("family", FAMILIES)
def test_tests_exist(family: str) -> None:
    assert (Path(__file__).parent / f"test_{family}.py").is_file()


def test_identifiers_are_unique() -> None:
    identifiers = [c.identifier for c in claims()]
    assert len(set(identifiers)) == len(identifiers)


def test_every_module_is_in_the_readme() -> None:
    for path in README.parent.glob("*.py"):
        assert path.name.startswith("__") or f"`{path.name}`" in README.read_text()
