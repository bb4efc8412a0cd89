"""Emergence predicted by the published law against runs read off coarse checkpoints.

The runs are simulated from the law (arXiv 2511.16893 v2) with a scatter of .15 in ln U; the bar of Pythia
is where public probes of its 70M to 410M models see the jump, steps 512 to 1000.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from common import save_picture, save_table, use_style

from statmech_attn.induction import ExtrapolationWarning, InductionLaw, checkpoint_interval

CHECKPOINTS = 1e6 * np.array([0.25, 0.5, *range(1, 11), *range(20, 101, 10), *range(200, 1001, 100)])


def main() -> None:
    use_style()
    law = InductionLaw.published("v2")
    rng = np.random.default_rng(1)
    batch, context = 2.0 ** rng.integers(2, 10, 35), 2.0 ** rng.integers(2, 12, 35)
    predicted = law.updates(batch, context)
    updates = predicted * np.exp(0.15 * rng.standard_normal(35))
    lower, upper = (n / (batch * context) for n in checkpoint_interval(updates * batch * context, CHECKPOINTS))
    runs = {"batch_size": batch, "context_size": context, "updates_lower": lower, "updates_upper": upper}
    fitted = InductionLaw.fit(runs, "interval_censored")
    low, high = fitted.prediction_interval(batch, context)
    save_table("induction_law", {**runs, "predicted": predicted, "fit_low": low, "fit_high": high})

    figure, axes = plt.subplots()
    order = np.argsort(predicted)
    ends = predicted[order[[0, -1]]]
    axes.fill_between(
        predicted[order], low[order], high[order], color="C0", alpha=0.2, lw=0, label="95 % band of the fit"
    )
    axes.plot(ends, ends, color="C6", lw=0.8, label="published law")
    axes.vlines(predicted, lower, upper, color="C0", label="35 simulated runs,\ncheckpoints around emergence")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # B = 1024 is outside; that is the point
        pythia = float(law.updates(1024, 2048))
    axes.vlines(pythia, 512, 1000, color="C1", lw=3, label="Pythia (outside the range)")
    axes.set(xscale="log", yscale="log", xlabel="updates predicted by the law", ylabel="updates at emergence")
    axes.legend(loc="upper left")
    save_picture("induction_law", figure)


if __name__ == "__main__":
    main()
