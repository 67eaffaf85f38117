"""Former words that are still read, for one version: a shield was called a contract, a word that [Contracts] owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TODAY = {"contract": "shield"}


def today(name: str) -> str:
    """Return a name in today's words: ``learned_contract_u80`` is ``learned_shield_u80`` now."""
    for former, word in _TODAY.items():
        name = name.replace(former, word)
    return name


def with_keys_of_today(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data whose keys are today's; a former key beside today's stays and is refused as unknown."""
    return {key if _TODAY.get(key, key) in data else _TODAY[key]: value for key, value in data.items()}
