"""Command line of the induction subpackage: statmech-attn induction law | repetition | process | ...

Every command computes one table, a list of rows, and writes it aligned, as JSON or as CSV. Numerical
imports stay inside the functions that run, so that ``--help`` needs none of them.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import logging
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from statmech_attn.induction.repetition import ContextStatistics

__all__ = ["add_parser"]

log = logging.getLogger(__name__)
Row = dict[str, Any]
Command = Callable[[argparse.Namespace], list[Row]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``induction`` to a command line.

    Every leaf sets ``run``: a function of the parsed namespace that writes its table and returns 0, or 1
    after a numerical failure; bad input raises ValueError, TypeError or OSError with one sentence.

    Parameters
    ----------
    subparsers : argparse subparsers
        What ``ArgumentParser.add_subparsers`` returned.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_parser(parser.add_subparsers())
    >>> options = parser.parse_args("induction law --batch-size 64 --context-size 64".split())
    >>> options.run(options)
    batch_size  context_size  updates  tokens       extrapolation
    64          64            9346.02  3.82813e+07
    0
    """
    induction = subparsers.add_parser("induction", help="induction heads: emergence, head scores, data statistics")
    commands = induction.add_subparsers(required=True, metavar="command")

    law = _leaf(commands, "law", _law, "updates and tokens at which induction heads are expected")
    law.add_argument("--batch-size", type=float, nargs="+", required=True, help="sequences a batch")
    law.add_argument("--context-size", type=float, nargs="+", required=True, help="tokens a sequence")
    law.add_argument("--version", choices=("v1", "v2"), default="v2", help="version of arXiv 2511.16893")

    fit = _leaf(commands, "fit", _fit, "fit the law to a table of runs")
    fit.add_argument("runs", type=Path, help="CSV: batch_size, context_size, updates or updates_lower, updates_upper")
    fit.add_argument("--method", choices=("least_squares", "interval_censored"), default="least_squares")
    fit.add_argument("--level", type=float, default=0.95, help="of the intervals")

    repetition = _leaf(commands, "repetition", _repetition, "how often a file of token ids repeats itself")
    repetition.add_argument("tokens", type=Path, help=".npy, .bin (with --dtype) or .jsonl with input_ids")
    repetition.add_argument("--context-size", type=int, nargs="+", required=True, help="ids a context")
    repetition.add_argument("--dtype", choices=("uint16", "uint32"), help="of a .bin file")
    repetition.add_argument("--vocabulary-size", type=int, help="ids must be smaller")
    repetition.add_argument("--end-of-document", type=int, help="id that ends a document")
    repetition.add_argument("--windows", choices=("disjoint", "sliding"), default="disjoint")
    repetition.add_argument("--denominator", choices=("bigrams", "tokens"), default="bigrams")
    repetition.add_argument("--second-half", action="store_true", help="count the second half of contexts only")
    repetition.add_argument("--no-self-pairs", action="store_true", help="leave out bigrams of one id twice")
    repetition.add_argument("--mean", action="store_true", help="also the mean reliability (slower)")
    repetition.add_argument("--progress", action="store_true", help="show a bar")

    process = commands.add_parser("process", help="make token ids with chosen statistics")
    kinds = process.add_subparsers(required=True, metavar="kind")
    markov = _leaf(kinds, "markov", _markov, "Markov chain of given entropy, categoriality and marginal")
    markov.add_argument("--entropy", type=float, help="bits an id; independent ids if not given")
    markov.add_argument("--within", type=float, default=0.5, help="cosine of rows within a class")
    markov.add_argument("--classes", type=int, default=8)
    markov.add_argument("--length", type=int, default=100_000, help="ids to sample")
    copy = _leaf(kinds, "copy", _copy, "copy the last successor of a seen cue with a given probability")
    copy.add_argument("--copy-probability", type=float, required=True)
    for kind in (markov, copy):
        kind.add_argument("--marginal", choices=("uniform", "gaussian", "zipf"), default="zipf")
        kind.add_argument("--context-size", type=int, default=64, help="of the statistics")
    controlled = _leaf(kinds, "controlled", _controlled, "second halves of given frequency and reliability")
    controlled.add_argument("--frequency", type=float, required=True)
    controlled.add_argument("--reliability", type=float, required=True)
    controlled.add_argument("--rule", choices=("exact", "published"), default="exact")
    controlled.add_argument("--context-size", type=int, default=64)
    for kind in (copy, controlled):
        kind.add_argument("--contexts", type=int, default=1000, help="sequences to sample")
    for kind in (markov, copy, controlled):
        kind.add_argument("--vocabulary-size", type=int, default=64)
        kind.add_argument("--seed", type=int, default=0)
        kind.add_argument("--tokens", type=Path, help="write the ids to this .npy file")

    score = _leaf(commands, "score", _score, "score the heads of stored attention weights")
    score.add_argument("attention", type=Path, help=".npy (..., T, T), or .npz with one array a layer")
    score.add_argument(
        "--metric",
        choices=("repeated-prefix-matching", "prefix-matching", "previous-token", "duplicate-token"),
        default="repeated-prefix-matching",
    )
    score.add_argument("--ids", type=Path, help=".npy of ids, (T,) or (batch, T)")
    score.add_argument("--denominator", choices=("matched", "all"), default="matched")
    score.add_argument("--keys", choices=("every", "latest"), default="every")

    emergence = _leaf(commands, "emergence", _emergence, "where a score curve rises, by four definitions")
    emergence.add_argument("curve", type=Path, help="CSV: step, score")
    emergence.add_argument("--threshold", type=float, default=0.1)
    emergence.add_argument("--baseline", type=float, help="score of uniform attention")

    frontier = _leaf(commands, "frontier", _frontier, "least frequency and reliability at which heads emerged")
    frontier.add_argument("points", type=Path, help="CSV: frequency, reliability, emerged (0 or 1)")


