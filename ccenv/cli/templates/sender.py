"""A sender in plain Python: one object per flow. Try it: ccenv compare {name}.py cubic copa --duration 10s -o compare.svg."""

from __future__ import annotations

import ccenv
from ccenv.agents.python_sender import Ack, Loss


class Sender(ccenv.PythonSender):
    """Grows by one segment per round trip; gives way when the queue or losses grow."""

    def __init__(self, share: float = 0.5, keep: float = 0.7) -> None:
        """Parameters of the sender, as in {name}.py:Sender:share=0.2.

        Args:
            share: queueing delay at which it gives way, in units of the smallest RTT.
            keep: share of the window that is kept then.
        """
        self.share, self.keep = share, keep

    def on_ack(self, ack: Ack) -> None:
        """React to acknowledged bytes: now_s, acked_bytes, rtt_s, min_rtt_s, delivery_rate_Bps, inflight_bytes, round_start."""
        if ack.rtt_s > (1 + self.share) * ack.min_rtt_s:
            if ack.round_start:
                self.cwnd_bytes = max(2 * self.mss_bytes, self.keep * self.cwnd_bytes)
        else:
            self.cwnd_bytes += self.mss_bytes * ack.acked_bytes / self.cwnd_bytes

    def on_loss(self, loss: Loss) -> None:
        """React to lost bytes: now_s, lost_bytes, inflight_bytes, timeout, new_episode."""
        if loss.new_episode:
            self.cwnd_bytes = max(2 * self.mss_bytes, self.keep * self.cwnd_bytes)
