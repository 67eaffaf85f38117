"""Greedy one-step search on engine snapshots: at each decision the corner whose consequences are the worst so far."""

from __future__ import annotations

from ccenv.attacks.searches.lookahead import LookAhead, built

WEIGHT = 0.5


def search(interval_rtts: int = 1, horizon_rtts: int = 8) -> LookAhead:
    """Build the search.

    Args:
        interval_rtts: Rm per decision, 1 to 100.
        horizon_rtts: Rm looked ahead, interval included, 1 to 1000.
    """
    return built("greedy", WEIGHT, 1, interval_rtts, horizon_rtts)
