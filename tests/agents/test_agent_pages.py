"""The pages on agents and adversaries name everything that is registered, with its parameters."""

import inspect
import re
from pathlib import Path

import pytest

from ccenv.adversaries import ADVERSARIES
from ccenv.agents import AGENTS
from ccenv.agents.programs import INPUTS
from ccenv.agents.programs.reader import _BRANCH_KEYS, _LEAF_KEYS, _TOP_KEYS

DOCS = Path(__file__).parents[2] / "docs"


def rows(page):
    """Return first and second cell of every table row of a page."""
    found = re.findall(r"^\| `?([^|]+?)`? \|([^|]*)\|", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {name.strip("`"): set(re.findall(r"`(\w+)`", parameters)) for name, parameters in found}


@pytest.mark.parametrize(("registry", "page"), [(AGENTS, "agents.md"), (ADVERSARIES, "adversaries.md")])
def test_every_entry_has_a_row_with_its_parameters(registry, page):
    table = rows(page)
    for entry in registry:
        assert entry.name in table
        assert table[entry.name] == set(inspect.signature(registry.load(entry.name)).parameters), entry.name


def test_the_programs_page_names_every_key_and_input():
    text = (DOCS / "programs.md").read_text(encoding="utf-8")
    for word in (*INPUTS, *_TOP_KEYS, *_BRANCH_KEYS, *_LEAF_KEYS):
        assert f"`{word}`" in text, word
