"""The page of the interface says of every measure how each engine takes it."""

from __future__ import annotations

import re
from pathlib import Path

from ccenv.agents.interface.signals import MEASURES

PAGE = (Path(__file__).parents[3] / "docs" / "interface.md").read_text(encoding="utf-8")


def test_every_measure_has_a_definition_in_both_engines():
    section = PAGE.partition("## What is measured")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
    assert named == set(MEASURES.names)
