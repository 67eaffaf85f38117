"""Belief bounds: the tightest facts about the path that a sender's own history proves.

One flow, as if it were alone. The sender knows A (its own sending), and Rm later S and L. On a grid of steps n, with
jitter bound D in steps ([CCmatic] s.5.1, s.6.2.1 and App. B.2; the grid rules are derived in docs/engine.md):

    step x is *utilised*   iff  E(x) > S(x + D)  or  L(x) > L(x - 1)          E = A - L
    C_L        = max over windows (t1, t2]              (S(t2) - S(t1)) / (t2 - t1 + D)                        (5.2)
    C_U        = min over windows with (t1, t2 - D] all utilised, t2 - t1 > D   (S(t2) - S(t1)) / (t2 - t1 - D)    (5.2)
    C_L_lambda = max over windows (x - T*, x] with no utilised step in [x - T*, x]   (E(x) - E(x - T*)) / (T* + D)   (6.2)
    q_U        = max(0, q_U + sent - C_L_lambda * dt), at most what is in flight                             s.6.2.1
    qdel_U     = RTT - Rm,   qdel_L = max(0, RTT - Rm - D)                                                     (5.1)

C_L, C_U and the delays hold on ideal, CBR-delay and CCAC. C_L_lambda, q_U and the buffer line (6.3),
C * T* + beta >= C_L_lambda * (T* + D), hold on ideal and CBR-delay only: on CCAC kept tokens take bursts that no queue had
to hold (tests/engine/test_beliefs.py shows that C_L_lambda then exceeds C), as in the paper, which uses them for CBR-delay alone.

With several flows each computes its beliefs as if alone, and nothing is guaranteed.
Beliefs read the loss curve with one Rm of delay, as in the SMT models, whatever the transport's loss detection is.
The *tighter* rules read what was sent, too, and that a step that loses bytes ends with a full buffer (docs/engine.md).

The rings of recent history: where a step lies, and the rule that keeps what is read within them.

A ring of H = mask + 1 steps holds steps k - mask .. k once step k is written; the step before them is gone. What reads a ring is
either a step counted back from k by a delay of the path, which the length of the rings covers (``curve.initial``), or
a *cursor*: a field that stays where it is while nothing happens (``layout.FLOW_CURSORS``, ``layout.ENV_CURSORS``). The rule:
before step k is written, every cursor moves up to the oldest step whose predecessor stays readable. So no cursor is ever stale,
however long a flow is silent.

Moving up loses nothing: what is still in flight was sent within the rings (the receive window sees to it, and the engine stops
where it was lifted and this fails), so nothing that a cursor passes this way is asked for again, except when the newest loss that
was not found yet had happened: that step is noted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccenv.agents.callbacks import make_record
from ccenv.agents.interface.signals import UNKNOWN_RTT_S
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import fast_max, fast_min, load, store


class FlowRings(NamedTuple):
    """The rings of one flow in the flat float64 array at ``ring``: where S (twice), E, L and P (curve engine only) start.

    ``mask`` is the length of a ring - 1.
    """

    ring: int
    mask: int
    s_at: int
    e_at: int
    l_at: int
    p_at: int


@kernel(inline="always")
def flow_rings(ring, first, mask):
    """Return the rings of the flow whose first ring starts at ``first``: S twice, so that its windows are contiguous, E, L, P."""
    length = mask + 1
    return FlowRings(ring, mask, first, first + 2 * length, first + 3 * length, first + 4 * length)


@kernel(inline="always")
def store_served(rings, n, served_bytes):
    """Write S(n), twice."""
    store(rings.ring, at(rings.s_at, n, rings.mask), served_bytes)
    store(rings.ring, at(rings.s_at, n, rings.mask) + rings.mask + 1, served_bytes)


@kernel(inline="always")
def at(base, n, mask):
    """Return where step n of a ring lies."""
    return base + (n & mask)


@kernel(inline="always")
def oldest_cursor(k, mask):
    """Return the oldest step that a cursor may stand at once step k is written: it and its predecessor are in the rings."""
    return k - mask + 1


@kernel(inline="always")
def keep_flow_cursors(fl, rings, k):
    """Move a flow's cursors up before step k is written, where one of them would get stale."""
    if k >= fl.stale_step:
        move_flow_cursors(fl, rings, k)


