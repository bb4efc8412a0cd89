"""Command line: ``statmech-attn trace`` and ``statmech-attn diagram``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

from statmech_attn.cli import add_theory_arguments, theory_from
from statmech_attn.copy_head.commands import add_diagram as add_copy_head_diagram
from statmech_attn.registry import THEORIES

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    """Add the parsers of the two commands to argparse's subparsers."""
    trace = commands.add_parser("trace", help="follow a branch in a parameter and locate its transitions")
    theories = trace.add_subparsers(dest="theory", required=True, metavar="theory")
    for name in THEORIES:
        parser = theories.add_parser(name, help=f"the {name} model", allow_abbrev=False)
        add_theory_arguments(parser, name)
        parser.add_argument("--parameter", help="parameter to follow (default: alpha or samples)")
        parser.add_argument(
            "--interval", type=float, nargs=2, required=True, metavar=("LOW", "HIGH"), help="where it may go"
        )
        parser.add_argument("--start", help="branch to follow (default: the first of the model)")
        parser.add_argument("--at", type=float, nargs="+", default=[], help="values that must be rows of the table")
        parser.add_argument("--tol", type=float, default=1e-8, help="bound on every residual (default 1e-8)")
        parser.add_argument("--accuracy", type=float, default=1e-5, help="chooses the quadrature rule (default 1e-5)")
        parser.add_argument("--checkpoint", metavar="FILE", help="keep the walk there, and resume from it")
        parser.add_argument("--output", metavar="FILE", help="write the branch as .npz")
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print JSON")
        form.add_argument("--csv", action="store_true", help="print CSV")
        parser.add_argument("--progress", action="store_true", help="report every row on standard error")
        parser.set_defaults(run=_trace)
    diagram = commands.add_parser("diagram", help="phase diagram: a picture and tables")
    models = diagram.add_subparsers(dest="theory", required=True, metavar="theory")
    parser = models.add_parser("positional-semantic", help="the (omega, alpha) plane of the paper", allow_abbrev=False)
    for name, default, text in (
        ("alpha", (0.05, 2.5, 25), "samples per dimension"),
        ("omega", (0.0, 0.4, 9), "share of the positional target"),
    ):
        parser.add_argument(
            f"--{name}", type=float, nargs=3, default=default, metavar=("LOW", "HIGH", "POINTS"),
            help=f"{text} (default {' '.join(map(str, default))})",
        )  # fmt: skip
    parser.add_argument("--sigma", type=float, default=0.5, help="standard deviation of the tokens (default 0.5)")
    parser.add_argument("--regularization", type=float, default=0.01, help="l2 penalty lambda (default 0.01)")
    parser.add_argument("--accuracy", type=float, default=1e-4, help="chooses the quadrature rule (default 1e-4)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--checkpoint", metavar="FILE", help="keep finished slices there, and resume from it")
    parser.add_argument("--output", default="diagram", metavar="STEM", help="files STEM.png, .csv, ...")
    parser.add_argument("--json", action="store_true", help="print the located transitions as JSON")
    parser.add_argument("--progress", action="store_true", help="show a progress bar")
    parser.set_defaults(run=_diagram)
    add_copy_head_diagram(models)


