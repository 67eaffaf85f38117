"""DCTCP and Prague against numbers that follow from RFC 8257 and the draft by hand."""

import pytest
from signals_play import MSS, fresh_state
from signals_play import ack as plain_ack

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.classic import dctcp, prague


def ack(**values: float):
    return plain_ack(**({"acked_bytes": MSS, "rtt_s": 0.02, "min_rtt_s": 0.02, "inflight_bytes": 20 * MSS} | values))


def test_alpha_is_averaged_with_a_sixteenth() -> None:
    assert dctcp.average(1.0, 0.0, 1 / 16) == 0.9375 and dctcp.average(0.0, 1.0, 1 / 16) == 0.0625


@pytest.mark.parametrize("module", [dctcp, prague])
def test_a_mark_reduces_by_half_of_alpha_and_only_once_per_window(module) -> None:
    state = fresh_state(make_sender(module.__name__.rpartition(".")[2]))
    module.init(state)
    state.cwnd_bytes = state.ssthresh_bytes = 20 * MSS
    state.alpha = 0.5
    if module is prague:
        state.srtt_s, state.round_at_s = 0.02, 10.0
    module.on_ack(state, ack(now_s=10.0, delivered_bytes=100 * MSS, ecn_fraction=1.0))
    assert state.cwnd_bytes == pytest.approx(15 * MSS)
    module.on_ack(state, ack(now_s=10.001, delivered_bytes=101 * MSS, ecn_fraction=1.0))
    grown = MSS / 15 if module is dctcp else 0.0  # Prague grows by unmarked bytes only
    assert state.cwnd_bytes == pytest.approx(15 * MSS + grown)


def test_prague_with_a_short_rtt_grows_as_one_with_the_virtual_rtt() -> None:
    """At 5 ms a segment per 25 ms and RTT of 25 ms: (5/25)^2 of a segment per round."""
    for rtt_s, share in ((0.005, 0.04), (0.05, 1.0)):
        state = fresh_state(make_sender("prague"))
        prague.init(state)
        state.cwnd_bytes = state.ssthresh_bytes = 10 * MSS
        state.srtt_s = rtt_s
        prague.on_ack(state, ack(now_s=1.0, delivered_bytes=100 * MSS, rtt_s=rtt_s))
        assert state.cwnd_bytes - 10 * MSS == pytest.approx(share * MSS / 10)
        assert state.pacing_rate_Bps == pytest.approx(state.cwnd_bytes / rtt_s)


@pytest.mark.parametrize("sender", ["dctcp", "prague"])
def test_a_loss_halves_what_was_in_flight(sender: str) -> None:
    links, flows = [{"rate_mbps": 12, "buffer_bdp": 1}], [{"sender": sender, "rtt_ms": 40}]
    result = ccenv.simulate({"duration_s": 30, "warmup_s": 10, "links": links, "flows": flows})
    windows = result.flow_log["cwnd_bytes"][1000:, 0]
    assert windows.min() > 0.4 * windows.max()  # a saw as Reno's, over drop-tail
    assert windows.min() < 0.62 * windows.max() and result.summary()["links"][0]["utilisation"] > 0.9


def test_over_an_ecn_threshold_dctcp_keeps_the_queue_at_it() -> None:
    """RFC 8257 s.1: high throughput with a short queue; a Reno flow would halve and empty a queue of 20 packets."""
    link = {"rate_mbps": 100, "buffer_packets": 1000, "discipline": "ecn", "threshold_packets": 20}
    scene = {"duration_s": 10, "warmup_s": 3, "links": [link], "flows": [{"sender": "dctcp", "rtt_ms": 4}]}
    (found,) = ccenv.simulate(scene).summary()["links"]
    assert found["utilisation"] > 0.99 and 8 < found["queue_packets"] < 26 and found["loss"] == 0
