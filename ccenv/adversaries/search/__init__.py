"""Searching adversaries: find the moves that hurt one given sender most. One registry, one file per search."""

from __future__ import annotations

from ccenv.adversaries.search.attack import AttackResult, Finding, attack
from ccenv.adversaries.search.catalog import PANEL, SEARCHES, make_search
from ccenv.adversaries.search.paths import PATHS, SCENE_SETS, attack_path, scene_of, scene_set

__all__ = [
    "PANEL",
    "PATHS",
    "SCENE_SETS",
    "SEARCHES",
    "AttackResult",
    "Finding",
    "attack",
    "attack_path",
    "make_search",
    "scene_of",
    "scene_set",
]
