"""Induction heads: when they emerge, how they are measured, and what the data must contain.

Y. Aoyama, E. G. Wilcox and N. Schneider, "Predicting the Emergence of Induction Heads in
Language Model Pretraining", arXiv 2511.16893.

Names are imported on first use, so that a command line can list its options without compiling.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statmech_attn.induction.emergence import EmergencePoint, emergence_point
    from statmech_attn.induction.frontier import Frontier, MonotoneBoundary, monotone_boundary, pareto_frontier
    from statmech_attn.induction.heads import (
        Recall,
        StrongestHead,
        associative_recall,
        copy_advantage,
        duplicate_token,
        in_context_score,
        logit_attribution,
        prefix_matching,
        previous_token,
        repeated_prefix_matching,
        repeated_sequences,
        strongest_head,
        uniform_attention,
        uniform_baseline,
    )
    from statmech_attn.induction.law import (
        ExtrapolationWarning,
        InductionLaw,
        checkpoint_interval,
        tokens_to_updates,
        updates_to_tokens,
    )
    from statmech_attn.induction.markov import (
        ControlledContexts,
        MarkovProcess,
        controlled_contexts,
        controlled_process,
        copy_process,
        cue_rate,
        marginal_distribution,
        sinkhorn,
        well_mixed_repetition,
    )
    from statmech_attn.induction.repetition import (
        ContextStatistics,
        Lookback,
        context_statistics,
        expected_iid,
        expected_markov,
        lookback_statistics,
        token_chunks,
    )

_NAMES = {
    "emergence": ("EmergencePoint", "emergence_point"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
