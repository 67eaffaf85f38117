"""The packet engine's event loop, compiled. The plain reference is ``tests/oracles/packet.py``.

Event sources: rate changes, links (end of a service), flows (ACK, pacing, application and RTO timers, start), pipes
(arrival at a further hop), boxes (an adversary's decision), grids (steps of a belief program or policy), the tick of all CCAs,
the log. A winner tree holds the next time of each; at equal times the source with the lowest number is first, so a run is a
function of its inputs alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.events import (
    change_rate,
    end_service,
    leave_pipe,
    open_box,
    send_packets,
    start_flow,
    step_grid,
    take_feedback,
    tick_flows,
    write_log,
)
from ccenv.engine.packet.layout import ERROR_EVENTS
from ccenv.engine.packet.sources import next_event, sources_of


class PacketArrays(NamedTuple):
    """The arrays of a run.

    Attributes:
        run: (1,) RUN_DTYPE.
        links: (links,) LINK_DTYPE.
        flows: (flows,) FLOW_DTYPE.
        pipes, boxes, grids: PIPE_DTYPE, BOX_DTYPE, GRID_DTYPE, at least one each; RUN_DTYPE says how many are in use.
        states, words: (flows,) states of the CCAs, as records and as (flows, STATE_SLOTS) words.
        templates: (flows, STATE_SLOTS) their initial states.
        sender_calls: (flows, 4) addresses of their init, on_ack, on_loss, on_tick.
        acks, losses, ticks, views, moves: (1,) signals of CCAs, and what adversaries see and do.
        changes: (n, 3) rate changes: time, link, rate.
        flow_log: (rows, flows) records of layout.FLOW_LOG.
        link_log: (rows, links) records of layout.LINK_LOG.
    """

    run: np.ndarray
    links: np.ndarray
    flows: np.ndarray
    pipes: np.ndarray
    boxes: np.ndarray
    grids: np.ndarray
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


@njit(cache=True, error_model="numpy", nogil=True)
def advance(arrays, until_s, max_events):
    """Process events up to until_s (exclusive), or until an error."""
    a = unowned(arrays)
    run = a.run[0]
    sources = sources_of(run.n_links, run.n_flows, run.n_pipes, run.n_boxes, run.n_grids)
    while run.error == 0:
        now_s, source = next_event(run)
        if not now_s < until_s:
            break
        if run.events >= max_events:
            run.error = ERROR_EVENTS
            break
        run.events += 1
        run.now_s = now_s
        first_sender, last_sender = 0, -1  # flows that may send after this event
        if sources.flows <= source < sources.pipes:
            first_sender = last_sender = source - sources.flows
            if a.flows[first_sender].started == 0:
                start_flow(a, run, first_sender)
            else:
                take_feedback(a, run, first_sender, now_s)
        elif sources.links <= source < sources.flows:
            end_service(a, run, sources, source - sources.links, now_s)
        elif sources.pipes <= source < sources.boxes:
            leave_pipe(a, run, sources, source - sources.pipes, now_s)
        elif sources.boxes <= source < sources.grids:
            open_box(a, run, sources, source - sources.boxes, now_s)
        elif sources.grids <= source < sources.tick:
            row = source - sources.grids
            step_grid(a, run, sources, row, now_s)
            first_sender = last_sender = a.grids[row].flow
        elif source == sources.tick:
            tick_flows(a, run, sources, now_s)
            last_sender = run.n_flows - 1
        elif source == sources.log:
            write_log(a, run, sources, now_s)
        else:
            change_rate(a, run)
        for i in range(first_sender, last_sender + 1):
            if a.flows[i].started == 1:
                send_packets(a, run, sources, i, now_s)
