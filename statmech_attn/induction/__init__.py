"""Induction heads: when they emerge, how they are measured, and what the data must contain.

T. Aoyama, E. G. Wilcox and N. Schneider, "Predicting the Emergence of Induction Heads in Language Model
Pretraining", arXiv 2511.16893.

Public names are those of the modules' ``__all__``, loaded on first use, so that ``--help`` compiles nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.induction.emergence import *  # noqa: F403
    from statmech_attn.induction.expected import *  # noqa: F403
    from statmech_attn.induction.frontier import *  # noqa: F403
    from statmech_attn.induction.heads import *  # noqa: F403
    from statmech_attn.induction.law import *  # noqa: F403
    from statmech_attn.induction.markov import *  # noqa: F403
    from statmech_attn.induction.repetition import *  # noqa: F403

_MODULES = ("emergence", "expected", "frontier", "heads", "law", "markov", "repetition")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if not name.startswith("_"):
        for module in (import_module(f"{__name__}.{module}") for module in _MODULES):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for module in _MODULES for name in import_module(f"{__name__}.{module}").__all__)
