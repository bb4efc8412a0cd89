"""The map equation -> claim -> code -> test in README.md: ``python -m derivations.readme`` writes it anew.

What must be on it is listed here: every public function of the modules that hold formulas.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from derivations import FAMILIES, claims

__all__ = ["EXEMPT", "FORMULA_MODULES", "README", "formulas", "table"]

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- begin map -->", "<!-- end map -->"

#: Modules whose public functions implement formulas, by family. A new module of formulas is a word here.
FORMULA_MODULES = {
    "positional_semantic": (
        "statmech_attn.positional_semantic.attention",
        "statmech_attn.positional_semantic.amp",
        "statmech_attn.positional_semantic.channel",
        "statmech_attn.positional_semantic.gauge",
        "statmech_attn.positional_semantic.layer_channel",
        "statmech_attn.positional_semantic.layer_equations",
        "statmech_attn.positional_semantic.layer_proximal",
        "statmech_attn.positional_semantic.layer_response",
        "statmech_attn.positional_semantic.monte_carlo",
        "statmech_attn.positional_semantic.observables",
        "statmech_attn.positional_semantic.proximal",
        "statmech_attn.positional_semantic.risk",
        "statmech_attn.positional_semantic.row_attention",
        "statmech_attn.positional_semantic.state_equations",
    ),
    "copy_head": (
        "statmech_attn.copy_head.action",
        "statmech_attn.copy_head.data",
        "statmech_attn.copy_head.fluctuations",
        "statmech_attn.copy_head.linear",
        "statmech_attn.copy_head.observables",
        "statmech_attn.copy_head.scaling",
        "statmech_attn.copy_head.softmax",
        "statmech_attn.copy_head.training",
        "statmech_attn.copy_head.sampling",
    ),
    "induction": (
        "statmech_attn.induction.emergence",
        "statmech_attn.induction.expected",
        "statmech_attn.induction.frontier",
        "statmech_attn.induction.law",
        "statmech_attn.induction.markov",
        "statmech_attn.induction.heads",
        "statmech_attn.induction.repetition",
    ),
}

#: Public functions of those modules that hold no formula of their own, and why.
EXEMPT = {
    "statmech_attn.positional_semantic.amp.state_evolution": "checked against message passing, time by time",
    "statmech_attn.positional_semantic.gauge.generators": "lists the planes of rotations",
    "statmech_attn.positional_semantic.gauge.invariants": "eigenvalues and singular values",
    "statmech_attn.positional_semantic.gauge.moved": "derivative of gauge.rotated",
    "statmech_attn.positional_semantic.gauge.rotation": "a matrix exponential",
    "statmech_attn.positional_semantic.gauge.signs": "lists the flips that leave a law alone",
    "statmech_attn.positional_semantic.layer_channel.symmetric_root": "a matrix square root",
    "statmech_attn.positional_semantic.layer_proximal.deepest_wells": "searches; checked against random starts",
    "statmech_attn.positional_semantic.layer_proximal.settle": "Newton steps; checked against random starts",
    "statmech_attn.positional_semantic.layer_proximal.proximal_points": "calls layer_proximal.deepest_wells",
    "statmech_attn.positional_semantic.layer_proximal.start_patterns": "lists starts",
    "statmech_attn.positional_semantic.layer_proximal.work_space": "allocates",
    "statmech_attn.positional_semantic.layer_response.noise_of": "points of a rule at a state, as in layer_averages",
    "statmech_attn.positional_semantic.risk.expected_error": "checked against fresh samples",
    "statmech_attn.positional_semantic.risk.logit_slope": "checked by differences, in the gradient of risk.Risk",
    "statmech_attn.positional_semantic.risk.quadratic": "checked against the squared error of the tokens",
    "statmech_attn.positional_semantic.row_attention.attention": "the same functions as row_attention.attend",
    "statmech_attn.positional_semantic.row_attention.loss_space": "allocates",
    "statmech_attn.positional_semantic.observables.linear_excess": "difference of two observables",
    "statmech_attn.copy_head.data.sample_tokens": "draws tokens",
    "statmech_attn.copy_head.fluctuations.backgrounds": "draws the centred logits of fluctuations.row_average",
    "statmech_attn.copy_head.fluctuations.sums": "the state itself",
    "statmech_attn.copy_head.fluctuations.relax_from_prior": "iterates fluctuations.update",
    "statmech_attn.copy_head.linear.descend": "iterates linear.update",
    "statmech_attn.copy_head.observables.excess_coverage": "quotient of two observables",
    "statmech_attn.copy_head.softmax.parameters": "lists arguments of kernels",
    "statmech_attn.copy_head.softmax.watershed": "steepest fall of softmax.sample_curve on a grid",
    "statmech_attn.copy_head.training.begin": "draws starts",
    "statmech_attn.copy_head.training.block_energy": "kernel against its symbolic source in the test",
    "statmech_attn.copy_head.training.sweep": "calls training.train",
    "statmech_attn.copy_head.training.train": "descends on training.Energy",
    "statmech_attn.copy_head.training.train_blocks": "descends on training.block_energy",
    "statmech_attn.induction.expected.probabilities": "checks an argument",
    "statmech_attn.induction.expected.transition_matrix": "checks an argument",
    "statmech_attn.induction.frontier.pareto_frontier": "order of points, no formula",
    "statmech_attn.induction.law.checkpoint_interval": "looks up a grid",
    "statmech_attn.induction.markov.controlled_process": "searches for roots over markov.sinkhorn",
    "statmech_attn.induction.markov.copy_process": "draws ids",
    "statmech_attn.induction.markov.marginal_distribution": "definitions of three marginals",
    "statmech_attn.copy_head.sampling.split_rhat": "an estimator from samples, by its published definition",
    "statmech_attn.copy_head.sampling.effective_sample_size": "an estimator from samples, by its published definition",
    "statmech_attn.copy_head.sampling.hmc": "draws from the density of training.Energy",
    "statmech_attn.copy_head.sampling.sgld": "draws from the density of training.Energy",
    "statmech_attn.induction.heads.previous_token": "the definition of a score",
    "statmech_attn.induction.heads.prefix_matching": "the definition of a score",
    "statmech_attn.induction.heads.duplicate_token": "the definition of a score",
    "statmech_attn.induction.heads.strongest_head": "the definition of a score",
    "statmech_attn.induction.heads.logit_attribution": "the definition of a score",
    "statmech_attn.induction.heads.associative_recall": "the definition of a score",
    "statmech_attn.induction.heads.in_context_score": "the definition of a score",
    "statmech_attn.induction.heads.copy_advantage": "the definition of a score",
    "statmech_attn.induction.heads.repeated_sequences": "draws ids",
    "statmech_attn.induction.heads.leading_axes": "names axes",
    "statmech_attn.induction.heads.token_ids": "checks an argument",
    "statmech_attn.induction.heads.repeated_half": "checks an argument",
    "statmech_attn.induction.repetition.lookback_statistics": "counts, equal to the definition in the test",
    "statmech_attn.induction.repetition.context_statistics": "counts, equal to the definition in the test",
    "statmech_attn.induction.repetition.token_chunks": "reads a file",
}


def formulas() -> list[str]:
    """Dotted names of the public functions that need a claim."""
    names = []
    for modules in FORMULA_MODULES.values():
        for module in modules:
            home = import_module(module)
            for name, value in vars(home).items():
                public = not name.startswith("_") and callable(value) and not isinstance(value, type)
                if public and getattr(value, "__module__", "") == module:
                    names.append(f"{module}.{name}")
    return [name for name in names if name not in EXEMPT]


def table() -> str:
    """The map, in Markdown."""
    lines = []
    for family in FAMILIES:
        lines += [f"### {family}", "", "| equation | claim | code |", "|---|---|---|"]
        for c in claims(family):
            code = ", ".join(f"`{name.removeprefix('statmech_attn.')}`" for name in c.certifies)
            statement = c.statement.replace("|", "\\|").replace("*", "\\*")
            lines.append(f"| {statement} | `{c.identifier}` | {code} |")
        lines += ["", f"Test: `tests/derivations/test_{family}.py`.", ""]
    return "\n".join(lines)


def main() -> None:
    """Replace what is between the two marks of README.md."""
    before, rest = README.read_text().split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


if __name__ == "__main__":
    main()
