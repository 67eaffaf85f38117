"""The memory of a run: a scenario in the form of the compiled loop."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Sequence

import numpy as np

from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents.callbacks import ADVERSARY_SLOTS, MOVE, VIEW
from ccenv.base.errors import InputError
from ccenv.engine.compiled.beliefs import reset_beliefs
from ccenv.engine.compiled.calls import address_of
from ccenv.engine.compiled.policies import MAX_WIDTH, SHAPE_WIDTH
from ccenv.engine.curve.layout import ENV_DTYPE, FLOW_RINGS, MLP_FIRST_COLUMN
from ccenv.engine.curve.layout import FLOW_DTYPE as CURVE_FLOW_DTYPE
from ccenv.engine.curve.players import AdversaryTable
from ccenv.engine.packet.beliefs import BELIEFS_DTYPE, begin_beliefs, belief_templates
from ccenv.engine.packet.engine import TICK_S
from ccenv.engine.packet.layout import AGGREGATIONS, EVENT_STRIDE, FLOW_LOG, JITTERS, LINK_LOG
from ccenv.engine.packet.layout import FLOW_DTYPE as PACKET_FLOW_DTYPE
from ccenv.live.emulator.layout import (
    ERROR_BINS,
    FLOW_DTYPE,
    INFO_BYTES,
    LEARNED,
    MODELS,
    NOBODY,
    ORDER_DTYPE,
    PACKET_DTYPE,
    POLL_DTYPE,
    RECORDED,
    RUN_DTYPE,
    SCRIPTED,
    SERVICE_DTYPE,
    SLOT_BYTES,
    STALL_DTYPE,
    STALLS,
    Memory,
    addresses,
)
from ccenv.live.emulator.loop import CHUNK_BYTES
from ccenv.live.scenario import LiveScenario, load_jitter_adversary
from ccenv.network.adversary import MlpAdversary, RecordedAdversary, ScriptedAdversary, moves_width

HEADERS_BYTES = 52  # IP and TCP with the time stamps that the kernel adds
DEEPEST_S = 4.0  # queue of an infinite buffer
MIN_RING, MAX_RING = 1 << 11, 1 << 16
EVENTS_PER_PACKET = 6
MAX_EVENT_ROWS = 20_000_000
SMALLEST_BUFFER_BYTES = 1 << 20
FIRST_WINDOW_BYTES = 65535  # that Linux offers (tcp_select_initial_window)
IP_TCP_BYTES = 40  # headers without options
BEFORE_S = 0.15  # for the handshakes, besides three RTTs


def make_memory(scenario: LiveScenario, near: int, far: int, header_bytes: int, virtual: int = 0) -> Memory:
    """Return the initial memory of a run between the senders' and the receivers' end (file descriptors).

    ``header_bytes`` precede the IP header of a packet; ``virtual`` is 0 in real time, or GIVEN or STAMPED.
    """
    n, link = len(scenario.flows), scenario.links[0]
    ring = ring_size(scenario)
    slots = 2 * ring + 64
    step_s = min(flow.rtt_s for flow in scenario.flows) / scenario.steps_per_rtt
    steps = math.floor(scenario.duration_s / step_s + 1e-9)
    rows = math.floor(scenario.duration_s / scenario.log_s + 1e-9) + 1
    views, moves = np.zeros(n, VIEW), np.zeros(n, MOVE)
    for name in ("waste", "rate", "service"):
        moves[name] = 1.0
    words = np.zeros((n, ADVERSARY_SLOTS))
    tokens = np.zeros(1 << max(1, math.ceil(math.log2(steps + 2)))) if scenario.model == "ccac" else np.zeros(2)
    changes = np.array([(s.time_s, s.rate_Bps) for s in link.rate_steps], dtype=np.float64).reshape(-1, 2)
    zeros = np.zeros(CHUNK_BYTES, np.uint8)
    m = Memory(
        run=np.zeros(1, RUN_DTYPE),
        flows=_make_flows(scenario),
        paths=_make_paths(scenario),
        access=np.zeros((n, ring), PACKET_DTYPE),
        forward=np.zeros((n, ring), PACKET_DTYPE),
        beside=np.zeros((n, ring), PACKET_DTYPE),
        back=np.zeros((n, ring), PACKET_DTYPE),
        service=np.zeros(ring, SERVICE_DTYPE),
        order=np.zeros(ring, ORDER_DTYPE),
        slab=np.zeros((slots, SLOT_BYTES), np.uint8),
        free=np.arange(slots, dtype=np.int64),
        calls=np.array(addresses(), np.int64),
        clock=np.zeros(2, np.int64),
        wait=np.zeros(2, np.int64),
        polls=np.zeros(2 + 2 * n, POLL_DTYPE),
        info=np.zeros(INFO_BYTES // 4 + 2, np.uint32),
        zeros=zeros,
        changes=changes,
        errors=np.zeros(ERROR_BINS, np.int64),
        stalls=np.zeros(len(STALLS), STALL_DTYPE),
        schedule=np.zeros(64, np.uint8),
        flow_log=np.zeros((rows, n), [(name, "<f8") for name in FLOW_LOG]),
        link_log=np.zeros((rows, 1), [(name, "<f8") for name in LINK_LOG]),
        events=np.zeros((_event_rows(scenario), EVENT_STRIDE)),
        env=np.zeros(1, ENV_DTYPE),
        curve_flows=np.zeros(n, CURVE_FLOW_DTYPE),
        views=views,
        moves=moves,
        words=words,
        recorded=np.ones((1, moves_width(n))),
        tokens=tokens,
        beliefs=np.zeros(n, BELIEFS_DTYPE),
        mlp_weights=np.zeros(1),
        mlp_shapes=np.zeros((1, SHAPE_WIDTH), np.int64),
        mlp_moves=np.zeros((1, MLP_FIRST_COLUMN + moves_width(n)), np.int64),
        observation=np.zeros(N_PATH + n * N_FLOW),
        mlp_scratch=np.zeros((2, MAX_WIDTH)),
    )
    run = m.run[0]
    run["n_flows"], run["model"], run["seed"] = n, MODELS[scenario.model], scenario.seed
    run["mss_bytes"], run["link_rate_Bps"] = scenario.mss_bytes, link.rate_Bps
    run["link_delay_s"], run["buffer_bytes"] = link.delay_s, _buffer_bytes(scenario)
    run["near_fd"], run["far_fd"], run["header_bytes"], run["virtual"] = near, far, header_bytes, virtual
    run["step_s"], run["end_s"], run["log_s"] = step_s, scenario.duration_s, scenario.log_s
    run["n_free"], run["busy_until_s"] = slots, -math.inf
    for name, array in (
        ("slab", m.slab),
        ("clock", m.clock),
        ("wait", m.wait),
        ("poll", m.polls),
        ("info", m.info),
        ("schedule", m.schedule),
    ):
        run[f"{name}_at"] = array.ctypes.data
    run["zeros_at"], run["words_at"], run["words_bytes"] = zeros.ctypes.data, words.ctypes.data, words.strides[0]
    run["view_at"], run["view_bytes"] = views.ctypes.data, VIEW.itemsize
    run["move_at"], run["move_bytes"], run["ring_at"] = moves.ctypes.data, MOVE.itemsize, tokens.ctypes.data
    run["stall_s"], run["schedule_fd"], run["queued_s"], run["expected_s"] = scenario.limit_s / 2, -1, -1.0, math.inf
    m.polls["fd"] = -1
    m.polls["fd"][:2] = near, far
    _fill_curve(scenario, m)
    _set_adversary(scenario, m)
    return _add_learned(scenario, _add_recorded(scenario, m))


def start_clock(m: Memory, lead_s: float) -> None:
    """Set the run's time to -lead_s."""
    m.run["base_ns"] = time.monotonic_ns() + round(lead_s * 1e9)