@kernel
def move_flow_cursors(fl, rings, k):
    """Move a flow's cursors up before step k is written; note when the first of them gets stale."""
    ring, mask = rings.ring, rings.mask
    oldest = oldest_cursor(k, mask)
    fl.ack_sent_step = max(fl.ack_sent_step, oldest)
    if fl.loss_step < oldest:
        fl.loss_step = oldest
        if load(ring, at(rings.l_at, oldest, mask)) > load(ring, at(rings.l_at, oldest - 1, mask)):
            fl.unfound_loss_step = oldest
    if fl.judged_step < oldest + fl.probe_window_steps:  # C_L_lambda reads back by T*
        fl.judged_step = oldest + fl.probe_window_steps
        fl.utilised_run_steps = 0
        fl.idle_run_steps = 0
    first = min(fl.ack_sent_step, fl.loss_step, fl.judged_step - fl.probe_window_steps)
    fl.stale_step = k + 1 + first - oldest  # cursors only go forward: none is stale before


@kernel(inline="always")
def keep_env_cursors(ev, k, mask):
    """Move an environment's cursors up before step k is written."""
    ev.fifo_step = max(ev.fifo_step, oldest_cursor(k, mask))


MARGIN = 1.0 + 1e-9  # bounds that differ by less differ by round-off
MOVED_RATIO = 1.1  # a bound that moved by more than this factor in a period is large news
ROUNDING = 1e-9  # steps: times that are whole steps up to rounding are
TIE = 1e-12  # cumulative curves of all flows together round off by less than this share of their value


@dataclass(frozen=True)
class BeliefSettings:
    """How beliefs are computed and when they time out ([CCmatic] s.5.1.2)."""

    tight_ratio: float = 2.0  # a time-out happens only if C_U <= tight_ratio * C_L
    expand_ratio: float = 1.5  # at a time-out C_U grows by this factor, or to C_L
    # length of a period in Rm; at its end, or once C_L > C_U, :func:`timed_out` decides; infinite: no periods
    period_rtts: float = 10.0
    window_rtts: int = 10  # longest window of C_L and C_U, in Rm
    rtt_known: bool = True  # the sender knows Rm; otherwise it uses the smallest RTT seen ([CCmatic] App. B.1)
    # the sender knows D; otherwise, and then it knows no Rm either, it takes D to be at most the smallest RTT seen, goes by that
    # RTT in all that it does, and by UNKNOWN_RTT_S before the first sample
    jitter_known: bool = True
    tighter: bool = False  # C_L and C_U also follow from what was sent and lost; the sender must know Rm and D

    def __post_init__(self) -> None:
        """Check the ranges, and that a sender that is told Rm is told D."""
        if self.rtt_known and not self.jitter_known:
            raise InputError(f"belief settings {self}: a sender that must estimate D must estimate Rm; set rtt_known=False")
        if self.tighter and not self.rtt_known:
            raise InputError(
                f"belief settings {self}: the tighter rules compare what was sent with what arrived; set rtt_known=True"
            )
        if self.tight_ratio < 1 or self.expand_ratio < 1 or self.period_rtts <= 0 or self.window_rtts < 2:
            raise InputError(
                f"belief settings {self}: tight_ratio and expand_ratio must be >= 1, period_rtts > 0, window_rtts >= 2"
            )


PRESETS = {
    "artefact": BeliefSettings(tight_ratio=2.0, expand_ratio=1.5),
    "paper": BeliefSettings(tight_ratio=1.1, expand_ratio=2.0),
    "no_timeout": BeliefSettings(period_rtts=math.inf),
    "untold": BeliefSettings(rtt_known=False, jitter_known=False),
    "tighter": BeliefSettings(tighter=True),
}


