"""The curve engine's memory: one record per environment, one per flow, and rings of recent history.

This module alone owns field names and ring offsets. Rings hold the cumulative curves of the last H steps (H a power of
two): step n lives at ``n & (H - 1)``. S is stored twice, H apart, so that every window of it is contiguous.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.callbacks import make_record

ENV_DTYPE = make_record(
    """
    # path
    f8 dt_s link_rate_Bps link_rate_min_Bps link_rate_max_Bps buffer_bytes mss_bytes red_min_bytes red_max_bytes
    f8 red_max_probability red_weight
    i8 has_red n_rate_changes next_rate_change
    i8 jitter_steps  # of flow 0: CCAC has one bound for all flows
    # players
    i8 adversary_kind adversary_index
    f8 seed
    f8 env_key  # identity for random numbers, does not change when environments are reordered
    # state
    i8 step
    f8 link_rate_now_Bps
    f8 enqueued_bytes  # total E
    f8 tokens_bytes  # G
    f8 served_bytes  # total S
    f8 capacity_bytes  # integral of the link rate since the start
    f8 red_average_bytes
    i8 fifo_step  # step in which the newest departed byte had arrived
    # first error: 0 none, else a code of ccenv.engine.curve.transport
    i8 error error_flow error_step
    """
)

FLOW_DTYPE = make_record(
    """
    # path
    i8 rtt_steps  # Rm that the sender goes by
    i8 jitter_steps
    i8 lag_steps  # from delivery to feedback: Rm of the path and what a proxy holds ACKs for
    f8 rtt_s jitter_s
    i8 start_step stop_step
    f8 loss_budget
    i8 workload
    f8 workload_a workload_b receive_window_bytes
    # sender
    i8 sender_kind sender_index
    f8 rate_Bps cwnd_bytes
    i8 decision_step  # next decision instant
    i8 program_stage  # of a belief program: 0 start, 1 after the first large loss
    i8 chooser  # of a shield: a code of CHOOSER_CODES
    i8 chooser_index  # row of its policy
    f8 position  # in the interval: 0 lo, 1 hi
    f8 lo_Bps hi_Bps
    i8 choice_due  # 1: an external chooser's position decides the rate when the next step begins
    # curves at the newest step
    f8 A E L L_free S
    f8 P  # departed from the bottleneck
    f8 sent_bytes  # in the newest step, before losses
    f8 kept_bytes  # in the newest step, after non-congestive loss and RED
    # transport
    f8 acked_bytes found_lost_bytes
    i8 ack_sent_step  # step in which the newest acknowledged byte was sent
    i8 loss_step  # losses up to this step are found, or noted in the next field
    i8 unfound_loss_step  # newest step with a loss that left the rings before it was found; -1: none
    i8 stale_step  # first step at which a cursor of the rings may be stale
    i8 recovery_step  # step at which the newest loss episode was found
    f8 round_end_bytes
    f8 round_inflight_bytes  # when the round began
    f8 round_found_lost_bytes
    f8 app_limited  # of the newest ACK signal
    i8 last_ack_step
    f8 rtt_now_steps rtt_min_steps
    i8 delay_floor_steps  # whole steps from the step of sending to that of delivery, as the K = 1 model sees it
    f8 srtt_steps rttvar_steps lost_since_decision_bytes lost_last_interval_bytes sent_at_decision_bytes
    f8 sent_last_interval_bytes
    # beliefs (ccenv.engine.compiled.beliefs)
    f8 initial_C_L_Bps C_L_Bps C_U_Bps C_L_lambda_Bps
    f8 fresh_C_L_Bps  # by what the period since the newest time-out showed alone
    f8 period_C_L_Bps  # when that period began
    f8 period_C_U_Bps fresh_C_L_lambda_Bps q_U_bytes qdel_L_s qdel_U_s qdel_L_exact_s
    f8 buffer_line_bytes  # right-hand side of (6.3): C*T* + beta is at least this
    i8 timeout_step  # when the period began: windows start here or later
    i8 judged_step  # newest step known to be utilised or not
    i8 utilised_run_steps idle_run_steps utilised
    i8 probe_window_steps  # T* of C_L_lambda
    # a proxy that holds ACKs (ccenv.engine.compiled.holds)
    i8 hold_steps  # in lag_steps
    i8 hold_target_steps  # lambda
    i8 hold_window_steps  # 0: the hold never changes
    i8 hold_until_step  # end of the window
    f8 hold_rtt_min_steps  # of the window
    i8 heard_step  # newest step that the sender has feedback of
    # statistics for metrics
    f8 rtt_byte_sum_s  # sum over acknowledged bytes of their queueing and jitter delay
    """
)

# Everything a run needs besides the records, one record. Addresses are of the first element of the named arrays.
RUN_DTYPE = make_record(
    """
    i8 n_steps  # of the next call
    i8 n_flows ring_length hoards_tokens varies_rate has_jitter
    i8 early_feedback  # 1 in proof timing: the rate of step k + 1 is decided on S(k + 1 - Rm)
    i8 oracle_loss
    f8 rto_min_s
    i8 recorded_period  # 1: recorded moves start over after their last step
    i8 recording compute_beliefs
    i8 monitoring  # 1: monitors count what happens to the flows
    i8 ring_at env_ring_at reciprocals_at nodes_at inputs_at inputs_bytes states_at states_bytes adversary_states_at
    i8 adversary_states_bytes ack_at ack_bytes loss_at loss_bytes tick_at tick_bytes view_at view_bytes move_at
    i8 move_bytes
    # addresses of what few batches need (``decision.FAR``)
    i8 choose_rate_at decide_by_policy_at choose_inside_at play_policy_at
    """
)

# Per flow: S twice, E, L, P. Per environment: G, total E.
FLOW_RINGS = 5
ENV_RINGS = 2

# Fields that index the rings from one step to the next. ccenv.engine.compiled.beliefs moves each of them up before it gets stale.
FLOW_CURSORS = ("ack_sent_step", "loss_step", "judged_step")
ENV_CURSORS = ("fifo_step",)

# What a run records per step and flow, and per step.
RECORD_FLOW = ("A", "L", "L_free", "S", "rate_Bps", "cwnd_bytes", "C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rtt_s")
RECORD_ENV = ("G", "link_rate_Bps")

WORKLOADS = {"bulk": 0, "rate": 1, "on_off": 2, "finite": 3}
SENDER_KINDS = {"external": 0, "program": 1, "classic": 2, "mlp": 3, "shield": 4}
# Of a shield: its position stays what it is, is drawn, is a policy's, or comes from outside.
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
