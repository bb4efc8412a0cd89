"""Command line: ``statmech-attn solve``, and the parsers of the other commands.

Exit codes: 0 done, 1 a numerical failure (its sentence on standard error), 2 wrong usage.
Compiled code is imported only by the commands that need it, so that ``--help`` is quick.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from statmech_attn import __version__
from statmech_attn.copy_head import commands as copy_head
from statmech_attn.induction.commands import add_parser as add_induction
from statmech_attn.positional_semantic import commands as positional_semantic
from statmech_attn.registry import THEORIES, theory_class
from statmech_attn.verification import add_parser as add_verify

if TYPE_CHECKING:
    from statmech_attn.theory import Solution, Theory

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    from statmech_attn.branch_commands import add_parsers as add_branches

    logging.basicConfig(format="%(message)s")
    parser = argparse.ArgumentParser(
        prog="statmech-attn", description="Statistical mechanics of attention.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_solve(commands)
    add_branches(commands)
    _add_simulate(commands)
    copy_head.add_critical(commands)
    add_induction(commands)
    add_verify(commands)
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError) as error:
        print(f"statmech-attn: {error}", file=sys.stderr)
        return 2
    return code


def add_theory_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Options for the parameters of a named theory."""
    if name == "copy-head":
        copy_head.add_model_arguments(parser)
    if name == "positional-semantic":
        positional_semantic.add_model_arguments(parser)
    if name == "attention-layer":
        positional_semantic.add_layer_arguments(parser)


def theory_from(arguments: argparse.Namespace) -> Any:
    """The theory that the options describe."""
    if arguments.theory in ("positional-semantic", "attention-layer"):
        return positional_semantic.model_from(arguments)
    cls = theory_class(arguments.theory)
    return cls(**{f.name: getattr(arguments, f.name) for f in dataclasses.fields(cls)})  # type: ignore[arg-type]


def _add_simulate(commands: Any) -> None:
    simulate = commands.add_parser("simulate", help="train or sample on simulated data, beside the theory")
    models = simulate.add_subparsers(dest="theory", required=True, metavar="theory")
    copy_head.add_simulate(models)
    positional_semantic.add_simulate(models, "positional-semantic")
    positional_semantic.add_simulate(models, "attention-layer")


def _add_solve(commands: Any) -> None:
    solve = commands.add_parser("solve", help="solve the state equations on every branch")
    theories = solve.add_subparsers(dest="theory", required=True, metavar="theory")
    for name in THEORIES:
        parser = theories.add_parser(name, help=f"the {name} model", allow_abbrev=False)
        add_theory_arguments(parser, name)
        parser.add_argument("--start", help="one branch only (default: all)")
        parser.add_argument("--tol", type=float, help="bound on the undamped residual (default 1e-8, or of the theory)")
        parser.add_argument("--accuracy", type=float, help="bound on the quadrature error (default: of the theory)")
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print JSON")
        form.add_argument("--csv", action="store_true", help="print CSV")
        parser.add_argument("--plot", metavar="FILE", help="draw the order parameters against alpha or samples")
        parser.set_defaults(run=_solve)


def _solve(arguments: argparse.Namespace) -> int:
    from statmech_attn.fixed_point import solve

    theory = theory_from(arguments)
    starts = [arguments.start] if arguments.start else theory.starts
    solutions = [solve(theory, start, tol=arguments.tol, accuracy=arguments.accuracy) for start in starts]
    print(_json(theory, solutions) if arguments.json else (_csv if arguments.csv else _table)(theory, solutions))
    if arguments.plot:
        from statmech_attn.plotting import save_order_parameters

        save_order_parameters(theory, arguments.plot)
        print(f"wrote {arguments.plot}", file=sys.stderr)
    # that a branch does not exist here is an answer, unless it was the one asked for
    fine = ("converged",) if arguments.start else ("converged", "absent")
    failed = [s for s in solutions if s.status.kind not in fine]
    for solution in failed:
        print(f"statmech-attn: start {solution.start}: {solution.status}", file=sys.stderr)
    return 1 if failed else 0


def equilibrium(solutions: Sequence[Solution]) -> Solution | None:
    """The converged solution of smallest potential (the first observable of every theory)."""
    return min((s for s in solutions if s.converged), key=lambda s: next(iter(s.observables.values())), default=None)


def _rows(theory: Theory, solutions: Sequence[Solution]) -> list[dict[str, Any]]:
    best = equilibrium(solutions)
    return [
        {
            "start": s.start,
            "branch": s.branch,
            "equilibrium": s is best,
            **{name: s[name] for name in theory.order_parameters},
            **{f"{name}_error": float(e) for name, e in zip(theory.order_parameters, s.errors, strict=True)},
            **s.observables,
            "residual": s.residual,
            "quadrature_error": s.quadrature_error,
            "status": s.status.kind,
        }
        for s in solutions
    ]


def _json(theory: Theory, solutions: Sequence[Solution]) -> str:
    best = equilibrium(solutions)
    return json.dumps([s.to_dict() | {"equilibrium": s is best} for s in solutions], indent=1)


def _csv(theory: Theory, solutions: Sequence[Solution]) -> str:
    rows = _rows(theory, solutions)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _table(theory: Theory, solutions: Sequence[Solution]) -> str:
    """A row for every branch that exists, with its first two observables; * marks the equilibrium."""
    names = theory.order_parameters
    shown = list(solutions[0].observables)[:2]
    head = ["branch", *names, *shown, "residual", "quadrature"]
    best = equilibrium(solutions)
    rows = []
    remarks = []
    for s in solutions:
        if s.status.kind == "absent":
            remarks.append(f"{s.start}: {s.status}")
            continue
        rows.append(
            [("* " if s is best else "  ") + s.start]
            + [f"{s[n]:.6g}" for n in names]
            + [f"{s.observables[n]:.7g}" for n in shown]
            + [f"{s.residual:.0e}", f"{s.quadrature_error:.0e}"]
        )
        if not s.converged:
            remarks.append(f"{s.start}: {s.status}")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in [head, *rows]]
    baseline = next((s.linear_baseline for s in solutions if "linear_baseline" in s.observables), None)
    if baseline is not None:
        lines += ["", f"linear layer: test error {baseline:.6g}   (test errors are half the mean squared error)"]
    lines.append(f"*: equilibrium, smallest {shown[0]}.  quadrature: error over the scale of the order parameters")
    return "\n".join([str(theory), "", *lines, *remarks])