def belief_settings(preset: str) -> BeliefSettings:
    """Return a preset by its name: ``artefact`` is the default, with the published code's constants."""
    if preset not in PRESETS:
        raise unknown_name("belief preset", preset, PRESETS)
    return PRESETS[preset]


def require_segment_per_rtt(slowest_Bps: np.ndarray, rtt_s: np.ndarray, mss_bytes: np.ndarray, without: str) -> None:
    """Raise InputError for a link that carries less than one segment per Rm: each belief starts from C >= MSS/Rm.

    Link rates, (B,), are the smallest; Rm, (B, N), is what the flows go by. ``without`` tells how to go on without beliefs.
    """
    carried_bytes = slowest_Bps[:, None] * rtt_s
    wrong = np.argwhere(carried_bytes < mss_bytes[:, None] * (1 - 1e-9))
    if len(wrong):
        b, flow = wrong[0]
        raise InputError(
            f"path {b}: a link rate of {slowest_Bps[b]:g} bytes/s carries {carried_bytes[b, flow]:g} bytes per Rm of flow "
            f"{flow}, less than a segment ({mss_bytes[b]:g} bytes); belief bounds start from C >= MSS/Rm, which is wrong there: "
            f"take a faster link, smaller segments or a longer Rm, or {without}"
        )


# Longest window plus jitter of the table of reciprocals, which stands in descending order: entry i is 1 / (RECIPROCALS - i).
RECIPROCALS = 1 << 16


def reciprocal_table() -> np.ndarray:
    return 1.0 / np.arange(RECIPROCALS, 0, -1)


# The settings as the kernel takes them.
SETTINGS_DTYPE = make_record(
    """
    f8 tight_ratio expand_ratio period_rtts
    i8 window_rtts rtt_known jitter_known tighter
    """
)


def settings_record(settings: BeliefSettings) -> np.ndarray:
    """Return the settings as a record array of length 1."""
    values = [getattr(settings, name) for name in SETTINGS_DTYPE.names or ()]
    return np.array([tuple(values)], dtype=SETTINGS_DTYPE)


@kernel
def scan_lower(ring, newest, first_lag, last_lag, served, reciprocals, jitter_steps):
    """Return max over lags of (served - S(newest - lag)) / (lag + D), 0 if there is no lag. Oldest first: both loads ascend."""
    best = 0.0
    offset = RECIPROCALS - jitter_steps - newest
    for n in range(newest - last_lag, newest - first_lag + 1):
        best = fast_max(best, (served - load(ring, n)) * load(reciprocals, n + offset))
    return best


@kernel
def scan_upper(ring, newest, first_lag, last_lag, served, reciprocals, jitter_steps):
    """Return min over lags of (served - S(newest - lag)) / (lag - D), a huge number if there is no lag."""
    best = 1e300
    offset = RECIPROCALS + jitter_steps - newest
    for n in range(newest - last_lag, newest - first_lag + 1):
        best = fast_min(best, (served - load(ring, n)) * load(reciprocals, n + offset))
    return best


@kernel
def lower_from_losses(rings, n, oldest, reciprocals):
    """Return max over lossy steps a in (oldest, n) of (E(n) - E(a)) / (n - a), 0 if there is none."""
    ring, mask, e_at, l_at = rings.ring, rings.mask, rings.e_at, rings.l_at
    best, before = 0.0, load(ring, at(l_at, oldest, mask))
    if load(ring, at(l_at, n - 1, mask)) <= before:
        return best
    entered = load(ring, at(e_at, n, mask))
    for a in range(oldest + 1, n):
        lost = load(ring, at(l_at, a, mask))
        if lost > before:
            best = max(best, (entered - load(ring, at(e_at, a, mask))) * load(reciprocals, RECIPROCALS - (n - a)))
        before = lost
    return best


