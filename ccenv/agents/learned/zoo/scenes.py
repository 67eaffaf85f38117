"""On which scenes attacks were part of the making of a sender: what its worst case there is worth."""

from __future__ import annotations

from typing import Any

from ccenv.agents.learned import is_policy, policy_notes


def trained_on_scenes(spec: str) -> list[str] | None:
    """Return the scenes of ``ccenv attack`` that a sender was trained or polished against; None: unknown.

    Args:
        spec: what ``ccenv.agents.make_sender`` takes.
    """
    from ccenv.agents import AGENTS
    from ccenv.agents.learned.zoo import FOLDER, TEACHERS

    name = spec.partition(":")[0]
    if name in AGENTS:
        policy = name if name in AGENTS.names("learned") else TEACHERS.get(name)
        return [] if policy is None else scenes_of(policy_notes(FOLDER / f"{policy}.safetensors"))
    return scenes_of(policy_notes(spec)) if is_policy(spec) else None


def scenes_of(notes: dict[str, Any]) -> list[str] | None:
    """Return the scenes that a policy's card names; None if it does not say how it was trained."""
    config = notes.get("config")
    if not isinstance(config, dict):
        return None
    robust = config.get("robust")
    if not isinstance(robust, dict) or not robust.get("share"):
        return []
    paths = robust.get("paths")
    return [str(path) for path in paths] if isinstance(paths, list) else None
