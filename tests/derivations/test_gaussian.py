"""Lemmas: every claim holds, every control is refuted."""

from __future__ import annotations

import pytest

from derivations import Claim, check, claims


@pytest.mark.parametrize("item", claims("gaussian"), ids=lambda c: c.name)
def test_claim(item: Claim) -> None:
    verdict = check(item)
    assert verdict.kind == "proved", verdict
    assert verdict.seconds < 30


@pytest.mark.parametrize("item", claims("gaussian"), ids=lambda c: c.name)
def test_control(item: Claim) -> None:
    assert check(item, control=True).kind == "refuted"
