"""Beam search on engine snapshots: as greedy, but several prefixes live on, because what hurts later may not hurt now."""

from __future__ import annotations

from ccenv.attacks.searches.lookahead import LookAhead, built

WEIGHT = 2.0


def search(width: int = 16, interval_rtts: int = 1, horizon_rtts: int = 8) -> LookAhead:
    """Build the search.

    Args:
        width: prefixes kept, 1 to 256.
        interval_rtts: Rm per decision, 1 to 100.
        horizon_rtts: Rm looked ahead, interval included, 1 to 1000.
    """
    return built("beam", WEIGHT, width, interval_rtts, horizon_rtts)