def lead_s(scenario: LiveScenario) -> float:
    """Return the time before 0 in which connections are made."""
    return 3 * max(flow.rtt_s for flow in scenario.flows) + BEFORE_S


def _buffer_bytes(scenario: LiveScenario) -> float:
    link = scenario.links[0]
    return min(link.buffer_bytes, DEEPEST_S * link.rate_Bps)


def fastest_Bps(scenario: LiveScenario) -> float:
    """Return the largest rate of the link."""
    link = scenario.links[0]
    return max([link.rate_Bps, *(step.rate_Bps for step in link.rate_steps)])


def most_in_flight_bytes(scenario: LiveScenario) -> float:
    """Return an upper bound on the bytes of all flows in flight."""
    longest_s = max(f.rtt_s + f.jitter.max_s + f.receiver.longest_wait_s for f in scenario.flows)
    return _buffer_bytes(scenario) + fastest_Bps(scenario) * longest_s


def socket_buffer_bytes(scenario: LiveScenario) -> int:
    """Return the size of the hosts' socket buffers."""
    return int(max(SMALLEST_BUFFER_BYTES, 4 * most_in_flight_bytes(scenario)))


def quick_acks(scenario: LiveScenario) -> int:
    """Return how many packets Linux acknowledges one by one: until the window that it offers is the socket's buffer.

    From 64 KiB it grows by two segments per packet (tcp_grow_window, which asks for a quick ACK).
    """
    return math.ceil((socket_buffer_bytes(scenario) - FIRST_WINDOW_BYTES) / (2 * (scenario.mss_bytes - IP_TCP_BYTES)))


