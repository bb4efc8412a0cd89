"""The theories of this package by name. A new model is one line here; the contract test then runs on it unasked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statmech_attn.theory import Theory

__all__ = ["THEORIES", "theory_class"]

#: name -> module and class, as text: listing the names imports no compiled code.
THEORIES = {
    "attention-layer": ("statmech_attn.positional_semantic", "AttentionLayer"),
    "copy-head": ("statmech_attn.copy_head", "CopyHead"),
    "positional-semantic": ("statmech_attn.positional_semantic", "PositionalSemantic"),
}


def theory_class(name: str) -> type[Theory]:
    """The class of a named theory; ValueError lists the names.

    Examples
    --------
    >>> theory_class("positional-semantic")(alpha=1.0).name
    'positional-semantic'
    """
    if name not in THEORIES:
        raise ValueError(f"theory {name!r} is not one of {', '.join(THEORIES)}")
    module, attribute = THEORIES[name]
    loaded: type[Theory] = getattr(import_module(module), attribute)
    return loaded
