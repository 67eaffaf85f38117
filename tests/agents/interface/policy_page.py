"""The tables of docs/policies.md as the code has them."""

from __future__ import annotations

from ccenv.agents.interface.actions import ACTIONS
from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import BOTH, SIGNAL_SETS, SIGNALS
from ccenv.base.pages import markdown


def tables() -> dict[str, str]:
    """Return the tables by the names of their places on the page."""
    return {
        "signals": markdown(
            [
                {
                    "signal": f"`{row.name}`",
                    "what": row.formula,
                    "unit": row.unit,
                    "range": f"{row.low:g} to {row.high:g}",
                    "needs": row.needs if row.engines == BOTH else f"{row.needs}; packet engine",
                    "source": row.source,
                }
                for row in SIGNALS
            ]
        ),
        "sets of signals": markdown(
            [
                {"set": f"`{name}`", "history": str(history), "signals": ", ".join(f"`{signal}`" for signal in signals)}
                for name, (signals, history) in SIGNAL_SETS.items()
            ]
        ),
        "actions": markdown(
            [
                {
                    "action": f"`{row.name}`",
                    "sets": row.sets,
                    "what": row.formula.replace("|", "\\|"),
                    "parameters": ", ".join(
                        f"`{name}` {value:g} ({low:g} to {high:g})" for name, (value, low, high) in row.parameters.items()
                    ),
                    "needs": row.needs,
                    "source": row.source,
                }
                for row in ACTIONS
            ]
        ),
        "terms": markdown(
            [
                {"term": f"`{row.name}`", "what": row.formula.replace("|", "\\|"), "unit": row.unit, "source": row.source}
                for row in TERMS
            ]
        ),
        "rewards": markdown(
            [
                {"reward": f"`{name}`", "weights": ", ".join(f"{weight:g} `{term}`" for term, weight in weights.items())}
                for name, weights in REWARDS.items()
            ]
        ),
    }