def ring_size(scenario: LiveScenario) -> int:
    """Return the size of a ring in packets. Raises InputError if more packets could be in flight than are emulated."""
    packets = 2 * most_in_flight_bytes(scenario) / scenario.mss_bytes + MIN_RING
    if packets > MAX_RING:
        raise InputError(f"{scenario.name}: some {packets:.0f} packets on their way; at most {MAX_RING} are emulated")
    return 1 << math.ceil(math.log2(packets))


def _event_rows(scenario: LiveScenario) -> int:
    sent = 1.5 * fastest_Bps(scenario) * scenario.duration_s / scenario.mss_bytes + most_in_flight_bytes(scenario)
    return int(min(MAX_EVENT_ROWS, EVENTS_PER_PACKET * sent + 100_000))


def _make_flows(scenario: LiveScenario) -> np.ndarray:
    flows = np.zeros(len(scenario.flows), FLOW_DTYPE)
    link = scenario.links[0]
    for index, (flow, spec) in enumerate(zip(flows, scenario.flows, strict=True)):
        boxed = spec.jitter.kind == "adversary" and scenario.model != "ccac"
        at_link_end = spec.jitter.kind == "adversary"  # before the link's propagation delay, as in the packet engine
        flow["start_s"], flow["stop_s"] = spec.start_s, spec.stop_s
        flow["size_bytes"] = math.inf
        flow["segment_bytes"] = scenario.mss_bytes - HEADERS_BYTES
        if spec.workload.kind == "finite":  # as many packets as in the packet engine
            flow["size_bytes"] = math.ceil(spec.workload.size_bytes / scenario.mss_bytes) * flow["segment_bytes"]
        flow["access_s"], flow["loss_rate"] = spec.access_s, spec.loss_rate
        flow["return_s"] = scenario.return_s(index) + (link.delay_s if at_link_end else 0.0)
        flow["forward_s"] = 0.0 if at_link_end else link.delay_s
        flow["boxed"], flow["first_seq"], flow["finished_s"] = int(boxed), -1, math.inf
        flow["sender_fd"] = flow["sink_fd"] = flow["kept_slot"] = flow["acked"] = -1
        flow["ack_every"], flow["ack_timeout_s"] = spec.receiver.ack_every, spec.receiver.ack_timeout_s
    return flows


def _make_paths(scenario: LiveScenario) -> np.ndarray:
    paths = np.zeros(len(scenario.flows), PACKET_FLOW_DTYPE)
    for index, (path, spec) in enumerate(zip(paths, scenario.flows, strict=True)):
        path["index"], path["jitter_kind"], path["jitter_s"] = index, JITTERS[spec.jitter.kind], spec.jitter.max_s
        path["jitter_interval_s"] = spec.jitter.every_s if spec.jitter.kind == "early" else spec.jitter.interval_s
        path["jitter_at_s"], path["last_release_s"] = spec.jitter.at_s, -math.inf
        if spec.jitter.delays_s:
            table = np.array(spec.jitter.delays_s)
            _TABLES.append(table)
            path["jitter_table_at"], path["jitter_table_length"] = table.ctypes.data, len(table)
        path["ack_aggregation"], path["ack_merge"] = AGGREGATIONS[spec.receiver.aggregation], spec.receiver.merge
        path["ack_aggregate_s"] = spec.receiver.aggregate_s
        path["told_rtt_s"], path["path_rtt_s"], path["rtt_known"] = spec.sender_rtt_s, spec.rtt_s, spec.rtt_known
        path["start_s"], path["min_rtt_s"] = spec.start_s, math.inf
        path["ack_every"], path["ack_timeout_s"] = spec.receiver.ack_every, spec.receiver.ack_timeout_s
    return paths


_TABLES: list[np.ndarray] = []  # records point into these for the life of the process


