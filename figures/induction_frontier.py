"""Pareto frontier of frequency and reliability on controlled contexts.

The contexts are real and measured; whether heads emerged is a stand-in, the rule f r >= .08: no model is
trained here.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

from statmech_attn.induction import controlled_contexts, monotone_boundary, pareto_frontier

GRID = (0.1, 0.3, 0.5, 0.7, 0.9)


def main() -> None:
    use_style()
    targets = [(f, r) for f in GRID for r in GRID]
    made = [controlled_contexts(2000, 64, 500, frequency=f, reliability=r, rng=0) for f, r in targets]
    f, r = np.array([m.frequency for m in made]), np.array([m.reliability for m in made])
    emerged = np.array([a * b >= 0.08 for a, b in targets])
    # the frontier of the targets: equal targets, measured, differ by noise and would order each other
    frontier = pareto_frontier([f for f, _ in targets], [r for _, r in targets], emerged)
    boundary = monotone_boundary(f, r, emerged)
    save_table("induction_frontier", {"frequency": f, "reliability": r, "emerged": emerged.astype(int)})

    figure, axes = plt.subplots(figsize=(3.4, 3.0))
    axes.plot(f[emerged], r[emerged], "o", color="C0", label="emerged ($f r \\geq 0.08$)")
    axes.plot(f[~emerged], r[~emerged], "x", color="C1", label="not emerged")
    # the staircase is the edge of all that dominates a minimal point
    axes.step(
        np.concatenate([frontier.frequency[:1], frontier.frequency, [1.0]]),
        np.concatenate([[1.0], frontier.reliability, frontier.reliability[-1:]]),
        where="post",
        color="C6",
        lw=0.8,
        label="Pareto frontier",
    )
    axes.plot(frontier.frequency, frontier.reliability, "o", ms=7, mfc="none", color="C6", label="minimal points")
    line = np.linspace(0.05, 1.0, 200)
    axes.plot(line, boundary.reliability(line), "--", color="C2", label="fitted boundary, P = 1/2")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="frequency, measured", ylabel="reliability, measured")
    figure.legend(loc="outside upper center", ncols=2)
    save_picture("induction_frontier", figure)


if __name__ == "__main__":
    main()
