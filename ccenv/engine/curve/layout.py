"""The curve engine's memory: one record per environment, one per flow, and rings of recent history.

This module alone owns field names and ring offsets. Rings hold the cumulative curves of the last H steps (H a power of
two): step n lives at ``n & (H - 1)``. S is stored twice, H apart, so that every window of it is contiguous.
"""

from __future__ import annotations

import numpy as np

ENV_DTYPE = np.dtype(
    [
        # path
        ("dt_s", "<f8"),
        ("link_rate_Bps", "<f8"),
        ("link_rate_min_Bps", "<f8"),
        ("link_rate_max_Bps", "<f8"),
        ("buffer_bytes", "<f8"),
        ("mss_bytes", "<f8"),
        ("red_min_bytes", "<f8"),
        ("red_max_bytes", "<f8"),
        ("red_max_probability", "<f8"),
        ("red_weight", "<f8"),
        ("has_red", "<i8"),
        ("n_rate_changes", "<i8"),
        ("next_rate_change", "<i8"),
        ("jitter_steps", "<i8"),  # of flow 0: CCAC has one bound for all flows
        # players
        ("adversary_kind", "<i8"),
        ("adversary_index", "<i8"),
        ("seed", "<f8"),
        ("env_key", "<f8"),  # identity for random numbers, does not change when environments are reordered
        # state
        ("step", "<i8"),
        ("link_rate_now_Bps", "<f8"),
        ("enqueued_bytes", "<f8"),  # total E
        ("tokens_bytes", "<f8"),  # G
        ("served_bytes", "<f8"),  # total S
        ("capacity_bytes", "<f8"),  # integral of the link rate since the start
        ("red_average_bytes", "<f8"),
        ("fifo_step", "<i8"),  # step in which the newest departed byte had arrived
        # first error: 0 none, else a code of ccenv.engine.curve.transport
        ("error", "<i8"),
        ("error_flow", "<i8"),
        ("error_step", "<i8"),
    ]
)

FLOW_DTYPE = np.dtype(
    [
        # path
        ("rtt_steps", "<i8"),  # Rm that the sender goes by
        ("jitter_steps", "<i8"),
        ("lag_steps", "<i8"),  # from delivery to feedback: Rm of the path and what a proxy holds ACKs for
        ("rtt_s", "<f8"),
        ("jitter_s", "<f8"),
        ("start_step", "<i8"),
        ("stop_step", "<i8"),
        ("loss_budget", "<f8"),
        ("workload", "<i8"),
        ("workload_a", "<f8"),
        ("workload_b", "<f8"),
        ("receive_window_bytes", "<f8"),
        # sender
        ("sender_kind", "<i8"),
        ("sender_index", "<i8"),
        ("rate_Bps", "<f8"),
        ("cwnd_bytes", "<f8"),
        ("decision_step", "<i8"),  # next decision instant
        ("program_stage", "<i8"),  # of a belief program: 0 start, 1 after the first large loss
        ("chooser", "<i8"),  # of a contract: a code of CHOOSER_CODES
        ("chooser_index", "<i8"),  # row of its policy
        ("position", "<f8"),  # in the interval: 0 lo, 1 hi
        ("lo_Bps", "<f8"),
        ("hi_Bps", "<f8"),
        ("choice_due", "<i8"),  # 1: an external chooser's position decides the rate when the next step begins
        # curves at the newest step
        ("A", "<f8"),
        ("E", "<f8"),
        ("L", "<f8"),
        ("L_free", "<f8"),
        ("S", "<f8"),
        ("P", "<f8"),  # departed from the bottleneck
        ("sent_bytes", "<f8"),  # in the newest step, before losses
        ("kept_bytes", "<f8"),  # in the newest step, after non-congestive loss and RED
        # transport
        ("acked_bytes", "<f8"),
        ("found_lost_bytes", "<f8"),
        ("ack_sent_step", "<i8"),  # step in which the newest acknowledged byte was sent
        ("loss_step", "<i8"),  # losses up to this step are found, or noted in the next field
        ("unfound_loss_step", "<i8"),  # newest step with a loss that left the rings before it was found; -1: none
        ("stale_step", "<i8"),  # first step at which a cursor of the rings may be stale
        ("recovery_step", "<i8"),  # step at which the newest loss episode was found
        ("round_end_bytes", "<f8"),
        ("round_inflight_bytes", "<f8"),  # when the round began
        ("round_found_lost_bytes", "<f8"),
        ("app_limited", "<f8"),  # of the newest ACK signal
        ("last_ack_step", "<i8"),
        ("rtt_now_steps", "<f8"),
        ("rtt_min_steps", "<f8"),
        ("delay_floor_steps", "<i8"),  # whole steps from the step of sending to that of delivery, as the K = 1 model sees it
        ("srtt_steps", "<f8"),
        ("rttvar_steps", "<f8"),
        ("lost_since_decision_bytes", "<f8"),
        ("lost_last_interval_bytes", "<f8"),
        ("sent_at_decision_bytes", "<f8"),
        ("sent_last_interval_bytes", "<f8"),
        # beliefs (ccenv.engine.compiled.beliefs)
        ("initial_C_L_Bps", "<f8"),
        ("C_L_Bps", "<f8"),
        ("C_U_Bps", "<f8"),
        ("C_L_lambda_Bps", "<f8"),
        ("fresh_C_L_Bps", "<f8"),  # by what the period since the newest time-out showed alone
        ("period_C_L_Bps", "<f8"),  # when that period began
        ("period_C_U_Bps", "<f8"),
        ("fresh_C_L_lambda_Bps", "<f8"),
        ("q_U_bytes", "<f8"),
        ("qdel_L_s", "<f8"),
        ("qdel_U_s", "<f8"),
        ("qdel_L_exact_s", "<f8"),
        ("buffer_line_bytes", "<f8"),  # right-hand side of (6.3): C*T* + beta is at least this
        ("timeout_step", "<i8"),  # when the period began: windows start here or later
        ("judged_step", "<i8"),  # newest step known to be utilised or not
        ("utilised_run_steps", "<i8"),
        ("idle_run_steps", "<i8"),
        ("utilised", "<i8"),
        ("probe_window_steps", "<i8"),  # T* of C_L_lambda
        # a proxy that holds ACKs (ccenv.engine.compiled.holds)
        ("hold_steps", "<i8"),  # in lag_steps
        ("hold_target_steps", "<i8"),  # lambda
        ("hold_window_steps", "<i8"),  # 0: the hold never changes
        ("hold_until_step", "<i8"),  # end of the window
        ("hold_rtt_min_steps", "<f8"),  # of the window
        ("heard_step", "<i8"),  # newest step that the sender has feedback of
        # statistics for metrics
        ("rtt_byte_sum_s", "<f8"),  # sum over acknowledged bytes of their queueing and jitter delay
    ]
)

