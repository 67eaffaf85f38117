"""Record layouts of the fluid kernels: what one flow, one link and one configuration hold.

Seconds, bytes and bytes/s throughout. The kernels and nothing else index these records, by field name.
"""

from __future__ import annotations

import numpy as np

BBR1, BBR2, RENO, CUBIC = 0, 1, 2, 3
CCA_CODES = {"bbr1": BBR1, "bbr2": BBR2, "reno": RENO, "cubic": CUBIC}

# How senders react to loss: the printed equations, the published code, once per round (see Parameters.form).
PRINT, CODE, ROUNDS = 0, 1, 2
FORM_CODES = {"print": PRINT, "code": CODE, "rounds": ROUNDS}

DROP_TAIL, RED = 0, 1
DISCIPLINE_CODES = {"drop-tail": DROP_TAIL, "red": RED}


def _record(integers: str, reals: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in reals.split()])


# hops, hop_start: the links on the path, as a run of the hop table; row: first ring of the flow (sent, then accepted and
# departed for every hop); return_steps: egress of the last link to the sender, by way of the receiver; lag_steps: how far
# back the window that CUBIC remembers lies.
FLOW = _record(
    "cca hops hop_start row return_steps lag_steps",
    "rtt_prop_s phase period_s prt_interval_s "
    # state: BBR
    "tau_min_s x_btl_Bps x_max_Bps x_last_Bps x_next_Bps t_pbw_s t_prt_s m_prt m_dwn m_crs w_hi_bytes w_lo_bytes "
    # state: loss-based
    "cwnd_bytes since_loss_s w_max_bytes w_est_bytes cwnd_old_bytes "
    # state: published code's volume in flight; reactions once per round
    "v_bytes lost_packets quiet_s conserve_s "
    # signals and outputs of the newest step
    "tau_s rtt_seen_s x_dlv_Bps x_lost_Bps p_seen p_signal inflight_bytes settled_bytes window_bytes x_Bps "
    # sums over the measured part of the run
    "sent_bytes delivered_bytes lost_bytes rtt_sum_s jitter_sum_s jitter_samples last_rtt_s "
    # sums over the whole run
    "all_sent_bytes all_lost_bytes",
)

LINK = _record(
    "discipline oldest",
    "capacity_Bps buffer_bytes q0_bytes q1_bytes p1 average_gain "
    # state: queue, its average, cumulative accepted and departed bytes, where in the oldest step the head of line is
    "queue_bytes average_bytes accepted_bytes departed_bytes oldest_part "
    # newest step
    "arriving_bytes loss signal "
    # sums over the measured part of the run
    "arrived_sum_bytes lost_sum_bytes departed_sum_bytes queue_sum_bytes "
    # sums over the whole run
    "all_arrived_bytes all_lost_bytes",
)

# Gains that end in _part are 1 - exp(-step/time constant): the exact step of a linear relaxation.
CONFIG = _record(
    "steps ring measure_step trace_every form",
    "step_s mss_bytes jitter_interval_s rate_limit_Bps loss_exponent "
    "k_rate k_time k_pulse k_loss drain_tolerance_bytes "
    "tau_part max_growth_part max_reset_part btl_part lo_part code_part "
    "rtt_tolerance_s probe_rtt_duration_s reset_window_s update_window_s "
    "hi_decrease lo_decrease loss_threshold period_rtts "
    "reno_decrease cubic_c cubic_b cubic_offset_s cubic_loss_floor "
    "down_limit_rtts hi_floor_bdp hi_growth_interval_s "
    "reaction_packets reaction_rtts conserve_rtts window_gain pacing_margin",
)

FLOW_TRACE = [
    "x_Bps",
    "x_btl_Bps",
    "x_max_Bps",
    "x_dlv_Bps",
    "tau_s",
    "tau_min_s",
    "inflight_bytes",
    "window_bytes",
    "w_hi_bytes",
    "w_lo_bytes",
    "m_prt",
    "m_dwn",
    "m_crs",
    "t_pbw_s",
    "p_seen",
]
LINK_TRACE = ["queue_bytes", "arrival_Bps", "loss"]
