"""PCC Vivace as the authors' Linux module runs it (repository PCC-Kernel, branch vivace, module tcp_pcc).

Differences from the paper: the utility is linear, u = x (1 - 900 dRTT/dT - 11 L), and x in bytes/s; dRTT is the difference of the
smoothed RTT between the first and the last packet of an interval, over the time in which the interval was sent, and counts as 0
below 3 % or two packets' time; the start grows by half, from 512 KiB/s; trials are two pairs at 5 % above and below, which must
agree; then the rate moves by the gradient between successive intervals, at least by 2.2 % and at most by 10 % and 7 points more
for each bound that binds in a row, up for as long as the gradient says so, and tries anew after a step down.

Deviations: the module leaves out the first and last ten packets of an interval, which here are told apart (where ACKs come in
bursts each of its intervals would begin at the longest RTT of a burst and end at the shortest); what was sent is what was
delivered, was lost and is in flight; a time-out begins new trials at once instead of after recovery; fractions are not
truncated; the first interval is at the first rate itself.
"""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import Cca, initial_window, smoothed_rtt
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform

STARTING, PROBING, MOVING = 0.0, 1.0, 2.0
N_INTERVALS = 4.0  # PCC_INTERVALS
FIRST_RATE_Bps = 512 * 1024.0  # pcc_init
START_GROWTH = 1.5  # pcc_decide_slow_start
PROBE_STEP = 0.05  # PCC_PROBING_EPS
MIN_INTERVAL_MSS = 50.0  # PCC_INTERVAL_MIN_PACKETS
LATENCY_COEFFICIENT = 900.0  # pcc_calc_utility_vivace
LOSS_COEFFICIENT = 11.0  # the same
START_LOSS = 0.1  # the same: losses below it do not count at the start
SLOPE_TOLERANCE = 0.03  # PCC_LAT_INFL_FILTER
NOISE_PACKETS = 2.0  # pcc_calc_utility_vivace: differences of less than so many packets' time are noise
MIN_DIFFERENCE = 0.02  # PCC_MIN_RATE_DIFF_RATIO_FOR_GRAD
MIN_STEP = 1.1 * MIN_DIFFERENCE  # pcc_decide_rate_moving
GRADIENT_STEP_Bps = 25_000.0  # PCC_GRAD_STEP_SIZE with its scales, per unit of gradient
FIRST_BOUND = 0.1  # PCC_MIN_CHANGE_BOUND
BOUND_STEP = 0.07  # PCC_CHANGE_BOUND_STEP
FIRST_AMPLIFIER = 2.0  # PCC_AMP_MIN
MAX_SWINGS = 2.0  # PCC_MAX_SWING_BUFFER
CWND_GAIN = 2.0  # pcc_set_cwnd
MIN_CWND_MSS = 4.0  # the same
MIN_RATE_MSS = 2.0  # PCC_RATE_MIN_PACKETS_PER_RTT
MAX_RATE_Bps = 1e12  # far above any link
NOTHING_YET = -1e300  # utility before the first interval

sender = Cca(
    "vivace_linux",
    __name__,
    parameters=(initial_window(),),
    fields=(
        "mode",
        "rate_Bps",
        "last_rate_Bps",
        "srtt_s",
        "lost_bytes",
        "counted_bytes",  # delivered or lost by the last signal
        "sending",  # interval being sent
        "receiving",  # interval whose packets are counted
        "waiting",  # 1: all intervals are sent
        # by interval: rate; what had been sent when it began and when it ended, 0: not yet; how long it was sent; utility
        "rate_0_Bps",
        "rate_1_Bps",
        "rate_2_Bps",
        "rate_3_Bps",
        "begin_0_bytes",
        "begin_1_bytes",
        "begin_2_bytes",
        "begin_3_bytes",
        "end_0_bytes",
        "end_1_bytes",
        "end_2_bytes",
        "end_3_bytes",
        "time_0_s",  # when it began, then how long it was sent
        "time_1_s",
        "time_2_s",
        "time_3_s",
        "utility_0",
        "utility_1",
        "utility_2",
        "utility_3",
        # of the interval that is received
        "got_bytes",
        "missed_bytes",
        "first_rtt_s",
        "last_rtt_s",
        "first_s",
        "last_s",
        "counted_lost_bytes",  # lost and delivered by the last signal
        "counted_delivered_bytes",
        # of steps
        "amplifier",
        "swings",
        "bound",
    ),
)


