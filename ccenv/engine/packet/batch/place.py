"""How networks begin, and where their rings lie: compiled, so that a reset of many networks costs little.

The memory of a network is one row of float64. What lies in it, in this order: per flow its transmissions, segments, segments to
send again, ACKs, the order of arrival where some packets overtake others, with RACK the segments that were sent again, what a
sender per packet asks of transmissions; per link its queue; per pipe, per jitter box; per grid the rings of its beliefs, scratch,
and a policy's memory.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import ON_TICK
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.programs import INPUTS
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import store, unowned
from ccenv.engine.compiled.policies import MAX_WIDTH, SCRATCH_ROWS
from ccenv.engine.packet.arrivals import arrival_time_s
from ccenv.engine.packet.beliefs import begin_beliefs, sender_rtt_s
from ccenv.engine.packet.dequeue import class_words, clear_classes
from ccenv.engine.packet.generators import generate, generated_rows
from ccenv.engine.packet.kernel import network_of
from ccenv.engine.packet.layout import (
    ACK_HOP,
    CHANGE_LINK,
    CHANGE_RATE,
    CHANGE_TIME,
    DEEPEST_S,
    DISCIPLINES,
    ERROR_BUFFER,
    ERROR_MEMORY,
    ERROR_RETURN,
    ERROR_SEGMENT,
    JITTERS,
    LATE_HOP,
    MAX_RING,
    MIN_RING,
    PIPE_STRIDE,
    QUEUE_STRIDE,
    RTO_MIN_S,
    SEGMENT_STRIDE,
    SENT_WITH_STRIDE,
    TICK_S,
    TX_STRIDE,
)
from ccenv.engine.packet.monitor import BY_GRID
from ccenv.engine.packet.queue import packet_bytes
from ccenv.engine.packet.service import NO_TRACE, begin_trace
from ccenv.engine.packet.sources import RATE_CHANGES, sources_of
from ccenv.network.links.table import ROW_WIDTH

BELIEF_RINGS = 4  # S twice, E, L (ccenv.engine.compiled.beliefs)
_N_INPUTS = len(INPUTS)
_SCRATCH_WORDS = _N_INPUTS + N_OBSERVATION + SCRATCH_ROWS * MAX_WIDTH


@kernel
def wire(a, tables, memory, b):
    """Write all addresses of network b, whose arrays are ``a``; return the words of memory that it needs.

    What does not fit has no valid address.
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
    begin, word = memory.rings[b], 8
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


_DROP_TAIL, _ADVERSARY = DISCIPLINES["drop_tail"], JITTERS["adversary"]
_WHOLE = 1e-9  # packets: buffers of whole packets up to rounding are


@kernel
def ring_length(entries):
    """Return the smallest power of two, at least 2, that holds so many entries."""
    length = 2
    while length < entries:
        length *= 2
    return length


@kernel
def fastest_Bps(ln, changes):
    """Return the largest rate that a link ever has."""
    fastest = max(ln.rate_Bps, ln.peak_Bps)
    for row in range(changes.shape[0]):
        if changes[row, CHANGE_LINK] == ln.index and changes[row, CHANGE_TIME] < np.inf:
            fastest = max(fastest, changes[row, CHANGE_RATE])
    return fastest


@kernel
def slowest_Bps(ln, changes):
    """Return the smallest rate that a link ever has, outages left out."""
    slowest = ln.rate_Bps
    for row in range(changes.shape[0]):
        if changes[row, CHANGE_LINK] == ln.index and changes[row, CHANGE_TIME] < np.inf and changes[row, CHANGE_RATE] > 0.0:
            slowest = min(slowest, changes[row, CHANGE_RATE])
    return slowest


