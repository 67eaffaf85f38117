"""Senders per packet: every one is finite, agrees with the curve engine, and rests where closed forms say."""

import numpy as np
import pytest

import ccenv
from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import HeldSender
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.beliefs import STEPS_PER_RTT as PROGRAM_STEPS_PER_RTT
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.laws import check_trace
from ccenv.network.path import MBPS_IN_BPS, make_path
from ccenv.simulation.packet_trace import packet_slack_bytes
from ccenv.simulation.result import Result
from ccenv.simulation.run import simulate

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
    "lambda_proxy", "fixed_delay_proxy", "gcc", "ever_delay", "aimd_delay", "nice", "tcp_lp", "proteus", "verus", "sprout",
    "libra", "remy", "packet_train",
)  # fmt: skip
PROGRAMS = (
    "cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel", "cc_probe_slow_k",
    *AGENTS.names("learned"), *AGENTS.names("distilled"), *AGENTS.names("shield"),
)  # fmt: skip
# Where the engines part ways, and why: docs/simulation.md, Agreement.
UTILISATION = {("cc_probe_slow", "12 Mbit/s"): 0.05, ("cc_probe_slow", "4 BDP"): 0.05, ("cc_probe_slow_k", "12 Mbit/s"): 0.07}
QUEUE = {
    ("allegro", "half a BDP"): 0.15, ("cc_probe_drain", "half a BDP"): 0.15, ("cc_probe_slow", "12 Mbit/s"): 0.25,
    ("cc_probe_slow", "4 BDP"): 0.25, ("cc_probe_slow_k", "12 Mbit/s"): 0.4,
    ("ever_delay", "12 Mbit/s"): 0.4,  # 28.9 against 20.8 packets: in one BDP it loses and repairs for ever
    ("lambda_proxy", "48 Mbit/s"): 0.25, ("lambda_proxy", "half a BDP"): 0.25, ("lambda_proxy", "4 BDP"): 0.4,
    ("learned_nominal", "48 Mbit/s"): 0.15,  # 24.2 against 27.1 packets: belief time-outs fall on other steps
    ("learned_shield_u80", "48 Mbit/s"): 0.2,  # 18.2 against 15.4 packets
    ("learned_shield_u80_firm", "48 Mbit/s"): 0.2,  # 20.3 against 17.3 packets
    ("learned_shield_u77_timeouts", "48 Mbit/s"): 0.15,  # 16.8 against 19.5 packets
    ("learned_robust_v2", "48 Mbit/s"): 0.12,  # 30.6 against 27.8 packets
    ("learned_robust_v3", "48 Mbit/s"): 0.12,  # the same
    ("learned_robust", "12 Mbit/s"): 0.26, ("learned_robust", "4 BDP"): 0.26, ("learned_robust_d4", "12 Mbit/s"): 0.35,
    ("learned_robust_d4", "4 BDP"): 0.35, ("learned_nominal_u78", "12 Mbit/s"): 0.26, ("learned_nominal_u78", "4 BDP"): 0.26,
    ("learned_nominal_u54", "48 Mbit/s"): 0.17, ("learned_nominal_u54", "half a BDP"): 0.12,
}  # fmt: skip
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


QUICK = [*((cca, "12 Mbit/s") for cca in CCAS), *((program, "48 Mbit/s") for program in PROGRAMS)]
OTHERS = [(cca, name) for name in PATHS for cca in CCAS + PROGRAMS if (cca, name) not in QUICK]


@pytest.mark.parametrize(("cca", "name"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)])
def test_engines_agree(cca: str, name: str) -> None:
    packet, curve = per_packet(cca, *PATHS[name]), as_curves(cca, *PATHS[name])
    assert packet[0] == pytest.approx(curve[0], abs=UTILISATION.get((cca, name), 0.02))
    assert packet[1] == pytest.approx(curve[1], rel=QUEUE.get((cca, name), 0.1), abs=PACKETS)
    assert packet[2] == pytest.approx(curve[2], abs=0.01)


def test_every_sender_is_compared() -> None:
    names = {spec.partition(":")[0] for spec in (*CCAS, *PROGRAMS)}
    per_packet_only = set(AGENTS.names("packet"))  # trained on segments, ACK by ACK; their signals: test_packet_policies
    assert names == set(AGENTS.names()) - per_packet_only


def run(sender: str, link_rate_mbps: float, rtt_ms: float, seconds: float, *, n: int = 1, **changes: object) -> Result:
    flows = [{"sender": sender, "rtt_ms": rtt_ms, **changes} for _ in range(n)]
    return simulate({"duration_s": seconds, "links": [{"rate_mbps": link_rate_mbps, "buffer_bdp": 12}], "flows": flows})


