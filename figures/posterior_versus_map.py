"""Linear attention: the posterior at several temperatures against the joint maximum and the projected action."""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.copy_head import CopyHead, hmc, sample_reduced, sample_tokens


def main() -> None:
    use_style()
    model = CopyHead(16, 4, samples=1, noise=4.0, attention="linear")
    grid = np.geomspace(60, 13000, 40)
    rng = np.random.default_rng(0)
    rows = []
    for P in grid:
        found = sa.solve(sa.replace(model, samples=P), start="ordered")
        rows.append(("joint maximum", 0.0, P, found.alignment, 0.0))
    for T in (0.03, 0.2, 1.0):
        for ensemble, name in (("posterior", "saddle"), ("projected", "projected")):
            warm = sa.replace(model, temperature=T, ensemble=ensemble)
            for P in grid:
                here = sa.solve(sa.replace(warm, samples=P), start="ordered")
                rows.append((name, T, P, here.alignment, 0.0))
        warm = sa.replace(model, temperature=T, ensemble="posterior")
        for P in np.geomspace(100, 10000, 5).round():
            here = sa.replace(warm, samples=P)
            exact = sample_reduced(here, seed=1, chains=2)["alignment"]
            rows.append(("exact reduction", T, P, exact.mean(), 0.0))
            begin = sa.solve(here, start="ordered")
            chains = hmc(here, sample_tokens(here, rng), begin, seed=3, draws=120, warmup=100, chains=2)
            rows.append(("HMC", T, P, chains.mean("alignment"), chains.error("alignment")))
    columns = list(zip(*rows, strict=True))
    names = ("source", "temperature", "samples", "alignment", "error")
    save_table("posterior_versus_map", dict(zip(names, columns, strict=True)))

    figure, axes = plt.subplots(1, 3, sharey=True, figsize=(7.0, 2.5))
    source, temperature, P, value, error = (np.array(column) for column in columns)
    for ax, T in zip(axes, (0.03, 0.2, 1.0), strict=True):
        for name, style, colour in (
            ("joint maximum", "-", "C0"),
            ("projected", ":", "C2"),
            ("saddle", "-", "C1"),
            ("exact reduction", "x", "C6"),
        ):
            part = (source == name) & ((temperature == T) | (name == "joint maximum"))
            ax.plot(P[part], value[part], style, color=colour, label=name)
        part = (source == "HMC") & (temperature == T)
        ax.errorbar(P[part], value[part], error[part], fmt="o", color="C4", mfc="none", label="HMC")
        ax.axhline(0.5, color="0.6", lw=0.5, zorder=0)
        ax.set(xscale="log", xlabel="training sequences P", title=f"T = {T}")
    axes[0].set_ylabel("alignment of A with the shift")
    axes[0].legend()
    save_picture("posterior_versus_map", figure)


if __name__ == "__main__":
    main()