@kernel
def utility(rate_Bps: float, slope: float, loss: float) -> float:
    """Return u(x), x in bytes/s (pcc_calc_utility_vivace)."""
    return rate_Bps * (1.0 - LATENCY_COEFFICIENT * slope - LOSS_COEFFICIENT * loss)


def init(state: Any) -> None:
    """Start at the module's first rate."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.mode = STARTING
    state.rate_Bps = FIRST_RATE_Bps
    state.last_rate_Bps = FIRST_RATE_Bps
    state.utility_0 = NOTHING_YET
    state.amplifier = FIRST_AMPLIFIER
    state.bound = FIRST_BOUND
    state.pacing_rate_Bps = FIRST_RATE_Bps
    _one_interval(state)


def on_ack(state: Any, ack: Any) -> None:
    """Count; go on to the next interval; decide when all are counted (pcc_process)."""
    state.srtt_s = smoothed_rtt(state.srtt_s, ack.rtt_s, min(1.0, ack.acked_bytes / state.mss_bytes))  # per packet, as TCP
    before_bytes = state.counted_bytes
    state.counted_bytes = ack.delivered_bytes + state.lost_bytes
    sent_bytes = state.counted_bytes + ack.inflight_bytes
    if state.waiting == 0.0:
        _send_on(state, ack.now_s, sent_bytes, before_bytes)
    begin_bytes = _begin(state, state.receiving)
    if begin_bytes > 0.0:
        if before_bytes > begin_bytes:
            _count(state, ack)
        end_bytes = _end(state, state.receiving)
        if 0.0 < end_bytes < state.counted_bytes:
            _finish(state)
    state.counted_lost_bytes = state.lost_bytes
    state.counted_delivered_bytes = ack.delivered_bytes
    _set_window(state)


@kernel
def _set_window(state: Any) -> None:
    window_bytes = CWND_GAIN * state.pacing_rate_Bps * state.srtt_s
    state.cwnd_bytes = max(window_bytes, MIN_CWND_MSS * state.mss_bytes)


@kernel
def _one_interval(state: Any) -> None:
    """Begin an interval at the rate (pcc_setup_intervals_moving)."""
    state.rate_0_Bps = state.rate_Bps
    _restart(state)


@kernel
def _trials(state: Any) -> None:
    """Begin two pairs of intervals, each in random order (pcc_setup_intervals_probing)."""
    state.mode = PROBING
    up_Bps, down_Bps = state.rate_Bps * (1.0 + PROBE_STEP), state.rate_Bps * (1.0 - PROBE_STEP)
    order = int(4.0 * uniform(state.seed, state.env, state.flow, state.draws))
    state.draws += 1.0
    state.rate_0_Bps, state.rate_1_Bps = (up_Bps, down_Bps) if order % 2 == 0 else (down_Bps, up_Bps)
    state.rate_2_Bps, state.rate_3_Bps = (up_Bps, down_Bps) if order < 2 else (down_Bps, up_Bps)
    _restart(state)


@kernel
def _restart(state: Any) -> None:
    state.begin_0_bytes = state.begin_1_bytes = state.begin_2_bytes = state.begin_3_bytes = 0.0
    state.end_0_bytes = state.end_1_bytes = state.end_2_bytes = state.end_3_bytes = 0.0
    state.sending = 0.0
    state.receiving = 0.0
    state.waiting = 0.0
    state.pacing_rate_Bps = state.rate_0_Bps
    _clear(state)


@kernel
def _clear(state: Any) -> None:
    state.got_bytes = 0.0
    state.missed_bytes = 0.0


@kernel
def _send_on(state: Any, now_s: float, sent_bytes: float, counted_bytes: float) -> None:
    """Begin the interval, or end it when an RTT and enough packets are sent, and go on (send_interval_ended)."""
    s, i = state, state.sending
    begin_bytes = _begin(s, i)
    if begin_bytes > 0.0 and not (sent_bytes - begin_bytes >= MIN_INTERVAL_MSS * s.mss_bytes and counted_bytes > begin_bytes):
        return
    if begin_bytes > 0.0:
        if i == 0.0:
            s.end_0_bytes, s.time_0_s = sent_bytes, now_s - s.time_0_s
        elif i == 1.0:
            s.end_1_bytes, s.time_1_s = sent_bytes, now_s - s.time_1_s
        elif i == 2.0:
            s.end_2_bytes, s.time_2_s = sent_bytes, now_s - s.time_2_s
        else:
            s.end_3_bytes, s.time_3_s = sent_bytes, now_s - s.time_3_s
        s.sending = i = i + 1.0
        if i == N_INTERVALS or s.mode != PROBING:
            s.waiting = 1.0
            s.pacing_rate_Bps = s.rate_Bps
            return
    if i == 0.0:
        s.begin_0_bytes, s.time_0_s, s.pacing_rate_Bps = sent_bytes, now_s, s.rate_0_Bps
    elif i == 1.0:
        s.begin_1_bytes, s.time_1_s, s.pacing_rate_Bps = sent_bytes, now_s, s.rate_1_Bps
    elif i == 2.0:
        s.begin_2_bytes, s.time_2_s, s.pacing_rate_Bps = sent_bytes, now_s, s.rate_2_Bps
    else:
        s.begin_3_bytes, s.time_3_s, s.pacing_rate_Bps = sent_bytes, now_s, s.rate_3_Bps


@kernel
def _begin(state: Any, i: float) -> float:
    if i == 0.0:
        return float(state.begin_0_bytes)
    if i == 1.0:
        return float(state.begin_1_bytes)
    return float(state.begin_2_bytes) if i == 2.0 else float(state.begin_3_bytes)


@kernel
def _end(state: Any, i: float) -> float:
    if i == 0.0:
        return float(state.end_0_bytes)
    if i == 1.0:
        return float(state.end_1_bytes)
    return float(state.end_2_bytes) if i == 2.0 else float(state.end_3_bytes)


@kernel
def _count(state: Any, ack: Any) -> None:
    """Count what was delivered and lost since the last signal (pcc_update_interval)."""
    if state.got_bytes + state.missed_bytes == 0.0:
        state.first_s = ack.now_s
        state.first_rtt_s = state.srtt_s
    state.last_s = ack.now_s
    state.last_rtt_s = state.srtt_s
    state.got_bytes += ack.delivered_bytes - state.counted_delivered_bytes
    state.missed_bytes += state.lost_bytes - state.counted_lost_bytes


@kernel
def _measured(state: Any, rate_Bps: float, sent_s: float) -> float:
    """Return the utility of the interval that was counted (pcc_calc_utility_vivace)."""
    s = state
    if s.got_bytes == 0.0:
        return 0.0
    change_s = s.last_rtt_s - s.first_rtt_s
    slope = change_s / sent_s if sent_s > 0.0 else 0.0
    noise_s = NOISE_PACKETS * s.mss_bytes * (s.last_s - s.first_s) / s.got_bytes
    if abs(change_s) < noise_s or abs(slope) < SLOPE_TOLERANCE or (slope < 0.0 and s.mode == STARTING):
        slope = 0.0
    loss = s.missed_bytes / (s.got_bytes + s.missed_bytes)
    if s.mode == STARTING and loss < START_LOSS:
        loss = 0.0
    return utility(rate_Bps, slope, loss)


@kernel
def _finish(state: Any) -> None:
    """Set the utility of an interval that is counted, and decide when it was the last one."""
    s, i = state, state.receiving
    if s.mode == STARTING:
        _decide_start(s, _measured(s, s.rate_0_Bps, s.time_0_s))
        return
    if s.mode == MOVING:
        _decide_moving(s, _measured(s, s.rate_0_Bps, s.time_0_s))
        return
    if i == 0.0:
        s.utility_0 = _measured(s, s.rate_0_Bps, s.time_0_s)
    elif i == 1.0:
        s.utility_1 = _measured(s, s.rate_1_Bps, s.time_1_s)
    elif i == 2.0:
        s.utility_2 = _measured(s, s.rate_2_Bps, s.time_2_s)
    else:
        s.utility_3 = _measured(s, s.rate_3_Bps, s.time_3_s)
        _decide_trials(s)
        return
    s.receiving = i + 1.0
    _clear(s)


@kernel
def _decide_start(state: Any, utility: float) -> None:
    if utility > state.utility_0:
        state.utility_0 = utility
        state.last_rate_Bps = state.rate_Bps
        state.rate_Bps = min(START_GROWTH * state.rate_Bps, MAX_RATE_Bps)
        _one_interval(state)
        return
    state.last_rate_Bps, state.rate_Bps = state.rate_Bps, state.last_rate_Bps
    _trials(state)


@kernel
def _decide_trials(state: Any) -> None:
    """Move to the rate on which both pairs agree, or try again (pcc_decide_rate)."""
    s = state
    first, second = s.utility_0 > s.utility_1, s.utility_2 > s.utility_3
    if (first == second) != (s.rate_0_Bps == s.rate_2_Bps):
        _trials(s)
        return
    s.utility_0 = s.utility_2 if second else s.utility_3
    s.rate_Bps = s.last_rate_Bps = s.rate_2_Bps if second else s.rate_3_Bps
    s.mode = MOVING
    _one_interval(s)


@kernel
def _decide_moving(state: Any, utility: float) -> None:
    """Follow the gradient between the last two intervals (pcc_decide_rate_moving); after a step down, try anew."""
    s = state
    gradient = 0.0
    if abs(s.last_rate_Bps - s.rate_Bps) >= MIN_DIFFERENCE * s.rate_Bps:
        gradient = (s.utility_0 - utility) / (s.last_rate_Bps - s.rate_Bps)
    s.utility_0 = utility
    _set_amplifier(s, gradient > 0.0)
    step_Bps = bounded_step(s, gradient * GRADIENT_STEP_Bps * s.amplifier)
    smallest_Bps = MIN_STEP * s.rate_Bps
    step_Bps = max(step_Bps, smallest_Bps) if step_Bps >= 0.0 else min(step_Bps, -smallest_Bps)
    s.last_rate_Bps = s.rate_Bps
    s.rate_Bps = min(max(s.rate_Bps + step_Bps, MIN_RATE_MSS * s.mss_bytes / s.srtt_s), MAX_RATE_Bps)
    if step_Bps < 0.0:
        _trials(s)
    else:
        _one_interval(s)


@kernel
def _set_amplifier(state: Any, up: bool) -> None:
    """Raise the amplifier while the rate goes on in its direction; a turn resets it and delays the next rise."""
    s = state
    if up == (s.rate_Bps > s.last_rate_Bps):
        if s.swings > 0.0:
            s.swings -= 1.0
        else:
            s.amplifier += 1.0
        return
    s.swings = min(s.swings + 1.0, MAX_SWINGS)
    s.amplifier = FIRST_AMPLIFIER
    s.bound = FIRST_BOUND


@kernel
def bounded_step(state: Any, step_Bps: float) -> float:
    """Return a step within the bound, which rises while it binds (pcc_apply_change_bound)."""
    allowed_Bps = state.bound * state.rate_Bps
    if abs(step_Bps) <= allowed_Bps:
        state.bound = FIRST_BOUND
        return step_Bps
    state.bound += BOUND_STEP
    return allowed_Bps if step_Bps > 0.0 else -allowed_Bps


def on_loss(state: Any, loss: Any) -> None:
    """Count the loss; begin new trials after a time-out."""
    state.lost_bytes += loss.lost_bytes
    if loss.timeout > 0.0:
        if state.mode == STARTING:
            _one_interval(state)
        else:
            _trials(state)
