"""The packet engine's event loop, compiled. The plain reference is ``tests/oracles/packet.py``.

Event sources: rate changes, links (end of a service), flows (ACK, pacing, application and RTO timers, start), pipes (arrival at
a further hop), boxes (an adversary's decision), grids (steps of beliefs), monitors (decisions of policies), the tick of all
CCAs, the log. At equal times the source with the lowest number is first, so a run is a function of its inputs alone. A batch is
many networks that share nothing but their tables of senders; each runs until its time is up or a decision is awaited from
outside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.arrivals import leave_slot
from ccenv.engine.packet.events import (
    admit,
    change_rate,
    end_service,
    leave_pipe,
    link_at,
    open_box,
    send_packets,
    start_flow,
    step_grid,
    take_feedback,
    tick_flows,
    write_log,
)
from ccenv.engine.packet.layout import ERROR_EVENTS
from ccenv.engine.packet.monitor import take_outside, wake_monitor
from ccenv.engine.packet.single import advance_single, is_single
from ccenv.engine.packet.sources import next_event, set_source, sources_of, take_event


class PacketArrays(NamedTuple):
    """The arrays of a batch of B networks with equal numbers of links, flows and so on.

    Attributes:
        run: (B, 1) RUN_DTYPE.
        links: (B, links) LINK_DTYPE.
        flows: (B, flows) FLOW_DTYPE.
        pipes, boxes, grids, beliefs, monitors, measures: (B, n) PIPE_DTYPE, BOX_DTYPE, GRID_DTYPE and BELIEFS_DTYPE,
            MONITOR_DTYPE and MEASURES, at least one each; RUN_DTYPE says how many are in use.
        states, words: (B, flows) states of the CCAs, as records and as (B, flows, STATE_SLOTS) words.
        templates: (senders, STATE_SLOTS) their initial states.
        sender_calls: (senders, 4) addresses of their init, on_ack, on_loss, on_tick.
        acks, losses, ticks, views, moves: (B, 1) signals of CCAs, and what adversaries see and do.
        changes: (B, n, 3) rate changes: time, link, rate.
        flow_log: (B, rows, flows) records of layout.FLOW_LOG.
        link_log: (B, rows, links) records of layout.LINK_LOG.
    """

    run: np.ndarray
    links: np.ndarray
    flows: np.ndarray
    pipes: np.ndarray
    boxes: np.ndarray
    grids: np.ndarray
    beliefs: np.ndarray
    monitors: np.ndarray
    measures: np.ndarray
    states: np.ndarray
    words: np.ndarray
    templates: np.ndarray
    sender_calls: np.ndarray
    acks: np.ndarray
    losses: np.ndarray
    ticks: np.ndarray
    views: np.ndarray
    moves: np.ndarray
    changes: np.ndarray
    flow_log: np.ndarray
    link_log: np.ndarray


@kernel(inline="always")
def network_of(a, b):
    return PacketArrays(
        a.run[b], a.links[b], a.flows[b], a.pipes[b], a.boxes[b], a.grids[b], a.beliefs[b], a.monitors[b], a.measures[b],
        a.states[b], a.words[b], a.templates, a.sender_calls, a.acks[b], a.losses[b], a.ticks[b], a.views[b], a.moves[b],
        a.changes[b], a.flow_log[b], a.link_log[b],
    )  # fmt: skip


@kernel(nogil=True)
def advance(which, arrays, until_s, max_events):
    """Process events of the networks ``which``, (k,), of each up to its until_s, (B,), exclusive.

    A network also stops at an error, after ``max_events`` in all, or for a decision from outside.
    """
    batch = unowned(arrays)
    for b in which:
        a = network_of(batch, b)
        run = a.run[0]
        sources = sources_of(run.n_links, run.n_flows, run.n_pipes, run.n_boxes, run.n_grids, run.n_monitors)
        end_s = until_s[b]
        now_s = run.now_s
        single = is_single(a, run)
        first_sender, last_sender = take_outside(a, run, sources, now_s)  # flows that may send now
        while True:
            for i in range(first_sender, last_sender + 1):
                if a.flows[i].started == 1:
                    send_packets(a, run, sources, a.flows[i], link_at(a, run, i, 0), now_s)
                    if a.flows[i].pool >= 0 and leave_slot(run, a.flows[i]):
                        set_source(run, sources.flows + i, np.inf)
            if run.error != 0 or run.due > 0 or run.over == 1:
                break
            if single and a.flows[0].started == 1:
                advance_single(a, run, sources, end_s, max_events)
                if run.error != 0:
                    break
            now_s, source = next_event(run)
            if not now_s < end_s:
                break
            if run.events >= max_events:
                run.error = ERROR_EVENTS
                break
            run.events += 1
            run.now_s = now_s
            take_event(run, source)
            first_sender, last_sender = 0, -1
            if sources.flows <= source < sources.pipes:
                first_sender = last_sender = source - sources.flows
                if a.flows[first_sender].started == 0:
                    start_flow(a, run, first_sender)
                else:
                    fl = a.flows[first_sender]
                    take_feedback(a, run, sources, fl, a.monitors[max(fl.monitor, 0)], now_s)
            elif sources.links <= source < sources.flows:
                ln = a.links[source - sources.links]
                end_service(a, run, sources, ln, a.flows[ln.serving_flow], now_s)
            elif sources.pipes <= source < sources.boxes:
                leave_pipe(a, run, sources, source - sources.pipes, now_s)
            elif sources.boxes <= source < sources.grids:
                open_box(a, run, sources, source - sources.boxes, now_s)
            elif sources.grids <= source < sources.monitors:
                row = source - sources.grids
                if not step_grid(a, run, sources, row, now_s):
                    first_sender = last_sender = a.grids[row].flow
            elif sources.monitors <= source < sources.tick:
                first_sender, last_sender = wake_monitor(a, run, sources, source - sources.monitors, now_s)
            elif source == sources.tick:
                tick_flows(a, run, sources, now_s)
                last_sender = run.n_flows - 1
            elif source == sources.log:
                write_log(a, run, sources, now_s)
            elif source == sources.arrivals:
                first_sender = last_sender = admit(a, run, sources, now_s)
                if first_sender < 0:
                    first_sender, last_sender = 0, -1
            else:
                change_rate(a, run, sources, now_s)