def _trace(arguments: argparse.Namespace) -> int:
    from statmech_attn.continuation import trace
    from statmech_attn.theory import ConvergenceError

    theory = theory_from(arguments)
    parameter = arguments.parameter or theory.control

    def report(rows: int, value: float, _: Any) -> None:
        print(f"row {rows}: {parameter} = {value:.6g}", file=sys.stderr)

    try:
        branch = trace(
            theory, parameter, tuple(arguments.interval), arguments.start,
            at=arguments.at, tol=arguments.tol, accuracy=arguments.accuracy, checkpoint=arguments.checkpoint,
            callback=report if arguments.progress else None,
        )  # fmt: skip
    except ConvergenceError as error:
        print(f"statmech-attn: {error}", file=sys.stderr)
        return 1
    if arguments.output:
        branch.save(arguments.output)
        print(f"wrote {arguments.output}", file=sys.stderr)
    table = _columns(branch)
    if arguments.json:
        rows = [dict(zip(table, map(_plain, row), strict=True)) for row in zip(*table.values(), strict=True)]
        result = {
            "rows": rows,
            "events": [event.to_dict() for event in branch.events],
            "ends": branch.ends,
            "evaluations": branch.evaluations,
        }
        print(json.dumps(result, indent=1))
    elif arguments.csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
        print(text.getvalue(), end="")
    else:
        names = [branch.parameter_name, *branch.theory.order_parameters, "potential"]
        print("".join(f"{name:>13}" for name in [*names, "stable", "iteration"]))
        for k in range(len(branch)):
            cells = "".join(f"{table[name][k]:13.6g}" for name in names)
            print(f"{cells}{'yes' if table['static'][k] else 'no':>13}{table['iteration'][k]:13.4g}")
        print(branch)
    return 0


def _columns(branch: Any) -> dict[str, list[Any]]:
    observables = branch.rows[0].observables
    return {
        branch.parameter_name: branch.parameter.tolist(),
        **{name: branch[name].tolist() for name in branch.theory.order_parameters},
        **{name: getattr(branch, name).tolist() for name in ("arclength", "residual", "quadrature_error", "potential")},
        **{name: getattr(branch, name).tolist() for name in observables},
        "static": branch.static.tolist(),
        "iteration": [s.iteration for s in branch.stability],
    }


def _plain(x: Any) -> Any:
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _grid(name: str, values: Any) -> Any:
    import numpy as np

    low, high, points = values
    if points != int(points) or points < 1 or not low < high:
        raise ValueError(f"--{name} {low:g} {high:g} {points:g}: needs LOW < HIGH and a whole number of POINTS")
    return np.linspace(low, high, int(points))


def _diagram(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from statmech_attn import plotting
    from statmech_attn.diagram import local_pool, phase_diagram
    from statmech_attn.events import Crossing
    from statmech_attn.positional_semantic import PositionalSemantic, linear_excess
    from statmech_attn.store import replacing

    if arguments.workers < 1:
        raise ValueError(f"--workers {arguments.workers}: needs at least 1")
    alpha, omega = _grid("alpha", arguments.alpha), _grid("omega", arguments.omega)
    model = PositionalSemantic(alpha[-1], omega[0], sigma=arguments.sigma, regularization=arguments.regularization)
    with local_pool(arguments.workers) if arguments.workers > 1 else nullcontext() as executor:
        diagram = phase_diagram(
            model, events=[Crossing(linear_excess, "linear baseline")], accuracy=arguments.accuracy, executor=executor,
            checkpoint=arguments.checkpoint, progress=arguments.progress, alpha=alpha, omega=omega,
        )  # fmt: skip
    stem = Path(arguments.output)
    diagram.save(stem.with_name(stem.name + ".npz"))
    diagram.to_csv(stem.with_name(stem.name + ".csv"))
    diagram.transitions_to_csv(stem.with_name(stem.name + "_transitions.csv"))
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    mesh = plotting.plot_loss_difference(axes, diagram, "semantic", "positional")
    figure.colorbar(mesh, label="train loss, semantic - positional (relative)")
    plotting.plot_transitions(axes, diagram)
    axes.set_ylim(alpha[0], alpha[-1])
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=6, frameon=False)
    with replacing(stem.with_name(stem.name + ".png")) as temporary:
        figure.savefig(temporary, dpi=200)
    print(f"wrote {stem}.png, .csv, _transitions.csv, .npz", file=sys.stderr)
    if arguments.json:
        table = diagram.transitions
        rows = zip(*(column.tolist() for column in table.values()), strict=True)
        print(json.dumps([dict(zip(table, map(_plain, row), strict=True)) for row in rows], indent=1))
    for failure in diagram.failures:
        print(f"statmech-attn: {failure}", file=sys.stderr)
    return 1 if diagram.failures else 0