@kernel
def window_packets(fl, links, changes, route):
    """Return how many packets a flow's rings hold: twice what its path can, which is its receive window."""
    fastest = np.inf
    for hop in range(fl.n_hops):
        fastest = min(fastest, fastest_Bps(links[int(route[0, fl.index, hop])], changes))
    held_s = fl.hold_target_s if fl.hold_window_s > 0.0 else fl.hold_s
    if fl.reorders == 1:
        held_s += fl.late_s
    for hop in range(ACK_HOP, ACK_HOP + fl.ack_hops):
        back = links[int(route[0, fl.index, hop])]
        held_s += min(DEEPEST_S, back.buffer_bytes / slowest_Bps(back, changes))
    packets = fastest * (fl.path_rtt_s + fl.jitter_s + fl.ack_aggregate_s + held_s) / fl.mss_bytes
    for hop in range(fl.n_hops):
        packets += min(links[int(route[0, fl.index, hop])].buffer_bytes, DEEPEST_S * fastest) / fl.mss_bytes
    return np.int64(min(float(MAX_RING), max(float(MIN_RING), 2.0 * packets)))


@kernel
def _begin_flows(a, tables, changes, mss_bytes):
    run = a.run[0]
    for i in range(run.n_flows):
        fl = a.flows[i]
        if fl.mss_bytes == 0.0:  # that of the network
            fl.mss_bytes = mss_bytes
        sender = tables.senders[fl.sender_index]
        fl.hold_s = sender.hold_s
        fl.per_packet = sender.per_packet
        if sender.hold_window_s > 0.0:
            fl.hold_target_s = sender.hold_target_s
            fl.hold_window_s = sender.hold_window_s
            fl.hold_rtt_min_s = np.inf
            fl.hold_until_s = fl.start_s + sender.hold_window_s
        links_s = 0.0
        for hop in range(fl.n_hops):
            links_s += a.links[int(tables.route[0, i, hop])].delay_s
        for hop in range(ACK_HOP, ACK_HOP + fl.ack_hops):
            links_s += a.links[int(tables.route[0, i, hop])].delay_s
        fl.return_s = fl.path_rtt_s - (fl.access_s + links_s)
        if fl.return_s < 0.0:
            run.error = ERROR_RETURN
            run.error_flow = i
        if fl.jitter_kind == _ADVERSARY:  # the box is at the end of the last link, before its propagation delay
            fl.return_s += a.links[int(tables.route[0, i, fl.n_hops - 1])].delay_s
        fl.mask = ring_length(window_packets(fl, a.links, changes, tables.route)) - 1


@kernel
def _begin_links(a, tables, changes, mss_bytes):
    run = a.run[0]
    for index in range(run.n_links):
        ln = a.links[index]
        # Rings are powers of two, so twice the windows is enough for what flows can have in the network.
        windows = 0
        smallest_bytes, largest_bytes = np.inf, 0.0
        for i in range(run.n_flows):
            fl = a.flows[i]
            for hop in range(ACK_HOP + fl.ack_hops):
                if fl.n_hops <= hop < ACK_HOP or int(tables.route[0, i, hop]) != index:
                    continue
                windows += 2 * window_packets(fl, a.links, changes, tables.route)
                size_bytes = packet_bytes(fl, hop)
                if hop >= ACK_HOP or size_bytes != mss_bytes:
                    ln.mixed = 1
                smallest_bytes, largest_bytes = min(smallest_bytes, size_bytes), max(largest_bytes, size_bytes)
        if windows == 0:
            smallest_bytes = largest_bytes = mss_bytes
        if ln.buffer_bytes < largest_bytes:
            run.error = ERROR_BUFFER
            run.error_flow = index
        capacity = 1
        if windows > 0:
            capacity = int(min(float(windows + 1), ln.buffer_bytes / smallest_bytes + _WHOLE))
        ln.capacity_packets, ln.largest_bytes = capacity, largest_bytes
        ln.mask = ring_length(capacity + 1) - 1


