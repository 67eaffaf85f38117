"""A sender whose unfairness is bounded for ever, for any number of flows: ``ever_delay`` (docs/fairness.md).

X - 1 is by how much the time since the newest acknowledged byte was sent is beyond Rm, in units of Rm, or of what all flows agree
on; it grows while no ACK comes. The rate is e^v X^-1/2, and v follows A - B (X - 1) with gain g per unit: in equilibrium the
exponential rate-delay map of [Starvation] eq. 2. The factor X^-1/2 is fast and keeps the queue stable, the filter is slow and
keeps the rates together. Three phases are outside the theorem:

- a **start**, until v first meets the map: it grows by 1/10 per Rm, over X - D where that is above 1: a queue takes X to answer,
  and jitter alone slows nobody. A flow whose first ACK shows a queue, whatever the jitter does, came to flows at rest: the map at
  that X is their v, so its start goes there, at 1/10 per Rm;
- **settling**, 300 Rm of the same rule with a gain of 1/100 per Rm, which leaves v where all flows agree; again where v is so far
  from the map that no state of the theorem's invariant could have it: the link has become another;
- **repair**, from a loss of more than 2 % until v meets the map again: the buffer is below the theorem's. v falls by 1/2, at most
  once per round trip, and a window's worth of the rate grows by a packet per round trip, more the longer nothing is lost.
  Additive growth and cuts by a factor bring rates together, as in AIMD.

There is no window. B, g and the two distances come from certificates.

A design with freedom f is a shield. Whatever sets the flow's rate between two steps (an action ``rate_exp2_over`` on top) is
kept as a factor of the rule's rate within [1/f, f], which the theorem covers; at a start v follows what was set towards the map.

Deviations: Rm is the smallest RTT seen where it is not given, of which the theorem does not speak. Its flows always have
bytes in flight; one of packets that has none measures X from the last moment without.
"""

from __future__ import annotations

import math
from typing import Any

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import UNLIMITED_BYTES, classic_sender
from ccenv.agents.sender import ClassicSender
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number
from ccenv.network.path import MBPS_IN_BPS

FAIRNESS = 3.0
JITTER_RTTS = 1.0
SHARES = 100.0
MAX_SHARE_MBPS = 400.0
START_GAIN = 0.1  # of v per Rm at an empty queue
EXPONENT = 0.5  # sigma
TOLERATED_LOSS = 0.02
CUT = 0.3  # of v by loss beyond what is tolerated, once per round trip
CALM_ROUNDS = 3.0  # without a cut, which double the growth of a repair
SETTLE_RTTS = 300.0
SETTLE_GAIN = 0.01  # per Rm
ENTRY_MARGIN = 0.5  # of X beyond what jitter alone makes
NO_QUEUE = 1e9
RULE, STARTING, SETTLING, REPAIRING = 0.0, 1.0, 2.0, 3.0  # phases

DESIGNS: dict[tuple[float, ...], tuple[float, ...]] = {
    (3.0, 1.0, 100.0): (0.604236, 0.00012, 0.588064, 3.9389, 2.7375, 1.0),
    (3.93, 1.0, 136.0): (0.889615, 4.8e-05, 0.911411, 5.7003, 3.9383, 1.0),
    (2.95, 1.0, 114.0): (0.594992, 5.9e-05, 0.57297, 3.7823, 2.6027, 1.0),
    (3.93, 0.25, 179.0): (4.379646, 0.0001, 0.745049, 6.2506, 5.1694, 1.0),
    (1.97, 0.25, 122.0): (1.898493, 0.00017, 0.009814, 2.6853, 2.186, 1.0),
    (1.97, 0.125, 164.0): (4.339414, 0.00021, 0.078197, 3.1491, 3.9219, 1.0),
    (2.5, 0.125, 10.0): (4.354022, 0.0001, 0.080207, 11.9661, 9.7744, 1.1),
    (2.5, 0.125, 100.0): (2.748872, 0.0001, -0.101165, 3.9215, 2.8644, 1.0),
    (4.2, 1.0, 30.0): (0.287016, 5e-05, 0.325835, 5.0265, 3.7763, 1.0),
    (3.0, 0.125, 100.0): (2.416947, 0.0001, -0.156768, 3.4738, 2.5126, 1.0),
    (3.5, 1.0, 100.0): (0.563743, 5e-05, 0.537068, 3.5708, 2.4522, 1.0),
    (4.0, 0.125, 10.0): (4.480142, 1e-05, 0.098365, 36.7437, 34.7259, 1.3),
    (3.0, 1.0, 2.0): (0.384514, 0.002, 0.25386, 2.2479, 1.7155, 1.0),
    (1.4, 0.125, 10.0): (1.2113, 0.002, -0.353897, 1.419, 1.0939, 1.0),
}
"""(fairness, jitter_rtts, shares) -> B, g per Rm, theta+, start, relief and freedom of its certificate."""

