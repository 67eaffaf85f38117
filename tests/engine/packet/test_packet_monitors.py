"""What is measured and believed per packet, against the plain references."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.packet import PacketReference
from oracles.signals import signals_of
from shields_data import inside

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION, Clock, Interface
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNALS, fill_signals
from ccenv.agents.programs import parse_program
from ccenv.agents.sender import ExternalSender, HeldSender, PolicySender, ProgramSender, Sender
from ccenv.base.random import uniform
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning
from ccenv.engine.packet.batch.players import SenderTable
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.path import MBPS_IN_BPS, make_path

RATE_Bps = 1.5e6
LINK = {"rate_Bps": RATE_Bps, "buffer_bytes": 30_000}
OUT = {"sender": "external", "rtt_s": 0.02}
SECONDS = 1.0


def interface(action: str = "rate_delta", **more: object) -> Interface:
    return Interface.model_validate({"signals": "aurora", "action": action, **more})


# name -> links, flows, interface, least number of decisions
CASES: dict[str, tuple[list, list, Interface, int]] = {
    "rates": ([LINK], [OUT], interface(), 20),
    "windows": ([LINK], [OUT, {"sender": "cubic", "rtt_s": 0.03}], interface("cwnd_exp2"), 15),
    "windows by parts": ([LINK], [OUT], interface("cwnd_delta", parameters={"step": 0.5, "pacing_gain": 1.0}), 15),
    "over a CCA": ([LINK], [OUT], interface("cwnd_exp2_over", inner="cubic"), 15),
    "beliefs": (
        [{**LINK, "buffer_bytes": 90_000}], [OUT, {"sender": "reno", "rtt_s": 0.03, "start_s": 0.3}],
        interface("rate_log2", signals="beliefs", clock={"every": "rtt"}), 45,
    ),
    "own times": (
        [LINK], [OUT, {**OUT, "rtt_s": 0.031, "start_s": 0.2, "stop_s": 0.6}, {**OUT, "rtt_s": 0.025, "start_s": 0.4}],
        interface("rate_exp2"), 50,
    ),
    "common times": (
        [LINK],
        [{**OUT, "stop_s": 0.5}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}, {"sender": "reno", "rtt_s": 0.02, "stop_s": 0.7}],
        interface("rate_exp2", clock={"common": True}), 35,
    ),
    "acks": ([LINK], [OUT, {**OUT, "start_s": 0.1}], interface(clock={"every": "acks", "count": 10}), 30),
    "acks in bursts": (
        [LINK], [{**OUT, "receiver": {"aggregation": "interval", "aggregate_s": 0.01, "ack_every": 2}}],
        interface("cwnd_exp2", clock={"every": "acks", "count": 3}), 20,
    ),
    "seconds": ([LINK], [{**OUT, "loss_rate": 0.05}], interface(clock={"every": "seconds", "count": 0.013}), 70),
    "smallest RTTs": (
        [LINK], [OUT, {**OUT, "rtt_s": 0.031, "start_s": 0.2}], interface("cwnd_exp2", clock={"every": "min_rtt"}), 50,
    ),
    "probes": (
        [LINK], [{**OUT, "loss_rate": 0.02}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}],
        interface("cwnd_exp2_probe", parameters={"probe": 0.2}, clock={"every": "seconds", "count": 0.05}), 30,
    ),
    "a start, then an even window": (
        [LINK], [{**OUT, "loss_rate": 0.02}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}],
        interface("cwnd_exp2_even", clock={"every": "seconds", "count": 0.02, "least_rtts": 2}), 30,
    ),
    "outages": (
        [{**LINK, "rate_steps": [{"time_s": t, "rate_Bps": Bps} for t, Bps in ((0.3, 9.0), (0.5, 1e6), (0.7, 9.0), (0.8, 1e6))]}],
        [OUT, {**OUT, "rtt_s": 0.031}],
        interface("cwnd_exp2_even", clock={"every": "seconds", "count": 0.02, "least_rtts": 2}), 30,
    ),
    "a start, then a pulled window": (
        [LINK], [{**OUT, "loss_rate": 0.02}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}],
        interface("cwnd_exp2_pull", clock={"every": "seconds", "count": 0.02, "least_rtts": 2}), 30,
    ),
    "no acks": ([LINK], [{**OUT, "loss_rate": 0.999}], interface("cwnd_exp2"), 30),
    "no acks to wait for": ([LINK], [{**OUT, "loss_rate": 0.999}], interface("cwnd_exp2", clock={"every": "acks"}), 2),
    "rate steps": (
        [{**LINK, "rate_steps": [{"time_s": 0.31, "rate_Bps": 5e5}, {"time_s": 0.7, "rate_Bps": 2e6}]}], [OUT], interface(), 15,
    ),
    "marks": ([{**LINK, "discipline": "ecn", "threshold_packets": 5}], [OUT], interface("cwnd_exp2"), 20),
    "a transfer that ends": (
        [LINK], [{**OUT, "workload": {"kind": "finite", "size_bytes": 60_000}}, {"sender": "reno", "rtt_s": 0.02}],
        interface("cwnd_exp2", signals=["app_left"]), 3,
    ),
    "batches": ([LINK], [{**OUT, "workload": {"kind": "batches", "size_bytes": 9000, "every_s": 0.11}}], interface(), 20),
    "inside a shield": (
        [{**LINK, "buffer_bytes": 90_000}], [OUT, {"sender": "reno", "rtt_s": 0.03, "start_s": 0.3}],
        interface("rate_between", signals="beliefs", clock={"every": "rtt"}), 45,
    ),
    "two inside one": (
        [{**LINK, "buffer_bytes": 90_000}], [{**OUT, "loss_rate": 0.01}, {**OUT, "rtt_s": 0.031, "start_s": 0.2, "stop_s": 0.6}],
        interface("rate_between", clock={"every": "rtt"}), 60,
    ),
    "parking lot": (
        [{"name": "a", **LINK, "delay_s": 0.002}, {"name": "b", "rate_Bps": 1.2e6, "buffer_bytes": 45_000, "delay_s": 0.004}],
        [{**OUT, "rtt_s": 0.03, "access_s": 0.001}, {**OUT, "route": ["a"]}], interface("rate_exp2"), 30,
    ),
}  # fmt: skip


def act(flow: int, number: int) -> float:
    """Return what a flow asks for at its n-th decision: any number, most of them upwards so that queues build up."""
    return 1.5 * uniform(3.0, 0.0, float(flow), float(number)) - 0.5


def parts_of(name: str) -> tuple[NetworkSpec, list[Sender], dict[int, Decider]]:
    """Return the network of a case, its senders, inside a shield where their action needs one, and who decides for them."""
    links, flows, used, _ = CASES[name]
    network = NetworkSpec.model_validate({"links": links, "flows": flows})
    outside = inside("external") if used.action == "rate_between" else ExternalSender()
    senders = [outside if f.sender == "external" else make_sender(f.sender) for f in network.flows]
    inner = make_sender(used.inner) if used.inner else None
    return network, senders, {i: Decider(interface=used, inner=inner) for i, s in enumerate(senders) if s is outside}


def play(network: NetworkSpec, senders: list[Sender], deciders: dict[int, Decider]) -> tuple[list, PacketBatch]:
    """Run a network in the kernel, with decisions from outside; return flow, measures and signals of each decision."""
    n = len(network.flows)
    table = SenderTable(senders, [deciders.get(i) for i in range(n)])
    form = Form(network, table, deciders, {}, [i for i in range(n) if table.rows["step_at"][i]])
    begins = beginning(network, range(n), 5.0, len(deciders))
    batch = PacketBatch(form, 1, needed_words(form, begins))
    batch.begin(np.zeros(1, np.int64), begins)
    found, signals = [], np.zeros(N_SIGNALS)
    flows = sorted(deciders)
    numbers = dict.fromkeys(flows, 0)
    while True:
        batch.advance(np.array([np.nextafter(SECONDS, 2 * SECONDS)]), 10_000_000)
        monitors = batch.arrays.monitors[0]
        due = [row for row in range(len(flows)) if monitors["due"][row] == 1]
        if not due:
            break
        for row in due:
            measures = batch.arrays.measures[0, row]
            fill_signals(measures, signals)
            found.append((flows[row], dict(zip(MEASURES.names or (), measures.item(), strict=True)), signals.tolist()))
            monitors["asked"][row] = act(flows[row], numbers[flows[row]])
            numbers[flows[row]] += 1
    assert batch.arrays.run["error"][0, 0] == 0
    return found, batch


@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_reference(name: str) -> None:
    network, senders, deciders = parts_of(name)
    found, batch = play(network, senders, deciders)
    reference = PacketReference(network, senders, seed=5, deciders=deciders, decide=act)
    for flow, mask in zip(reference.flows, batch.arrays.flows[0]["mask"], strict=True):
        flow.receive_window = mask + 1  # twice what the path holds
    reference.advance(SECONDS)
    assert len(found) >= CASES[name][-1] and [flow for flow, _, _ in found] == [flow for flow, _ in reference.decisions]
    for (_, measures, signals), (_, wanted) in zip(found, reference.decisions, strict=True):
        for field in MEASURES.names or ():
            assert measures[field] == pytest.approx(wanted[field], rel=1e-7, abs=1e-9), (field, measures["now_s"])
        for row, value, right in zip(SIGNALS, signals, signals_of(wanted), strict=True):
            assert value == pytest.approx(right, rel=1e-6, abs=1e-6), (row.name, measures["now_s"])
    over = batch.arrays.run["over"][0, 0] == 1  # a network stops where nobody will decide any more
    assert over == (name == "a transfer that ends")
    for field in ("sent_bytes", "delivered_bytes", "found_lost_bytes"):
        for counted, flow in zip(batch.arrays.flows[field][0].tolist(), reference.flows, strict=True):
            assert counted == getattr(flow, field) or over, field


def test_what_is_measured_happens_in_the_cases() -> None:
    """Each measure differs from 0, and takes several values, in some case; else the comparison above says nothing of it."""
    seen: dict[str, set[float]] = {name: set() for name in MEASURES.names or ()}
    for case in CASES:
        for _, measures, _ in play(*parts_of(case))[0]:
            for name, value in measures.items():
                seen[name].add(value)
    constant = {name for name, values in seen.items() if len(values - {0.0}) < 2}
    assert constant == {"mss_bytes", "utilised", "true_others"} and seen["utilised"] == seen["true_others"] == {0.0, 1.0}


def test_watching_changes_nothing() -> None:
    """A flow that is watched sends as one that nobody watches; only its decisions are events of their own."""
    network = NetworkSpec.model_validate(
        {"links": [LINK], "flows": [{"sender": "cubic", "rtt_s": 0.02}, {"sender": "bbr1", "rtt_s": 0.03}]}
    )
    watched = {i: Decider(clock=Clock(every="rtt", common=True)) for i in range(2)}
    senders = [make_sender("cubic"), make_sender("bbr1")]
    found, batch = play(network, senders, watched)
    alone = PacketReference(network, senders, seed=5)
    alone.advance(SECONDS)
    assert len(found) > 50
    for field in ("sent_bytes", "delivered_bytes", "found_lost_bytes"):
        assert batch.arrays.flows[field][0].tolist() == [getattr(flow, field) for flow in alone.flows]


MSS = 1500.0
PROGRAMS = ("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel")


def build(name: str, rate_Bps: float, rtt_s: float, buffer_bdp: float, jitter_s: float, seconds: float) -> PacketEngine:
    jitter = {"kind": "batch", "max_s": jitter_s} if jitter_s else {}
    link = {"rate_Bps": rate_Bps, "buffer_bytes": max(MSS, buffer_bdp * rate_Bps * rtt_s)}
    network = NetworkSpec.model_validate({"links": [link], "flows": [{"sender": name, "rtt_s": rtt_s, "jitter": jitter}]})
    return PacketEngine(network, [make_sender(name)], duration_s=seconds)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PROGRAMS), st.floats(12, 200), st.floats(0.01, 0.1), st.floats(0.1, 8), st.sampled_from([0.0, 1.0, 2.0]))
def test_bounds_hold(name: str, bdp_packets: float, rtt_s: float, buffer_bdp: float, jitter_rtts: float) -> None:
    assert bdp_packets >= STEPS_PER_RTT  # else a packet takes longer than a step
    rate_Bps = bdp_packets * MSS / rtt_s
    engine = build(name, rate_Bps, rtt_s, buffer_bdp, jitter_rtts * rtt_s, 4.0)
    slack = 1.0 if jitter_rtts == 0 else 1.0 + 1.0 / bdp_packets  # with jitter up to one packet per window
    for until_s in np.arange(0.25, 4.01, 0.25):
        engine.advance(float(until_s))
        (beliefs,) = engine.beliefs().values()
        assert beliefs["C_L_Bps"] <= rate_Bps * slack * (1 + 1e-9) and beliefs["C_U_Bps"] >= rate_Bps / slack * (1 - 1e-9)


@pytest.mark.parametrize("name", ["cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_qdel"])
@pytest.mark.parametrize(("buffer_bdp", "jitter_ms"), [(1.0, 0.0), (4.0, 40.0)])
def test_programs_use_the_link_as_in_the_curve_engine(name: str, buffer_bdp: float, jitter_ms: float) -> None:
    rate_Bps, seconds, warm_up_s = 48 * MBPS_IN_BPS, 30.0, 10.0
    engine = build(name, rate_Bps, 0.04, buffer_bdp, jitter_ms / 1e3, seconds)
    engine.advance(warm_up_s)
    before = float(engine.link("served_bytes")[0])
    engine.advance(seconds)
    packet = (float(engine.link("served_bytes")[0]) - before) / rate_Bps / (seconds - warm_up_s)
    path = make_path(link_rate_mbps=48, rtt_ms=40.0, jitter_ms=jitter_ms, buffer_bdp=buffer_bdp)
    curves = CurveEngine([path], senders=[make_sender(name)], adversary=make_adversary("batch"), history_rtts=30.0)
    steps_per_s = 8 / 0.04
    curves.advance(round(warm_up_s * steps_per_s))
    start = curves.totals()["S"][0, 0]
    curves.advance(round((seconds - warm_up_s) * steps_per_s))
    curve = (curves.totals()["S"][0, 0] - start) / rate_Bps / (seconds - warm_up_s)
    assert packet == pytest.approx(curve, abs=0.03)


def policy(seed: int | None = None) -> PolicySender:
    """Return a policy with random weights; without a seed, one whose action is always 1/3, that is the rate 2 C_L."""
    if seed is None:
        weights, biases = (np.zeros((N_OBSERVATION, 8)), np.zeros((8, 1))), (np.zeros(8), np.array([1 / 3]))
    else:
        rng = np.random.default_rng(seed)
        weights = (rng.normal(0, 0.4, (N_OBSERVATION, 8)), rng.normal(0, 0.4, (8, 1)))
        biases = (rng.normal(0, 0.2, 8), np.array([0.15]))
    return PolicySender("policy", weights, biases, "tanh")


def network_of(n: int, **changes: object) -> NetworkSpec:
    flows = [{"sender": "any", "rtt_s": 0.02 * (1 + i % 2), "start_s": 0.013 * i, **changes} for i in range(n)]
    return NetworkSpec.model_validate({"links": [{"rate_Bps": 1.5e6, "buffer_bytes": 40 * MSS}], "flows": flows})


@pytest.mark.parametrize(("names", "changes"), [
    (("cc_qdel", "cc_probe_drain"), {}), (("cc_qdel", "cc_probe_drain"), {"receiver": {"ack_every": 4}}),
    (("cc_qdel", "policy 1"), {"told_rtt_s": 0.014}),
    (("cc_probe_slow", "cc_probe_slow_k:k=2"), {"jitter": {"kind": "batch", "max_s": 0.02}}),
    (("cc_probe_qdel", "cc_probe_fast"), {"loss_rate": 0.02}),
    (("lambda_proxy:target_s=0.05,window_s=0.3,inner=cc_qdel", "fixed_delay_proxy:delay_s=0.03,inner=cc_probe_drain"), {}),
    (("policy 1", "policy 2", "reno"), {"loss_rate": 0.01}),
    (("lambda_proxy policy", "policy 2"), {"jitter": {"kind": "constant", "max_s": 0.01}}),
])  # fmt: skip
def test_beliefs_equal_the_reference(names: tuple[str, ...], changes: dict) -> None:
    """The bounds are summed in another order, so what is compared agrees to 1e-9 of its size, not to the last bit."""
    made = {"lambda_proxy policy": HeldSender("held", policy(10), "lambda", 0.06, 0.2)}
    senders = [made.get(n) or (policy(int(n[7:])) if n.startswith("policy") else make_sender(n)) for n in names]
    network = network_of(len(names), **changes)
    engine = PacketEngine(network, senders, duration_s=1.2, seed=5)
    reference = PacketReference(network, senders, seed=5)
    for until_s in (0.3, 0.6, 0.9, 1.2):
        engine.advance(until_s)
        reference.advance(until_s)
        for field in ("sent_bytes", "found_lost_bytes", "goodput_bytes", "inflight_bytes", "dropped_bytes"):
            assert engine.flow(field).tolist() == [getattr(flow, field) for flow in reference.flows], (until_s, field)
        for grid in reference.grids:
            found = engine.beliefs()[grid.flow.index]
            bounds = (grid.bounds.C_L, grid.bounds.C_U, grid.bounds.C_L_lambda, grid.q_U)
            assert list(found.values()) == pytest.approx(bounds, rel=1e-9, abs=1e-3), until_s
            assert engine.flow("rate_Bps")[grid.flow.index] == pytest.approx(grid.rate_Bps, rel=1e-9), until_s


def test_a_policy_does_what_a_program_with_its_rule_does() -> None:
    """An action of 1/3 is the rate 2 C_L: the same run as that of the program, in both engines, to the last bit."""
    rule = {"format": "ccenv-program", "version": 1, "name": "twice", "source": "none", "rule": {"rate": {"C_L": 2}}}
    program = ProgramSender("twice", parse_program(json.dumps(rule).encode(), "twice"))
    path = make_path(link_rate_mbps=12, rtt_ms=20.0, jitter_ms=0.0, buffer_bdp=2)
    logs, totals = [], []
    for sender in (policy(), program):
        engine = PacketEngine(network_of(2), [sender] * 2, duration_s=2.0)
        engine.advance(2.0)
        logs.append(engine.flow_log)
        curves = CurveEngine([path], senders=[sender])
        curves.advance(400)
        totals.append(curves.totals()["S"])
    assert logs[0].tobytes() == logs[1].tobytes() and totals[0].tolist() == totals[1].tolist()
    assert (logs[0]["goodput_bytes"][-1] > 20 * MSS).all()


@pytest.mark.parametrize("buffer_bdp", [0.5, 8.0])
def test_cc_probe_slow_k_is_cc_qdel_until_the_first_large_loss(buffer_bdp: float) -> None:
    """[CCmatic] s.6.4: with deep buffers there is none, so that it stays cc_qdel."""
    engines = [build(name, 6e6, 0.04, buffer_bdp, 0.04, 20.0) for name in ("cc_qdel", "cc_probe_slow_k")]
    for engine in engines:
        engine.advance(20.0)
    lost = engines[0].flow_log["found_lost_bytes"][:, 0]
    same = (engines[0].flow_log == engines[1].flow_log)[:, 0]
    if buffer_bdp > 2:
        assert same.all() and lost[-1] == 0
    else:
        first = int(np.argmax(engines[0].flow_log["dropped_bytes"][:, 0] > 3 * MSS))
        assert same[:first].all()
        late = slice(len(lost) // 2, None)
        assert np.ptp(engines[1].flow_log["dropped_bytes"][late]) < 0.2 * np.ptp(engines[0].flow_log["dropped_bytes"][late])


def test_cc_probe_slow_grows_by_half_a_segment_per_cycle() -> None:
    """[CCmatic] s.6.2.1 at D = T* = Rm: alpha/(T* + D) per probe, one probe in three Rm; so 1 + t/(6 Rm) segments per Rm."""
    engine = build("cc_probe_slow", 48 * MBPS_IN_BPS, 0.04, 4.0, 0.04, 10.0)
    engine.advance(10.0)
    (beliefs,) = engine.beliefs().values()
    assert beliefs["C_L_lambda_Bps"] * 0.04 / MSS == pytest.approx(1 + 10.0 / (6 * 0.04), rel=0.1)