# Everything a run needs besides the records, one record. Addresses are of the first element of the named arrays.
RUN_DTYPE = np.dtype(
    [
        ("n_steps", "<i8"),  # of the next call
        ("n_flows", "<i8"),
        ("ring_length", "<i8"),
        ("hoards_tokens", "<i8"),
        ("varies_rate", "<i8"),
        ("has_jitter", "<i8"),
        ("early_feedback", "<i8"),  # 1 in proof timing: the rate of step k + 1 is decided on S(k + 1 - Rm)
        ("oracle_loss", "<i8"),
        ("rto_min_s", "<f8"),
        ("recorded_period", "<i8"),  # 1: recorded moves start over after their last step
        ("recording", "<i8"),
        ("compute_beliefs", "<i8"),
        ("monitoring", "<i8"),  # 1: monitors count what happens to the flows
        ("ring_at", "<i8"),
        ("env_ring_at", "<i8"),
        ("reciprocals_at", "<i8"),
        ("nodes_at", "<i8"),
        ("inputs_at", "<i8"),
        ("inputs_bytes", "<i8"),
        ("states_at", "<i8"),
        ("states_bytes", "<i8"),
        ("adversary_states_at", "<i8"),
        ("adversary_states_bytes", "<i8"),
        ("ack_at", "<i8"),
        ("ack_bytes", "<i8"),
        ("loss_at", "<i8"),
        ("loss_bytes", "<i8"),
        ("tick_at", "<i8"),
        ("tick_bytes", "<i8"),
        ("view_at", "<i8"),
        ("view_bytes", "<i8"),
        ("move_at", "<i8"),
        ("move_bytes", "<i8"),
        # addresses of what few batches need (``decision.FAR``)
        ("choose_rate_at", "<i8"),
        ("decide_by_policy_at", "<i8"),
        ("choose_inside_at", "<i8"),
        ("play_policy_at", "<i8"),
    ]
)

# Per flow: S twice, E, L, P. Per environment: G, total E.
FLOW_RINGS = 5
ENV_RINGS = 2

# Fields that index the rings from one step to the next. ccenv.engine.compiled.beliefs moves each of them up before it gets stale.
FLOW_CURSORS = ("ack_sent_step", "loss_step", "judged_step")
ENV_CURSORS = ("fifo_step",)
# Fields that are compared with steps or count them and never index a ring.
FLOW_STEPS = (
    "rtt_steps", "jitter_steps", "lag_steps", "start_step", "stop_step", "decision_step", "unfound_loss_step", "stale_step",
    "recovery_step",
    "last_ack_step", "rtt_now_steps", "rtt_min_steps", "delay_floor_steps", "srtt_steps", "rttvar_steps", "timeout_step",
    "utilised_run_steps", "idle_run_steps", "probe_window_steps", "hold_steps", "hold_target_steps", "hold_window_steps",
    "hold_until_step", "hold_rtt_min_steps", "heard_step",
)  # fmt: skip
ENV_STEPS = ("jitter_steps", "step", "error_step")

# What a run records per step and flow, and per step.
RECORD_FLOW = ("A", "L", "L_free", "S", "rate_Bps", "cwnd_bytes", "C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rtt_s")
RECORD_ENV = ("G", "link_rate_Bps")

WORKLOADS = {"bulk": 0, "rate": 1, "on_off": 2, "finite": 3}
SENDER_KINDS = {"external": 0, "program": 1, "classic": 2, "mlp": 3, "contract": 4}
# Of a contract: its position stays what it is, is drawn, is a policy's, or comes from outside.
CHOOSER_CODES = {"fixed": 0, "random": 1, "policy": 2, "external": 3}
ADVERSARY_KINDS = {"external": 0, "recorded": 1, "scripted": 2, "mlp": 3}
# Columns of a rate change: step after which it holds, bytes/s.
CHANGE_STEP, CHANGE_RATE = range(2)
# Rows of a sender's belief programs: of the one that it starts with, and of the one that follows.
START_ROW, MAIN_ROW = range(2)
# Columns of a row of adversary policies: for how many steps moves are kept (0: one Rm), length of an episode in Rm, number of
# outputs, then the move that each output is.
MLP_STEPS, MLP_EPISODE, MLP_MOVES, MLP_LEVELS, MLP_FIRST_COLUMN = range(5)


def ring_length(steps: int) -> int:
    """Return the smallest power of two that holds so many steps."""
    return 1 << max(3, int(np.ceil(np.log2(max(steps, 1)))))