@kernel
def _begin_grids(a, tables, changes, mss_bytes):
    run = a.run[0]
    for row in range(run.n_grids):
        grid = a.grids[row]
        i = tables.grid_flows[row]
        fl = a.flows[i]
        sender = tables.senders[fl.sender_index]
        grid.flow = i
        grid.watches = sender.watches
        grid.rate_Bps = 1.0
        grid.next_s = fl.start_s
        fl.grid = row
        if sender.step_at == 0:
            grid.next_s = np.inf
            fl.grid = -1
            a.beliefs[row].mask = 7
            continue
        drop_tail = True
        slowest = np.inf
        for hop in range(fl.n_hops):
            ln = a.links[int(tables.route[0, i, hop])]
            drop_tail = drop_tail and ln.discipline == _DROP_TAIL
            slowest = min(slowest, slowest_Bps(ln, changes))
        if slowest * sender_rtt_s(fl) < mss_bytes * (1.0 - 1e-9):
            run.error = ERROR_SEGMENT
            run.error_flow = i
        a.beliefs[row] = tables.beliefs[fl.sender_index]
        a.beliefs[row].seed = run.seed
        plain = fl.loss_rate == 0.0 and fl.bursts == 0 and fl.reorders == 0
        begin_beliefs(a.beliefs[row], fl, mss_bytes, 1 if drop_tail and plain else 0)


@kernel
def _begin_tree(a, run, tree):
    """Set the first time of each source, and play all matches."""
    sources = sources_of(run.n_links, run.n_flows, run.n_pipes, run.n_boxes, run.n_grids, run.n_monitors)
    leaves = run.tree_leaves
    for leaf in range(leaves):
        tree[leaves + leaf] = np.inf
        tree[3 * leaves + leaf] = float(leaf)
    if a.changes.shape[0] > 0:
        tree[leaves + RATE_CHANGES] = a.changes[0, CHANGE_TIME]
    for i in range(run.n_flows):
        tree[leaves + sources.flows + i] = a.flows[i].start_s
    for row in range(run.n_boxes):
        tree[leaves + sources.boxes + row] = 0.0
    for row in range(run.n_grids):
        tree[leaves + sources.grids + row] = a.grids[row].next_s
    for row in range(run.n_monitors):
        monitor = a.monitors[row]
        tree[leaves + sources.monitors + row] = np.inf if monitor.clock == BY_GRID else a.flows[monitor.flow].start_s
    for i in range(run.n_flows):
        if a.sender_calls[a.flows[i].sender_index, ON_TICK] != 0:  # without one no tick changes anything
            tree[leaves + sources.tick] = TICK_S
    if run.n_arrivals > 0:
        tree[leaves + sources.arrivals] = arrival_time_s(run)
    if a.flow_log.shape[0] > 0:
        tree[leaves + sources.log] = 0.0
    for node in range(leaves - 1, 0, -1):
        best = 2 * node if tree[2 * node] <= tree[2 * node + 1] else 2 * node + 1
        tree[node] = tree[best]
        tree[2 * leaves + node] = tree[2 * leaves + best]
    run.first_s = tree[1]
    run.first_source = int(tree[2 * leaves + 1])