STATE = state_record(
    "slope",  # B
    "gain",  # g per Rm
    "target",  # A = theta+ + ln(max_share)
    "start",  # so far below the map, v settles anew
    "relief",  # so far above it, too
    "free",  # ln of the freedom
    "jitter",  # D in Rm
    "rm_s",  # parameter; 0: the smallest RTT seen
    "unit_s",  # parameter; 0: Rm
    "v",  # ln of the rate at X = 1
    "ruled_Bps",  # the rule's rate at the last step
    "newest_s",  # when the newest acknowledged byte was sent
    "last_s",  # of the last step
    "x",  # X at the last step
    "rtt_s",  # since the newest acknowledged byte was sent, at least Rm
    "spare_bytes",  # may be lost yet: a packet and the tolerated share of an RTT
    "began",  # 1 after the first step
    "phase",
    "since_s",  # when settling began
    "cut_s",  # when v was last lowered by loss; what was sent before is not counted again
    "entry_x",  # X at the first ACK, if it shows a queue for certain; 0: no ACK yet; else NO_QUEUE
)


def sender(
    fairness: float = FAIRNESS,
    jitter_rtts: float = JITTER_RTTS,
    shares: float = SHARES,
    max_share_mbps: float = MAX_SHARE_MBPS,
    start_share_mbps: float = 0.0,
    rm_ms: float = 0.0,
    unit_ms: float = 0.0,
) -> ClassicSender:
    """Build the sender of docs/fairness.md.

    Args:
        fairness: s, the largest ratio of two rates.
        jitter_rtts: D, the jitter to withstand, in Rm.
        shares: the largest over the smallest fair share C/N of which the theorem speaks. Of these three, shipped designs only.
        max_share_mbps: the largest fair share, > 0.
        start_share_mbps: the share at whose equilibrium v starts, if one is known; 0: a start from max_share_mbps/shares.
        rm_ms: propagation RTT, if known; 0: the smallest RTT seen.
        unit_ms: what a design's numbers are multiples of, at least the largest Rm of all flows; 0: this flow's Rm.
    """
    asked = tuple(
        number("ever_delay", name, value, above=0, high=1e6)
        for name, value in (("fairness", fairness), ("jitter_rtts", jitter_rtts), ("shares", shares))
    )
    if asked not in DESIGNS:
        raise InputError(f"ever_delay: no certificate for {_told(asked)}; the nearest is {_told(nearest(asked))}")
    slope, gain, offset, start, relief, freedom = DESIGNS[asked]
    largest = number("ever_delay", "max_share_mbps", max_share_mbps, above=0, high=1e6) * MBPS_IN_BPS
    start_share_Bps = number("ever_delay", "start_share_mbps", start_share_mbps, low=0, high=1e6) * MBPS_IN_BPS
    v = rest_of(start_share_Bps, offset + math.log(largest), slope) if start_share_Bps > 0 else math.log(largest / asked[2])
    return classic_sender(
        "ever_delay",
        __name__,
        STATE,
        slope=slope,
        gain=gain,
        target=offset + math.log(largest),
        start=start,
        relief=relief,
        free=math.log(freedom),
        jitter=asked[1],
        rm_s=1e-3 * number("ever_delay", "rm_ms", rm_ms, low=0, high=1e6),
        unit_s=1e-3 * number("ever_delay", "unit_ms", unit_ms, low=0, high=1e6),
        v=v,
        phase=STARTING * float(start_share_Bps == 0.0),
    )


def rest_of(share_Bps: float, target: float, slope: float) -> float:
    """Return v of the equilibrium at a share: ln share + ln(X)/2 = A - B (X - 1)."""
    low, high = 1.0, 1e6
    while high - low > 1e-9 * high:
        x = 0.5 * (low + high)
        if math.log(share_Bps) + EXPONENT * math.log(x) < target - slope * (x - 1.0):
            low = x
        else:
            high = x
    return math.log(share_Bps) + EXPONENT * math.log(low)


def nearest(asked: tuple[float, ...]) -> tuple[float, ...]:
    """Return the shipped design that is nearest to one asked for, by the logarithms of its three numbers."""
    return min(DESIGNS, key=lambda design: sum(abs(math.log(one / other)) for one, other in zip(design, asked, strict=True)))


