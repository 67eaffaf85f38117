"""Belief programs per packet: the beliefs of ``ccenv.beliefs`` on a grid of STEPS_PER_RTT steps per Rm of the flow.

At each step the curves are read off the packets: A is what was sent, L what the network has lost (known one Rm later, as in
the curve engine), S(t) the transmissions acknowledged by t + Rm. A whole packet arrives when its last byte does, at most
MSS/C later than its bytes would. Without jitter, one step of D covers that where an Rm carries at least STEPS_PER_RTT packets;
with jitter D stays what it is, and the bounds hold up to one packet per window.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core.errors import NumbaExperimentalFeatureWarning

from ccenv.beliefs import BeliefSettings, reciprocal_table, reset_beliefs, settings_record, update_beliefs, update_queue_bound
from ccenv.engine.calls import address_of, load, store
from ccenv.engine.curve_decision import close_interval, fill_inputs
from ccenv.engine.layout import FLOW_DTYPE as CURVE_FLOW_DTYPE
from ccenv.engine.layout import ring_length
from ccenv.engine.packet_layout import FLOW_DTYPE, GRID_DTYPE
from ccenv.engine.packet_spec import NetworkSpec
from ccenv.engine.signals import state_record
from ccenv.programs import INPUTS, compile_program
from ccenv.programs.compiled import evaluate_at
from ccenv.sender import ClassicSender, ProgramSender

# BELIEFS_DTYPE begins with the curve engine's fields on purpose: a kernel compiled for those serves both.
warnings.filterwarnings("ignore", message=".*considered a subtype of Record", category=NumbaExperimentalFeatureWarning)

STEPS_PER_RTT = 8
PACKET_STEPS = 1  # of jitter at least, for a packet's own time on the link
HISTORY_RTTS = 24  # of the rings: belief windows and the queueing delay over which L_free and S can be apart

# Beliefs, their settings, and what the grid needs besides.
BELIEFS_DTYPE = np.dtype(
    CURVE_FLOW_DTYPE.descr
    + settings_record(BeliefSettings()).dtype.descr
    + [
        ("mss_bytes", "<f8"),
        ("dt_s", "<f8"),
        ("start_s", "<f8"),
        ("step", "<i8"),
        ("mask", "<i8"),
        ("ring_at", "<i8"),
        ("nodes_at", "<i8"),
        ("inputs_at", "<i8"),
        ("reciprocals_at", "<i8"),
        ("loss_proves", "<i8"),
    ]
)


def hold_rate(state: Any) -> None:
    """Start with one segment; the grid, whose first step follows at once, sets the rate and opens the window."""
    state.cwnd_bytes = 1.0
    state.pacing_rate_Bps = np.inf


def ignore(state: Any, signal: Any) -> None:
    """Do nothing: programs act on their grid."""


RATE_HOLDER = ClassicSender("belief program", state_record("unused"), hold_rate, ignore, ignore, ignore)


def step_beliefs(grid: Any, beliefs: Any, flow: Any) -> None:
    """Advance a flow's curves and beliefs by one step; at a decision instant let its program choose the rate."""
    if beliefs.step < 0:
        reset_beliefs(beliefs, beliefs.mss_bytes)
        beliefs.rate_Bps = beliefs.C_L_Bps
    beliefs.step += 1
    k = beliefs.step
    ring, mask = beliefs.ring_at, beliefs.mask
    e_at, l_at = 2 * (mask + 1), 3 * (mask + 1)
    lost_bytes = flow.dropped_bytes + flow.random_lost_bytes
    beliefs.sent_bytes = flow.sent_bytes - beliefs.A
    beliefs.A = flow.sent_bytes
    store(ring, e_at + (k & mask), flow.sent_bytes - lost_bytes)
    store(ring, l_at + (k & mask), lost_bytes)
    n = k - beliefs.rtt_steps
    if n >= 1:
        served = flow.acked_count * beliefs.mss_bytes
        store(ring, n & mask, served)
        store(ring, (n & mask) + mask + 1, served)
        p = max(beliefs.ack_sent_step, n - mask + beliefs.rtt_steps)
        while p < n and load(ring, e_at + (p & mask)) < served:
            p += 1
        beliefs.ack_sent_step = p
        beliefs.delay_floor_steps = n - p
        beliefs.rtt_now_steps = max(float(beliefs.rtt_steps), flow.rtt_s / beliefs.dt_s)
        beliefs.rtt_min_steps = flow.min_rtt_s / beliefs.dt_s
        known = load(ring, l_at + (n & mask))
        beliefs.lost_since_decision_bytes += known - beliefs.found_lost_bytes
        beliefs.found_lost_bytes = known
        update_beliefs(
            beliefs, ring, 0, e_at, l_at, n, mask, beliefs.dt_s, 1.0 / beliefs.dt_s, beliefs.mss_bytes, beliefs.mss_bytes,
            beliefs.loss_proves == 1, beliefs, beliefs.reciprocals_at,
        )  # fmt: skip
    update_queue_bound(beliefs, beliefs.sent_bytes, flow.inflight_bytes, beliefs.dt_s)
    if k >= beliefs.decision_step:
        close_interval(beliefs, k)
        fill_inputs(beliefs, beliefs, beliefs.inputs_at)
        rate_Bps, hold = evaluate_at(beliefs.nodes_at, 0, beliefs.inputs_at)
        beliefs.rate_Bps = rate_Bps
        beliefs.decision_step = k + int(hold) * beliefs.rtt_steps
    grid.rate_Bps = beliefs.rate_Bps
    grid.next_s = beliefs.start_s + (k + 1) * beliefs.dt_s