@pytest.mark.parametrize("loss_rate", [0.001, 0.003])
def test_reno_sqrt_law(loss_rate: float) -> None:
    """Mathis et al. 1997: with an ACK per segment the mean window is sqrt(3/2)/sqrt(p) segments (38.7 and 22.4)."""
    result = run("reno", 1000, 50, 300, loss_rate=loss_rate)
    window_mss = result.throughput_Bps()[2000:, 0].mean() * 0.05 / MSS
    assert window_mss == pytest.approx((1.5 / loss_rate) ** 0.5, rel=0.08)


@pytest.mark.parametrize("n", [2, 4])
def test_bbr1_limited_by_its_window_rests_at_twice_the_rtt(n: int) -> None:
    """[Starvation] s.5.2: RTT = 2 Rm + n alpha/C; at 24 Mbit/s alpha is three quanta of two segments, so 80 + 3 n ms."""
    result = run("bbr1", 24, 40, 40, n=n, jitter={"kind": "batch", "max_ms": 4})
    rtt_s = result.flow_log["rtt_s"][1000:, 0]
    assert np.median(rtt_s) == pytest.approx(0.08 + n * 6 * MSS / (24 * MBPS_IN_BPS), rel=0.03)
    shares = result.throughput_Bps()[1000:].mean(axis=0)
    assert shares.max() < 2 * shares.min()


@pytest.mark.parametrize("link_rate_mbps", [12, 96])
def test_copa_delay_swings_by_four_packets(link_rate_mbps: float) -> None:
    """[Starvation] s.2.2: delta_max = 4 alpha/C, from the packet's own service to four more."""
    result = run("copa:mode_switching=0", link_rate_mbps, 40, 30)
    packets = (result.flow_log["rtt_s"][1000:, 0] - 0.04) * link_rate_mbps * MBPS_IN_BPS / MSS
    assert np.ptp(packets) == pytest.approx(4.0, abs=0.6) and packets.min() == pytest.approx(1.0, abs=0.1)


def test_vivace_delay_stays_within_a_twentieth_of_rm() -> None:
    """[Starvation] s.5.3: delta_max = Rm/20, since eps is 5 %: the mean over the swings lies in it."""
    result = run("vivace", 48, 60, 60)
    queueing_s = result.flow_log["rtt_s"][2000:, 0] - 0.06 - MSS / (48 * MBPS_IN_BPS)
    assert 0 <= queueing_s.mean() < 0.06 / 20


def test_bbr3_latecomers_get_their_share() -> None:
    """A probe is judged packet by packet: with losses counted per round a flow that began 10 s later got a quarter."""
    shares = []
    for seed in range(4):
        flows = [{"sender": "bbr3", "rtt_ms": 40}, {"sender": "bbr3", "rtt_ms": 40, "start_s": 10 + 0.37 * seed}]
        link = {"rate_mbps": 100, "buffer_bdp": 0.1}
        summary = simulate(
            {"name": "late", "seed": seed, "duration_s": 40, "warmup_s": 20, "links": [link], "flows": flows}
        ).summary()
        first, late = (flow["throughput_mbps"] for flow in summary["flows"])
        shares.append(late / (first + late))
    assert 0.33 < np.mean(shares) < 0.6


MSS_BYTES, RATE_Bps, RTT_S, SECONDS, BUFFER_PACKETS, BOUND_S = 1500.0, 1.5e6, 0.03, 3.0, 30, 0.03
BOXES = [{"kind": kind, "max_s": BOUND_S} for kind in ("constant", "batch", "uniform", "early")]
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
        assert packet_slack_bytes(trace) == pytest.approx(2 * MSS_BYTES)
        assert check_trace(trace, slack_bytes=2 * MSS_BYTES) == [], box


@pytest.mark.parametrize("name", SENDERS)
def test_every_sender_runs_in_every_jitter_box(name: str) -> None:
    flows = [{"sender": name, "rtt_s": RTT_S, "jitter": box, "loss_rate": 0.002 * (i % 2)} for i, box in enumerate(BOXES)]
    link = {"rate_Bps": RATE_Bps * len(flows), "buffer_bytes": BUFFER_PACKETS * len(flows) * MSS_BYTES}
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
    assert (engine.flow("goodput_bytes") > 10 * MSS_BYTES).all()
    lost = log["dropped_bytes"] + log["random_lost_bytes"]
    assert (log["goodput_bytes"] + lost <= log["sent_bytes"]).all()
    assert (engine.link_log["queue_bytes"] <= link["buffer_bytes"]).all()
    shortest_s = RTT_S + MSS_BYTES / link["rate_Bps"]
    queue_s = (BUFFER_PACKETS * len(flows) + 1) * MSS_BYTES / link["rate_Bps"]
    mean_s = engine.flow("rtt_sum_s") / engine.flow("rtt_samples")
    assert (engine.flow("min_rtt_s") >= shortest_s - 1e-12).all()
    sender = make_sender(name)
    held_s = sender.target_s if isinstance(sender, HeldSender) else 0.0
    assert (mean_s <= RTT_S + queue_s + BOUND_S + held_s + 1e-9).all()
