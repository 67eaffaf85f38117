"""Monitors: kernel and plain reference measure the same and decide at the same times, whatever happens to a flow."""

from __future__ import annotations

import numpy as np
import pytest
from contracts_data import inside
from oracles.packet import PacketReference
from oracles.signals import signals_of

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import Clock, Interface
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, SIGNALS, fill_signals
from ccenv.agents.sender import ExternalSender, Sender
from ccenv.base.random import uniform
from ccenv.engine.packet.batch.batch import PacketBatch, needed_words
from ccenv.engine.packet.batch.form import Form, beginning
from ccenv.engine.packet.batch.players import SenderTable
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import NetworkSpec

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
        [{**LINK, "buffer_bytes": 90_000}],
        [OUT, {"sender": "reno", "rtt_s": 0.03, "start_s": 0.3}],
        interface("rate_log2", signals="beliefs", clock={"every": "rtt"}),
        45,
    ),
    "own times": (
        [LINK],
        [OUT, {**OUT, "rtt_s": 0.031, "start_s": 0.2, "stop_s": 0.6}, {**OUT, "rtt_s": 0.025, "start_s": 0.4}],
        interface("rate_exp2"),
        50,
    ),
    "common times": (
        [LINK],
        [{**OUT, "stop_s": 0.5}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}, {"sender": "reno", "rtt_s": 0.02, "stop_s": 0.7}],
        interface("rate_exp2", clock={"common": True}),
        35,
    ),
    "acks": ([LINK], [OUT, {**OUT, "start_s": 0.1}], interface(clock={"every": "acks", "count": 10}), 30),
    "acks in bursts": (
        [LINK],
        [{**OUT, "receiver": {"aggregation": "interval", "aggregate_s": 0.01, "ack_every": 2}}],
        interface("cwnd_exp2", clock={"every": "acks", "count": 3}),
        20,
    ),
    "seconds": ([LINK], [{**OUT, "loss_rate": 0.05}], interface(clock={"every": "seconds", "count": 0.013}), 70),
    "smallest RTTs": (
        [LINK],
        [OUT, {**OUT, "rtt_s": 0.031, "start_s": 0.2}],
        interface("cwnd_exp2", clock={"every": "min_rtt"}),
        50,
    ),
    "probes": (
        [LINK],
        [{**OUT, "loss_rate": 0.02}, {**OUT, "rtt_s": 0.031, "start_s": 0.2}],
        interface("cwnd_exp2_probe", parameters={"probe": 0.2}, clock={"every": "seconds", "count": 0.05}),
        30,
    ),
    "no acks": ([LINK], [{**OUT, "loss_rate": 0.999}], interface("cwnd_exp2"), 30),
    "no acks to wait for": ([LINK], [{**OUT, "loss_rate": 0.999}], interface("cwnd_exp2", clock={"every": "acks"}), 2),
    "rate steps": (
        [{**LINK, "rate_steps": [{"time_s": 0.31, "rate_Bps": 5e5}, {"time_s": 0.7, "rate_Bps": 2e6}]}],
        [OUT],
        interface(),
        15,
    ),
    "marks": ([{**LINK, "discipline": "ecn", "threshold_packets": 5}], [OUT], interface("cwnd_exp2"), 20),
    "a transfer that ends": (
        [LINK],
        [{**OUT, "workload": {"kind": "finite", "size_bytes": 60_000}}, {"sender": "reno", "rtt_s": 0.02}],
        interface("cwnd_exp2", signals=["app_left"]),
        3,
    ),
    "batches": ([LINK], [{**OUT, "workload": {"kind": "batches", "size_bytes": 9000, "every_s": 0.11}}], interface(), 20),
    "inside a contract": (
        [{**LINK, "buffer_bytes": 90_000}],
        [OUT, {"sender": "reno", "rtt_s": 0.03, "start_s": 0.3}],
        interface("rate_between", signals="beliefs", clock={"every": "rtt"}),
        45,
    ),
    "two inside one": (
        [{**LINK, "buffer_bytes": 90_000}],
        [{**OUT, "loss_rate": 0.01}, {**OUT, "rtt_s": 0.031, "start_s": 0.2, "stop_s": 0.6}],
        interface("rate_between", clock={"every": "rtt"}),
        60,
    ),
    "parking lot": (
        [{"name": "a", **LINK, "delay_s": 0.002}, {"name": "b", "rate_Bps": 1.2e6, "buffer_bytes": 45_000, "delay_s": 0.004}],
        [{**OUT, "rtt_s": 0.03, "access_s": 0.001}, {**OUT, "route": ["a"]}],
        interface("rate_exp2"),
        30,
    ),
}  # fmt: skip


def act(flow: int, number: int) -> float:
    """Return what a flow asks for at its n-th decision: any number, most of them upwards so that queues build up."""
    return 1.5 * uniform(3.0, 0.0, float(flow), float(number)) - 0.5


def senders_of(network: NetworkSpec, used: Interface) -> list[Sender]:
    """Return the senders of a case; those that the caller decides for run inside a contract where their action needs one."""
    outside = inside("external") if used.action == "rate_between" else ExternalSender()
    return [outside if f.sender == "external" else make_sender(f.sender) for f in network.flows]


def play(
    network: NetworkSpec, senders: list[Sender], deciders: dict[int, Decider], seconds: float = SECONDS
) -> tuple[list, PacketBatch]:
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
        batch.advance(np.array([np.nextafter(seconds, 2 * seconds)]), 10_000_000)
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
    links, flows, used, least = CASES[name]
    network = NetworkSpec.model_validate({"links": links, "flows": flows})
    inner = make_sender(used.inner) if used.inner else None
    deciders = {i: Decider(interface=used, inner=inner) for i, f in enumerate(network.flows) if f.sender == "external"}
    senders = senders_of(network, used)
    found, batch = play(network, senders, deciders)
    reference = PacketReference(network, senders, seed=5, deciders=deciders, decide=act)
    reference.advance(SECONDS)
    assert len(found) >= least
    assert [flow for flow, _, _ in found] == [flow for flow, _ in reference.decisions]
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
    for links, flows, used, _ in CASES.values():
        network = NetworkSpec.model_validate({"links": links, "flows": flows})
        inner = make_sender(used.inner) if used.inner else None
        deciders = {i: Decider(interface=used, inner=inner) for i, f in enumerate(network.flows) if f.sender == "external"}
        for _, measures, _ in play(network, senders_of(network, used), deciders)[0]:
            for name, value in measures.items():
                seen[name].add(value)
    constant = {name for name, values in seen.items() if len(values - {0.0}) < 2}
    assert constant == {"mss_bytes", "utilised", "true_others"}
    assert seen["utilised"] == seen["true_others"] == {0.0, 1.0}


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
