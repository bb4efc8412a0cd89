"""Softmax attention: first-order transition between pooling and copying, with both sweeps of Adam."""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.copy_head import CopyHead, critical_samples, softmax, sweep


def main() -> None:
    use_style()
    model = CopyHead(24, 8, samples=1, noise=4.0, value_variance=0.25)
    critical = critical_samples(model)
    folds = softmax.folds(model)
    beta = np.concatenate([np.linspace(0.02, 0.6, 40), np.linspace(0.62, 3.2, 80)])
    P = softmax.sample_curve(model, beta)
    states = [sa.replace(model, samples=p).observables(np.array([b]), None) for b, p in zip(beta, P, strict=True)]
    a_G, loss = (np.array([state[name] for state in states]) for name in ("a_G", "loss"))
    rows = [("theory", *row) for row in zip(P, a_G, loss, strict=True)]
    samples = np.linspace(0.85 * critical.copy_spinodal, 1.1 * critical.pooling_spinodal, 11).round()
    for name, start, path in (("up", "random", samples), ("down", "copy", samples[::-1])):
        for p, layer in sweep(model, path, start, rng=np.random.default_rng(3)):
            rows.append((name, p, layer.measured.g, layer.measured.test_loss))
    columns = list(zip(*rows, strict=True))
    save_table("softmax_hysteresis", dict(zip(("source", "samples", "a_G", "loss"), columns, strict=True)))

    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(3.4, 4.4))
    parts = {
        "pooling": (beta < folds.beta_pooling, "C0", "-"),
        "barrier": ((beta >= folds.beta_pooling) & (beta <= folds.beta_copy), "C6", ":"),
        "copying": (beta > folds.beta_copy, "C1", "-"),
    }
    source = np.array(columns[0])
    for ax, curve, k in ((axes[0], a_G, 2), (axes[1], loss, 3)):
        for name, (part, colour, style) in parts.items():
            ax.plot(P[part], curve[part], style, color=colour, label=f"theory, {name}")
        for name, marker in (("up", "^"), ("down", "v")):
            here = source == name
            ax.plot(
                np.array(columns[1])[here],
                np.array(columns[k])[here],
                marker,
                color="C2",
                mfc="white",
                label=f"Adam, sweep {name}",
            )
        for x in (critical.copy_spinodal, critical.coexistence, critical.pooling_spinodal):
            ax.axvline(x, color="0.6", lw=0.6, zorder=0)
        ax.set_xlim(samples[0] - 20, 2150)
    for x, name in (
        (critical.copy_spinodal, "$P_{s1}$"),
        (critical.coexistence, "$P^*$"),
        (critical.pooling_spinodal, "$P_{s2}$"),
    ):
        axes[0].annotate(name, (x, 0.43), ha="center", fontsize=7)
    axes[0].set(ylabel=r"weight of the copied token $a_G$", ylim=(-0.02, 0.46))
    axes[1].set(xlabel="training sequences P", ylabel="loss per position")
    axes[0].legend(loc=(0.58, 0.18))
    inset = axes[1].inset_axes((0.66, 0.5, 0.32, 0.36))
    at = sa.replace(model, samples=critical.coexistence)
    gaps = np.linspace(0, 3.2, 120)
    inset.plot(gaps, [softmax.action_at(at, b) - softmax.action_at(at, gaps[0]) for b in gaps], color="C6", lw=1)
    inset.set_title(r"action at $P^*$", fontsize=6.5)
    inset.set_xlabel(r"logit gap $\beta$", fontsize=6.5, labelpad=1)
    inset.tick_params(labelsize=6)
    figure.suptitle("L = 24, V = 8, noise 4, value variance 1/4", fontsize=8)
    save_picture("softmax_hysteresis", figure)


if __name__ == "__main__":
    main()
