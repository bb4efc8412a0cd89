"""Frequency and reliability of repeated cues against context size: exact lines, measured points."""

from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

from statmech_attn.induction import (
    context_statistics,
    controlled_process,
    expected_markov,
    marginal_distribution,
)

SIZES = np.array([4, 8, 16, 32, 64, 128, 256])
Marginal = Literal["uniform", "gaussian", "zipf"]
SOURCES: tuple[tuple[str, Marginal, float | None], ...] = (
    ("Zipf, independent", "zipf", None),
    ("Zipf, 3.5 bits", "zipf", 3.5),
    ("uniform, 3.5 bits", "uniform", 3.5),
)
KINDS: tuple[tuple[Literal["any", "latest"], str, str], ...] = (("any", "-", "o"), ("latest", "--", "s"))


def main() -> None:
    use_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 2.6))
    table: dict[str, list[str | float]] = {"source": [], "context_size": []}
    for colour, (label, marginal, entropy) in enumerate(SOURCES):
        chain = controlled_process(marginal_distribution(marginal, 64), entropy=entropy, within=0.6, rng=0)
        exact = expected_markov(chain.transition, int(SIZES.max())).contexts(SIZES)
        measured = context_statistics(chain.sample(1_000_000, 1), SIZES)
        # independent ids and a chain of one marginal have nearly the same frequency: a wide line below
        left.plot(SIZES, exact.frequency, color=f"C{colour}", lw=3.0 - colour, label=label)
        left.plot(SIZES, measured.frequency, "o", mfc="white", color=f"C{colour}")
        table["source"] += [label] * SIZES.size
        table["context_size"] += SIZES.tolist()
        for prefix, statistics in (("exact", exact), ("measured", measured)):
            table.setdefault(f"{prefix}_frequency", []).extend(statistics.frequency.tolist())
            for kind, _, _ in KINDS:
                table.setdefault(f"{prefix}_{kind}", []).extend(statistics.reliability(kind).tolist())
        for kind, line, marker in KINDS:
            right.plot(SIZES, exact.reliability(kind), line, color=f"C{colour}")
            right.plot(SIZES, measured.reliability(kind), marker, mfc="white", color=f"C{colour}")
    save_table("induction_repetition", table)
    left.set(ylabel="frequency of repeated cues", ylim=(0, 1))
    left.plot([], [], "o", mfc="white", color="C6", label="measured, 10$^6$ ids")
    left.legend(loc="upper left")
    right.set(ylabel="reliability of a repeated cue", ylim=(0, 1))
    right.plot([], [], "-o", mfc="white", color="C6", label="any earlier successor")
    right.plot([], [], "--s", mfc="white", color="C6", label="latest successor")
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("context size (ids)")
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
    save_picture("induction_repetition", figure)


if __name__ == "__main__":
    main()
