"""Layers that tests of data and training share."""

from __future__ import annotations

import numpy as np

from statmech_attn.positional_semantic.layer import AttentionLayer
from statmech_attn.positional_semantic.spectrum import Spectrum


def random_layer(
    L: int, r: int, t: int, student: str = "softmax", teacher: str = "softmax", seed: int = 0
) -> AttentionLayer:
    """Two atoms, token-dependent covariances, a teacher with mean and correlations, a target without symmetry."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((2, t, t)) / np.sqrt(t) + np.eye(t)
    spectrum = Spectrum.discrete(
        [0.6, 0.4],
        rng.uniform(0.2, 0.8, (2, L)),
        rng.standard_normal((2, L)),
        teacher_mean=0.3 * rng.standard_normal((2, t)),
        teacher_covariance=root @ root.transpose(0, 2, 1),
    )
    return AttentionLayer(
        alpha=1.5,
        spectrum=spectrum,
        positional_target=rng.uniform(0, 1, (L, L)),
        omega=0.3,
        regularization=0.05,
        student_rank=r,
        student_activation=student,
        teacher_activation=teacher,
    )
