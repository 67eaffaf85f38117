"""GCC against numbers that follow from draft-ietf-rmcat-gcc-02 by hand."""

import numpy as np
import pytest
from signals_play import ack, compiled, fresh_state, loss

from ccenv.agents import make_sender
from ccenv.agents.classic import gcc
from ccenv.simulation import simulate

MSS, MBPS = 1500.0, 125e3


class Media:
    """A flow whose packets are acknowledged one by one: sent every gap_s, each with an RTT of its own."""

    def __init__(self, spec="gcc:start_mbps=1"):
        sender = make_sender(spec)
        self.init, self.on_ack, self.on_loss, _ = compiled(sender)
        self.state = fresh_state(sender)
        self.init(self.state)
        self.sent_s, self.delivered = 0.0, 0.0

    def send(self, seconds, *, gap_s=0.012, rtt_s=lambda at_s: 0.05):
        begin_s = self.sent_s
        while self.sent_s < begin_s + seconds:
            self.sent_s += gap_s
            rtt, total = rtt_s(self.sent_s - begin_s), self.delivered + MSS
            self.delivered = total
            heard = ack(now_s=self.sent_s + rtt, acked_bytes=MSS, delivered_bytes=total, rtt_s=rtt, mss_bytes=MSS)
            self.on_ack(self.state, heard)

    @property
    def mbps(self):
        return self.state.pacing_rate_Bps / MBPS


def test_it_grows_by_eight_per_cent_a_second_and_by_five_a_report():
    """s.5.5: eta = 1.08 per second; s.6: 1.05 per report; the smaller of both is the rate."""
    flow = Media("gcc:start_mbps=1,max_mbps=10")
    flow.send(0.3)
    before = flow.state.delay_Bps
    flow.send(3.0)
    assert flow.state.delay_Bps / before == pytest.approx(1.08**3, rel=0.02)
    assert flow.state.loss_Bps == pytest.approx(MBPS * 1.05**3)
    assert flow.state.pacing_rate_Bps == min(flow.state.delay_Bps, flow.state.loss_Bps)


def test_a_growing_delay_takes_it_below_what_it_receives_and_a_shrinking_one_makes_it_wait():
    """s.5.5: A_hat = 0.85 R_hat; 1500 bytes every 12 ms are 1 Mbit/s; under-use leads to hold."""
    flow = Media("gcc:start_mbps=2,max_mbps=10")
    flow.send(2.0)
    assert flow.state.signal == gcc.NORMAL
    flow.send(0.5, rtt_s=lambda at_s: 0.05 + 0.2 * at_s)  # sent faster than received
    assert flow.state.mode == gcc.DECREASE and flow.state.delay_Bps == pytest.approx(0.85 * MBPS, rel=0.2)
    assert flow.state.peak_Bps > 0
    flow = Media("gcc:start_mbps=2,max_mbps=10")
    flow.send(2.0, rtt_s=lambda at_s: 0.5)
    flow.send(0.5, rtt_s=lambda at_s: 0.5 - 0.5 * at_s)
    assert (flow.state.signal, flow.state.mode) == (gcc.UNDERUSE, gcc.HOLD)


@pytest.mark.parametrize(("lost", "factor"), [(1, 1.05), (5, 1.0), (40, 1 - 0.5 * 40 / 141)])
def test_losses_of_a_report(lost, factor):
    """s.6: below 2 % up by 5 %, 2 to 10 % as it is, above 10 % down by half the share: of 101 packets and the lost ones."""
    flow = Media("gcc:start_mbps=1,max_mbps=10")
    flow.send(0.012)
    before = flow.state.loss_Bps
    flow.on_loss(flow.state, loss(now_s=0.1, lost_bytes=lost * MSS, mss_bytes=MSS))
    flow.send(0.99, gap_s=0.01)
    assert flow.state.report_acked_bytes == 100 * MSS
    flow.send(0.012)
    assert flow.state.loss_Bps == pytest.approx(before * factor)


def test_the_threshold_stays_in_its_range():
    """s.5.4: within 6 and 600 ms, up faster than down."""
    flow = Media()
    flow.send(60.0)
    assert 6.0 <= flow.state.threshold_ms < 12.5
    rng = np.random.default_rng(1)
    flow.send(20.0, rtt_s=lambda at_s: 0.05 + 0.03 * rng.random())
    assert 6.0 <= flow.state.threshold_ms <= 600.0


def test_on_a_link_it_stays_below_the_rate_with_a_short_queue():
    flow = {"name": "call", "sender": "gcc:start_mbps=1,max_mbps=10", "rtt_ms": 40}
    run = simulate({"duration_s": 60, "warmup_s": 30, "links": [{"rate_mbps": 5, "buffer_bdp": 4}], "flows": [flow]})
    own, link = run.summary()["flows"][0], run.summary()["links"][0]
    assert 0.8 < link["utilisation"] < 1.0 and own["loss"] == 0.0 and own["rtt"] < 0.06
