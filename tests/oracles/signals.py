"""All signals by their formulas, in plain Python; the kernel: ``ccenv.agents.interface.signals``."""

import math
from collections.abc import Mapping

from ccenv.agents.interface.signals import SIGNALS

FLOOR = 1e-9


def _over(a: float, b: float, none: float) -> float:
    return a / b if b > 0 else none


def _log2(x: float) -> float:
    return math.log2(max(x, FLOOR)) if x < math.inf else math.inf


def signals_of(m: Mapping[str, float]) -> list[float]:
    """Return the signals of measures, in the order of the table, each clipped to its range."""
    mss, base, acked, sent, lost = m["mss_bytes"], m["min_rtt_s"], m["acked_bytes"], m["sent_bytes"], m["lost_bytes"]
    throughput, most = acked / m["interval_s"], m["throughput_most_Bps"]
    excess = _over(sent, acked, 1.0 if sent == 0 else math.inf)
    stretch = _over(m["rtt_mean_s"], base, 1.0)
    own_queue = m["inflight_bytes"] / mss * max(0.0, 1 - 1 / stretch if stretch > 0 else 0.0)
    bdp, told_bdp, true_bdp = most * base, m["C_L_Bps"] * m["told_rtt_s"], m["true_link_Bps"] * m["true_rtt_s"]
    values = {
        "send_ratio": excess,
        "send_excess": excess - 1,
        "latency_gradient": m["rtt_slope"],
        "latency_ratio": _over(m["rtt_mean_s"], m["rtt_least_mean_s"], 1.0),
        "rtt_change": _over(m["rtt_mean_s"] - m["rtt_mean_before_s"], base, 0.0),
        "queue_ratio": stretch - 1,
        "queue_log2": _log2(stretch),
        "own_queue_log2": math.log2(1 + own_queue) / 4,
        "loss_rate": _over(lost, lost + acked, 0.0),
        "loss_log2": math.log2(1 + 100 * _over(lost, lost + acked, 0.0)) / 4,
        "ecn_share": _over(m["marked_bytes"], acked, 0.0),
        "throughput_ratio": _over(throughput, most, 0.0),
        "sending_log2": _log2(excess),
        "rtt_min_ratio": _over(m["rtt_min_s"], base, 1.0),
        "rtt_last_ratio": _over(m["rtt_last_s"], base, 1.0),
        "srtt_ratio": _over(m["srtt_s"], base, 1.0),
        "inflight_ratio": _over(m["inflight_bytes"], bdp, 0.0),
        "cwnd_log2": _log2(_over(m["cwnd_bytes"], bdp, math.inf)),
        "cwnd_size": math.log2(1 + m["cwnd_bytes"] / mss) / 4,
        "pacing_log2": _log2(_over(m["rate_Bps"], most, math.inf)),
        "ack_gap_log2": _log2(m["ack_gap_mean_s"] * throughput / mss),
        "ack_gap_variation": _over(m["ack_gap_std_s"], m["ack_gap_mean_s"], 0.0),
        "interval_ratio": _over(m["interval_s"], base, 1.0),
        "last_action": m["action"],
        "app_left": math.log2(1 + m["app_left_bytes"] / mss) / 4,
        "throughput_mbps": throughput * 8 / 1e6,
        "sending_mbps": sent / m["interval_s"] * 8 / 1e6,
        "pacing_mbps": m["rate_Bps"] * 8 / 1e6,
        "rtt_mean_ms": m["rtt_mean_s"] * 1000,
        "rtt_min_ms": m["rtt_min_s"] * 1000,
        "rtt_last_ms": m["rtt_last_s"] * 1000,
        "srtt_ms": m["srtt_s"] * 1000,
        "base_rtt_ms": base * 1000,
        "queue_delay_ms": (m["rtt_mean_s"] - base) * 1000,
        "inflight_segments": m["inflight_bytes"] / mss,
        "cwnd_segments": m["cwnd_bytes"] / mss,
        "lost_segments": lost / mss,
        "acked_segments": acked / mss,
        "ack_gap_ms": m["ack_gap_mean_s"] * 1000,
        "bounds_log2": _log2(max(_over(m["C_U_Bps"], m["C_L_Bps"], 1.0), 1.0)),
        "qdel_lower": _over(m["qdel_L_s"], m["told_rtt_s"], 0.0),
        "qdel_upper": _over(m["qdel_U_s"], m["told_rtt_s"], 0.0),
        "lost_share": lost / max(sent, 1.0),
        "rate_log2": _log2(_over(min(m["rate_Bps"], 1e15), m["C_L_Bps"], 1.0)),
        "segment_log2": math.log2(1 + _over(4 * mss, told_bdp, 0.0)),
        "lambda_log2": _log2(_over(m["C_L_lambda_Bps"], m["C_L_Bps"], 1.0)),
        "queue_upper": _over(m["q_U_bytes"], told_bdp, 0.0),
        "utilised": m["utilised"],
        "inflight_beliefs": _over(m["inflight_bytes"], told_bdp, 0.0),
        "true_others": m["true_others"],
        "true_flows_log2": _log2(m["true_flows"]),
        "true_share_log2": _log2(m["true_share"]),
        "true_buffer_bdp": _over(m["true_buffer_bytes"], true_bdp, 0.0),
        "true_queue_bdp": _over(m["true_queue_bytes"], true_bdp, 0.0),
        "true_inflight_bdp": _over(m["inflight_bytes"], true_bdp, 0.0),
        "true_link_log2": _log2(m["true_link_Bps"] * 8 / 1e6),
        "probe_response": m["probe_response"],
        "roughness_log2": math.log2(1 + 20 * max(m["roughness"], 0.0)),
        "persistence": 4 * m["persistence"],
        "floor_log2": m["floor_log2"],
        "peak_log2": m["peak_log2"],
        "loss_lately_log2": math.log2(1 + 100 * max(m["loss_smoothed"], 0.0)) / 2,
    }
    return [min(row.high, max(row.low, values[row.name])) for row in SIGNALS]
