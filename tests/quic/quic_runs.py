"""Small runs for the tests: 12 Mbit/s, 20 ms, packets of 1500 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.network.path import Path, make_path
from ccenv.quic.run import QuicResult, compile_sender, run_quic
from ccenv.quic.stacks import get_stack

STEPS = 320


def small_path(buffer_bdp: float = 6.0, jitter_ms: float = 20.0, rtts_ms: tuple[float, ...] = (20.0,)) -> Path:
    return make_path(link_rate_mbps=12.0, rtt_ms=list(rtts_ms), jitter_ms=[jitter_ms] * len(rtts_ms), buffer_bdp=buffer_bdp)


def small_run(
    senders: str | list[str], path: Path | None = None, *, stack: str = "aioquic", jitter_s: float | None = None, **options: Any
) -> QuicResult:
    path, chosen = path or small_path(), get_stack(stack)
    step_s = min(flow.rtt_s for flow in path.flows) / 8
    names = [senders] if isinstance(senders, str) else senders
    compiled = [compile_sender(chosen, name, path, step_s, jitter_s) for name in names]
    return run_quic(chosen, compiled, path, steps=options.pop("steps", STEPS), **options)


def random_moves(seed: int, steps: int = STEPS) -> np.ndarray:
    """Return moves that change every few steps, ends and middles."""
    draw = np.random.default_rng(seed)
    moves = np.clip(np.repeat(draw.uniform(-0.5, 1.5, (steps // 4 + 1, 4)), 4, axis=0)[:steps], 0, 1)
    moves[:, 3] = 0.0
    return moves
