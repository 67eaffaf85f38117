"""Addresses: where the rings of a network lie, and what its records point at. Compiled.

The memory of a network is one row of float64. What lies in it, in this order: per flow its transmissions, segments, segments to
send again, ACKs, the order of arrival where some packets overtake others, with RACK the segments that were sent again, what a
sender per packet asks of transmissions; per link its queue; per pipe, per jitter box; per grid the rings of its beliefs, scratch,
and a policy's memory.
"""

from __future__ import annotations

from ccenv.engine.compiled.calls import unowned
from ccenv.engine.compiled.mlp import MAX_WIDTH
from ccenv.agents.interface.observation import N_OBSERVATION
from ccenv.engine.compiled.policies import SCRATCH_ROWS
from ccenv.engine.packet.aqm.lists import class_words
from ccenv.engine.packet.kernel import network_of
from ccenv.engine.packet.layout import ACK_HOP, LATE_HOP, PIPE_STRIDE, QUEUE_STRIDE, SEGMENT_STRIDE, SENT_WITH_STRIDE, TX_STRIDE
from ccenv.engine.packet.rates.generate import generated_rows
from ccenv.base.kernels.decorator import kernel
from ccenv.network.links.table import ROW_WIDTH
from ccenv.agents.programs import INPUTS

BELIEF_RINGS = 4  # S twice, E, L (ccenv.engine.compiled.rings)
_N_INPUTS = len(INPUTS)
_SCRATCH_WORDS = _N_INPUTS + N_OBSERVATION + SCRATCH_ROWS * MAX_WIDTH


@kernel
def wire(a, tables, memory, b):
    """Write all addresses of a network.

    Args:
        a: its arrays.
        tables: what all networks share.
        memory: what the records point into.
        b: which network.

    Returns:
        Words of memory that it needs; what does not fit has no valid address.
    """
    run = a.run[0]
    run.tree_at = memory.trees[b].ctypes.data
    run.route_at = tables.route.ctypes.data
    run.grids_at = a.grids.ctypes.data
    run.monitors_at = a.monitors.ctypes.data
    run.states_at = a.states.ctypes.data
    run.ack_at = a.acks.ctypes.data
    run.loss_at = a.losses.ctypes.data
    run.tick_at = a.ticks.ctypes.data
    run.view_at = a.views.ctypes.data
    run.move_at = a.moves.ctypes.data
    begin, word = memory.rings[b].ctypes.data, 8
    at = 0
    for i in range(run.n_flows):
        fl = a.flows[i]
        fl.jitter_table_at = tables.delay_tables[i]
        entries = fl.mask + 1
        fl.tx_at = begin + at * word
        at += entries * TX_STRIDE
        fl.segment_at = begin + at * word
        at += entries * SEGMENT_STRIDE
        fl.resend_at = begin + at * word
        at += entries
        fl.ack_ring_at = begin + at * word
        at += entries * PIPE_STRIDE
        if fl.reorders == 1:
            fl.order_at = begin + at * word
            at += entries
        if fl.rack == 1:
            fl.resent_at = begin + at * word
            at += entries
        if fl.per_packet == 1:
            fl.sent_with_at = begin + at * word
            at += entries * SENT_WITH_STRIDE
    for index in range(run.n_links):
        a.links[index].queue_at = begin + at * word
        at += (a.links[index].mask + 1) * QUEUE_STRIDE
        a.links[index].classes_at = begin + at * word
        at += class_words(a.links[index], run.n_flows)
        if a.links[index].generator > 0:
            a.links[index].trace_at = begin + at * word
            at += generated_rows(a.links[index]) * ROW_WIDTH
        elif a.links[index].trace_index >= 0:
            a.links[index].trace_at = tables.traces[a.links[index].trace_index, 0]
            a.links[index].trace_rows = tables.traces[a.links[index].trace_index, 1]
    for p in range(run.n_pipes):
        pipe = a.pipes[p]
        pipe.ring_at = begin + at * word
        at += (pipe.mask + 1) * PIPE_STRIDE
        if pipe.hop == LATE_HOP:
            a.flows[pipe.flow].late_at = pipe.ring_at
        elif pipe.hop == ACK_HOP:
            a.flows[pipe.flow].ack_out_at = pipe.ring_at
    for row in range(run.n_boxes):
        box = a.boxes[row]
        box.ring_at = begin + at * word
        at += (box.mask + 1) * PIPE_STRIDE
        box.init_at = tables.boxes[row].init_at
        box.play_at = tables.boxes[row].play_at
        box.state_at = memory.box_words[b, row].ctypes.data
    for row in range(run.n_grids):
        grid, beliefs = a.grids[row], a.beliefs[row]
        fl = a.flows[grid.flow]
        template = tables.beliefs[fl.sender_index]
        grid.step_at = tables.senders[fl.sender_index].step_at
        grid.beliefs_at = a.beliefs[row : row + 1].ctypes.data
        grid.flow_at = a.flows[grid.flow : grid.flow + 1].ctypes.data
        beliefs.reciprocals_at = template.reciprocals_at
        beliefs.nodes_at = template.nodes_at
        beliefs.weights_at = template.weights_at
        beliefs.policy_at = template.policy_at
        beliefs.ring_at = begin + at * word
        at += (beliefs.mask + 1) * BELIEF_RINGS
        beliefs.inputs_at = begin + at * word
        beliefs.observation_at = begin + (at + _N_INPUTS) * word
        beliefs.scratch_at = begin + (at + _N_INPUTS + N_OBSERVATION) * word
        at += _SCRATCH_WORDS
        beliefs.memory_at = begin + at * word
        at += beliefs.memory_words
    for row in range(run.n_monitors):
        monitor = a.monitors[row]
        monitor.decide_at = tables.monitors[row].decide_at
        monitor.policy_at = memory.policies[b, row].ctypes.data
        monitor.measures_at = a.measures[row : row + 1].ctypes.data
        monitor.shares_at = memory.shares[b, row].ctypes.data
    return at


@kernel
def wire_networks(which, arrays, tables, memory):
    """Write all addresses of some networks, such as of those whose state was brought from elsewhere."""
    batch = unowned(arrays)
    for k in range(len(which)):
        wire(network_of(batch, which[k]), tables, memory, which[k])
