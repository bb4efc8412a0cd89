"""Command line of the copy head: options of its model, ``simulate``, ``critical`` and ``diagram copy-head``.

Numerical imports stay inside the functions that run, so that ``--help`` needs none of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.copy_head.model import CopyHead

__all__ = ["add_critical", "add_diagram", "add_model_arguments", "add_simulate", "model_from"]

#: Parameters with a default, their values as in :class:`.model.CopyHead`, and what they are.
NUMBERS = {
    "noise": "noise variance of an entry over L, at temperature 1",
    "logit_variance": "prior variance of a logit at temperature 1",
    "value_variance": "prior variance of a value at temperature 1",
    "temperature": "multiplies noise and both variances",
}
CHOICES = {
    "attention": ("softmax", "linear"),
    "prior": ("token+position", "position"),
    "boundary": ("cyclic", "open"),
    "ensemble": ("map", "posterior", "projected"),
}


def add_model_arguments(parser: argparse.ArgumentParser, *, samples: bool = True, lengths: bool = False) -> None:
    """Options for a copy head; without ``samples`` where they are looked for, with several ``lengths`` in a diagram."""
    if lengths:
        parser.add_argument(
            "--context-length", type=int, nargs=3, default=(16, 1024, 13), metavar=("LOW", "HIGH", "POINTS"),
            help="L, in equal ratios (default 16 1024 13)",
        )  # fmt: skip
    else:
        parser.add_argument("--context-length", type=int, required=True, help="L, at least 3")
    parser.add_argument("--vocabulary-size", type=int, required=True, help="V, at least 2")
    if samples:
        parser.add_argument("--samples", type=float, required=True, help="P, training sequences, at least 1")
    for name, meaning in NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=1.0, help=f"{meaning} (default 1)")
    for name, known in CHOICES.items():
        parser.add_argument(f"--{name}", choices=known, default=known[0], help=f"default {known[0]}")


def model_from(arguments: argparse.Namespace) -> CopyHead:
    """The model that the options describe."""
    from statmech_attn.copy_head.model import CopyHead

    names = CopyHead.__dataclass_fields__
    return CopyHead(**{"samples": 1.0, **{k: v for k, v in vars(arguments).items() if k in names}})


def add_simulate(models: Any) -> None:
    """Add ``copy-head`` to the models of ``simulate``: ``--method adam|hmc|sgld``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_simulate(parser.add_subparsers())
    >>> line = "copy-head --context-length 8 --vocabulary-size 3 --samples 50 --start copy --steps 50"
    >>> options = parser.parse_args(line.split())
    >>> options.method, options.steps
    ('adam', 50)
    """
    parser = models.add_parser("copy-head", help="the copy head", allow_abbrev=False)
    add_model_arguments(parser)
    parser.add_argument("--method", choices=("adam", "hmc", "sgld"), default="adam", help="default adam")
    parser.add_argument(
        "--start", default="random", help="random, copy, or a branch of the theory to begin at (default random)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of data and starts (default 0)")
    parser.add_argument("--steps", type=int, default=1500, help="of Adam (default 1500)")
    parser.add_argument("--restarts", type=int, default=1, help="of Adam, the lowest energy counts (default 1)")
    parser.add_argument("--draws", type=int, default=500, help="samples of a chain (default 500)")
    parser.add_argument("--chains", type=int, default=4, help="default 4")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    import numpy as np

    from statmech_attn.copy_head.data import sample_tokens
    from statmech_attn.copy_head.sampling import effective_sample_size, hmc, sgld
    from statmech_attn.copy_head.training import train
    from statmech_attn.fixed_point import solve

    model = model_from(arguments)
    known = ("random", "copy", *model.starts)
    if arguments.start not in known:
        raise ValueError(f"--start {arguments.start!r} is not one of {', '.join(dict.fromkeys(known))}")
    rng = np.random.default_rng(arguments.seed)
    tokens = sample_tokens(model, rng)
    start = arguments.start if arguments.start in ("random", "copy") else solve(model, arguments.start)
    rows: list[dict[str, Any]]
    if arguments.method == "adam":
        layer = train(model, tokens, start, rng=rng, steps=arguments.steps, restarts=arguments.restarts)
        values = {**layer.measured._asdict(), "energy": layer.energy, "gradient": layer.gradient}
        rows = [{"quantity": name, "value": value} for name, value in values.items()]
    else:
        sampler = hmc if arguments.method == "hmc" else sgld
        chains = sampler(model, tokens, start, seed=arguments.seed, draws=arguments.draws, chains=arguments.chains)
        rows = [
            {
                "quantity": name,
                "value": chains.mean(name),
                "error": chains.error(name),
                "rhat": chains.rhat(name),
                "effective_samples": effective_sample_size(x),
            }
            for name, x in chains.values.items()
        ]
    _print(rows, arguments.json)
    return 0


def add_critical(commands: Any) -> None:
    """Add ``critical copy-head``: all critical numbers of samples."""
    critical = commands.add_parser("critical", help="numbers of samples at which phases change")
    theories = critical.add_subparsers(dest="theory", required=True, metavar="theory")
    parser = theories.add_parser("copy-head", help="the copy head", allow_abbrev=False)
    add_model_arguments(parser, samples=False)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_critical)


def _critical(arguments: argparse.Namespace) -> int:
    import dataclasses

    from statmech_attn.copy_head.scaling import critical_samples

    found = dataclasses.asdict(critical_samples(model_from(arguments)))
    rows = [{"quantity": name, "value": value} for name, value in found.items() if value is not None]
    _print(rows, arguments.json)
    return 0


def add_diagram(models: Any) -> None:
    """Add ``copy-head`` to the models of ``diagram``: critical numbers of samples against the context length."""
    parser = models.add_parser("copy-head", help="critical numbers of samples against context length")
    add_model_arguments(parser, samples=False, lengths=True)
    parser.add_argument(
        "--output", default="diagram", metavar="STEM", help="files STEM.png, STEM.csv (default diagram)"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON too")
    parser.set_defaults(run=_diagram)


def _diagram(arguments: argparse.Namespace) -> int:
    import dataclasses

    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from statmech_attn.copy_head.scaling import critical_samples
    from statmech_attn.store import replacing
    from statmech_attn.theory import replace

    low, high, points = arguments.context_length
    if not (3 <= low < high and points >= 2):
        raise ValueError(f"--context-length {low} {high} {points}: needs 3 <= LOW < HIGH and at least 2 POINTS")
    arguments.context_length = low
    model = model_from(arguments)
    lengths = np.unique(np.geomspace(low, high, points).round().astype(int)).tolist()
    found = [dataclasses.asdict(critical_samples(replace(model, context_length=length))) for length in lengths]
    names = [name for name in found[0] if any(row[name] is not None for row in found)]
    rows = [{"context_length": length} | {n: row[n] for n in names} for length, row in zip(lengths, found, strict=True)]
    stem = Path(arguments.output)
    with replacing(stem.with_name(stem.name + ".csv")) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    figure = Figure(figsize=(4.5, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name in names:
        axes.plot(lengths, [np.nan if row[name] is None else row[name] for row in found], label=name.replace("_", " "))
    axes.set(xscale="log", yscale="log", xlabel="context length L", ylabel="training sequences P")
    axes.set_title(f"{model.attention} attention, {model.ensemble}, V = {model.vocabulary_size}")
    if names:
        axes.legend(frameon=False)
    with replacing(stem.with_name(stem.name + ".png")) as temporary:
        figure.savefig(temporary, dpi=200)
    print(f"wrote {stem}.png, {stem}.csv", file=sys.stderr)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        print("no transition")
        return
    head = list(rows[0])
    table = [head] + [[f"{x:.6g}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    print("\n".join("  ".join(map(str.rjust, row, widths)) for row in table))
