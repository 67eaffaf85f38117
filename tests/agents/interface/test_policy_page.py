"""docs/policies.md has the tables of the code, and says of every measure how each engine takes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from policy_page import tables

from ccenv.agents.interface.signals import MEASURES
from ccenv.base.pages import END

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tables())
def test_tables_are_those_of_the_code(name):
    place = f"<!-- table of {name} -->"
    assert PAGE.partition(place)[2].partition(END)[0].strip() == tables()[name]


def test_every_measure_has_a_definition_in_both_engines():
    section = PAGE.partition("## What is measured")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
    assert named == set(MEASURES.names)
