"""The paths on which attacks are compared."""

from __future__ import annotations

from ccenv.errors import unknown_name
from ccenv.path import Path, make_path

RTT_MS = 40.0

PATHS: dict[str, Path] = {
    "deep": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=6),
    "shallow": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=0.5),
    "long_jitter": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=2 * RTT_MS, buffer_bdp=6),
    "infinite": make_path(link_rate_mbps=48, rtt_ms=RTT_MS, jitter_ms=RTT_MS),
}
"""Name -> path: 48 Mbit/s and Rm = 40 ms, D = Rm (``long_jitter``: 2 Rm), buffers of 6, 0.5, 6 BDP and without end."""


def attack_path(path: Path | str) -> Path:
    """Return a path given as such or by name. Raises UnknownNameError."""
    if isinstance(path, Path):
        return path
    if path not in PATHS:
        raise unknown_name("attack path", path, PATHS)
    return PATHS[path]
