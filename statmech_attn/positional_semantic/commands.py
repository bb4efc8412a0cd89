"""Command line of the positional-semantic models: their options, and ``simulate``.

Numerical imports stay inside the functions that run, so that ``--help`` needs none of them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.comparison import Comparison

__all__ = ["add_layer_arguments", "add_model_arguments", "add_simulate", "model_from"]

METHODS = ("lbfgs", "gradient_descent", "adam", "amp")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the parameters of the two-token model."""
    _add_common(parser)
    parser.add_argument("--sigma", type=float, default=0.5, help="standard deviation of the tokens (default 0.5)")
    parser.add_argument("--positional-strength", type=float, default=1.0, help="norm of p_l (default 1)")


def add_layer_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the parameters of a layer of any number of tokens and any ranks."""
    _add_common(parser)
    parser.add_argument("--student-rank", type=int, default=1, help="r (default 1)")
    parser.add_argument("--teacher-rank", type=int, default=1, help="t (default 1)")
    parser.add_argument("--variance", type=float, default=0.25, help="variance of the tokens (default 0.25)")
    parser.add_argument(
        "--positions", type=float, nargs="+", default=[1.0, -1.0], metavar="PI",
        help="positional component of every token, as many as there are tokens (default 1 -1)",
    )  # fmt: skip
    parser.add_argument(
        "--spectrum", metavar="FILE.json",
        help="joint law by atoms, instead of variance, positions and teacher rank: arguments of Spectrum.discrete",
    )  # fmt: skip
    for side in ("student", "teacher"):
        parser.add_argument(f"--{side}-activation", default="softmax", help="softmax, sigmoid or linear")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alpha", type=float, required=True, help="samples per dimension, n/d")
    parser.add_argument("--omega", type=float, default=0.0, help="share of the positional target (default 0)")
    parser.add_argument("--regularization", type=float, default=0.01, help="l2 penalty lambda (default 0.01)")
    parser.add_argument(
        "--positional-target", type=float, nargs="+", default=[0.6, 0.4, 0.4, 0.6], metavar="A",
        help="positional attention, row by row: A11 A12 A21 A22 (default .6 .4 .4 .6)",
    )  # fmt: skip


def model_from(arguments: argparse.Namespace) -> Any:
    """The model or layer that the options describe."""
    from statmech_attn.positional_semantic.spectrum import Spectrum
    from statmech_attn.registry import theory_class

    cls: Any = theory_class(arguments.theory)
    options = dict(vars(arguments))
    if arguments.theory == "attention-layer":
        if arguments.spectrum is None:
            law = Spectrum.isotropic(arguments.variance, arguments.positions, arguments.teacher_rank)
        else:
            law = Spectrum.discrete(**_spectrum_of(arguments.spectrum))
        options["spectrum"] = law
    target = options["positional_target"]
    rows = math.isqrt(len(target))
    if rows * rows != len(target):
        raise ValueError(f"--positional-target has {len(target)} entries; it must be a square matrix")
    options["positional_target"] = tuple(tuple(target[rows * i : rows * (i + 1)]) for i in range(rows))
    return cls(**{field.name: options[field.name] for field in fields(cls)})


def _spectrum_of(path: str) -> dict[str, Any]:
    """Arguments of Spectrum.discrete from a JSON file."""
    from statmech_attn.positional_semantic.spectrum import Spectrum

    known = list(inspect.signature(Spectrum.discrete).parameters)
    try:
        found = json.loads(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"--spectrum {path} is not JSON: {error}") from None
    keys = list(found) if isinstance(found, dict) else [type(found).__name__]
    if not set(known[:3]) <= set(keys) <= set(known):
        raise ValueError(
            f"--spectrum {path} must be a JSON object of {', '.join(known[:3])} and, optionally, "
            f"{', '.join(known[3:])}; it has {', '.join(keys)}"
        )
    return dict(found)


def add_simulate(models: Any, theory: str) -> None:
    """Add ``positional-semantic`` or ``attention-layer`` to the models of ``simulate``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_simulate(parser.add_subparsers(), "positional-semantic")
    >>> options = parser.parse_args("positional-semantic --alpha 2 --method gd --dimension 500 1000".split())
    >>> options.dimension, options.seeds, options.start
    ([500, 1000], 8, 'semantic')
    >>> options.method
    'gradient_descent'
    """
    parser = models.add_parser(theory, help=f"the {theory} model", allow_abbrev=False)
    (add_layer_arguments if theory == "attention-layer" else add_model_arguments)(parser)
    parser.add_argument(
        "--method", type=lambda name: "gradient_descent" if name == "gd" else name, choices=METHODS, default="lbfgs",
        help="minimiser (gd: gradient_descent) or message passing (default lbfgs)",
    )  # fmt: skip
    parser.add_argument(
        "--dimension", type=int, nargs="+", default=[500, 1000], metavar="D",
        help="d, two or more for the limit of infinite d (default 500 1000)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=8, help="instances of each dimension (default 8)")
    parser.add_argument(
        "--start", choices=("semantic", "positional", "hybrid", "mixed", "random"), default="semantic",
        help="default semantic; mixed for a teacher that is not centred",
    )  # fmt: skip
    parser.add_argument("--gram", choices=("exact", "limit"), help="Gram matrices (default exact; of amp always limit)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--checkpoint", metavar="FILE", help="keep finished runs there, and resume from it")
    parser.add_argument("--output", metavar="FILE", help="write a row for every run as CSV")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from statmech_attn.comparison import compare
    from statmech_attn.diagram import local_pool
    from statmech_attn.fixed_point import solve
    from statmech_attn.positional_semantic.runs import write_runs
    from statmech_attn.positional_semantic.training import simulate

    model = model_from(arguments)
    for name in ("seeds", "workers"):
        if getattr(arguments, name) < (2 if name == "seeds" else 1):
            raise ValueError(f"--{name} {getattr(arguments, name)} must be at least {2 if name == 'seeds' else 1}")
    if arguments.seeds < 4:
        print(f"statmech-attn: --seeds {arguments.seeds}: errors from fewer than 4 runs are rough", file=sys.stderr)
    if arguments.gram and arguments.method == "amp":
        raise ValueError(f"--gram {arguments.gram} is not an option of --method amp, whose Gram matrices are the limit")
    if arguments.output and not Path(arguments.output).absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {arguments.output!r}: its folder does not exist")
    candidates = [solve(model, name) for name in (model.starts if arguments.start == "random" else [arguments.start])]
    # without tolerance or accuracy it is still the state to compare with
    lost = ("absent", "other branch", "infeasible")
    usable = [s for s in candidates if s.converged] or [s for s in candidates if s.status.kind not in lost]
    for s in [] if usable else candidates:
        print(f"statmech-attn: theory, start {s.start}: {s.status}", file=sys.stderr)
    if not usable:
        return 1
    with local_pool(arguments.workers) if arguments.workers > 1 else nullcontext() as executor:
        settings = {"gram": arguments.gram} if arguments.gram else {}
        runs = simulate(
            model, arguments.dimension, arguments.seeds, method=arguments.method, start=arguments.start,
            executor=executor, checkpoint=arguments.checkpoint, **settings,
        )  # fmt: skip
    converged = [run for run in runs if run.converged]
    # of a random start the branch of nearest loss
    loss = sum(run.train_loss for run in converged or runs) / len(converged or runs)
    solution = min(usable, key=lambda s: abs(s.train_loss - loss))
    if arguments.output:
        write_runs(arguments.output, runs, solution)
        print(f"wrote {arguments.output}", file=sys.stderr)
    if not solution.converged:
        print(f"statmech-attn: theory, start {solution.start}: {solution.status}", file=sys.stderr)
    for run in runs:
        if not run.converged:
            print(f"statmech-attn: d = {run.dimension}, seed {run.seed}: {run.status}", file=sys.stderr)
    try:
        comparison = compare(runs, solution)
    except ValueError as error:
        print(f"statmech-attn: {error}", file=sys.stderr)
        return 1
    print(_json(comparison) if arguments.json else comparison)
    return 0 if solution.converged and len(converged) == len(runs) else 1


def _json(comparison: Comparison) -> str:
    rows = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in comparison.rows()
    ]
    counts = {"excluded": comparison.excluded, "departed": comparison.departed}
    found = {"theory": str(comparison.solution.theory), "branch": comparison.solution.branch, **counts, "rows": rows}
    return json.dumps(found, indent=1, allow_nan=False)
