"""Every example runs, every public name is documented, and the manual's commands exist."""

import argparse
import doctest
import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest

import statmech_attn.induction as induction
from statmech_attn.induction.commands import add_parser

MODULES = ("commands", "emergence", "expected", "frontier", "heads", "law", "markov", "repetition")
MANUAL = Path(__file__).parents[2] / "docs" / "induction.md"


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"statmech_attn.induction.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_public_functions_have_examples():
    functions = [name for name in dir(induction) if inspect.isfunction(getattr(induction, name))]
    assert len(functions) > 25
    assert not [name for name in functions if ">>>" not in getattr(induction, name).__doc__]


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'cue_rates'"):
        _ = induction.cue_rates


def test_commands_of_the_manual_parse():
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(required=True))
    commands = re.findall(r"^statmech-attn (.*)$", MANUAL.read_text(), flags=re.M)
    assert len(commands) == 9
    for command in commands:
        assert callable(parser.parse_args(shlex.split(command)).run)
