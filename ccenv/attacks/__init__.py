"""Searching adversaries: find the moves that hurt one given sender most. One registry, one file per search."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccenv.attacks.catalog import PANEL, SEARCHES, make_search
    from ccenv.attacks.scenes import PATHS, SCENE_SETS, attack_path, scene_of, scene_set
    from ccenv.attacks.run import AttackResult, Finding, attack

_HOMES = {
    "ccenv.attacks.catalog": ("PANEL", "SEARCHES", "make_search"),
    "ccenv.attacks.scenes": ("PATHS", "SCENE_SETS", "attack_path", "scene_of", "scene_set"),
    "ccenv.attacks.run": ("AttackResult", "Finding", "attack"),
}

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


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'ccenv.attack' has no attribute {name!r}")


class _Callable(ModuleType):
    """The module has the name of its function: both ``ccenv.attack(...)`` and ``ccenv.attacks.PANEL`` work."""

    def __call__(self, *arguments: Any, **settings: Any) -> AttackResult:
        """Attack a sender: :func:`ccenv.attacks.run.attack`."""
        result: AttackResult = self.attack(*arguments, **settings)
        return result


sys.modules[__name__].__class__ = _Callable
