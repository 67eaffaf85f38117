"""One flow over one drop-tail link of constant rate: its events with all that changes in registers. Compiled.

The code of the events is that of all networks (``events``); what this network does not have is known when it is compiled, and is
not there. Rate changes, decisions, ticks and the log come between two calls.
"""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load
from ccenv.engine.packet.local import copies_of, fits, put_back
from ccenv.engine.packet.decisions import ACKS
from ccenv.engine.packet.events import end_service, send_packets, take_feedback
from ccenv.engine.packet.layout import AGGREGATIONS, DISCIPLINES, JITTERS, TRACE_KINDS
from ccenv.engine.packet.sources import FIRST_LINK, RATE_CHANGES
from ccenv.base.kernels.decorator import kernel

LEAVES = 8  # that the tree of such a network has
_LINK, _FLOW = FIRST_LINK, FIRST_LINK + 1  # their sources
_RUN_HAS = {
    **{"n_links": 1, "n_flows": 1, "n_pipes": 0, "n_boxes": 0, "n_arrivals": 0},
    **{"packet_log_limit": 0, "tree_leaves": LEAVES},
}
_LINK_HAS = {
    **{"index": 0, "discipline": DISCIPLINES["drop_tail"], "mixed": 0, "trace_kind": TRACE_KINDS["none"]},
    "policer_Bps": 0.0,
}
_FLOW_HAS = {
    **{"index": 0, "n_hops": 1, "access_s": 0.0, "burst_s": 0.0, "jitter_kind": JITTERS["none"], "pool": -1},
    **{"ack_aggregation": AGGREGATIONS["none"], "reorders": 0, "ack_path": 0, "ack_hops": 0, "per_packet": 0},
    **{"hold_window_s": 0.0, "offers": 0, "rack": 0},
}
_run_fits, _link_fits, _flow_fits = fits(_RUN_HAS), fits(_LINK_HAS), fits(_FLOW_HAS)
_copy_run, _copy_link, _copy = copies_of(_RUN_HAS), copies_of(_LINK_HAS), copies_of({})
_copy_flow = copies_of(_FLOW_HAS | {"started": 1})


@kernel(forceinline=True)
def is_single(a, run):
    """Tell whether a network is one flow over one plain link."""
    return _run_fits(run) and _link_fits(a.links[0]) and _flow_fits(a.flows[0])


@kernel(forceinline=True)
def advance_single(a, network, sources, end_s, max_events):
    """Process the events of the link and the flow up to the first one of another source.

    Args:
        a: arrays of the network, for which ``is_single`` holds; the flow has begun.
        network: its record.
        sources: the numbers of the event sources.
        end_s: exclusive.
        max_events: that the network may take in all.
    """
    tree, watching = network.tree_at, a.monitors[max(a.flows[0].monitor, 0)]
    end_s = min(end_s, load(tree, LEAVES + RATE_CHANGES))  # at equal times the source with the lowest number is first
    other_s = np.inf
    for source in range(_FLOW + 1, LEAVES):
        other_s = min(other_s, load(tree, LEAVES + source))
    run, ln, fl, monitor = _copy_run(network), _copy_link(a.links[0]), _copy_flow(a.flows[0]), _copy(watching)
    while run.error == 0 and run.events < max_events:
        link_s, flow_s = load(tree, LEAVES + _LINK), load(tree, LEAVES + _FLOW)
        now_s = min(link_s, flow_s)
        if not now_s < end_s or now_s > other_s:
            break
        run.events += 1
        run.now_s = now_s
        if link_s <= flow_s:
            end_service(a, run, sources, ln, fl, now_s)
        else:
            take_feedback(a, run, sources, fl, monitor, now_s)
            send_packets(a, run, sources, fl, ln, now_s)
            if fl.monitor >= 0 and monitor.clock == ACKS:
                other_s = min(other_s, load(tree, LEAVES + sources.monitors + fl.monitor))
    put_back(run, network)
    put_back(ln, a.links[0])
    put_back(fl, a.flows[0])
    put_back(monitor, watching)
