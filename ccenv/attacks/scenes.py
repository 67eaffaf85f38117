"""The attack scenarios on which senders are compared: those for training, and those for published worst cases."""

from __future__ import annotations

from ccenv.base.errors import unknown_name
from ccenv.network.path import Path, make_path

RTT_MS = 40.0

PATHS: dict[str, Path] = {
    "deep": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=6),
    "shallow": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=0.5),
    "long_jitter": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=2 * RTT_MS, buffer_bdp=6),
    "infinite": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS),
    "narrow": make_path(link_rate_mbps=1.2, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=6),
}
"""Name -> path: 48 Mbit/s (``narrow``: 1.2, four segments per Rm) and Rm = 40 ms, D = Rm (``long_jitter``: 2 Rm), buffers of
6 BDP (``shallow``: 0.5, ``infinite``: without end)."""

TRAINING, REPORT = "training", "report"
SCENE_SETS: dict[str, tuple[str, ...]] = {TRAINING: ("deep", "shallow", "infinite"), REPORT: ("long_jitter", "narrow")}
"""Every attack scenario is in one set. Training may use those of the first; nothing is trained or chosen on the second."""


def scene_of(path: Path) -> str | None:
    """Return the name of an attack scenario's path, None for any other path."""
    return next((name for name, scene_path in PATHS.items() if scene_path == path), None)


def scene_set(name: str | None) -> str | None:
    """Return the set of an attack scenario, None for any other path."""
    return next((set_name for set_name, names in SCENE_SETS.items() if name in names), None)


def attack_path(path: Path | str) -> Path:
    """Return a path, or that of a name. Raises UnknownNameError."""
    if isinstance(path, Path):
        return path
    if path not in PATHS:
        raise unknown_name("attack path", path, PATHS)
    return PATHS[path]
