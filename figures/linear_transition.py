"""Linear attention: pooling by a second-order transition, then a crossover to copying; theory, Adam and HMC."""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.copy_head import CopyHead, critical_samples, hmc, sample_reduced, sample_tokens, train


def main() -> None:
    use_style()
    best = CopyHead(16, 4, samples=1, noise=4.0, attention="linear")
    warm = sa.replace(best, temperature=0.2, ensemble="posterior")
    rows = []
    for P in np.geomspace(20, 7000, 60):
        found = sa.solve(sa.replace(best, samples=P), start="ordered")
        rows.append(("theory, joint maximum", P, found.c_1, found.c_G, found.loss, 0.0))
    rng = np.random.default_rng(1)
    for P in np.geomspace(20, 7000, 12).round():
        here = sa.replace(best, samples=P)
        layer = train(here, sample_tokens(here, rng), rng=rng, steps=2000).measured
        rows.append(("Adam", P, layer.m - layer.g, layer.g, layer.test_loss, 0.0))
    for P in np.geomspace(30, 7000, 25):
        here = sa.replace(warm, samples=P)
        exact = sample_reduced(here, seed=0, chains=2)
        m, g = exact["m"].mean(), exact["g"].mean()
        rows.append(("theory, posterior T = 0.2", P, m - g, g, sa.solve(here, start="ordered").sampled_loss, 0.0))
    for P in np.geomspace(50, 6000, 6).round():
        here = sa.replace(warm, samples=P)
        begin = sa.solve(here, start="ordered")
        chains = hmc(here, sample_tokens(here, rng), begin, seed=2, draws=150, warmup=120, chains=2)
        m, g = chains.mean("m"), chains.mean("g")
        rows.append(("HMC, T = 0.2", P, m - g, g, chains.mean("train_loss"), chains.error("m")))
    columns = [list(column) for column in zip(*rows, strict=True)]
    save_table(
        "linear_transition", dict(zip(("source", "samples", "c_1", "c_G", "loss", "error"), columns, strict=True))
    )

    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(3.4, 4.2))
    source = np.array(columns[0])
    P, c_1, c_G, loss, error = map(np.array, columns[1:])
    colours = {"joint maximum": "C0", "Adam": "C0", "T = 0.2": "C1"}
    for name in dict.fromkeys(columns[0]):
        rows_of = source == name
        colour = next(c for key, c in colours.items() if key in name)
        line = name.startswith("theory")
        for values, filled in ((c_1, True), (4 * c_G, False)):
            label = name if filled else None
            if line:
                style = "-" if filled else "--"
                axes[0].plot(P[rows_of], values[rows_of], style, color=colour, label=label)
            else:
                face = colour if filled else "white"
                axes[0].errorbar(
                    P[rows_of], values[rows_of], error[rows_of], fmt="o", color=colour, mfc=face, label=label
                )
        axes[1].plot(P[rows_of], loss[rows_of], "-" if line else "o", color=colour)
    critical = critical_samples(best)
    for ax in axes:
        ax.axvline(critical.pooling, color="C6", lw=0.6, ls=":")
        ax.axvline(critical.crossover, color="C6", lw=0.6, ls=":")
    axes[1].annotate("pooling", (critical.pooling, 0.1), rotation=90, va="bottom", ha="right", fontsize=6.5)
    axes[1].annotate("alignment 1/2", (critical.crossover, 0.1), rotation=90, va="bottom", ha="right", fontsize=6.5)
    axes[0].set(xscale="log", ylabel=r"$c_1$ (solid), $4\,c_G$ (dashed)", ylim=(-0.02, 1.15))
    axes[0].legend(loc="upper left")
    axes[1].set(xlabel="training sequences P", ylabel="loss per position")
    figure.suptitle("L = 16, V = 4, noise 4", fontsize=8)
    save_picture("linear_transition", figure)


if __name__ == "__main__":
    main()
