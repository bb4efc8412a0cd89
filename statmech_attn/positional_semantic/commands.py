"""Command line of the positional-semantic models: their options, and ``simulate``.

Numerical imports stay inside the functions that run, so that ``--help`` needs none of them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

__all__ = ["add_layer_arguments", "add_model_arguments", "add_simulate", "model_from"]

METHODS = {"lbfgs": "lbfgs", "gd": "gradient_descent", "adam": "adam", "amp": "amp"}


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
            law = Spectrum.discrete(**json.loads(Path(arguments.spectrum).read_text()))
        options["spectrum"] = law
    target = options["positional_target"]
    rows = math.isqrt(len(target))
    if rows * rows != len(target):
        raise ValueError(f"--positional-target has {len(target)} entries; it must be a square matrix")
    options["positional_target"] = tuple(tuple(target[rows * i : rows * (i + 1)]) for i in range(rows))
    return cls(**{field.name: options[field.name] for field in fields(cls)})


def add_simulate(models: Any, theory: str) -> None:
    """Add ``positional-semantic`` or ``attention-layer`` to the models of ``simulate``.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_simulate(parser.add_subparsers(), "positional-semantic")
    >>> options = parser.parse_args("positional-semantic --alpha 2 --method gd --dimension 500 1000".split())
    >>> options.dimension, options.seeds, options.start
    ([500, 1000], 8, 'semantic')
    """
    parser = models.add_parser(theory, help=f"the {theory} model", allow_abbrev=False)
    (add_layer_arguments if theory == "attention-layer" else add_model_arguments)(parser)
    parser.add_argument("--method", choices=METHODS, default="lbfgs", help="minimiser or message passing (lbfgs)")
    parser.add_argument(
        "--dimension", type=int, nargs="+", default=[1000], metavar="D", help="d, one or several (default 1000)"
    )
    parser.add_argument("--seeds", type=int, default=8, help="instances of each dimension (default 8)")
    parser.add_argument(
        "--start", choices=("semantic", "positional", "hybrid", "random"), default="semantic", help="default semantic"
    )
    parser.add_argument("--gram", choices=("exact", "limit"), default="exact", help="Gram matrices (default exact)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--output", metavar="FILE", help="write a row for every run as CSV")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from statmech_attn.comparison import compare
    from statmech_attn.diagram import local_pool
    from statmech_attn.positional_semantic.runs import write_runs
    from statmech_attn.positional_semantic.training import simulate

    model = model_from(arguments)
    for name in ("seeds", "workers"):
        if getattr(arguments, name) < (2 if name == "seeds" else 1):
            raise ValueError(f"--{name} {getattr(arguments, name)} must be at least {2 if name == 'seeds' else 1}")
    with local_pool(arguments.workers) if arguments.workers > 1 else nullcontext() as executor:
        settings = {} if arguments.method == "amp" else {"gram": arguments.gram}
        runs = simulate(
            model, arguments.dimension, arguments.seeds,
            method=METHODS[arguments.method], start=arguments.start, executor=executor, **settings,
        )  # fmt: skip
    solution = _reference(model, arguments.start, runs)
    if arguments.output:
        write_runs(arguments.output, runs, solution)
        print(f"wrote {arguments.output}", file=sys.stderr)
    failed = [run for run in runs if not run.converged]
    for run in failed:
        print(f"statmech-attn: d = {run.dimension}, seed {run.seed}: {run.status}", file=sys.stderr)
    if not solution.converged:
        print(f"statmech-attn: theory, {solution.start}: {solution.status}", file=sys.stderr)
    if len(failed) == len(runs):
        return 1
    comparison = compare(runs, solution)
    if arguments.json:
        rows = [{k: None if v != v or v == math.inf else v for k, v in row.items()} for row in comparison.rows()]
        print(json.dumps({"branch": solution.branch, "theory": str(model), "rows": rows}, indent=1, default=float))
    else:
        print(comparison)
    return 0 if solution.converged and not failed else 1


def _reference(model: Any, start: str, runs: Any) -> Any:
    """The solution to compare with: that of an informed start; for a random one the ordered branch of nearest loss."""
    from statmech_attn.fixed_point import solve

    if start != "random":
        return solve(model, start)
    solutions = [s for s in (solve(model, name) for name in model.starts) if s.converged]
    mean = sum(run.train_loss for run in runs) / len(runs)
    return min(solutions, key=lambda s: abs(s.train_loss - mean))