def _leaf(commands: Any, name: str, command: Command, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=description, description=description)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="write JSON")
    form.add_argument("--csv", action="store_true", help="write CSV")
    parser.add_argument("--output", type=Path, help="write to this file, whole or not at all")
    parser.set_defaults(run=lambda options: _run(command, options))
    return parser


def _run(command: Command, options: argparse.Namespace) -> int:
    try:
        rows = command(options)
    except (RuntimeError, ArithmeticError) as error:
        log.error("%s", error)
        return 1
    form = "json" if options.json else "csv" if options.csv else "table"
    text = _format(rows, form)
    if options.output is None:
        sys.stdout.write(text)
        return 0
    from statmech_attn.store import replacing

    with replacing(options.output) as temporary:
        temporary.write_text(text)
    return 0


def _law(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.law import ExtrapolationWarning, InductionLaw

    law = InductionLaw.published(options.version)
    rows = []
    for batch in options.batch_size:
        for context in options.context_size:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExtrapolationWarning)  # its sentence is a column
                updates, tokens = float(law.updates(batch, context)), float(law.tokens(batch, context))
            rows.append(
                {
                    "batch_size": batch,
                    "context_size": context,
                    "updates": updates,
                    "tokens": tokens,
                    "extrapolation": law.extrapolation(batch, context),
                }
            )
    return rows


