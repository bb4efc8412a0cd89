"""Scores of a head that turns from uniform to induction attention, and four emergence points.

The head is synthetic: a share w of its attention, logistic in ln step with midpoint 900 and width .12,
goes to the right key and the rest is spread evenly; every row is jittered. The scores are the library's.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style
from scipy.special import expit

from statmech_attn.induction import (
    duplicate_token,
    emergence_point,
    previous_token,
    repeated_prefix_matching,
    repeated_sequences,
    uniform_attention,
    uniform_baseline,
)
from statmech_attn.induction.emergence import METHODS

HALF = 32
STEPS = np.geomspace(100, 5000, 60)


def main() -> None:
    use_style()
    rng = np.random.default_rng(0)
    ids = repeated_sequences(HALF, 1, 512, rng)[0]
    spread = uniform_attention(2 * HALF)
    ideal = spread.copy()
    rows = np.arange(HALF, 2 * HALF)
    ideal[rows] = 0.0
    ideal[rows, rows - HALF + 1] = 1.0
    share = np.clip(expit(np.log(STEPS / 900.0) / 0.12) + 0.02 * rng.standard_normal(STEPS.size), 0.0, 1.0)
    attention = spread + share[:, None, None] * (ideal - spread)
    scores = {
        "prefix matching": repeated_prefix_matching(attention),
        "duplicate token": duplicate_token(attention, ids),
        "previous token": previous_token(attention),
    }
    save_table("induction_metrics", {"step": STEPS, **{k.replace(" ", "_"): v for k, v in scores.items()}})

    figure, axes = plt.subplots(figsize=(3.4, 3.0))
    for (label, score), line in zip(scores.items(), ("o-", "--", "-."), strict=True):
        axes.plot(STEPS, score, line, ms=2.5, mfc="white", label=label)
    axes.axhline(uniform_baseline(HALF), color="0.6", lw=0.8, label="uniform attention")
    for colour, (method, line) in enumerate(zip(METHODS, ("-", "--", "-.", ":"), strict=True), 3):
        point = emergence_point(STEPS, scores["prefix matching"], method, baseline=uniform_baseline(HALF))
        label = f"{method.replace('_', ' ')}: {point.step:.0f}"
        axes.axvline(point.step, color=f"C{colour}", ls=line, label=label)
    axes.set(xscale="log", xlabel="updates", ylabel="score")
    figure.legend(loc="outside upper center", ncols=2)
    save_picture("induction_metrics", figure)


if __name__ == "__main__":
    main()
