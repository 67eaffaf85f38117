"""Every sender of the registry runs per packet through every jitter box: finite state, laws of the log, same again."""

from __future__ import annotations

import numpy as np
import pytest

import ccenv
from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import HeldSender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.laws import check_trace
from ccenv.simulation.packet_trace import packet_slack_bytes

MSS, RATE_Bps, RTT_S, SECONDS, BUFFER_PACKETS, BOUND_S = 1500.0, 1.5e6, 0.03, 3.0, 30, 0.03
BOXES = [{"kind": kind, "max_s": BOUND_S} for kind in ("constant", "batch", "early")]
BOXES += [{"kind": "none"}, {"kind": "interval", "max_s": BOUND_S, "interval_s": 0.02}]
BOXES += [{"kind": "replay", "max_s": BOUND_S, "interval_s": 0.01, "delays_s": [0.0, 0.03, 0.004, 0.02]}]
BOXES += [{"kind": "adversary", "max_s": BOUND_S, "adversary": name} for name in sorted(ADVERSARIES.names("scripted"))]
SENDERS = sorted(AGENTS.names())


@pytest.mark.parametrize("name", SENDERS)
def test_the_network_is_legal(name: str) -> None:
    """The independent checker finds every sender's run in every jitter box to obey the laws of CBR-delay, up to whole packets."""
    for box in BOXES:
        flow = {"sender": name, "rtt_s": RTT_S, "access_s": 0.002, "jitter": box, "loss_rate": 0.003}
        link = {"rate_Bps": RATE_Bps, "buffer_packets": BUFFER_PACKETS, "delay_s": 0.004}
        trace = ccenv.simulate({"duration_s": 1.0, "links": [link], "flows": [flow]}, packet_log=True).trace()
        assert packet_slack_bytes(trace) == pytest.approx(2 * MSS)
        assert check_trace(trace, slack_bytes=2 * MSS) == [], box


@pytest.mark.parametrize("name", SENDERS)
def test_every_sender_runs_in_every_jitter_box(name: str) -> None:
    flows = [{"sender": name, "rtt_s": RTT_S, "jitter": box, "loss_rate": 0.002 * (i % 2)} for i, box in enumerate(BOXES)]
    link = {"rate_Bps": RATE_Bps * len(flows), "buffer_bytes": BUFFER_PACKETS * len(flows) * MSS}
    network = NetworkSpec.model_validate({"links": [link], "flows": flows})
    players = {name: make_adversary(name) for name in ADVERSARIES.names("scripted")}
    engines = []
    for _ in range(2):
        engine = PacketEngine(network, [make_sender(name)] * len(flows), adversaries=players, duration_s=SECONDS, seed=1)
        engine.advance(SECONDS)
        engines.append(engine)
    engine, again = engines
    assert engine.flow_log.tobytes() == again.flow_log.tobytes()
    log = engine.flow_log
    for field in log.dtype.names:
        assert not np.isnan(log[field]).any(), field
        if field.endswith(("_bytes", "_sum_s")) and field not in {"cwnd_bytes", "inflight_bytes"}:
            assert (np.diff(log[field], axis=0) >= 0).all(), field
    assert (engine.flow("goodput_bytes") > 10 * MSS).all()
    lost = log["dropped_bytes"] + log["random_lost_bytes"]
    assert (log["goodput_bytes"] + lost <= log["sent_bytes"]).all()
    assert (engine.link_log["queue_bytes"] <= link["buffer_bytes"]).all()
    shortest_s = RTT_S + MSS / link["rate_Bps"]
    queue_s = (BUFFER_PACKETS * len(flows) + 1) * MSS / link["rate_Bps"]
    mean_s = engine.flow("rtt_sum_s") / engine.flow("rtt_samples")
    assert (engine.flow("min_rtt_s") >= shortest_s - 1e-12).all()
    sender = make_sender(name)
    held_s = sender.target_s if isinstance(sender, HeldSender) else 0.0
    assert (mean_s <= RTT_S + queue_s + BOUND_S + held_s + 1e-9).all()
