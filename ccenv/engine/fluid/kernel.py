"""The fluid network: method of steps over ring buffers of cumulative bytes, scalar, batched over configurations.

Every flow's bytes are followed as cumulative curves: sent, then accepted and departed at each hop. A pipe is a look-up
some steps back; a FIFO queue is a look-up at the time its head of line arrived, kept once per link. Bytes are therefore
conserved to rounding, per flow and per link, and inflight, RTT and loss seen by a sender belong to the same bytes.

Reference: [BBR-fluid] eqs. 1-3, 7, 18, 20; [BBR-fluid] section 4.1.1 (method of steps).
Deviation:
    eq. 1: at a later link arrive the bytes that left the earlier one (the print neglects queueing and loss upstream;
        with one bottleneck both are the same).
    eqs. 2, 4: the loss of a step is overflow plus eq. 4's early loss, over arrivals; this one signal acts on the queue,
        the senders and the reports.
    eq. 18: the delivery rate is that of the bytes acknowledged now, so its delays include queueing; a link is busy when
        q > 0 or y >= C.
    eq. 20: v' = x - x_dlv - (bytes known lost); without the last term v grows for ever under loss.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.fluid.parameters import BBR1, BBR2, CODE, CUBIC, RED, RENO, ROUNDS
from ccenv.engine.fluid.senders import (
    drop_tail_loss,
    red_loss,
    step_bbr1,
    step_bbr1_rounds,
    step_bbr2,
    step_bbr2_code,
    step_bbr2_rounds,
    step_cubic,
    step_cubic_code,
    step_cubic_rounds,
    step_reno,
    step_reno_rounds,
)


@kernel(inline="always")
def _serve_link(link: Any, cfg: Any) -> float:
    """Advance a link by one step: loss, queue. Return the bytes accepted."""
    arriving = link.arriving_bytes
    served = link.capacity_Bps * cfg.step_s
    early = 0.0
    if link.discipline == RED:
        link.average_bytes += link.average_gain * (link.queue_bytes - link.average_bytes)
        loss = red_loss(link.average_bytes, link.q0_bytes, link.q1_bytes, link.p1)
    else:
        early = drop_tail_loss(
            arriving / cfg.step_s, link.capacity_Bps, link.queue_bytes, link.buffer_bytes, cfg.loss_exponent, cfg.k_rate
        )
        loss = 0.0 if cfg.form == CODE else early
    accepted = arriving * (1.0 - loss)
    overflow = link.queue_bytes + accepted - served - link.buffer_bytes
    if overflow > 0.0:
        accepted -= overflow
    link.loss = 1.0 - accepted / arriving if arriving > 0.0 else 0.0
    link.signal = max(early, link.loss) if cfg.form == CODE else link.loss
    link.accepted_bytes += accepted
    if link.queue_bytes + accepted <= served:
        link.departed_bytes = link.accepted_bytes
    else:
        link.departed_bytes += served
    link.queue_bytes = link.accepted_bytes - link.departed_bytes
    link.all_arrived_bytes += arriving
    link.all_lost_bytes += arriving - accepted
    return accepted


@kernel(inline="always")
def _find_head(link: Any, accepted: Any, n: int, mask: int) -> None:
    """Move to the step in which the bytes that depart at step n arrived (exact FIFO; never moves back)."""
    while link.oldest < n and accepted[(link.oldest + 1) & mask] <= link.departed_bytes:
        link.oldest += 1
    if link.oldest < n:
        low = accepted[link.oldest & mask]
        link.oldest_part = (link.departed_bytes - low) / (accepted[(link.oldest + 1) & mask] - low)
    else:
        link.oldest_part = 0.0


@kernel(inline="always")
def _read(curve: Any, step: float, mask: int) -> float:
    """Return a curve at a fractional step, linear in between."""
    whole = int(step)
    low = curve[whole & mask]
    return low + (step - whole) * (curve[(whole + 1) & mask] - low)


@kernel(inline="always")
def _listen(
    flow: Any, cfg: Any, n: int, rings: Any, heads: Any, losses: Any, signals: Any, hop_link: Any, hop_steps: Any
) -> None:
    """Update what the sender sees at step n: delivery rate, loss, RTT, inflight, of the bytes acknowledged now."""
    mask = cfg.ring - 1
    flow.inflight_bytes = rings[flow.row, (n - 1) & mask] - flow.settled_bytes
    seen = n - flow.return_steps
    if seen < 1:
        return
    last = flow.row + 2 * flow.hops
    flow.x_dlv_Bps = (rings[last, seen & mask] - rings[last, (seen - 1) & mask]) / cfg.step_s
    at = float(seen)
    kept = spared = 1.0
    for hop in range(flow.hop_start + flow.hops - 1, flow.hop_start - 1, -1):
        link = hop_link[hop]
        at = _read(heads[link], at, mask)
        kept *= 1.0 - losses[link, math.ceil(at) & mask]
        spared *= 1.0 - signals[link, math.ceil(at) & mask]
        at -= hop_steps[hop]
        if at < 0.0:
            return
    flow.settled_bytes = _read(rings[flow.row], at, mask)
    flow.p_seen = 1.0 - kept
    flow.p_signal = 1.0 - spared
    if flow.p_seen > 0.0:
        step = math.ceil(at)
        sent_Bps = (rings[flow.row, step & mask] - rings[flow.row, (step - 1) & mask]) / cfg.step_s
        flow.x_lost_Bps = flow.p_seen * sent_Bps
    else:
        flow.x_lost_Bps = 0.0
    flow.rtt_seen_s = (n - at) * cfg.step_s


@kernel(inline="always")
def _step_flow(flow: Any, cfg: Any) -> float:
    if cfg.form == ROUNDS:
        return _step_rounds(flow, cfg)
    if flow.cca == BBR1:
        return step_bbr1(flow, cfg)
    if flow.cca == BBR2:
        return step_bbr2_code(flow, cfg) if cfg.form == CODE else step_bbr2(flow, cfg)
    if flow.cca == RENO:
        return step_reno(flow, cfg)
    if flow.cca == CUBIC:
        return step_cubic_code(flow, cfg) if cfg.form == CODE else step_cubic(flow, cfg)
    return np.nan


@kernel(inline="always")
def _step_rounds(flow: Any, cfg: Any) -> float:
    if flow.cca == BBR1:
        return step_bbr1_rounds(flow, cfg)
    if flow.cca == BBR2:
        return step_bbr2_rounds(flow, cfg)
    if flow.cca == RENO:
        return step_reno_rounds(flow, cfg)
    if flow.cca == CUBIC:
        return step_cubic_rounds(flow, cfg)
    return np.nan


@kernel
def _record(n: int, cfg: Any, flows: Any, links: Any, flow_trace: Any, link_trace: Any) -> None:
    row = n // cfg.trace_every - 1
    for i in range(flows.size):
        f = flows[i]
        out = flow_trace[row, i]
        out[0], out[1], out[2], out[3], out[4] = f.x_Bps, f.x_btl_Bps, f.x_max_Bps, f.x_dlv_Bps, f.tau_s
        out[5], out[6], out[7], out[8], out[9] = f.tau_min_s, f.inflight_bytes, f.window_bytes, f.w_hi_bytes, f.w_lo_bytes
        out[10], out[11], out[12], out[13], out[14] = f.m_prt, f.m_dwn, f.m_crs, f.t_pbw_s, f.p_seen
    for k in range(links.size):
        link_trace[row, k, 0] = links[k].queue_bytes
        link_trace[row, k, 1] = links[k].arriving_bytes / cfg.step_s
        link_trace[row, k, 2] = links[k].loss


@kernel(nogil=True)
def run_one(cfg: Any, flows: Any, links: Any, hop_link: Any, hop_steps: Any, flow_trace: Any, link_trace: Any) -> tuple[int, int]:
    """Run one configuration in place. Return (step, flow) of a divergence, or (0, 0).

    ``hop_link``, (H,), is the link of each hop; a flow's hops are consecutive. ``hop_steps``, (H,), are steps from the sender (or
    the previous link's egress) to this link, at least 1. Traces are (rows, N, len(FLOW_TRACE)) and (rows, L, len(LINK_TRACE)), or
    empty.
    """
    n_flows, n_links, n_hops, mask = flows.size, links.size, hop_link.size, cfg.ring - 1
    rings = np.zeros((n_flows + 2 * n_hops, cfg.ring))
    accepted = np.zeros((n_links, cfg.ring))
    heads = np.zeros((n_links, cfg.ring))
    losses = np.zeros((n_links, cfg.ring))
    signals = np.zeros((n_links, cfg.ring))
    windows = np.zeros((n_flows if cfg.form == CODE else 0, cfg.ring))
    for i in range(windows.shape[0]):
        windows[i, :] = flows[i].cwnd_bytes
    arriving = np.zeros(n_hops)
    next_sample_s = cfg.measure_step * cfg.step_s
    for n in range(1, cfg.steps + 1):
        now, before = n & mask, (n - 1) & mask
        measured = n > cfg.measure_step
        for k in range(n_links):
            links[k].arriving_bytes = 0.0
        for i in range(n_flows):
            flow = flows[i]
            for j in range(flow.hops):
                hop = flow.hop_start + j
                curve = rings[flow.row + 2 * j]
                at = n - hop_steps[hop]
                arriving[hop] = curve[at & mask] - curve[(at - 1) & mask]
                links[hop_link[hop]].arriving_bytes += arriving[hop]
        for k in range(n_links):
            link = links[k]
            departed_before = link.departed_bytes
            took = _serve_link(link, cfg)
            accepted[k, now] = link.accepted_bytes
            losses[k, now] = link.loss
            signals[k, now] = link.signal
            _find_head(link, accepted[k], n, mask)
            heads[k, now] = link.oldest + link.oldest_part
            if measured:
                link.arrived_sum_bytes += link.arriving_bytes
                link.lost_sum_bytes += link.arriving_bytes - took
                link.departed_sum_bytes += link.departed_bytes - departed_before
                link.queue_sum_bytes += link.queue_bytes
        sample = measured and n * cfg.step_s >= next_sample_s
        for i in range(n_flows):
            flow = flows[i]
            tau = flow.rtt_prop_s
            for j in range(flow.hops):
                hop = flow.hop_start + j
                link = links[hop_link[hop]]
                tau += link.queue_bytes / link.capacity_Bps
                row = flow.row + 2 * j + 1
                lost = arriving[hop] * link.loss
                rings[row, now] = rings[row, before] + (arriving[hop] - lost)
                flow.all_lost_bytes += lost
                if measured:
                    flow.lost_bytes += lost
                low, part = rings[row, link.oldest & mask], link.oldest_part
                if part > 0.0:
                    low += part * (rings[row, (link.oldest + 1) & mask] - low)
                rings[row + 1, now] = low
            flow.tau_s = tau
            _listen(flow, cfg, n, rings, heads, losses, signals, hop_link, hop_steps)
            if cfg.form == CODE:
                flow.cwnd_old_bytes = windows[i, (n - flow.lag_steps) & mask]
            flow.x_Bps = _step_flow(flow, cfg)
            if cfg.form == CODE:
                windows[i, now] = flow.cwnd_bytes
            if not flow.x_Bps <= cfg.rate_limit_Bps:
                return n, i
            sent = flow.x_Bps * cfg.step_s
            rings[flow.row, now] = rings[flow.row, before] + sent
            flow.all_sent_bytes += sent
            if measured:
                last = flow.row + 2 * flow.hops
                flow.sent_bytes += sent
                flow.delivered_bytes += rings[last, now] - rings[last, before]
                flow.rtt_sum_s += tau
            if sample:
                if flow.last_rtt_s > 0.0:
                    flow.jitter_sum_s += abs(tau - flow.last_rtt_s)
                    flow.jitter_samples += 1.0
                flow.last_rtt_s = tau
        if sample:
            next_sample_s += cfg.jitter_interval_s
        if cfg.trace_every > 0 and n % cfg.trace_every == 0:
            _record(n, cfg, flows, links, flow_trace, link_trace)
    return 0, 0


@kernel(nogil=True)
def run_range(
    first: int,
    last: int,
    stopped: Any,
    cfgs: Any,
    flows: Any,
    flow_start: Any,
    links: Any,
    link_start: Any,
    hop_link: Any,
    hop_steps: Any,
    hop_start: Any,
) -> None:
    """Run configurations first .. last - 1 of B in place; ``stopped``, (B, 2), takes step and flow of a divergence, or zeros.

    Flows, links and hops of all configurations follow each other, delimited by ``flow_start``, ``link_start`` and ``hop_start``,
    (B+1,); indices of links are local to a configuration.
    """
    nothing = np.zeros((0, 0, 0))
    for b in range(first, last):
        hops = slice(hop_start[b], hop_start[b + 1])
        stopped[b] = run_one(
            cfgs[b],
            flows[flow_start[b] : flow_start[b + 1]],
            links[link_start[b] : link_start[b + 1]],
            hop_link[hops],
            hop_steps[hops],
            nothing,
            nothing,
        )
