"""Scaling of the critical numbers of samples with context length and vocabulary: theory, fits, Adam."""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.copy_head import CopyHead, critical_samples, sample_tokens, scaling_exponents, train

GRID = [(V * ratio, V) for V in (8, 16, 32, 64, 128) for ratio in (16, 32, 64, 128, 256) if V * ratio <= 8192]


def trained(model: CopyHead, P: float, rng: np.random.Generator, start: str = "random", steps: int = 3000):  # type: ignore[no-untyped-def]
    here = sa.replace(model, samples=P)
    return train(here, sample_tokens(here, rng), start, rng=rng, steps=steps)


def adam_pooling(model: CopyHead, P: float, rng: np.random.Generator) -> float:
    """Zero of m^2, linear in 1/P, from trainings at 2 P and 3 P."""
    x = np.array([0.5, 1 / 3])
    y = [trained(model, P / inverse, rng).measured.m ** 2 for inverse in x]
    return P / float(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0]))


def adam_crossover(model: CopyHead, P: float, rng: np.random.Generator) -> float:
    """Alignment one half, interpolated between 0.93 P and 1.07 P."""
    x = np.log([0.93, 1.07])
    y = [trained(model, P * np.exp(step), rng).measured.alignment for step in x]
    return P * float(np.exp(x[0] + (0.5 - y[0]) * (x[1] - x[0]) / (y[1] - y[0])))


def adam_coexistence(model: CopyHead, P: float, rng: np.random.Generator) -> float:
    """Equal energies of trainings from small and from copying logits on the same data, near P."""
    x = np.array([0.98, 1.02])
    y = []
    for factor in x:
        here = sa.replace(model, samples=P * factor)
        tokens = sample_tokens(here, rng)
        y.append(np.subtract(*(train(here, tokens, s, rng=rng, steps=1500).energy for s in ("random", "copy"))))
    return P * float(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0]))


def main() -> None:
    use_style()
    rng = np.random.default_rng(4)
    linear = CopyHead(64, 8, samples=1, attention="linear")
    softmax = CopyHead(64, 8, samples=1, noise=1.0)
    lengths = [2**k for k in range(5, 13)]
    fits = {
        "pooling": scaling_exponents(linear, *zip(*GRID, strict=True), "pooling"),
        "crossover": scaling_exponents(linear, *zip(*GRID, strict=True), "crossover"),
        "coexistence": scaling_exponents(softmax, lengths, [n // 4 for n in lengths], "coexistence", log_squared=True),
    }
    measured = []
    for L, V in ((24, 4), (32, 4), (64, 4), (48, 6)):
        model = sa.replace(linear, context_length=L, vocabulary_size=V, noise=4.0)
        theory = critical_samples(model)
        measured.append(("pooling", L, V, adam_pooling(model, theory.pooling, rng) / 4))
        measured.append(("crossover", L, V, adam_crossover(model, theory.crossover, rng) / 4))
    for L in (32, 48, 64):
        model = sa.replace(softmax, context_length=L, vocabulary_size=L // 4, noise=4.0)
        measured.append(
            ("coexistence", L, L // 4, adam_coexistence(model, critical_samples(model).coexistence, rng) / 4)
        )
    rows = [
        (name, "theory", L, V, P)
        for name, fit in fits.items()
        for L, V, P in zip(fit.context_lengths, fit.vocabulary_sizes, fit.samples, strict=True)
    ] + [(name, "Adam", float(L), float(V), P) for name, L, V, P in measured]
    names = ("quantity", "source", "context_length", "vocabulary_size", "samples_over_noise")
    save_table("scaling_laws", dict(zip(names, zip(*rows, strict=True), strict=True)))

    figure, axes = plt.subplots(1, 3, figsize=(7.0, 2.5))
    for ax, (name, fit) in zip(axes, fits.items(), strict=True):
        e, d = fit.exponents, fit.errors
        divided = name == "coexistence"

        def law(L, V, fit=fit, e=e):  # type: ignore[no-untyped-def]
            return np.exp(fit.constant) * L ** e["L"] * V ** e.get("V", 0.0)

        for source, style, colour in (("theory", "o", "C0"), ("Adam", "s", "C1")):
            L, V, P = np.array([row[2:] for row in rows if row[:2] == (name, source)]).T
            ax.plot(law(L, V), P / (np.log(L) ** 2 if divided else 1), style, color=colour, mfc="none", label=source)
        ends = np.array(ax.get_xlim())
        ax.plot(ends, ends, color="C6", lw=0.8)
        text = " ".join(f"{key}^{{{e[key]:.2f}\\pm{d[key]:.2f}}}" for key in e)
        prefix = r"\ln^2\!L\;" if divided else ""
        title = {"pooling": "linear: pooling", "crossover": "linear: alignment 1/2", "coexistence": "softmax: $P^*$"}
        ax.set(xscale="log", yscale="log", title=f"{title[name]}\n$\\propto {prefix}{text}$")
        ax.set_xlabel("fit")
        ax.set_ylabel(r"$P^*/(\kappa\,\ln^2 L)$" if divided else r"$P/\kappa$")
    axes[0].legend()
    save_picture("scaling_laws", figure)


if __name__ == "__main__":
    main()
