"""Searching adversaries: find the moves that hurt one given sender most. One registry, one file per search."""

from __future__ import annotations

from ccenv.attack.catalog import PANEL, SEARCHES, make_search
from ccenv.attack.paths import PATHS, SCENE_SETS, attack_path, scene_of, scene_set
from ccenv.attack.run import AttackResult, Finding, attack

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