def _told(design: tuple[float, ...]) -> str:
    return "fairness {:g}, jitter_rtts {:g}, shares {:g}".format(*design)


def init(state: Any) -> None:
    """Start at the smallest share; the window never binds."""
    state.cwnd_bytes = UNLIMITED_BYTES
    state.pacing_rate_Bps = state.ruled_Bps = math.exp(state.v)
    state.began = 0.0


def on_ack(state: Any, ack: Any) -> None:
    """Note when the newest acknowledged byte was sent."""
    sent_s = ack.now_s - ack.rtt_s
    if state.began == 0.0:
        _advance(state, ack.now_s, ack.min_rtt_s)
        state.newest_s = sent_s
    state.newest_s = max(state.newest_s, sent_s)
    _advance(state, ack.now_s, ack.min_rtt_s)
    if state.entry_x == 0.0 and state.x > 0.0:
        state.entry_x = state.x if state.x > 1.0 + state.jitter + ENTRY_MARGIN else NO_QUEUE


def on_loss(state: Any, loss: Any) -> None:
    """Begin or go on with a repair where more is lost than is tolerated."""
    excess_bytes = loss.lost_bytes - state.spare_bytes
    state.spare_bytes = max(0.0, -excess_bytes)
    if excess_bytes > 0.0 and state.newest_s > state.cut_s:
        state.phase = REPAIRING
        state.cut_s = loss.now_s
        state.v -= CUT


def on_tick(state: Any, tick: Any) -> None:
    """Follow the map, also while no ACK comes; a flow with nothing in flight hears nothing, and X is 1."""
    if tick.inflight_bytes <= 0.0 and state.began > 0.0:
        state.newest_s = max(state.newest_s, state.last_s)
    _advance(state, tick.now_s, tick.min_rtt_s)


@kernel
def drift(state: Any, short: float) -> float:
    """Return how v changes per Rm where it is so far below the map."""
    x, gain = state.x, state.gain
    fast = START_GAIN / max(1.0, x - state.jitter)
    if state.phase == STARTING:
        return float(max(START_GAIN if 0.0 < state.entry_x < NO_QUEUE else fast, gain * short))
    if state.phase == SETTLING:
        return float(max(gain, SETTLE_GAIN) * short)
    return float(gain * short)


@kernel
def _advance(state: Any, now_s: float, min_rtt_s: float) -> None:
    if state.began == 0.0:
        state.began = 1.0
        state.last_s = now_s
        state.newest_s = now_s
        return
    rm_s = state.rm_s if state.rm_s > 0.0 else min_rtt_s
    if not 0.0 < rm_s < 1e9:
        state.last_s = now_s
        return
    unit_s = state.unit_s if state.unit_s > 0.0 else rm_s
    age_s, step_s = now_s - state.newest_s, now_s - state.last_s
    state.x = x = 1.0 + max(0.0, age_s - rm_s) / unit_s
    state.rtt_s = max(rm_s, age_s)
    met_x = min(x, state.entry_x) if state.phase == STARTING and state.entry_x > 0.0 else x
    short = state.target - state.slope * (met_x - 1.0) - state.v
    approaching = state.phase in (STARTING, REPAIRING)
    if short <= 0.0 if approaching else not -state.relief <= short <= state.start:
        state.phase = SETTLING
        state.since_s = now_s
    elif state.phase == SETTLING and now_s > state.since_s + SETTLE_RTTS * unit_s:
        state.phase = RULE
    chosen = 0.0  # ln of what was set over the rule's rate
    if state.free > 0.0:
        chosen = math.log(state.pacing_rate_Bps / state.ruled_Bps)
        if state.phase == STARTING:
            state.v += min(max(chosen, 0.0), short)
            chosen = 0.0
        chosen = min(max(chosen, -state.free), state.free)
    tolerated_Bps = TOLERATED_LOSS * state.pacing_rate_Bps
    state.spare_bytes = min(state.spare_bytes + tolerated_Bps * step_s, state.mss_bytes + tolerated_Bps * state.rtt_s)
    if state.phase == REPAIRING:
        growth = 1.0 + (now_s - state.cut_s) / (CALM_ROUNDS * state.rtt_s)
        more_Bps = growth * state.mss_bytes * step_s / state.rtt_s**2
        state.v += min(short, math.log1p(more_Bps / state.ruled_Bps))
    else:
        state.v += drift(state, short) * step_s / unit_s
    state.last_s = now_s
    state.ruled_Bps = math.exp(state.v) * x**-EXPONENT
    state.pacing_rate_Bps = state.ruled_Bps * math.exp(chosen)