def _fit(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.law import InductionLaw

    law = InductionLaw.fit(_read_csv(options.runs), options.method)
    rows: list[Row] = [
        {"name": name, "value": getattr(law, name), "lower": low, "upper": high}
        for name, (low, high) in law.coefficient_intervals(options.level).items()
    ]
    for name in ("residual_sd", "correlation", "degrees_of_freedom"):
        rows.append({"name": name, "value": getattr(law, name), "lower": None, "upper": None})
    return rows


def _repetition(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.repetition import context_statistics, token_chunks

    statistics = context_statistics(
        token_chunks(options.tokens, dtype=options.dtype, end_of_document=options.end_of_document),
        options.context_size,
        windows=options.windows,
        second_half=options.second_half,
        denominator=options.denominator,
        end_of_document=options.end_of_document,
        self_pairs=not options.no_self_pairs,
        mean=options.mean,
        vocabulary_size=options.vocabulary_size,
        progress=options.progress,
    )
    return _statistics_rows(statistics)


def _statistics_rows(statistics: ContextStatistics) -> list[Row]:
    import numpy as np

    columns = {
        "context_size": statistics.context_size,
        "frequency": statistics.frequency,
        "reliability_any": statistics.reliability("any"),
        "reliability_latest": statistics.reliability("latest"),
        "repeated_bigrams": statistics.bigram,
        "positions": np.broadcast_to(statistics.positions, statistics.context_size.shape),
    }
    if statistics.mean is not None:
        columns["reliability_mean"] = statistics.reliability("mean")
    return [{name: column[i].item() for name, column in columns.items()} for i in range(len(statistics.context_size))]


def _markov(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.expected import expected_markov
    from statmech_attn.induction.markov import controlled_process, marginal_distribution
    from statmech_attn.induction.repetition import context_statistics

    chain = controlled_process(
        marginal_distribution(options.marginal, options.vocabulary_size),
        entropy=options.entropy,
        within=options.within,
        classes=options.classes,
        rng=options.seed,
    )
    ids = chain.sample(options.length, options.seed + 1)
    _write_ids(options.tokens, ids)
    sizes = [options.context_size]
    expected = expected_markov(chain.transition, options.context_size - 2).contexts(sizes)
    measured = context_statistics(ids, sizes, windows="sliding")
    within, across = chain.categoriality
    rows: list[Row] = [
        {"name": "entropy_bits", "expected": chain.entropy, "measured": None},
        {"name": "local_dependency_bits", "expected": chain.local_dependency, "measured": None},
        {"name": "cosine_within", "expected": within, "measured": None},
        {"name": "cosine_across", "expected": across, "measured": None},
    ]
    for name, one, other in zip(
        ("frequency", "reliability_any", "reliability_latest"),
        (expected.frequency, expected.reliability("any"), expected.reliability("latest")),
        (measured.frequency, measured.reliability("any"), measured.reliability("latest")),
        strict=True,
    ):
        rows.append({"name": name, "expected": one.item(), "measured": other.item()})
    return rows


def _copy(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.markov import copy_process, marginal_distribution
    from statmech_attn.induction.repetition import context_statistics

    ids = copy_process(
        marginal_distribution(options.marginal, options.vocabulary_size),
        options.copy_probability,
        (options.contexts, options.context_size),
        options.seed,
    )
    _write_ids(options.tokens, ids)
    return _statistics_rows(context_statistics(ids.ravel(), [options.context_size]))


def _controlled(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.markov import controlled_contexts

    made = controlled_contexts(
        options.contexts,
        options.context_size,
        options.vocabulary_size,
        frequency=options.frequency,
        reliability=options.reliability,
        rule=options.rule,
        rng=options.seed,
    )
    _write_ids(options.tokens, made.ids)
    return [
        {"name": "cue_rate", "expected": made.rate, "measured": None},
        {"name": "frequency", "expected": made.expected_frequency, "measured": made.frequency},
        {"name": "reliability", "expected": options.reliability, "measured": made.reliability},
    ]


def _score(options: argparse.Namespace) -> list[Row]:
    import numpy as np

    from statmech_attn.induction import heads

    attention = _read_attention(options.attention)
    ids = None if options.ids is None else _read_npy(options.ids)
    if ids is not None and ids.dtype.kind not in "iu":
        raise ValueError(f"{options.ids}: {ids.dtype}; token ids must be integers")
    if options.metric == "repeated-prefix-matching":
        scores = heads.repeated_prefix_matching(attention)
    elif options.metric == "previous-token":
        scores = heads.previous_token(attention)
    elif ids is None:
        raise ValueError(f"--ids: the metric {options.metric} needs the token ids")
    elif options.metric == "duplicate-token":
        scores = heads.duplicate_token(attention, ids, denominator=options.denominator)
    else:
        scores = heads.prefix_matching(attention, ids, denominator=options.denominator, keys=options.keys)
    batched = ids is not None and ids.ndim == 2 and not isinstance(attention, list)
    names = heads.leading_axes(scores.ndim, batched)
    return [{**dict(zip(names, index, strict=True)), "score": float(value)} for index, value in np.ndenumerate(scores)]


def _emergence(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.emergence import METHODS, emergence_point

    table = _read_csv(options.curve, ("step", "score"))
    return [
        asdict(
            emergence_point(
                table["step"], table["score"], method, threshold=options.threshold, baseline=options.baseline
            )
        )
        for method in METHODS
    ]


def _frontier(options: argparse.Namespace) -> list[Row]:
    from statmech_attn.induction.frontier import monotone_boundary, pareto_frontier

    table = _read_csv(options.points, ("frequency", "reliability", "emerged"))
    columns = (table["frequency"], table["reliability"], table["emerged"])
    found = pareto_frontier(*columns)
    rows: list[Row] = [
        {"kind": "frontier", "frequency": f, "reliability": r}
        for f, r in zip(found.frequency.tolist(), found.reliability.tolist(), strict=True)
    ]
    rows += [
        {"kind": "violation", "frequency": columns[0][i], "reliability": columns[1][i]}
        for i in found.violations.tolist()
    ]
    if len(set(columns[2])) == 2:  # a boundary needs both outcomes
        boundary = monotone_boundary(*columns)
        rows += [
            {"kind": "boundary", "frequency": f, "reliability": float(boundary.reliability(f))}
            for f in sorted(set(columns[0]))
        ]
    return rows


def _read_csv(path: Path, required: Iterable[str] = ()) -> dict[str, list[float]]:
    """Columns of numbers; an empty cell is NaN."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        missing = [name for name in required if name not in names]
        if missing:
            raise ValueError(f"{path}: column {missing[0]!r} is missing; found {list(names)}")
        table: dict[str, list[float]] = {name: [] for name in names}
        for row in reader:
            for name in names:
                cell = row[name]
                if cell is None:
                    raise ValueError(f"{path}: line {reader.line_num} is short (truncated?)")
                try:
                    table[name].append(float(cell) if cell.strip() else math.nan)
                except ValueError:
                    raise ValueError(f"{path}: line {reader.line_num}: {name}={cell!r} is not a number") from None
    if not table or not next(iter(table.values())):
        raise ValueError(f"{path}: is empty")
    return table


def _read_npy(path: Path) -> NDArray[Any]:
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: is not a whole .npy file ({error})") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: holds several arrays; must be a .npy file")
    return array


def _read_attention(path: Path) -> NDArray[np.float64] | list[NDArray[np.float64]]:
    import zipfile

    import numpy as np

    if path.suffix != ".npz":
        return _read_npy(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            # layer_10 after layer_9
            order = sorted(archive.files, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
            return [archive[name] for name in order]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: is not a whole .npz file ({error})") from None


def _write_ids(path: Path | None, ids: NDArray[np.int64]) -> None:
    if path is None:
        return
    import numpy as np

    from statmech_attn.store import replacing

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, ids)


def _format(rows: list[Row], form: str) -> str:
    if form == "json":
        # JSON has no NaN and no infinity
        finite = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows
        ]
        return json.dumps(finite, indent=2) + "\n"
    names = list(rows[0]) if rows else []
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in row.items()} for row in rows
        )
        return text.getvalue()
    cells = [names] + [
        ["" if row[n] is None else f"{row[n]:.6g}" if isinstance(row[n], float) else str(row[n]) for n in names]
        for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in cells)