@kernel
def upper_from_sent(rings, end, oldest, used_since, served, loss_proves, reciprocals):
    """Return the tighter bound on C from above of the windows (x, end], used_since <= x < end, a huge number if there is none.

    All steps in (used_since, end] were utilised, steps before ``oldest`` do not count, and ``served`` is S(end + D).
    """
    ring, mask, s_at, e_at, l_at = rings.ring, rings.mask, rings.s_at, rings.e_at, rings.l_at
    full = loss_proves and load(ring, at(l_at, end, mask)) > load(ring, at(l_at, end - 1, mask))
    entered = load(ring, at(e_at, end, mask))
    best = chain = 1e300
    for x in range(oldest, end):
        inverse = load(reciprocals, RECIPROCALS - (end - x))
        sent = load(ring, at(e_at, x, mask))
        # Either a token was wasted in step x, and then E(x) <= G(x), or the window that begins a step before is unwasted, too.
        chain = min((served - load(ring, at(s_at, x, mask))) * inverse, max((served - sent) * inverse, chain))
        if x >= used_since:
            best = min(best, chain)
            if full:
                best = min(best, (entered - sent) * inverse)
    return best


@kernel
def reset_beliefs(fl, mss_bytes):
    """Set a flow's beliefs to what is known before anything was seen: C >= the seed, nothing else."""
    floor = mss_bytes / fl.rtt_s
    fl.C_L_Bps = max(fl.initial_C_L_Bps, floor)
    fl.C_U_Bps = np.inf
    fl.C_L_lambda_Bps = fl.C_L_Bps
    fl.period_C_L_Bps = fl.C_L_Bps
    fl.period_C_U_Bps = np.inf
    fl.fresh_C_L_Bps = 0.0
    fl.fresh_C_L_lambda_Bps = 0.0
    fl.q_U_bytes = 0.0
    fl.qdel_L_s = 0.0
    fl.qdel_U_s = 0.0
    fl.qdel_L_exact_s = 0.0
    fl.buffer_line_bytes = 0.0
    fl.timeout_step = fl.start_step
    fl.judged_step = fl.start_step
    fl.utilised_run_steps = 0
    fl.idle_run_steps = 0
    fl.utilised = 0


@kernel
def begin_untold(fl, dt_s):
    """Let a flow that is told nothing go by UNKNOWN_RTT_S until its first RTT sample."""
    go_by_rtt(fl, max(np.int64(1), np.int64(math.ceil(UNKNOWN_RTT_S / dt_s))), dt_s)


@kernel
def go_by_rtt(fl, rtt_steps, dt_s):
    """Let a flow take an Rm: its probe windows keep their length in Rm."""
    fl.probe_window_steps = fl.probe_window_steps // fl.rtt_steps * rtt_steps
    fl.rtt_steps = rtt_steps
    fl.rtt_s = rtt_steps * dt_s


@kernel
def go_by_smallest_rtt(fl, n, mask, dt_s, mss_bytes):
    """Let a flow that is told nothing take the smallest RTT seen for its Rm, or as much of it as the rings reach back.

    A new one is at once the time to the next decision.
    """
    probe_rtts = fl.probe_window_steps // fl.rtt_steps
    longest = (mask - fl.lag_steps) // (3 + probe_rtts)
    rtt_steps = min(max(np.int64(1), np.int64(math.ceil(fl.rtt_min_steps - ROUNDING))), longest)
    if rtt_steps == fl.rtt_steps:
        return
    go_by_rtt(fl, rtt_steps, dt_s)
    fl.decision_step = min(fl.decision_step, n + fl.lag_steps + rtt_steps)
    if fl.judged_step == fl.start_step and fl.fresh_C_L_Bps == 0.0:  # nothing was proved yet
        fl.C_L_Bps = max(fl.initial_C_L_Bps, mss_bytes / fl.rtt_s)
        fl.C_L_lambda_Bps = fl.period_C_L_Bps = fl.C_L_Bps


