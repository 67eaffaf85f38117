"""Curve and packet engine agree where nothing depends on single packets (docs/simulation.md, Agreement)."""

from __future__ import annotations

import numpy as np
import pytest

from ccenv.adversaries import make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.beliefs import STEPS_PER_RTT as PROGRAM_STEPS_PER_RTT
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.path import MBPS_IN_BPS, make_path

MSS = 1500.0
STEPS_PER_RTT = 128  # a step is then about a packet: the curve engine's own delays vanish
WARM_UP_S = 20.0
PATHS = {  # Mbit/s, ms, BDP, seconds: many teeth of the longest saw
    "12 Mbit/s": (12.0, 40.0, 1.0, 60.0),
    "48 Mbit/s": (48.0, 40.0, 1.0, 60.0),
    "half a BDP": (48.0, 80.0, 0.5, 240.0),
    "4 BDP": (12.0, 40.0, 4.0, 60.0),
}
CCAS = (
    "reno", "cubic", "vegas", "copa", "bbr1", "fast", "ledbat", "illinois", "westwood", "hybla", "fourcp_fixed", "fourcp_auto",
    "exp_delay", "constant:rate_mbps=10", "bbr2", "bbr3", "vivace", "vivace_linux", "dctcp", "prague", "allegro", "allegro_linux",
    "lambda_proxy", "fixed_delay_proxy", "gcc", "ever_delay",
)  # fmt: skip
PROGRAMS = (
    "cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel", "cc_probe_slow_k",
    *AGENTS.names("learned"), *AGENTS.names("distilled"), *AGENTS.names("contract"),
)  # fmt: skip
# Where the engines part ways, and why: docs/simulation.md, Agreement.
UTILISATION = {("cc_probe_slow", "12 Mbit/s"): 0.05, ("cc_probe_slow", "4 BDP"): 0.05, ("cc_probe_slow_k", "12 Mbit/s"): 0.07}
QUEUE = {
    ("allegro", "half a BDP"): 0.15,
    ("cc_probe_drain", "half a BDP"): 0.15,
    ("cc_probe_slow", "12 Mbit/s"): 0.25,
    ("cc_probe_slow", "4 BDP"): 0.25,
    ("cc_probe_slow_k", "12 Mbit/s"): 0.4,
    ("lambda_proxy", "48 Mbit/s"): 0.25,
    ("lambda_proxy", "half a BDP"): 0.25,
    ("lambda_proxy", "4 BDP"): 0.4,
    ("learned_nominal", "48 Mbit/s"): 0.15,  # 24.2 against 27.1 packets: belief time-outs fall on other steps
    ("learned_contract_u80", "48 Mbit/s"): 0.2,  # 18.2 against 15.4 packets
    ("learned_contract_u80_firm", "48 Mbit/s"): 0.2,  # 20.3 against 17.3 packets
    ("learned_contract_u77_timeouts", "48 Mbit/s"): 0.15,  # 16.8 against 19.5 packets
    ("learned_robust_v2", "48 Mbit/s"): 0.12,  # 30.6 against 27.8 packets
    ("learned_robust_v3", "48 Mbit/s"): 0.12,  # the same
    ("learned_robust", "12 Mbit/s"): 0.26,
    ("learned_robust", "4 BDP"): 0.26,
    ("learned_robust_d4", "12 Mbit/s"): 0.35,
    ("learned_robust_d4", "4 BDP"): 0.35,
    ("learned_nominal_u78", "12 Mbit/s"): 0.26,
    ("learned_nominal_u78", "4 BDP"): 0.26,
    ("learned_nominal_u54", "48 Mbit/s"): 0.17,
    ("learned_nominal_u54", "half a BDP"): 0.12,
}
PACKETS = 0.8  # a queue of a few packets is known to less than a packet


def per_packet(cca: str, link_rate_mbps: float, rtt_ms: float, buffer_bdp: float, end_s: float) -> tuple[float, float, float]:
    rate_Bps = link_rate_mbps * MBPS_IN_BPS
    link = {"rate_Bps": rate_Bps, "buffer_bytes": buffer_bdp * rate_Bps * rtt_ms / 1e3}
    network = NetworkSpec.model_validate({"links": [link], "flows": [{"sender": cca, "rtt_s": rtt_ms / 1e3}]})
    engine = PacketEngine(network, [make_sender(cca)], duration_s=end_s)
    engine.advance(end_s)
    first = round(WARM_UP_S / engine.log_s)
    served, queue = (np.ptp(engine.link_log[name][first:, 0]) for name in ("served_bytes", "queue_byte_s"))
    dropped, sent = (np.ptp(engine.flow_log[name][first:, 0]) for name in ("dropped_bytes", "sent_bytes"))
    seconds = end_s - WARM_UP_S
    return served / rate_Bps / seconds, queue / MSS / seconds, dropped / sent


def as_curves(cca: str, link_rate_mbps: float, rtt_ms: float, buffer_bdp: float, end_s: float) -> tuple[float, float, float]:
    """Run a program on the packet engine's grid, with a step of D that nobody uses: both engines then have the same beliefs."""
    program = cca in PROGRAMS
    steps_per_rtt = PROGRAM_STEPS_PER_RTT if program else STEPS_PER_RTT
    path = make_path(
        link_rate_mbps=link_rate_mbps, rtt_ms=rtt_ms, buffer_bdp=buffer_bdp, jitter_ms=rtt_ms / steps_per_rtt if program else 0.0
    )
    engine = CurveEngine(
        [path], model="cbr_delay" if program else "ideal", senders=[make_sender(cca)], steps_per_rtt=steps_per_rtt,
        adversary=make_adversary("kind"), beliefs=BeliefSettings() if program else None, record=True,
        history_rtts=4 * (1 + buffer_bdp) + 4 + 20 * program,
    )  # fmt: skip
    steps_per_s = steps_per_rtt * 1e3 / rtt_ms
    engine.advance(round(end_s * steps_per_s))
    trace = engine.trace(0)
    first = round(WARM_UP_S * steps_per_s)
    A, L, S = (array[first:, 0] for array in (trace.A, trace.L, trace.S))
    return np.ptp(S) / path.link_rate_Bps / (end_s - WARM_UP_S), float((A - L - S).mean()) / MSS, np.ptp(L) / np.ptp(A)


def check(cca: str, name: str) -> None:
    packet, curve = per_packet(cca, *PATHS[name]), as_curves(cca, *PATHS[name])
    assert packet[0] == pytest.approx(curve[0], abs=UTILISATION.get((cca, name), 0.02))
    assert packet[1] == pytest.approx(curve[1], rel=QUEUE.get((cca, name), 0.1), abs=PACKETS)
    assert packet[2] == pytest.approx(curve[2], abs=0.01)


@pytest.mark.parametrize("cca", CCAS)
def test_engines_agree(cca: str) -> None:
    check(cca, "12 Mbit/s")


@pytest.mark.parametrize("program", PROGRAMS)
def test_engines_agree_on_programs(program: str) -> None:
    check(program, "48 Mbit/s")


def test_every_sender_is_compared() -> None:
    names = {spec.partition(":")[0] for spec in (*CCAS, *PROGRAMS)}
    per_packet_only = set(AGENTS.names("packet"))  # trained on segments, ACK by ACK; their signals: test_packet_policies
    assert names == set(AGENTS.names()) - per_packet_only


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("cca", CCAS + PROGRAMS)
def test_engines_agree_on_every_path(cca: str, name: str) -> None:
    check(cca, name)
