"""What is known of a flow at the end of a decision interval: one record that every engine fills, and all formulas read.

An interval ends when the flow decides. Fields are float64. Fields whose names begin with ``true_`` are facts about the network
that no sender can measure: rewards may use them, and critics that exist in training only.
"""

from __future__ import annotations

import numpy as np

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
            # what it remembers (``ccenv.agents.interface.probing``)
            "probe_change",  # of the level that ``cwnd_exp2_probe`` sets at this decision, -2 to 2
            "probe_response",  # change of log2 of the smoothed RTT over that of the window, where the level's change moved both
            "roughness",  # moving average of the difference between the RTT's changes that its probes do not explain
            "persistence",  # whether these changes keep their sign: -1/2 to 1/2
            "floor_log2",  # log2(smallest RTT of the last intervals / min_rtt_s)
            "peak_log2",  # log2(largest mean RTT of the last intervals / min_rtt_s)
            "loss_smoothed",  # lost / (lost + acknowledged bytes), a moving average
            # beliefs, where the engine keeps them (docs/beliefs.md); else 0
            "told_rtt_s",  # the Rm that the sender was told
            "C_L_Bps",
            "C_U_Bps",
            "C_L_lambda_Bps",
            "q_U_bytes",
            "qdel_L_s",
            "qdel_U_s",
            "utilised",
            # limits of a contract (ccenv.agents.programs); 0 without one
            "contract_low_Bps",
            "contract_high_Bps",
            # window of the inner CCA that an action builds on; 0 without one
            "inner_cwnd_bytes",
            # what only the network knows
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
"""What a clock of smallest RTTs takes for the first one: between decisions before any RTT sample."""
SHARE_WEIGHT = 0.1
"""Weight of the newest interval in the moving average of a share."""
