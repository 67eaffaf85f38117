"""docs/packet-env.md shows the tables of signals, actions and rewards as they are in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccenv.agents.interface.actions import ACTIONS
from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import SIGNAL_SETS, SIGNALS
from ccenv.base.pages import END, Place, markdown

PAGE = Path(__file__).parents[3] / "docs" / "packet-env.md"


def _code(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names) if isinstance(names, tuple | list) else f"`{names}`"


def wanted() -> dict[str, str]:
    """Return what stands in each place of the page."""
    signals = [
        {
            "name": _code(s.name),
            "unit": s.unit,
            "range": f"{s.low:g} to {s.high:g}",
            "formula": s.formula,
            "needs": s.needs or "",
            "engines": ", ".join(sorted(s.engines)),
            "source": s.source,
        }
        for s in SIGNALS
    ]
    sets = [
        {"set": _code(name), "history": str(history), "signals": _code(names)} for name, (names, history) in SIGNAL_SETS.items()
    ]
    actions = [
        {
            "name": _code(a.name),
            "sets": a.sets,
            "formula": a.formula.replace("|", "\\|"),
            "parameters": ", ".join(f"{n} = {d:g} ({low:g} to {high:g})" for n, (d, low, high) in a.parameters.items()),
            "needs": a.needs,
            "source": a.source,
        }
        for a in ACTIONS
    ]
    terms = [{"name": _code(t.name), "unit": t.unit, "formula": t.formula.replace("|", "\\|"), "source": t.source} for t in TERMS]
    rewards = [
        {"reward": _code(name), "weights": ", ".join(f"{w:g} `{t}`" for t, w in weights.items())}
        for name, weights in REWARDS.items()
    ]
    tables = {"signals": signals, "sets": sets, "actions": actions, "terms": terms, "rewards": rewards}
    return {name: markdown(rows) for name, rows in tables.items()}


@pytest.mark.parametrize("name", ["signals", "sets", "actions", "terms", "rewards"])
def test_the_page_shows_the_table(name: str) -> None:
    start = f"<!-- table of {name} -->"
    before, behind = Place(start).parts(PAGE)
    shown = PAGE.read_text(encoding="utf-8")[len(before) + len(start) : -len(behind) - len(END)].strip()
    assert shown == wanted()[name]
