"""Verdicts on the equations behind this package: ``verify`` and ``statmech-attn verify``.

The claims are in the package `derivations`; it is imported when they are asked for.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivations import Report

__all__ = ["add_parser", "verify"]


def verify(
    model: str | None = None,
    claim: str | None = None,
    *,
    controls: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
) -> Report:
    """Check the equations of the package by machine: proved, numerical to 50 digits, refuted, or undecided.

    Parameters
    ----------
    model : str, optional
        Family of claims: "positional_semantic", "gaussian" (lemmas), ...; default all.
    claim : str, optional
        One claim, "module.name".
    controls : bool
        Check the negative controls instead: a wrong variant of every claim, which must be refuted.
    executor : concurrent.futures.Executor, optional
        Where to check; default here, one after the other. In threads every claim starts a process.
    progress : bool
        Show a bar (tqdm, where installed).

    Returns
    -------
    Report
        `verdicts`, `failures`, `to_json()`; prints as a table.

    Raises
    ------
    ValueError
        For an unknown model or claim.

    Examples
    --------
    >>> report = verify(claim="gaussian.determinant_lemma")
    >>> report.verdicts[0].kind, report.verdicts[0].rung
    ('proved', 'structural')
    """
    from derivations import verify

    return verify(model, claim, controls=controls, executor=executor, progress=progress)


def add_parser(commands: Any) -> None:
    """Add the parser of ``verify`` to argparse's subparsers."""
    parser = commands.add_parser("verify", help="check every equation behind the package", allow_abbrev=False)
    parser.add_argument("model", nargs="?", help="family of claims (default all)")
    parser.add_argument("--claim", metavar="ID", help="one claim, module.name")
    parser.add_argument("--controls", action="store_true", help="check wrong variants, which must be refuted")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--progress", action="store_true", help="show a progress bar")
    parser.set_defaults(run=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from statmech_attn.diagram import local_pool

    if arguments.workers < 1:
        raise ValueError(f"--workers {arguments.workers}: needs at least 1")
    with local_pool(arguments.workers) if arguments.workers > 1 else nullcontext() as executor:
        report = verify(
            arguments.model, arguments.claim,
            controls=arguments.controls, executor=executor, progress=arguments.progress,
        )  # fmt: skip
    print(report.to_json() if arguments.json else report)
    for verdict in report.failures:
        print(f"statmech-attn: {verdict.claim}: {verdict.kind}", file=sys.stderr)
    return 1 if report.failures else 0
