"""How much of the attention matrix lies in its mean directions, and what is left once fluctuations are taken off."""

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

import statmech_attn as sa
from statmech_attn.copy_head import CopyHead, critical_samples, excess_coverage, hmc, sample_reduced, sample_tokens


def main() -> None:
    use_style()
    rng = np.random.default_rng(0)
    linear = CopyHead(16, 4, samples=1, noise=4.0, attention="linear", ensemble="posterior")
    rows = []
    for T in (0.03, 0.2, 1.0):
        warm = sa.replace(linear, temperature=T)
        for P in np.geomspace(60, 12000, 20):
            exact = sample_reduced(sa.replace(warm, samples=P), seed=1, chains=2)["coverage"]
            rows.append(("linear", "theory", T, P, exact.mean(), np.nan))
        for P in np.geomspace(200, 8000, 4).round():
            rows.append(("linear", "HMC", T, P, *sampled(sa.replace(warm, samples=P), "ordered", rng)))
    softmax = CopyHead(32, 8, samples=1, noise=2.0, value_variance=0.25, ensemble="posterior")
    for branch in ("pooling", "copy"):
        for T in np.linspace(0.05, 0.6, 8):
            warm = sa.replace(softmax, temperature=T)
            here = sa.replace(warm, samples=critical_samples(warm).coexistence)
            rows.append((branch, "theory", T, here.samples, sa.solve(here, start=branch).coverage, np.nan))
        for T in (0.1, 0.3, 0.5):
            warm = sa.replace(softmax, temperature=T)
            here = sa.replace(warm, samples=critical_samples(warm).coexistence)
            rows.append((branch, "HMC", T, here.samples, *sampled(here, branch, rng)))
    columns = list(zip(*rows, strict=True))
    names = ("state", "source", "temperature", "samples", "coverage", "excess_coverage")
    save_table("coverage", dict(zip(names, columns, strict=True)))

    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(7.0, 2.7))
    state, source, T, P, covered, excess = (np.array(column) for column in columns)
    for k, (ax, x, groups) in enumerate(
        zip(axes, (P, T), ([("linear", t) for t in (0.03, 0.2, 1.0)], [("pooling", None), ("copy", None)]), strict=True)
    ):
        for i, (name, t) in enumerate(groups):
            here = (state == name) & ((t == T) | (t is None))
            lines, dots = here & (source == "theory"), here & (source == "HMC")
            ax.plot(x[lines], covered[lines], color=f"C{i + 3 * k}", label=name if t is None else f"T = {t}")
            ax.plot(x[dots], covered[dots], "o", color=f"C{i + 3 * k}")
            ax.plot(x[dots], excess[dots], "s", color=f"C{i + 3 * k}", mfc="none")
    axes[0].plot([], [], "o", color="C6", label="HMC")
    axes[0].plot([], [], "s", color="C6", mfc="none", label="HMC, fluctuations off")
    axes[0].set(xscale="log", xlabel="training sequences P", ylabel="coverage", title="linear, L = 16, V = 4")
    axes[1].set(xlabel="temperature", title="softmax at coexistence, L = 32, V = 8")
    figure.legend(loc="outside right center")
    save_picture("coverage", figure)


def sampled(model: CopyHead, start: str, rng: np.random.Generator) -> tuple[float, float]:
    """Mean coverage and median excess coverage of HMC samples."""
    theory = sa.solve(model, start=start)
    chains = hmc(model, sample_tokens(model, rng), theory, seed=2, draws=80, warmup=80, chains=2)
    m = chains.values["m"]
    excess = excess_coverage(theory, m, chains.values["g"], chains.values["t"])
    return chains.mean("coverage"), float(np.median(excess))


if __name__ == "__main__":
    main()
