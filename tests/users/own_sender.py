"""A sender of one's own, as a class, beside a shipped one."""

from typing import Any

import ccenv


class Gentle(ccenv.PythonSender):
    """Backs off when the queue holds half an RTT."""

    def on_ack(self, ack: Any) -> None:
        """Grow, or give a tenth back once a round trip."""
        if ack.rtt_s > 1.5 * ack.min_rtt_s and ack.round_start:
            self.cwnd_bytes *= 0.9
        else:
            self.cwnd_bytes += self.mss_bytes * ack.acked_bytes / self.cwnd_bytes

    def on_loss(self, loss: Any) -> None:
        """Halve once per episode."""
        if loss.new_episode:
            self.cwnd_bytes = max(2 * self.mss_bytes, 0.5 * self.cwnd_bytes)


rows = ccenv.compare([Gentle, "cubic"], rate="12mbps", duration="3s").rows
delays: dict[str, float | None] = {row.sender: row.queue_p95_ms for row in rows}
print(delays)