def _fill_curve(scenario: LiveScenario, m: Memory) -> None:
    """Fill the constant fields of the curve engine's records."""
    env, link, step_s = m.env[0], scenario.links[0], float(m.run[0]["step_s"])
    env["dt_s"], env["mss_bytes"], env["buffer_bytes"] = step_s, scenario.mss_bytes, _buffer_bytes(scenario)
    env["link_rate_Bps"] = env["link_rate_now_Bps"] = link.rate_Bps
    env["seed"] = scenario.seed
    env["jitter_steps"] = math.ceil(scenario.flows[0].jitter.max_s / step_s - 1e-9)
    for index, (flow, spec) in enumerate(zip(m.curve_flows, scenario.flows, strict=True)):
        flow["rtt_s"], flow["jitter_s"] = spec.rtt_s, spec.jitter.max_s
        flow["rtt_steps"] = round(spec.rtt_s / step_s)
        view = m.views[index]
        view["dt_s"], view["flow"], view["n_flows"] = step_s, index, len(scenario.flows)
        view["rtt_s"], view["jitter_s"], view["link_rate_Bps"] = spec.rtt_s, spec.jitter.max_s, link.rate_Bps
        view["buffer_bytes"], view["mss_bytes"], view["seed"] = link.buffer_bytes, scenario.mss_bytes, scenario.seed
        view["steps_per_rtt"] = spec.rtt_s / step_s


def _set_adversary(scenario: LiveScenario, m: Memory) -> None:
    run = m.run[0]
    boxed = [flow for flow in scenario.flows if flow.jitter.kind == "adversary"]
    run["play_s"] = run["step_s"]
    if not boxed:
        run["play_kind"] = NOBODY
        return
    adversary = load_jitter_adversary(boxed[0].jitter)
    if isinstance(adversary, ScriptedAdversary):
        run["play_kind"] = SCRIPTED
        run["init_at"] = address_of(adversary.init, adversary.state, VIEW)
        run["play_at"] = address_of(adversary.play, adversary.state, VIEW, MOVE)
        names = adversary.state.names or ()
        for name, value in adversary.parameters.items():
            m.words[:, names.index(name)] = value
        if scenario.model != "ccac":
            run["play_s"] = TICK_S
            for view, flow in zip(m.views, scenario.flows, strict=True):
                view["dt_s"], view["steps_per_rtt"] = TICK_S, flow.rtt_s / TICK_S
    else:
        run["play_kind"] = LEARNED if isinstance(adversary, MlpAdversary) else RECORDED


def _add_learned(scenario: LiveScenario, m: Memory) -> Memory:
    """Set the network of a learned adversary, and the flows' beliefs that it observes."""
    if m.run[0]["play_kind"] != LEARNED:
        return m
    adversary = load_jitter_adversary(next(flow.jitter for flow in scenario.flows if flow.jitter.kind == "adversary"))
    table = AdversaryTable(adversary, 1, len(scenario.flows))
    loss_proves = all(flow.loss_rate == 0 for flow in scenario.flows)
    m.beliefs[:] = belief_templates([], _TABLES)[0]
    for beliefs, path in zip(m.beliefs, m.paths, strict=True):
        length = begin_beliefs(beliefs, path, scenario.mss_bytes, int(loss_proves))
        rings = np.zeros(FLOW_RINGS * length)
        _TABLES.append(rings)
        beliefs["ring_at"] = rings.ctypes.data
        reset_beliefs(beliefs, scenario.mss_bytes)
        beliefs["rate_Bps"] = beliefs["C_L_Bps"]
    return m._replace(mlp_weights=table.mlp_weights, mlp_shapes=table.mlp_shapes, mlp_moves=table.mlp_moves)


def _add_recorded(scenario: LiveScenario, m: Memory) -> Memory:
    if m.run[0]["play_kind"] != RECORDED:
        return m
    adversary = load_jitter_adversary(next(flow.jitter for flow in scenario.flows if flow.jitter.kind == "adversary"))
    if not isinstance(adversary, RecordedAdversary):
        raise InputError(f"adversary {adversary.name!r} has no moves")
    n = len(scenario.flows)
    moves = np.array(adversary.moves, dtype=np.float64, order="C")  # a copy: a read-only array would compile everything again
    if moves.shape[1] == moves_width(1) and n > 1:  # found against one flow: the same for each
        moves = np.hstack([moves[:, :2], np.repeat(moves[:, 2:3], n, axis=1), np.repeat(moves[:, 3:4], n, axis=1)])
    return m._replace(recorded=moves)


def fill_polls(m: Memory, senders: Sequence[int], sinks: Sequence[int]) -> None:
    """Set the flows' sockets."""
    n = len(senders)
    m.flows["sender_fd"], m.flows["sink_fd"], m.flows["open"] = senders, sinks, 1
    m.polls["fd"][2 : 2 + n], m.polls["fd"][2 + n :] = senders, sinks


def lock_in_memory() -> bool:
    """Lock all pages of this process in memory; tell whether the system allows it."""
    current, future = 1, 2
    return bool(ctypes.CDLL(None).mlockall(current | future) == 0)
