"""Proxies that hold ACKs: the rule of [Delta] Algorithm 1, and what it makes of the round-trip times of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.base.kernels.decorator import kernel


@kernel
def next_hold(target, hold, smallest_rtt):
    """Return for how long ACKs are held from now on, given lambda and the last hold: [Delta] Algorithm 1, in one unit of time.

    Deviation: a hold is never negative; where the propagation delay is above lambda nothing is held.
    """
    return max(0.0, target - (smallest_rtt - hold))


@dataclass(frozen=True)
class Holds:
    """The proxies of a batch of flows on its grid, all (B, N), in steps; times are rounded to whole steps."""

    rtt_steps: np.ndarray  # Rm that the senders go by
    lag_steps: np.ndarray  # from delivery to feedback at the start: Rm of the path and hold
    hold_steps: np.ndarray  # for how long ACKs are held at the start; 0 for flows without a proxy
    target_steps: np.ndarray  # lambda; 0 for flows whose hold never changes
    window_steps: np.ndarray  # W; 0 for flows whose hold never changes

    @staticmethod
    def of(rtt_steps: np.ndarray, dt_s: np.ndarray, target_s: np.ndarray, window_s: np.ndarray) -> Holds:
        """Build them for Rm of the paths, (B, N), on steps of ``dt_s``, (B,).

        ``target_s``, (B, N), is lambda or the added delay, 0 without a proxy; ``window_s`` is infinite where the hold never
        changes.
        """
        hold = np.where(target_s > 0, np.maximum(1, np.rint(target_s / dt_s[:, None])), 0).astype(np.int64)
        moves = np.isfinite(window_s)
        window = np.maximum(1, np.rint(np.where(moves, window_s, 0.0) / dt_s[:, None])).astype(np.int64)
        return Holds(
            rtt_steps=np.where(moves, np.maximum(hold, rtt_steps), rtt_steps + hold),
            lag_steps=rtt_steps + hold,
            hold_steps=hold,
            target_steps=np.where(moves, hold, 0),
            window_steps=np.where(moves, window, 0),
        )
