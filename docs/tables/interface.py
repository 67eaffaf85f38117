"""Tables of what a policy sees, sets and is rewarded for."""

from __future__ import annotations

from ccenv.agents.interface.actions import ACTIONS
from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import BOTH, SIGNAL_SETS, SIGNALS

Rows = list[dict[str, str]]


def signals() -> Rows:
    """Return a row per signal."""
    return [
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


def sets() -> Rows:
    """Return a row per named set of signals."""
    return [
        {"set": f"`{name}`", "history": str(history), "signals": ", ".join(f"`{signal}`" for signal in signals)}
        for name, (signals, history) in SIGNAL_SETS.items()
    ]


def actions() -> Rows:
    """Return a row per action."""
    return [
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


def terms() -> Rows:
    """Return a row per term of a reward."""
    return [
        {"term": f"`{row.name}`", "what": row.formula.replace("|", "\\|"), "unit": row.unit, "source": row.source}
        for row in TERMS
    ]


def rewards() -> Rows:
    """Return a row per named reward."""
    return [
        {"reward": f"`{name}`", "weights": ", ".join(f"{weight:g} `{term}`" for term, weight in weights.items())}
        for name, weights in REWARDS.items()
    ]
