"""Signals that a policy may observe of a flow. One table drives the kernels, the spaces, the cards and the docs.

Every engine fills one struct of MEASURES at the end of each decision interval, and all formulas read it. Fields are float64.
Those that begin with ``true_`` are facts about the network that no sender can measure: only rewards and critics use them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel

PACKET, CURVE = "packet", "curve"
BOTH = frozenset({PACKET, CURVE})


@dataclass(frozen=True)
class Signal:
    """A number that a policy may observe."""

    name: str  # used in configs and cards
    unit: str  # after scaling
    low: float  # smallest value (clipped)
    high: float  # largest value (clipped)
    formula: str  # over the fields of MEASURES
    source: str = ""  # paper or text; empty: common knowledge
    engines: frozenset[str] = BOTH
    # what a flow must have: `"beliefs"` (and so a known Rm), `"finite"` (bytes of an application that ends), `"truth"` (for
    # critics only), or nothing
    needs: str = ""


_ONLY_PACKET = frozenset({PACKET})
_AURORA = "[Aurora] s.4.1"
_BELIEFS = "[CCmatic] s.5"
SIGNALS = (
    # scale-free, from what every transport measures
    Signal("send_ratio", "1", 0.0, 8.0, "sent / acknowledged bytes", _AURORA),
    Signal("send_excess", "1", -1.0, 7.0, "sent / acknowledged bytes - 1"),
    Signal("latency_gradient", "s/s", -2.0, 2.0, "least-squares slope of the RTT samples", _AURORA),
    Signal("latency_ratio", "1", 1.0, 16.0, "mean RTT / smallest mean RTT of any interval", _AURORA),
    Signal("rtt_change", "1", -4.0, 4.0, "(mean RTT - that of the interval before) / smallest RTT"),
    Signal("queue_ratio", "1", 0.0, 16.0, "mean RTT / smallest RTT - 1"),
    Signal("queue_log2", "log2", 0.0, 8.0, "log2(mean RTT / smallest RTT)"),
    Signal("own_queue_log2", "log2/4", 0.0, 4.0, "log2(1 + segments in flight * (1 - smallest RTT / mean RTT)) / 4"),
    Signal("loss_rate", "1", 0.0, 1.0, "lost / (lost + acknowledged bytes)"),
    Signal("loss_log2", "log2/4", 0.0, 2.0, "log2(1 + 100 * lost / (lost + acknowledged bytes)) / 4"),
    Signal("ecn_share", "1", 0.0, 1.0, "marked / acknowledged bytes", "RFC 3168"),
    Signal("throughput_ratio", "1", 0.0, 1.0, "throughput / largest throughput of any interval", "[Orca] s.4.1"),
    Signal("sending_log2", "log2", -8.0, 8.0, "log2(bytes sent / bytes acknowledged)"),
    Signal("rtt_min_ratio", "1", 1.0, 16.0, "smallest RTT of the interval / smallest RTT"),
    Signal("rtt_last_ratio", "1", 1.0, 16.0, "newest RTT / smallest RTT"),
    Signal("srtt_ratio", "1", 1.0, 16.0, "smoothed RTT / smallest RTT", "RFC 6298 (2.3)"),
    Signal("inflight_ratio", "1", 0.0, 32.0, "bytes in flight / (largest throughput * smallest RTT)"),
    Signal("cwnd_log2", "log2", -8.0, 8.0, "log2(cwnd / (largest throughput * smallest RTT)); 8 without a window"),
    Signal("cwnd_size", "log2/4", 0.0, 8.0, "log2(1 + cwnd / MSS) / 4; 8 without a window"),
    Signal("pacing_log2", "log2", -8.0, 8.0, "log2(pacing rate / largest throughput); 8 without pacing"),
    Signal("ack_gap_log2", "log2", -8.0, 8.0, "log2(mean gap between ACKs * throughput / MSS)"),
    Signal("ack_gap_variation", "1", 0.0, 16.0, "standard deviation / mean of the gaps between ACKs"),
    Signal("interval_ratio", "1", 0.0, 16.0, "length of the interval / smallest RTT"),
    Signal("last_action", "1", -1.0, 1.0, "the last action"),
    Signal("app_left", "log2/4", 0.0, 16.0, "log2(1 + bytes left / MSS) / 4", "", _ONLY_PACKET, "finite"),
    # raw
    Signal("throughput_mbps", "Mbit/s", 0.0, 1e5, "acknowledged bytes / length of the interval"),
    Signal("sending_mbps", "Mbit/s", 0.0, 1e5, "sent bytes / length of the interval"),
    Signal("pacing_mbps", "Mbit/s", 0.0, 1e5, "pacing rate"),
    Signal("rtt_mean_ms", "ms", 0.0, 1e5, "mean RTT"),
    Signal("rtt_min_ms", "ms", 0.0, 1e5, "smallest RTT of the interval"),
    Signal("rtt_last_ms", "ms", 0.0, 1e5, "newest RTT"),
    Signal("srtt_ms", "ms", 0.0, 1e5, "smoothed RTT", "RFC 6298 (2.3)"),
    Signal("base_rtt_ms", "ms", 0.0, 1e5, "smallest RTT of the flow"),
    Signal("queue_delay_ms", "ms", 0.0, 1e5, "mean RTT - smallest RTT"),
    Signal("inflight_segments", "MSS", 0.0, 1e6, "bytes in flight / MSS"),
    Signal("cwnd_segments", "MSS", 0.0, 1e6, "cwnd / MSS"),
    Signal("lost_segments", "MSS", 0.0, 1e6, "lost bytes / MSS"),
    Signal("acked_segments", "MSS", 0.0, 1e6, "acknowledged bytes / MSS"),
    Signal("ack_gap_ms", "ms", 0.0, 1e5, "mean gap between ACKs"),
    # beliefs: the ten elements of ccenv/Sender-v0, in its order
    Signal("bounds_log2", "log2", 0.0, 8.0, "log2(C_U / C_L); 8 before any upper bound", _BELIEFS, BOTH, "beliefs"),
    Signal("qdel_lower", "1", 0.0, 16.0, "qdel_L / Rm", _BELIEFS, BOTH, "beliefs"),
    Signal("qdel_upper", "1", 0.0, 16.0, "qdel_U / Rm", _BELIEFS, BOTH, "beliefs"),
    Signal("lost_share", "1", 0.0, 1.0, "found lost / sent bytes", _BELIEFS, BOTH, "beliefs"),
    Signal("rate_log2", "log2", -8.0, 8.0, "log2(rate / C_L)", _BELIEFS, BOTH, "beliefs"),
    Signal("segment_log2", "log2", 0.0, 4.0, "log2(1 + 4 MSS / (C_L Rm))", _BELIEFS, BOTH, "beliefs"),
    Signal("lambda_log2", "log2", -8.0, 8.0, "log2(C_L_lambda / C_L); a fact on ideal and cbr_delay", _BELIEFS, BOTH, "beliefs"),
    Signal("queue_upper", "1", 0.0, 16.0, "q_U / (C_L Rm); a fact on ideal and cbr_delay", _BELIEFS, BOTH, "beliefs"),
    Signal("utilised", "0 or 1", 0.0, 1.0, "newest judged step was utilised", _BELIEFS, BOTH, "beliefs"),
    Signal("inflight_beliefs", "1", 0.0, 32.0, "bytes in flight / (C_L Rm)", _BELIEFS, BOTH, "beliefs"),
    # for critics
    Signal("true_others", "1", 0.0, 64.0, "other senders' flows", "", BOTH, "truth"),
    Signal("true_flows_log2", "log2", 0.0, 8.0, "log2(flows)", "", BOTH, "truth"),
    Signal("true_share_log2", "log2", -8.0, 8.0, "log2(throughput / fair share), smoothed", "", BOTH, "truth"),
    Signal("true_buffer_bdp", "BDP", 0.0, 64.0, "buffer / (link rate * Rm)", "", BOTH, "truth"),
    Signal("true_queue_bdp", "BDP", 0.0, 64.0, "queue / (link rate * Rm)", "", BOTH, "truth"),
    Signal("true_inflight_bdp", "BDP", 0.0, 64.0, "bytes in flight / (link rate * Rm)", "", BOTH, "truth"),
    Signal("true_link_log2", "log2", -8.0, 16.0, "log2(link rate in Mbit/s)", "", BOTH, "truth"),
    # what a flow remembers of the intervals so far
    Signal("probe_response", "1", -0.5, 1.5, "change of log2(smoothed RTT) over that of log2(cwnd), as far as probes moved both"),
    Signal("roughness_log2", "log2", 0.0, 4.0, "log2(1 + 20 * mean difference of neighbouring rests of the RTT's changes)"),
    Signal("persistence", "1", -2.0, 2.0, "4 * mean of the product of neighbouring rests over the sum of their squares"),
    Signal("floor_log2", "log2", 0.0, 8.0, "log2(smallest RTT of about the last ten intervals / smallest RTT)"),
    Signal("peak_log2", "log2", 0.0, 8.0, "log2(largest mean RTT of about the last twenty intervals / smallest RTT)"),
    Signal("loss_lately_log2", "log2/2", 0.0, 4.0, "log2(1 + 100 * smoothed lost / (lost + acknowledged bytes)) / 2"),
)
N_SIGNALS = len(SIGNALS)
SIGNAL_NUMBERS = {signal.name: number for number, signal in enumerate(SIGNALS)}
BELIEF_SIGNALS = tuple(signal.name for signal in SIGNALS if signal.needs == "beliefs")
FIRST_BELIEF = SIGNAL_NUMBERS[BELIEF_SIGNALS[0]]
SIGNALS_LOW = np.array([signal.low for signal in SIGNALS])
SIGNALS_HIGH = np.array([signal.high for signal in SIGNALS])

# Sets of signals that configs may name, with their published history lengths.
SIGNAL_SETS: dict[str, tuple[tuple[str, ...], int]] = {
    "aurora": (("latency_gradient", "latency_ratio", "send_ratio"), 10),
    "beliefs": (BELIEF_SIGNALS, 1),
    "fair": (("rtt_change", "queue_log2", "send_excess", "own_queue_log2", "loss_log2"), 3),
    "company": (("rtt_change", "queue_log2", "send_excess", "own_queue_log2", "loss_rate"), 3),
    "network": (
        (
            *("queue_ratio", "loss_rate", "cwnd_log2", "pacing_log2", "send_excess", "true_queue_bdp", "true_buffer_bdp"),
            *("true_inflight_bdp", "true_share_log2"),
        ),
        1,
    ),
    "orca": (
        ("throughput_ratio", "pacing_log2", "loss_rate", "queue_ratio", "srtt_ratio", "interval_ratio", "inflight_ratio"),
        1,
    ),
}


def signal(name: str) -> Signal:
    """Return a signal. Raises UnknownNameError with suggestions."""
    if name not in SIGNAL_NUMBERS:
        raise unknown_name("signal", name, SIGNAL_NUMBERS)
    return SIGNALS[SIGNAL_NUMBERS[name]]


_FLOOR = 1e-9  # of what stands under a logarithm or a fraction


@kernel(inline="always")
def _ratio(a, b, none):
    return a / b if b > 0.0 else none


@kernel(inline="always")
def _log2(x):
    return np.log2(max(x, _FLOOR))


@kernel(inline="always")
def fill_beliefs(b, told_rtt_s, mss_bytes, sent_bytes, lost_bytes, inflight_bytes, out, first):
    """Compute the ten belief signals of a flow, not yet clipped.

    Args:
        b: a struct with the beliefs ``C_L_Bps``, ``C_U_Bps``, ``C_L_lambda_Bps``, ``q_U_bytes``, ``qdel_L_s``, ``qdel_U_s`` and
            ``utilised``, and with ``rate_Bps``.
        told_rtt_s: the Rm that the sender knows.
        mss_bytes: segment size.
        sent_bytes: in the interval.
        lost_bytes: found lost in it.
        inflight_bytes: now.
        out: float array.
        first: index of the first of the ten in ``out``.
    """
    bdp = b.C_L_Bps * told_rtt_s
    out[first] = np.log2(max(_ratio(b.C_U_Bps, b.C_L_Bps, 1.0), 1.0))
    out[first + 1] = _ratio(b.qdel_L_s, told_rtt_s, 0.0)
    out[first + 2] = _ratio(b.qdel_U_s, told_rtt_s, 0.0)
    out[first + 3] = lost_bytes / max(sent_bytes, 1.0)
    out[first + 4] = _log2(_ratio(min(b.rate_Bps, 1e15), b.C_L_Bps, 1.0))
    out[first + 5] = np.log2(1.0 + _ratio(4.0 * mss_bytes, bdp, 0.0))
    out[first + 6] = _log2(_ratio(b.C_L_lambda_Bps, b.C_L_Bps, 1.0))
    out[first + 7] = _ratio(b.q_U_bytes, bdp, 0.0)
    out[first + 8] = float(b.utilised)
    out[first + 9] = _ratio(inflight_bytes, bdp, 0.0)


@kernel
def fill_signals(m, out):
    """Write all signals of a struct of MEASURES to out, (N_SIGNALS,) float64, each clipped to its range."""
    acked, base_s, bdp = m.acked_bytes, m.min_rtt_s, m.throughput_most_Bps * m.min_rtt_s
    excess = _ratio(m.sent_bytes, acked, 1.0 if m.sent_bytes == 0.0 else np.inf)
    stretch = _ratio(m.rtt_mean_s, base_s, 1.0)
    throughput_Bps, mss = acked / m.interval_s, m.mss_bytes
    out[0] = excess
    out[1] = excess - 1.0
    out[2] = m.rtt_slope
    out[3] = _ratio(m.rtt_mean_s, m.rtt_least_mean_s, 1.0)
    out[4] = _ratio(m.rtt_mean_s - m.rtt_mean_before_s, base_s, 0.0)
    out[5] = stretch - 1.0
    out[6] = _log2(stretch)
    out[7] = np.log2(1.0 + m.inflight_bytes / mss * max(0.0, 1.0 - 1.0 / stretch)) / 4.0
    out[8] = _ratio(m.lost_bytes, m.lost_bytes + acked, 0.0)
    out[9] = np.log2(1.0 + 100.0 * out[8]) / 4.0
    out[10] = _ratio(m.marked_bytes, acked, 0.0)
    out[11] = _ratio(throughput_Bps, m.throughput_most_Bps, 0.0)
    out[12] = _log2(excess)
    out[13] = _ratio(m.rtt_min_s, base_s, 1.0)
    out[14] = _ratio(m.rtt_last_s, base_s, 1.0)
    out[15] = _ratio(m.srtt_s, base_s, 1.0)
    out[16] = _ratio(m.inflight_bytes, bdp, 0.0)
    out[17] = _log2(_ratio(m.cwnd_bytes, bdp, np.inf))
    out[18] = np.log2(1.0 + m.cwnd_bytes / mss) / 4.0
    out[19] = _log2(_ratio(m.rate_Bps, m.throughput_most_Bps, np.inf))
    out[20] = _log2(m.ack_gap_mean_s * throughput_Bps / mss)
    out[21] = _ratio(m.ack_gap_std_s, m.ack_gap_mean_s, 0.0)
    out[22] = _ratio(m.interval_s, base_s, 1.0)
    out[23] = m.action
    out[24] = np.log2(1.0 + m.app_left_bytes / mss) / 4.0
    out[25] = throughput_Bps * 8e-6
    out[26] = m.sent_bytes / m.interval_s * 8e-6
    out[27] = m.rate_Bps * 8e-6
    out[28] = m.rtt_mean_s * 1e3
    out[29] = m.rtt_min_s * 1e3
    out[30] = m.rtt_last_s * 1e3
    out[31] = m.srtt_s * 1e3
    out[32] = base_s * 1e3
    out[33] = (m.rtt_mean_s - base_s) * 1e3
    out[34] = m.inflight_bytes / mss
    out[35] = m.cwnd_bytes / mss
    out[36] = m.lost_bytes / mss
    out[37] = acked / mss
    out[38] = m.ack_gap_mean_s * 1e3
    fill_beliefs(m, m.told_rtt_s, mss, m.sent_bytes, m.lost_bytes, m.inflight_bytes, out, FIRST_BELIEF)
    true_bdp = m.true_link_Bps * m.true_rtt_s
    out[49] = m.true_others
    out[50] = _log2(m.true_flows)
    out[51] = _log2(m.true_share)
    out[52] = _ratio(m.true_buffer_bytes, true_bdp, 0.0)
    out[53] = _ratio(m.true_queue_bytes, true_bdp, 0.0)
    out[54] = _ratio(m.inflight_bytes, true_bdp, 0.0)
    out[55] = _log2(m.true_link_Bps * 8e-6)
    out[56] = m.probe_response
    out[57] = np.log2(1.0 + 20.0 * max(m.roughness, 0.0))
    out[58] = 4.0 * m.persistence
    out[59] = m.floor_log2
    out[60] = m.peak_log2
    out[61] = np.log2(1.0 + 100.0 * max(m.loss_smoothed, 0.0)) / 2.0
    for j in range(N_SIGNALS):
        out[j] = min(SIGNALS_HIGH[j], max(SIGNALS_LOW[j], out[j]))


MEASURES = np.dtype(
    [
        (name, "<f8")
        for name in (
            # the interval
            "now_s",
            "interval_s",  # > 0
            "sent_bytes",
            "acked_bytes",
            "lost_bytes",  # found lost
            "marked_bytes",  # acknowledged with a congestion mark
            "rtt_samples",  # number of RTT samples; if 0, the four RTTs below are those of the interval before
            "rtt_mean_s",
            "rtt_min_s",
            "rtt_last_s",
            "rtt_slope",  # least-squares slope of the samples over time, s/s; 0 for fewer than two different times
            "rtt_mean_before_s",  # mean of the interval before; of the first interval: its own
            "ack_gap_mean_s",  # between the ACKs of the interval; 0 without any
            "ack_gap_std_s",
            # the flow so far; before its first ACK every RTT is 0
            "min_rtt_s",
            "srtt_s",
            "rtt_least_mean_s",  # smallest mean RTT of any interval
            "throughput_most_Bps",  # largest acked_bytes / interval_s of any interval
            "inflight_bytes",
            "cwnd_bytes",  # infinite for a flow that sets rates only
            "rate_Bps",  # pacing rate; infinite: not paced
            "app_left_bytes",  # that the application has still to send; infinite for a bulk flow
            "action",  # the last one, in [-1, 1]; 0 before any
            "mss_bytes",
            # its memory (``ccenv.agents.interface.actions``)
            "probe_change",  # of the level that ``cwnd_exp2_probe`` sets at this decision, -2 to 2
            "probe_response",  # change of log2 of the smoothed RTT over that of the window, where the level's change moved both
            "roughness",  # moving average of the difference between the RTT's changes that its probes do not explain
            "persistence",  # whether these changes keep their sign: -1/2 to 1/2
            "floor_log2",  # log2(smallest RTT of the last intervals / min_rtt_s)
            "peak_log2",  # log2(largest mean RTT of the last intervals / min_rtt_s)
            "loss_smoothed",  # lost / (lost + acknowledged bytes), a moving average
            "starting",  # whether the start of ``cwnd_exp2_even`` is over, under way, or at its last decision: 0, 1, 2
            "outage_cwnd_bytes",  # cwnd_bytes before an outage, up to the first interval in which something arrives; else 0
            # beliefs, if the engine keeps them (docs/engine.md); else 0
            "told_rtt_s",  # the Rm that the sender knows
            "C_L_Bps",
            "C_U_Bps",
            "C_L_lambda_Bps",
            "q_U_bytes",
            "qdel_L_s",
            "qdel_U_s",
            "utilised",
            # limits of a shield (ccenv.agents.programs); 0 without one
            "shield_low_Bps",
            "shield_high_Bps",
            # window of the inner CCA that an action builds on; 0 without one
            "inner_cwnd_bytes",
            # known to the network only
            "true_rtt_s",  # propagation
            "true_link_Bps",  # bytes that the bottleneck could carry in the interval / interval_s
            "true_served_Bps",  # bytes of all flows that it carried in the interval / interval_s
            "true_queue_bytes",  # waiting at the bottleneck now
            "true_buffer_bytes",
            "true_flows",  # flows that may send now, this one included
            "true_others",  # of them those that are not controlled
            "true_share",  # own throughput / (true_link_Bps / true_flows), a moving average: SHARE_WEIGHT a decision
            "true_own_share_mean",  # mean of true_share over the controlled flows
            "true_jain",  # Jain's index of true_share over all flows that may send
        )
    ]
)
UNKNOWN_RTT_S = 0.1
"""Interval between decisions of a clock of smallest RTTs before any RTT sample."""
SHARE_WEIGHT = 0.1
"""Weight of the newest interval in the moving average of a share."""
MOST_OF_LINK = 16.0
"""Most that bytes over what the link could carry in an interval count as: in an outage it carries nothing."""