@kernel
def timed_out(lower, upper, first_lower, first_upper, fresh_lower, floor, tight_ratio, expand_ratio):
    """Return C_L, C_U after a time-out, and whether one of them changed: the rule of ``ccenv.proofs.formulas.beliefs.timeouts``.

    A bound that moved in the period is news and stays. The other one stays too where the news is large (a factor above
    MOVED_RATIO), unless both contradict each other. Two bounds that both moved and contradict each other show that the
    premise is broken (another flow, another C, a wrong Rm or D): they become the interval between them.

    Rates are in bytes/s. ``first_lower`` and ``first_upper`` are C_L and C_U when the period began, ``fresh_lower`` is C_L by
    what the period showed alone, at least ``floor``, one segment per Rm. Nothing times out while upper > tight_ratio * lower.
    """
    if upper > tight_ratio * lower:
        return lower, upper, False
    empty = lower > upper * MARGIN
    lower_moved, upper_moved = lower > MARGIN * first_lower, upper * MARGIN < first_upper
    if empty and lower_moved and upper_moved:
        return max(upper, floor), lower, True
    lower_moved_far, upper_moved_far = lower > MOVED_RATIO * first_lower, upper * MOVED_RATIO < first_upper
    lower_out = not lower_moved and ((upper_moved and empty) or not upper_moved_far)
    upper_out = not upper_moved and ((lower_moved and empty) or not lower_moved_far)
    new_lower = fresh_lower if lower_out else lower
    new_upper = max(new_lower, expand_ratio * upper) if upper_out else upper
    return new_lower, new_upper, lower_out or upper_out


