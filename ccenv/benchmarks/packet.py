"""Speed of the packet engine: packets per second and core with real CCAs and the log at 10 ms.

A packet is counted when its service at the bottleneck ends; building the run and compiling are not timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import FlowSpec, LinkSpec, NetworkSpec
from ccenv.network.path import MBPS_IN_BPS
from ccenv.agents.sender import Sender

RATE_MBPS, RTT_S, BUFFER_BDP = 1000.0, 0.04, 1.0
MIXED = ("cubic", "bbr1", "copa", "reno")
# name -> senders, simulated seconds
CASES: dict[str, tuple[tuple[str, ...], float]] = {
    "packet_reno_1_per_s": (("reno",), 30.0),
    "packet_mixed_8_per_s": (MIXED * 2, 20.0),
    "packet_64_per_s": (MIXED * 16, 10.0),
}
REPETITIONS = 5


def measure(make_sender: Callable[[str], Sender]) -> dict[str, float]:
    """Measure all cases.

    Args:
        make_sender: builds a sender by name (``ccenv.agents.make_sender``).

    Returns:
        dict: packets per second per case, the median run, and the best under ``..._best``.
    """
    out: dict[str, float] = {}
    for name, (specs, seconds) in CASES.items():
        senders = [make_sender(spec) for spec in specs]
        packets_per_s(specs, senders, 0.1)
        found = [packets_per_s(specs, senders, seconds) for _ in range(REPETITIONS)]
        out[name], out[f"{name}_best"] = round(statistics.median(found)), round(max(found))
    return out


def packets_per_s(specs: tuple[str, ...], senders: list[Sender], seconds: float) -> float:
    """Return the packets per second of one run."""
    rate_Bps = RATE_MBPS * MBPS_IN_BPS
    network = NetworkSpec(
        links=(LinkSpec(rate_Bps=rate_Bps, buffer_bytes=BUFFER_BDP * rate_Bps * RTT_S),),
        flows=tuple(FlowSpec(sender=spec, rtt_s=RTT_S) for spec in specs),
    )
    engine = PacketEngine(network, senders, duration_s=seconds)
    begin = time.perf_counter()
    engine.advance(seconds)
    took_s = time.perf_counter() - begin
    return float(engine.link("served_bytes")[0]) / network.mss_bytes / took_s
