"""Continuation and transitions on the copy head agree with its closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import statmech_attn as sa

HEAD = sa.CopyHead(context_length=24, vocabulary_size=8, samples=1320, noise=4.0, value_variance=0.25)


def test_folds_and_coexistence_of_softmax_attention() -> None:
    critical = sa.copy_head.critical_samples(HEAD)
    copying, pooling = (sa.trace(HEAD, "samples", (300, 5000), start=start) for start in ("copy", "pooling"))
    for branch in (copying, pooling):
        folds = sorted(event.parameter for event in branch.events if event.name == "fold")
        assert folds == pytest.approx([critical.copy_spinodal, critical.pooling_spinodal], rel=1e-7)
    jump = sa.coexistence(copying, pooling)
    assert jump.parameter == pytest.approx(critical.coexistence, rel=1e-7)
    assert abs(jump.states[0][0] - jump.states[1][0]) > 1


def test_pooling_transition_of_linear_attention() -> None:
    head = sa.CopyHead(context_length=24, vocabulary_size=4, samples=200, noise=1.0, attention="linear")
    branch = sa.trace(head, "samples", (2, 2000), start="disordered")
    found = [event.parameter for event in branch.events if "symmetry" in event.name or "breaking" in event.name]
    pooling = sa.copy_head.critical_samples(head).pooling
    assert np.min(np.abs(np.array(found) / pooling - 1)) < 1e-5
