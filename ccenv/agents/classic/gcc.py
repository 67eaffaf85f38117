"""GCC: Google Congestion Control for real-time media (draft-ietf-rmcat-gcc-02).

A sender of media: its rate is the smaller of a delay-based and a loss-based estimate, and it has no window.

Deviations: RTTs stand for one-way delays, so that what holds ACKs counts as well; the packets of the engine are acknowledged
one by one and lost ones are sent again; the estimate of the delay gradient is multiplied by the number of groups, 60 at most,
before it is compared with the threshold, as libwebrtc's detector does (groups of 5 ms would else never pass a threshold of 6 ms);
time steps of the threshold are at most 100 ms, as there; no probing at the start.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, Parameter
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.network.path import MBPS_IN_BPS

BURST_S = 0.005  # s.5.6: burst_time
STATE_NOISE = 1e-3  # s.5.6: q
FIRST_COVARIANCE = 0.1  # s.5.6: e(0)
CHI = 0.01  # s.5.6: in [0.001, 0.1]
FIRST_THRESHOLD_MS, LEAST_THRESHOLD_MS, MOST_THRESHOLD_MS = 12.5, 6.0, 600.0  # s.5.4, s.5.6
OVERUSE_TIME_MS = 10.0  # s.5.6
K_UP, K_DOWN = 0.01, 0.00018  # s.5.6
IGNORED_MS = 15.0  # s.5.4: the threshold does not follow larger excursions
LONGEST_STEP_MS = 100.0  # libwebrtc
MOST_GROUPS = 60.0  # libwebrtc
NO_GAP_MS = 1e9  # longer than any distance of groups
BETA = 0.85  # s.5.6
INCREASE_PER_S = 1.08  # s.5.5
REACTION_S = 0.1  # s.5.5: response_time = RTT + 100 ms
SMOOTHING = 0.95  # s.5.5
RATE_HEADROOM = 1.5  # s.5.5: A_hat < 1.5 R_hat
FRAMES_PER_S, PACKET_BITS, LEAST_STEP_BITS = 30.0, 9600.0, 1000.0  # s.5.5
BUCKET_S, BUCKETS = 0.1, 5  # R_hat over 0.5 s: s.5.6 allows 0.5 to 1 s
REPORT_S = 1.0  # s.3: feedback at least once a second
LOW_LOSS, HIGH_LOSS, LOSS_INCREASE = 0.02, 0.1, 1.05  # s.6
HOLD, INCREASE, DECREASE = 0.0, 1.0, 2.0
NORMAL, OVERUSE, UNDERUSE = 0.0, 1.0, 2.0


def _check_order(owner: str, values: dict[str, float]) -> None:
    rates = [values["min_mbps"], values["start_mbps"], values["max_mbps"]]
    if rates != sorted(rates):
        raise InputError(f"{owner}: min_mbps {rates[0]:g}, start_mbps {rates[1]:g} and max_mbps {rates[2]:g} must not descend")


sender = Cca(
    "gcc",
    __name__,
    parameters=(
        Parameter("start_mbps", 0.3, above=0, high=1e4, field="start_Bps", scale=MBPS_IN_BPS),
        Parameter("min_mbps", 0.05, above=0, high=1e4, field="least_Bps", scale=MBPS_IN_BPS),
        Parameter("max_mbps", 2.5, above=0, high=1e4, field="most_Bps", scale=MBPS_IN_BPS),
    ),
    fields=(
        "groups",  # so far, the current one included
        "first_sent_s",  # of the current group: first and last packet sent, last one arrived
        "last_sent_s",
        "arrived_s",
        "before_sent_s",  # of the group before
        "before_arrived_s",
        "shortest_ms",  # smallest distance of groups when sent, of the current 60 and of the 60 before
        "shortest_before_ms",
        "gradient_ms",  # m
        "covariance",  # e
        "noise",  # var_v
        "threshold_ms",
        "over_ms",  # time over the threshold
        "compared_ms",  # what was compared last
        "signal",
        "mode",
        "delay_Bps",  # A_hat
        "loss_Bps",  # As_hat
        "updated_s",  # of A_hat
        "bucket_s",  # begin of the current bucket of received bytes
        "bucket_bytes",
        *(f"bucket_{i}_bytes" for i in range(BUCKETS)),
        "buckets",  # full ones so far
        "peak_Bps",  # average and variance of R_hat at decreases; 0: none
        "peak_variance",
        "report_s",  # begin of the current report
        "report_acked_bytes",
        "report_lost_bytes",
    ),
    check=_check_order,
)


def init(state: Any) -> None:
    """Start at the first rate, increasing."""
    s = state
    s.cwnd_bytes = UNLIMITED_BYTES
    s.pacing_rate_Bps = s.delay_Bps = s.loss_Bps = s.start_Bps
    s.covariance = FIRST_COVARIANCE
    s.noise = 1.0
    s.threshold_ms = FIRST_THRESHOLD_MS
    s.shortest_ms = s.shortest_before_ms = NO_GAP_MS
    s.mode = INCREASE
    s.report_s = s.bucket_s = s.updated_s = -1.0  # not begun


def on_ack(state: Any, ack: Any) -> None:
    """Take the packet into its group; a group that is complete goes through filter, detector and rate control."""
    s = state
    if s.report_s < 0.0:
        s.report_s = s.bucket_s = s.updated_s = ack.now_s
    s.report_acked_bytes += ack.acked_bytes
    _receive(s, ack.now_s, ack.acked_bytes)
    sent_s = ack.now_s - ack.rtt_s
    if s.groups == 0.0:
        _begin_group(s, sent_s)
    elif sent_s > s.last_sent_s:  # others are out of order: ignored by the model (s.5.1)
        burst = sent_s - s.first_sent_s <= BURST_S
        gap_s = ack.now_s - s.arrived_s
        if not burst and not (gap_s < BURST_S and gap_s < sent_s - s.last_sent_s):  # s.5.2
            if s.groups > 1.0:
                _filter(s)
            s.before_sent_s = s.last_sent_s
            s.before_arrived_s = s.arrived_s
            _begin_group(s, sent_s)
    s.last_sent_s = max(s.last_sent_s, sent_s)
    s.arrived_s = ack.now_s
    _control(s, ack.now_s, ack.rtt_s, ack.mss_bytes)
    _report(s, ack.now_s)


@kernel
def _begin_group(s: Any, sent_s: float) -> None:
    s.groups += 1.0
    s.first_sent_s = sent_s


@kernel
def _receive(s: Any, now_s: float, acked_bytes: float) -> None:
    """Count received bytes into buckets of 0.1 s."""
    while now_s - s.bucket_s >= BUCKET_S:
        s.bucket_4_bytes, s.bucket_3_bytes, s.bucket_2_bytes = s.bucket_3_bytes, s.bucket_2_bytes, s.bucket_1_bytes
        s.bucket_1_bytes, s.bucket_0_bytes = s.bucket_0_bytes, s.bucket_bytes
        s.bucket_bytes = 0.0
        s.bucket_s += BUCKET_S
        s.buckets += 1.0
    s.bucket_bytes += acked_bytes


@kernel
def _received_Bps(s: Any) -> float:
    """Return R_hat over the last half second; 0 before the first bucket is full."""
    counted = min(s.buckets, float(BUCKETS))
    total = s.bucket_0_bytes + s.bucket_1_bytes + s.bucket_2_bytes + s.bucket_3_bytes + s.bucket_4_bytes
    return total / (counted * BUCKET_S) if counted > 0.0 else 0.0


@kernel
def _filter(s: Any) -> None:
    """Estimate the delay gradient by the Kalman filter of s.5.3 and compare it with the threshold of s.5.4."""
    sent_ms = 1e3 * (s.last_sent_s - s.before_sent_s)
    arrived_ms = 1e3 * (s.arrived_s - s.before_arrived_s)
    if s.groups % MOST_GROUPS == 0.0:
        s.shortest_before_ms = s.shortest_ms
        s.shortest_ms = NO_GAP_MS
    s.shortest_ms = min(s.shortest_ms, max(sent_ms, 1e-3))
    variation_ms = arrived_ms - sent_ms
    residual = variation_ms - s.gradient_ms
    alpha = (1.0 - CHI) ** (30.0 / 1e3 * min(s.shortest_ms, s.shortest_before_ms))
    limit = 3.0 * math.sqrt(s.noise)
    kept = min(residual, limit)
    s.noise = max(alpha * s.noise + (1.0 - alpha) * kept * kept, 1.0)
    gain = (s.covariance + STATE_NOISE) / (s.noise + s.covariance + STATE_NOISE)
    s.gradient_ms += residual * gain
    s.covariance = (1.0 - gain) * (s.covariance + STATE_NOISE)
    _detect(s, arrived_ms)


@kernel
def _detect(s: Any, arrived_ms: float) -> None:
    """Set the signal, and let the threshold follow (s.5.4)."""
    compared_ms = min(s.groups, MOST_GROUPS) * s.gradient_ms
    if compared_ms > s.threshold_ms:
        s.over_ms += arrived_ms
        if s.over_ms > OVERUSE_TIME_MS and compared_ms >= s.compared_ms:
            s.signal = OVERUSE
    else:
        s.over_ms = 0.0
        s.signal = UNDERUSE if compared_ms < -s.threshold_ms else NORMAL
    s.compared_ms = compared_ms
    size_ms = abs(compared_ms)
    if size_ms - s.threshold_ms <= IGNORED_MS:
        k = K_DOWN if size_ms < s.threshold_ms else K_UP
        s.threshold_ms += min(arrived_ms, LONGEST_STEP_MS) * k * (size_ms - s.threshold_ms)
        s.threshold_ms = min(MOST_THRESHOLD_MS, max(LEAST_THRESHOLD_MS, s.threshold_ms))


@kernel
def _control(s: Any, now_s: float, rtt_s: float, mss_bytes: float) -> None:
    """Run the rate control of s.5.5: at once when over-use begins, else once per response time."""
    response_s = REACTION_S + rtt_s
    elapsed_s = now_s - s.updated_s
    received_Bps = _received_Bps(s)
    if s.signal == OVERUSE:
        if s.mode != DECREASE or elapsed_s >= response_s:
            s.mode = DECREASE
            _decrease(s, received_Bps)
            s.updated_s = now_s
        return
    if elapsed_s < response_s:
        return
    s.updated_s = now_s
    if s.signal == UNDERUSE or s.mode == DECREASE:
        s.mode = HOLD
    elif s.mode == HOLD:
        s.mode = INCREASE
    if s.mode == INCREASE:
        s.delay_Bps = _increased_Bps(s, received_Bps, elapsed_s, response_s)
    if received_Bps > 0.0:
        s.delay_Bps = min(s.delay_Bps, max(RATE_HEADROOM * received_Bps, s.start_Bps))
    s.delay_Bps = min(s.most_Bps, max(s.least_Bps, s.delay_Bps))


@kernel
def _decrease(s: Any, received_Bps: float) -> None:
    """Go below what is received, and learn at which rate that was."""
    if received_Bps <= 0.0:
        return
    if s.peak_Bps > 0.0 and received_Bps < s.peak_Bps - 3.0 * math.sqrt(s.peak_variance):
        s.peak_Bps = 0.0  # the capacity is another one
    if s.peak_Bps == 0.0:
        s.peak_Bps = received_Bps
        s.peak_variance = (0.1 * received_Bps) ** 2
    else:
        off_Bps = received_Bps - s.peak_Bps
        s.peak_Bps += (1.0 - SMOOTHING) * off_Bps
        s.peak_variance = SMOOTHING * s.peak_variance + (1.0 - SMOOTHING) * off_Bps * off_Bps
    s.delay_Bps = min(s.delay_Bps, max(s.least_Bps, BETA * received_Bps))


@kernel
def _increased_Bps(s: Any, received_Bps: float, elapsed_s: float, response_s: float) -> float:
    """Return A_hat after an increase: by half a packet near the rate of earlier decreases, else by 8 % per second."""
    spread_Bps = 3.0 * math.sqrt(s.peak_variance)
    if s.peak_Bps > 0.0 and received_Bps > s.peak_Bps + spread_Bps:
        s.peak_Bps = 0.0
    if s.peak_Bps > 0.0 and received_Bps >= s.peak_Bps - spread_Bps:
        frame_bits = 8.0 * s.delay_Bps / FRAMES_PER_S
        packet_bits = frame_bits / math.ceil(frame_bits / PACKET_BITS)
        return s.delay_Bps + max(LEAST_STEP_BITS, 0.5 * min(elapsed_s / response_s, 1.0) * packet_bits) / 8.0
    return s.delay_Bps * INCREASE_PER_S ** min(elapsed_s, 1.0)


@kernel
def _report(s: Any, now_s: float) -> None:
    """Run the loss-based controller once a second (s.6), and set the rate."""
    if s.report_s >= 0.0 and now_s - s.report_s >= REPORT_S:
        total = s.report_acked_bytes + s.report_lost_bytes
        if total > 0.0:
            share = s.report_lost_bytes / total
            if share > HIGH_LOSS:
                s.loss_Bps *= 1.0 - 0.5 * share
            elif share < LOW_LOSS:
                s.loss_Bps *= LOSS_INCREASE
            s.loss_Bps = min(s.most_Bps, max(s.least_Bps, s.loss_Bps))
        s.report_acked_bytes = s.report_lost_bytes = 0.0
        s.report_s = now_s
    s.pacing_rate_Bps = min(s.delay_Bps, s.loss_Bps)


def on_loss(state: Any, loss: Any) -> None:
    """Count what was lost for the next report."""
    state.report_lost_bytes += loss.lost_bytes
    _report(state, loss.now_s)


def on_tick(state: Any, tick: Any) -> None:
    """Report also where nothing is acknowledged."""
    _report(state, tick.now_s)