@kernel
def update_beliefs(fl, rings, n, dt_s, inv_dt, mss_bytes, tie_bytes, loss_proves, settings, reciprocals):
    """Bring a flow's beliefs up to what S(n) and L(n) prove. Call once per step; n grows by 1, behind a proxy by any number >= 0.

    ``fl.rtt_now_steps`` and ``fl.delay_floor_steps`` are already those of the newest acknowledged byte; n >= 1 is the network
    step whose S and L the sender now knows. Curves closer than ``tie_bytes`` are equal (round-off). ``loss_proves``: a loss
    proves that its step was utilised (drop-tail without non-congestive loss). ``reciprocals`` is that table's address.
    """
    ring, mask, s_at, e_at, l_at = rings.ring, rings.mask, rings.s_at, rings.e_at, rings.l_at
    rtt_extra = 0.0  # what the sender's Rm exceeds the true one by
    if settings.rtt_known == 0:
        if not np.isfinite(fl.rtt_min_steps):
            return  # nothing was acknowledged yet: no RTT, no bound
        rtt_extra = max(0.0, fl.rtt_min_steps - fl.lag_steps)
    sender_jitter = fl.jitter_steps  # D as the sender takes it
    if settings.jitter_known == 0:
        go_by_smallest_rtt(fl, n, mask, dt_s, mss_bytes)
        sender_jitter = fl.rtt_steps
    rtt = fl.rtt_steps
    # Three times D: in differences of S alone; in what is sent and delivered, where Rm may be too long; from a step to its judge.
    judge = sender_jitter + np.int64(math.ceil(rtt_extra))
    jitter, loose = judge, judge
    if settings.jitter_known == 0:  # by how much Rm is too long is unknown then: by D and a step's own burst at most
        jitter, loose = sender_jitter, 2 * sender_jitter + 1
    served = load(ring, at(s_at, n, mask))
    newest = at(s_at, n, mask) + mask + 1
    window = min(settings.window_rtts * rtt, mask - fl.lag_steps)

    # Which steps were utilised: judge all steps that S(n) can judge.
    while fl.judged_step < n - judge:
        x = fl.judged_step + 1
        judged_by = at(s_at, x + judge, mask)
        lost = load(ring, at(l_at, x, mask)) > load(ring, at(l_at, x - 1, mask))
        entered = load(ring, at(e_at, x, mask))
        late = entered > load(ring, judged_by) + tie_bytes
        if late or (lost and loss_proves):
            fl.utilised_run_steps += 1
        else:
            fl.utilised_run_steps = 0
        fl.idle_run_steps = 0 if (late or lost) else fl.idle_run_steps + 1
        fl.utilised = 1 if fl.utilised_run_steps > 0 else 0
        fl.judged_step = x
        # C_L_lambda: bytes sent over T* that neither lost nor delayed anything by more than D.
        probe = fl.probe_window_steps
        if fl.idle_run_steps > probe and x - probe >= fl.timeout_step:
            sent = entered - load(ring, at(e_at, x - probe, mask))
            bound = sent * inv_dt * load(reciprocals, RECIPROCALS - probe - loose)
            if bound > fl.C_L_lambda_Bps:
                fl.C_L_lambda_Bps = bound
                fl.buffer_line_bytes = bound * (probe + loose) * dt_s
            fl.fresh_C_L_lambda_Bps = max(fl.fresh_C_L_lambda_Bps, bound)

    # C_L: windows that end at n and start at or after the newest time-out.
    oldest_lag = min(window, n - fl.timeout_step)
    bound = scan_lower(ring, newest, 1, oldest_lag, served, reciprocals, jitter) * inv_dt
    if settings.tighter == 1 and loss_proves:
        bound = max(bound, lower_from_losses(rings, n, n - oldest_lag, reciprocals) * inv_dt)
    fl.fresh_C_L_Bps = max(fl.fresh_C_L_Bps, bound)
    fl.C_L_Bps = max(fl.C_L_Bps, bound)

    # C_U: windows (n - lag, n] whose steps up to n - D were all utilised.
    if fl.utilised_run_steps > 0 and fl.judged_step == n - judge:
        longest = min(oldest_lag, jitter + fl.utilised_run_steps)
        if longest > loose:
            bound = scan_upper(ring, newest, loose + 1, longest, served, reciprocals, loose) * inv_dt
            fl.C_U_Bps = min(fl.C_U_Bps, bound)
        if settings.tighter == 1:
            since = max(n - oldest_lag, n - judge - fl.utilised_run_steps)
            bound = upper_from_sent(rings, n - judge, n - oldest_lag, since, served, loss_proves, reciprocals)
            fl.C_U_Bps = min(fl.C_U_Bps, bound * inv_dt)

    # Queueing delay of the newest acknowledged byte.
    delay_steps = max(0.0, fl.rtt_now_steps - fl.lag_steps - rtt_extra)
    # The smallest RTT, which stands for Rm where Rm is not known, may hold D of jitter and a step's burst of its own.
    hidden_steps = sender_jitter + 1 if settings.rtt_known == 0 else 0
    fl.qdel_U_s = (delay_steps + hidden_steps) * dt_s
    fl.qdel_L_exact_s = max(0.0, delay_steps - sender_jitter) * dt_s
    fl.qdel_L_s = max(0.0, fl.delay_floor_steps - math.ceil(rtt_extra) - sender_jitter) * dt_s

    empty = fl.C_L_Bps > fl.C_U_Bps * MARGIN
    due = n - fl.timeout_step >= settings.period_rtts * rtt
    if empty or due:
        floor = mss_bytes / fl.rtt_s
        lower, upper, changed = timed_out(
            fl.C_L_Bps, fl.C_U_Bps, fl.period_C_L_Bps, fl.period_C_U_Bps, max(fl.fresh_C_L_Bps, floor), floor,
            settings.tight_ratio, settings.expand_ratio,
        )  # fmt: skip
        fl.C_L_Bps, fl.C_U_Bps = lower, upper
        if changed:
            fl.C_L_lambda_Bps = max(fl.fresh_C_L_lambda_Bps, floor)
            fl.buffer_line_bytes = 0.0
        if changed or due:  # a new period starts: only what it shows counts
            fl.period_C_L_Bps = lower
            fl.period_C_U_Bps = upper
            fl.fresh_C_L_Bps = 0.0
            fl.fresh_C_L_lambda_Bps = 0.0
            fl.timeout_step = n


@kernel
def update_queue_bound(fl, sent_bytes, inflight_bytes, dt_s):
    """Advance q_U by one step in which sent_bytes were sent ([CCmatic] s.6.2.1)."""
    bound = max(0.0, fl.q_U_bytes + sent_bytes - fl.C_L_lambda_Bps * dt_s)
    fl.q_U_bytes = min(bound, max(0.0, inflight_bytes))