def build_grids(
    programs: Sequence[tuple[int, ProgramSender]], network: NetworkSpec, flows: np.ndarray, rtts_s: Sequence[float]
) -> tuple[np.ndarray, dict[int, np.ndarray], list[np.ndarray]]:
    """Build the grids of the flows with belief programs.

    Args:
        programs: index of the flow and its program.
        network: links and flows.
        flows: the engine's flow records, which the grids read.
        rtts_s: Rm that the sender of each flow goes by.

    Returns:
        tuple: GRID_DTYPE records, at least one; BELIEFS_DTYPE records by flow; the arrays that must live as long as they.
    """
    grids = np.zeros(max(1, len(programs)), GRID_DTYPE)
    kept: list[np.ndarray] = []
    by_flow: dict[int, np.ndarray] = {}
    for row, (index, sender) in enumerate(programs):
        spec = network.flows[index]
        program = compile_program(sender.program)
        beliefs = np.zeros(1, BELIEFS_DTYPE)
        dt_s = rtts_s[index] / STEPS_PER_RTT
        jitter_steps = max(PACKET_STEPS, math.ceil(spec.jitter.max_s / dt_s - 1e-9))
        probe_steps = program.probe_window_rtts * STEPS_PER_RTT
        length = ring_length(HISTORY_RTTS * STEPS_PER_RTT + 2 * probe_steps + jitter_steps)
        ring, inputs, nodes = np.zeros(4 * length), np.zeros(len(INPUTS)), np.ascontiguousarray(program.nodes)
        reciprocals = reciprocal_table()
        settings = settings_record(BeliefSettings())
        for name in settings.dtype.names or ():
            beliefs[name] = settings[name]
        beliefs["rtt_steps"], beliefs["jitter_steps"] = STEPS_PER_RTT, jitter_steps
        beliefs["rtt_s"], beliefs["jitter_s"], beliefs["dt_s"] = rtts_s[index], jitter_steps * dt_s, dt_s
        beliefs["probe_window_steps"], beliefs["mss_bytes"], beliefs["start_s"] = probe_steps, network.mss_bytes, spec.start_s
        beliefs["rtt_min_steps"], beliefs["rtt_now_steps"], beliefs["step"] = np.inf, STEPS_PER_RTT, -1
        beliefs["ring_at"], beliefs["mask"], beliefs["nodes_at"] = ring.ctypes.data, length - 1, nodes.ctypes.data
        beliefs["inputs_at"], beliefs["reciprocals_at"] = inputs.ctypes.data, reciprocals.ctypes.data
        drop_tail = all(network.links[link].discipline == "drop_tail" for link in network.route_of(index))
        beliefs["loss_proves"] = drop_tail and spec.loss_rate == 0
        grids[row]["flow"], grids[row]["next_s"], grids[row]["rate_Bps"] = index, spec.start_s, 1.0
        grids[row]["step_at"] = address_of(step_beliefs, GRID_DTYPE, BELIEFS_DTYPE, FLOW_DTYPE)
        grids[row]["beliefs_at"] = beliefs.ctypes.data
        grids[row]["flow_at"] = flows.ctypes.data + index * FLOW_DTYPE.itemsize
        by_flow[index] = beliefs
        kept += [ring, inputs, nodes, reciprocals]
    return grids, by_flow, kept
