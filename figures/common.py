"""Where the induction figures keep their data and their picture: beside the script."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from statmech_attn.store import replacing

HERE = Path(__file__).parent


def use_style() -> None:
    plt.style.use(HERE / "style.mplstyle")


def save_table(name: str, columns: Mapping[str, ArrayLike | Sequence[str | float]]) -> None:
    """Columns of equal length, text or numbers, to ``name.csv``."""
    cells = [[f"{v:.9g}" if isinstance(v, float) else v for v in np.asarray(c).tolist()] for c in columns.values()]
    with replacing(HERE / f"{name}.csv") as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*cells, strict=True))


def save_picture(name: str, figure: Figure) -> None:
    with replacing(HERE / f"{name}.png") as temporary:
        figure.savefig(temporary)