@kernel
def begin_networks(which, arrays, tables, beginnings, memory, form, log_s):
    """Begin the networks ``which``, (k,), of a batch anew; return the words of memory that the largest of them needs.

    ``form`` is (1,) RUN_DTYPE: numbers of links, flows and so on, and of leaves of the trees.
    """
    most = 0
    batch = unowned(arrays)
    for k in range(len(which)):
        b = which[k]
        a = network_of(batch, b)
        a.run[0] = form[0]
        run = a.run[0]
        mss_bytes = beginnings.mss_bytes[k]
        run.mss_bytes = mss_bytes
        run.seed = beginnings.keys[k]
        run.tick_s = TICK_S
        run.log_s = log_s
        run.rto_min_s = RTO_MIN_S
        run.ticks = 1
        run.leader = -1
        for row in range(a.changes.shape[0]):
            for column in range(3):
                a.changes[row, column] = beginnings.changes[k, row, column]
        for index in range(run.n_links):
            a.links[index] = beginnings.links[k, index]
        for i in range(run.n_flows):
            a.flows[i] = beginnings.flows[k, i]
        for p in range(run.n_pipes):
            a.pipes[p] = tables.pipes[p]
        _begin_flows(a, tables, a.changes, mss_bytes)
        _begin_links(a, tables, a.changes, mss_bytes)
        for p in range(run.n_pipes):
            pipe = a.pipes[p]
            pipe.mask = a.flows[pipe.flow].mask
            if pipe.hop == LATE_HOP:
                a.flows[pipe.flow].late_pipe = p
            elif pipe.hop == ACK_HOP:
                a.flows[pipe.flow].ack_pipe = p
        for row in range(run.n_boxes):
            a.boxes[row] = tables.boxes[row]
            box = a.boxes[row]
            fl = a.flows[box.flow]
            ln = a.links[int(tables.route[0, box.flow, fl.n_hops - 1])]
            box.mask = fl.mask
            box.rtt_s = fl.path_rtt_s
            box.link_rate_Bps = ln.rate_Bps
            box.buffer_bytes = ln.buffer_bytes
            fl.box = row
        _begin_grids(a, tables, a.changes, mss_bytes)
        for row in range(run.n_monitors):
            _begin_monitor(a, tables, row, beginnings.start_rates_Bps[k, row])
        a.acks[0].mss_bytes = mss_bytes
        a.losses[0].mss_bytes = mss_bytes
        a.ticks[0].mss_bytes = mss_bytes
        a.ticks[0].dt_s = TICK_S
        a.views[0].mss_bytes = mss_bytes
        a.views[0].n_flows = run.n_flows
        a.views[0].seed = run.seed
        # Element by element: for whole arrays Numba compiles a message about shapes, a third of all here.
        for row in range(tables.box_words.shape[0]):
            for word in range(tables.box_words.shape[1]):
                memory.box_words[b, row, word] = tables.box_words[row, word]
        for row in range(tables.policies.shape[0]):
            for byte in range(tables.policies.shape[1]):
                memory.policies[b, row, byte] = tables.policies[row, byte]
        words = wire(a, tables, memory, b)
        most = max(most, words)
        memory.needed[b] = words
        if run.error == 0 and words > memory.room[b]:
            run.error = ERROR_MEMORY
        if run.error != 0:
            continue
        _clear(a, run)
        for index in range(run.n_links):
            if a.links[index].generator > 0:
                generate(a.links[index], run.seed)
            if a.links[index].trace_kind != NO_TRACE:
                begin_trace(a.links[index])
        _begin_tree(a, run, memory.trees[b])
    return most


@kernel
def _begin_monitor(a, tables, row, start_rate_Bps):
    a.monitors[row] = tables.monitors[row]
    monitor = a.monitors[row]
    fl = a.flows[monitor.flow]
    monitor.start_rate_Bps = start_rate_Bps
    monitor.grid = fl.grid
    fl.monitor = row
    monitor.link = int(tables.route[0, fl.index, 0])
    for hop in range(1, fl.n_hops):
        link = int(tables.route[0, fl.index, hop])
        if a.links[link].rate_Bps < a.links[monitor.link].rate_Bps:
            monitor.link = link
    if monitor.decide_at == 0:
        a.run[0].outside += 1


@kernel
def _clear(a, run):
    """Forget what an earlier run left where it would be read: segments, queues, rings of beliefs, states of boxes."""
    for index in range(run.n_links):
        clear_classes(a.links[index], run.n_flows)
    for i in range(run.n_flows):
        fl = a.flows[i]
        for entry in range((fl.mask + 1) * SEGMENT_STRIDE):
            store(fl.segment_at, entry, 0.0)
        if fl.rack == 1:
            for entry in range(fl.mask + 1):
                store(fl.resent_at, entry, 0.0)
    for row in range(run.n_grids):
        beliefs = a.beliefs[row]
        for entry in range(BELIEF_RINGS * (beliefs.mask + 1)):
            store(beliefs.ring_at, entry, 0.0)
        for entry in range(beliefs.memory_words):
            store(beliefs.memory_at, entry, 0.0)
