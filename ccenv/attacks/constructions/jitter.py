"""Emulation by a jitter box: which moves make a flow see a given delivery curve, and how far that is from legal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BYTES_TIE = 1e-9  # relative to the bytes at stake: round-off


def departures(entered: np.ndarray, per_step_bytes: float, tokens_before: np.ndarray | float = 0.0) -> np.ndarray:
    """Return what a link without stock has sent on: G(k) = min(G(k-1) + C*dt, E(k)).

    Args:
        entered: (steps, ...) cumulative bytes E(1), E(2), ...
        per_step_bytes: C*dt.
        tokens_before: G(0).

    Returns:
        (steps, ...): P(1), P(2), ...
    """
    out = np.empty_like(entered)
    G = np.broadcast_to(np.asarray(tokens_before, dtype=np.float64), entered.shape[1:]).copy()
    for k in range(len(entered)):
        G = np.minimum(G + per_step_bytes, entered[k])
        out[k] = G
    return out


@dataclass(frozen=True)
class Emulation:
    """What it takes that a jitter box turns departures into a wanted delivery curve.

    Attributes:
        service: (steps,) the moves, in [0, 1]; clipped where the curve is not legal.
        early_bytes: most that the wanted curve is ahead of the departures; above round-off it cannot be emulated.
        jitter_steps: longest time that a byte is held: the smallest D, in steps, that suffices.
    """

    service: np.ndarray
    early_bytes: float
    jitter_steps: float


def emulate(departed: np.ndarray, wanted: np.ndarray, jitter_steps: int) -> Emulation:
    """Return the moves that deliver ``wanted``.

    Args:
        departed: (steps + 1,) P of the flow from row 0 on; row 0 is the initial state.
        wanted: (steps + 1,) S of the flow that is to be emulated; row 0 is the initial state.
        jitter_steps: D. Of rows before 0 it is assumed that they bind nothing.
    """
    steps = len(wanted) - 1
    high = departed[1:]
    low = wanted[:-1].copy()
    bound = steps - jitter_steps
    if bound >= 0:
        held = slice(max(jitter_steps - 1, 0), None)
        low[held] = np.maximum(low[held], departed[: bound + 1] if jitter_steps > 0 else departed[1:])
    room = high - low
    tie = BYTES_TIE * max(1.0, float(np.abs(high[-1])))
    free = room > tie
    service = np.where(free, np.clip((wanted[1:] - low) / np.where(free, room, 1.0), 0.0, 1.0), 1.0)
    return Emulation(service, float(np.max(wanted - departed)), _longest_hold(departed, wanted, tie))


def _longest_hold(departed: np.ndarray, wanted: np.ndarray, tie: float) -> float:
    """Return the most rows between a byte's departure and the row in which it is delivered.

    At row k everything up to wanted(k) is delivered; the next byte left in the first row whose P is above that.
    """
    rows = np.arange(len(wanted))
    left = np.searchsorted(departed, wanted + tie, side="right")  # first row with P(row) > wanted(k)
    waiting = left <= rows
    return float(np.max(np.where(waiting, rows - left, -1)) + 1)
