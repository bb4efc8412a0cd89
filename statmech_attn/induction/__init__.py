"""Induction heads: when they emerge, how they are measured, and what the data must contain.

T. Aoyama, E. G. Wilcox and N. Schneider, "Predicting the Emergence of Induction Heads in Language Model
Pretraining", arXiv 2511.16893.

Names are imported on first use, so that a command line can list its options without compiling.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.induction._public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    public = import_module("statmech_attn.induction._public")
    if name != "__all__" and name not in public.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted(import_module("statmech_attn.induction._public").__all__)
