"""Every equation of the package as a claim with a verdict: proved, numerical to 50 digits, or refuted with a witness.

``statmech-attn verify``, ``statmech_attn.verify()`` and ``python -m derivations`` check them. README.md maps equations
to claims, code and tests; :mod:`.claim` is the engine; the other modules are read in order, as a paper is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from derivations.claim import Claim, Equation, Verdict, check, claim, claims_of

__all__ = ["FAMILIES", "Claim", "Equation", "Report", "Verdict", "check", "claim", "claims", "find", "verify"]

log = logging.getLogger(__name__)

#: Modules of claims. One more is a file of this folder and a word here.
FAMILIES = ("gaussian", "positional_semantic", "copy_head", "induction")
#: Families of more than one module, in the order in which they are read.
CHAPTERS = {"positional_semantic": ("positional_semantic", "proximal", "general_rank")}


def claims(family: str | None = None) -> tuple[Claim, ...]:
    """Claims of a family, or of all, in the order in which they are read."""
    if family is not None and family not in FAMILIES:
        raise ValueError(f"model={family!r} is not one of {', '.join(FAMILIES)}")
    names = FAMILIES if family is None else (family,)
    modules = [module for name in names for module in CHAPTERS.get(name, (name,))]
    return tuple(c for module in modules for c in claims_of(import_module(f"derivations.{module}")))


def find(identifier: str) -> Claim:
    """A claim by its identifier, "module.name"."""
    found = {c.identifier: c for c in claims()}
    if identifier not in found:
        raise ValueError(f"claim={identifier!r} is not one of {', '.join(found)}")
    return found[identifier]


@dataclass(frozen=True)
class Report:
    """Verdicts, in the order of the claims; prints as a table.

    Attributes
    ----------
    verdicts : tuple of Verdict
    controls : bool
        Whether these are negative controls, which must be refuted.
    """

    verdicts: tuple[Verdict, ...]
    controls: bool = False

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """Claims that do not hold; of controls, those that are not refuted."""
        return tuple(v for v in self.verdicts if (v.kind != "refuted" if self.controls else not v.holds))

    def to_json(self) -> str:
        """The verdicts as a JSON list."""
        return json.dumps([v.to_dict() for v in self.verdicts], indent=1)

    def __str__(self) -> str:
        head = ("claim", "verdict", "rung", "seconds", "certifies", "statement")
        rows = [
            (v.claim, v.kind, v.rung, f"{v.seconds:.2f}", ", ".join(_short(name) for name in v.certifies), v.statement)
            for v in self.verdicts
        ]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
        lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in (head, *rows)]
        for v in self.verdicts:
            if v.witness and not self.controls:
                lines.append(f"{v.claim}: " + ", ".join(f"{name}={value}" for name, value in v.witness.items()))
            if v.detail and not v.holds:
                lines.append(f"{v.claim}: {v.detail}")
        counts = ", ".join(
            f"{n} {kind}"
            for kind in ("proved", "numerical", "refuted", "undecided")
            if (n := sum(v.kind == kind for v in self.verdicts))
        )
        what = "controls" if self.controls else "claims"
        return "\n".join([*lines, f"{len(rows)} {what}: {counts}; {sum(v.seconds for v in self.verdicts):.0f} seconds"])


def _short(name: str) -> str:
    return name.removeprefix("statmech_attn.")


def verify(
    model: str | None = None,
    claim: str | None = None,
    *,
    controls: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
) -> Report:
    """Check claims; see :func:`statmech_attn.verify`."""
    family = None if model is None else model.replace("-", "_")
    chosen = claims(family)
    if claim is not None:
        chosen = tuple(c for c in chosen if c == find(claim))
        if not chosen:
            raise ValueError(f"claim={claim!r} is not one of model={model!r}")
    verdicts = dict(_bar(_checked(chosen, controls, executor), len(chosen), progress))
    return Report(tuple(verdicts[k] for k in range(len(chosen))), controls)


def _checked(chosen: Sequence[Claim], controls: bool, executor: Executor | None) -> Iterator[tuple[int, Verdict]]:
    if executor is None:
        yield from ((k, check(c, controls)) for k, c in enumerate(chosen))
        return
    futures = {executor.submit(check, c, controls): k for k, c in enumerate(chosen)}
    yield from ((futures[done], done.result()) for done in as_completed(futures))


def _bar(items: Iterable[Any], total: int, progress: bool) -> Iterable[Any]:
    if progress:
        try:
            from tqdm import tqdm
        except ImportError:
            log.warning("no progress bar: tqdm is not installed")
        else:
            bar: Iterable[Any] = tqdm(items, total=total, unit="claim")
            return bar
    return items
