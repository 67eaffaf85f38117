"""The setting of the tests of single CCAs: constant signals, and the link of ``packet_link`` with round numbers.

The link: 12 Mbit/s, Rm 40 ms, segments of 1500 bytes: 1000 segments/s, BDP 40 segments.
"""

from signals_play import ack, compiled, fresh_state, loss, tick

MSS = 1500.0
RATE_Bps = 1.5e6
RTT_S = 0.04
BDP_MSS = 40.0
LINK = {"rate_Bps": RATE_Bps, "rtt_s": RTT_S}


class Steady:
    """A connection whose window is acknowledged evenly, once per RTT, in so many pieces."""

    def __init__(self, sender, *, rtt_s=RTT_S, pieces=50):
        self.init, self.on_ack, self.on_loss, self.on_tick = compiled(sender)
        self.state = fresh_state(sender)
        self.init(self.state)
        self.rtt_s, self.pieces, self.now_s, self.delivered, self.count = rtt_s, pieces, 0.0, 0.0, 0

    def step(self, **values):
        """Acknowledge one piece of the window."""
        self.now_s += self.rtt_s / self.pieces
        size = self.state.cwnd_bytes / self.pieces
        self.delivered += size
        start = float(self.count % self.pieces == 0)
        self.count += 1
        given = {
            "now_s": self.now_s,
            "acked_bytes": size,
            "delivered_bytes": self.delivered,
            "rtt_s": self.rtt_s,
            "min_rtt_s": self.rtt_s,
            "delivery_rate_Bps": self.state.cwnd_bytes / self.rtt_s,
            "inflight_bytes": self.state.cwnd_bytes - size,
            "round_start": start,
            "prior_delivered_bytes": max(0.0, self.delivered - self.state.cwnd_bytes),
            "tx_inflight_bytes": self.state.cwnd_bytes,
        }
        self.on_ack(self.state, ack(**(given | values)))

    def rounds(self, n, **values):
        for _ in range(n * self.pieces):
            self.step(**values)

    def lose(self, lost_bytes=MSS, **values):
        given = {
            "now_s": self.now_s,
            "lost_bytes": lost_bytes,
            "inflight_bytes": self.state.cwnd_bytes - lost_bytes,
            "delivered_bytes": self.delivered,
            "new_episode": 1.0,
        }
        self.on_loss(self.state, loss(**(given | values)))

    def tick(self, **values):
        given = {"now_s": self.now_s, "dt_s": 0.01, "delivered_bytes": self.delivered, "min_rtt_s": self.rtt_s}
        self.on_tick(self.state, tick(**(given | values)))

    def leave_recovery(self):
        self.delivered += self.state.cwnd_bytes * 3

    @property
    def cwnd_mss(self):
        return self.state.cwnd_bytes / MSS
