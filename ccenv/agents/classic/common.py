"""Code shared by classic CCAs: constants, windowed filters, the factory, Proportional Rate Reduction and HyStart++.

PRR (RFC 9937): in fast recovery send in proportion to deliveries, down to ssthresh. Deviations: no ACK is safe (SafeACK of
s.6), because signals do not have the cumulative acknowledgement; what was sent follows from what is in flight; the ACK that
starts recovery does not count as delivered, so a recovery sends one segment less.

HyStart++ (RFC 9406): leave slow start when the RTT rises, through a phase of slower growth. Deviations: no limit on the bytes
that one ACK counts for (L of s.4.3, which is infinite for paced senders), as CCAs here count bytes; a round is a round trip of
the engine's delivery samples.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.callbacks import state_record
from ccenv.agents.sender import ClassicSender
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import number

UNLIMITED_BYTES = 1e15  # "arbitrarily high" (RFC 5681 s.3.1), yet finite
LOSS_FACTOR = 0.5  # RFC 5681 eq. (4): of the flight is kept
MIN_SSTHRESH_MSS = 2.0  # RFC 5681 eq. (4)
LOSS_WINDOW_MSS = 1.0  # RFC 5681 s.3.1: the window after a time-out
RTT_GAIN = 0.125  # alpha of RFC 6298 s.2, per round trip


@dataclass(frozen=True)
class Parameter:
    """A parameter of a CCA, and the field of its state that holds it.

    Attributes:
        name: as specs have it, with its unit.
        default: in that unit.
        above, low, high, whole: allowed values, as for :func:`ccenv.base.registry.number`.
        field: of the state; the name if empty.
        scale: unit of specs in units of the field (1e-3: milliseconds in seconds).
        optional: 0, the default, is left out of a sender's hash, so that a new parameter changes no hash.
    """

    name: str
    default: float
    above: float = -math.inf
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    field: str = ""
    scale: float = 1.0
    optional: bool = False

    def check(self, owner: str, value: Any) -> float:
        """Return a value of a sender as a float. Raises InputError if it is not allowed."""
        return number(owner, self.name, value, above=self.above, low=self.low, high=self.high, whole=self.whole)


def initial_window(default_mss: float = 10.0) -> Parameter:
    """Return the parameter initial_window_mss, in segments; by default that of RFC 6928 s.2."""
    return Parameter("initial_window_mss", default_mss, low=1, high=1e6)


def switch(name: str, default: int = 0, *, optional: bool = False) -> Parameter:
    """Return a parameter that is 1 (on) or 0 (off)."""
    return Parameter(name, default, low=0, high=1, whole=True, optional=optional)


class Cca:
    """A classic CCA: called with its parameters, it returns the sender.

    The functions are those of its module: init, on_ack, and on_loss and on_tick unless it ignores losses or time. With
    PER_PACKET the module hears of each lost packet.
    """

    def __init__(
        self,
        name: str,
        module: str,
        parameters: Sequence[Parameter],
        fields: Sequence[str],
        *,
        check: Callable[[str, dict[str, float]], None] | None = None,
        **constants: float,
    ) -> None:
        """Describe a CCA.

        Args:
            name: registry name.
            module: name of the module with its functions.
            parameters: what specs may set.
            fields: of its state besides parameters and constants.
            check: gets the name and the values by theirs, in the units of specs; refuses what does not fit together.
            constants: fields of the state that are part of its hash as parameters are, and no spec sets.
        """
        self.name = name
        self.parameters = tuple(parameters)
        self.state = state_record(*(p.field or p.name for p in parameters), *constants, *fields)
        self._module, self._check, self._constants = module, check, constants
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=p.default) for p in parameters]
        )

    def __call__(self, **given: float) -> ClassicSender:
        """Return the sender with these parameters. Raises InputError for one that is not allowed."""
        values = {p.name: p.check(self.name, given.get(p.name, p.default)) for p in self.parameters}
        if self._check is not None:
            self._check(self.name, values)
        fields = {p.field or p.name: p.scale * values[p.name] for p in self.parameters if values[p.name] != 0 or not p.optional}
        return classic_sender(self.name, self._module, self.state, **fields, **self._constants)


def classic_sender(name: str, module: str, state: np.dtype, **parameters: float) -> ClassicSender:
    """Return the sender made of a module's functions, as :class:`Cca` describes them, with these fields of its state set."""
    rules = sys.modules[module]
    on_loss, on_tick = (getattr(rules, signal, ignore) for signal in ("on_loss", "on_tick"))
    per_packet = getattr(rules, "PER_PACKET", False)
    return ClassicSender(name, state, rules.init, rules.on_ack, on_loss, on_tick, parameters, "", per_packet)


def ignore(state: Any, signal: Any) -> None:
    """Do nothing."""


@kernel
def smoothed_rtt(srtt_s: float, rtt_s: float, share: float) -> float:
    """Update a smoothed RTT (RFC 6298 s.2) for any number of samples per round trip (as RFC 7323 app. G).

    Args:
        srtt_s: value so far; 0: none.
        rtt_s: the sample.
        share: share of a window that the signal acknowledges, in (0, 1].
    """
    if srtt_s <= 0.0:
        return rtt_s
    return srtt_s + RTT_GAIN * share * (rtt_s - srtt_s)


Samples = tuple[float, float, float, float, float, float]


@kernel
def windowed_min(filter_state: Samples, now: float, value: float, window: float) -> Samples:
    """Return a windowed minimum, updated in constant space: the three-sample estimator of K. Nichols.

    The first sample is the minimum and always at most ``window`` old. The second and third are the smallest since the first
    and since the second, taken afresh when they are older than a quarter and a half of the window, so that a good
    successor is at hand when the first expires.

    Args:
        filter_state: (value, time) of the three samples, flat; the first value is 0 before the first sample.
        now: time of the new sample, in any unit (seconds, rounds).
        value: the new sample, not 0.
        window: length of the window in the unit of now.
    """
    best, best_at, second, second_at, third, third_at = filter_state
    if best == 0.0 or value <= best or now - third_at > window:
        return value, now, value, now, value, now
    if value <= second:
        second, second_at, third, third_at = value, now, value, now
    elif value <= third:
        third, third_at = value, now
    if now - best_at > window:
        best, best_at, second, second_at, third, third_at = second, second_at, third, third_at, value, now
        if now - best_at > window:
            best, best_at, second, second_at = second, second_at, third, third_at
    elif second_at == best_at and now - second_at > 0.25 * window:
        second, second_at, third, third_at = value, now, value, now
    elif third_at == second_at and now - third_at > 0.5 * window:
        third, third_at = value, now
    return best, best_at, second, second_at, third, third_at


@kernel
def start_window(state: Any) -> None:
    """Start in slow start with the initial window; not paced."""
    state.cwnd_bytes = state.initial_window_mss * state.mss_bytes
    state.pacing_rate_Bps = np.inf
    state.ssthresh_bytes = UNLIMITED_BYTES


@kernel
def grow_window(state: Any, acked_bytes: float, increase_mss: float) -> None:
    """Grow by all bytes in slow start, by increase_mss segments per window after it (RFC 5681 eqs. 2 and 3)."""
    if state.cwnd_bytes < state.ssthresh_bytes:
        step_bytes = min(acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
        state.cwnd_bytes += step_bytes
        acked_bytes -= step_bytes
    if acked_bytes > 0.0:
        state.cwnd_bytes += increase_mss * state.mss_bytes * min(1.0, acked_bytes / state.cwnd_bytes)


@kernel
def extend_recovery(state: Any, loss: Any) -> None:
    """Set recover_bytes: recovery lasts until what is in flight at the start of an episode is delivered or found lost."""
    if loss.new_episode > 0.0:
        state.recover_bytes = loss.delivered_bytes + loss.inflight_bytes
    else:  # these bytes were counted as in flight and will not arrive
        state.recover_bytes = max(0.0, state.recover_bytes - loss.lost_bytes)
    if loss.timeout > 0.0:
        state.recover_bytes = 0.0


@kernel
def reduce_window(state: Any, loss: Any, kept: float) -> None:
    """Keep a share of the flight once per episode (RFC 5681 s.3.2), one segment after a time-out (s.3.1)."""
    if loss.new_episode > 0.0:
        flight_bytes = loss.inflight_bytes + loss.lost_bytes
        state.ssthresh_bytes = max(kept * flight_bytes, MIN_SSTHRESH_MSS * state.mss_bytes)
        state.cwnd_bytes = state.ssthresh_bytes
    if loss.timeout > 0.0:
        state.cwnd_bytes = LOSS_WINDOW_MSS * state.mss_bytes
    extend_recovery(state, loss)


@kernel
def in_recovery(state: Any, ack: Any) -> bool:
    """Tell whether fast recovery lasts: by the transport until the cumulative ACK of its end (RFC 6582 s.3.2, RFC 6675 s.5).

    The curve engine has no segments; there, and after an ECN mark, it lasts until recover_bytes are delivered.
    """
    return bool(ack.recovering > 0.0 or ack.delivered_bytes < state.recover_bytes)


PRR_FIELDS = (
    "prr_delivered_bytes",
    "prr_sent_bytes",  # prr_out
    "prr_flight_bytes",  # RecoverFS
    "prr_inflight_bytes",  # in flight at the newest signal
)


@kernel
def begin_recovery(state: Any, loss: Any) -> None:
    """Begin fast recovery: the lost segment may be sent again at once (RFC 9937 s.6)."""
    if state.prr == 0.0:
        return
    state.prr_delivered_bytes = 0.0
    state.prr_sent_bytes = 0.0
    state.prr_flight_bytes = loss.inflight_bytes + loss.lost_bytes
    state.prr_inflight_bytes = loss.inflight_bytes
    state.cwnd_bytes = loss.inflight_bytes + state.mss_bytes


@kernel
def lose_further(state: Any, loss: Any) -> None:
    """Take a further loss of the same recovery."""
    state.prr_inflight_bytes -= loss.lost_bytes


@kernel
def recover(state: Any, ack: Any) -> None:
    """Set the window for what an ACK in fast recovery lets go (RFC 9937 s.6)."""
    if state.prr_flight_bytes == 0.0:
        return
    state.prr_sent_bytes += max(0.0, ack.inflight_bytes + ack.acked_bytes - state.prr_inflight_bytes)
    state.prr_delivered_bytes += ack.acked_bytes
    state.prr_inflight_bytes = ack.inflight_bytes
    if ack.inflight_bytes > state.ssthresh_bytes:
        due_mss = math.ceil(state.prr_delivered_bytes * state.ssthresh_bytes / state.prr_flight_bytes / state.mss_bytes)
        send_bytes = due_mss * state.mss_bytes - state.prr_sent_bytes
    else:
        send_bytes = max(state.prr_delivered_bytes - state.prr_sent_bytes, ack.acked_bytes)
        send_bytes = min(send_bytes, state.ssthresh_bytes - ack.inflight_bytes)
    state.cwnd_bytes = max(ack.inflight_bytes + max(0.0, send_bytes), state.mss_bytes)


@kernel
def end_recovery(state: Any) -> None:
    """End fast recovery: the window is ssthresh (RFC 9937 s.6)."""
    if state.prr_flight_bytes > 0.0:
        state.prr_flight_bytes = 0.0
        state.cwnd_bytes = state.ssthresh_bytes


@kernel
def reduce_in_proportion(state: Any, loss: Any, kept: float) -> None:
    """Reduce as ``reduce_window``, with ``prr`` in proportion to what arrives."""
    reduce_window(state, loss, kept)
    if loss.new_episode > 0.0:
        begin_recovery(state, loss)
    else:
        lose_further(state, loss)
    if loss.timeout > 0.0:
        state.prr_flight_bytes = 0.0


@kernel
def recovers(state: Any, ack: Any) -> bool:
    """Take an ACK into fast recovery; tell whether it lasts."""
    recovering = in_recovery(state, ack)
    if recovering:
        recover(state, ack)
    else:
        end_recovery(state)
    return recovering


PRR = switch("prr", optional=True)  # reduce the window in proportion to what arrives (RFC 9937); 0: at once

MIN_RTT_THRESH_S = 0.004  # RFC 9406 s.4.3
MAX_RTT_THRESH_S = 0.016  # RFC 9406 s.4.3
MIN_RTT_DIVISOR = 8.0  # RFC 9406 s.4.3
N_RTT_SAMPLE = 8.0  # RFC 9406 s.4.3
CSS_GROWTH_DIVISOR = 4.0  # RFC 9406 s.4.3
CSS_ROUNDS = 5.0  # RFC 9406 s.4.3
NO_RTT_S = 1e300  # of a round without a sample

HYSTART_FIELDS = (
    "round_rtt_s",  # smallest RTT of this round
    "last_round_rtt_s",  # and of the round before
    "round_samples",
    "css_rounds",  # rounds of conservative slow start that have begun; 0: none
    "css_rtt_s",  # smallest RTT of the round in which it was entered
)


@kernel
def start_hystart(state: Any) -> None:
    """Start without a sample."""
    state.round_rtt_s = NO_RTT_S
    state.last_round_rtt_s = NO_RTT_S
    state.css_rtt_s = NO_RTT_S


@kernel
def slow_start(state: Any, ack: Any, acked_bytes: float) -> float:
    """Grow the window of a sender in slow start; return the bytes that are left for congestion avoidance."""
    share = 1.0
    if state.hystart > 0.0:
        share = _growth(state, ack)
        if share == 0.0:
            state.ssthresh_bytes = state.cwnd_bytes
            return acked_bytes
    step_bytes = min(share * acked_bytes, state.ssthresh_bytes - state.cwnd_bytes)
    state.cwnd_bytes += step_bytes
    return acked_bytes - step_bytes / share


@kernel
def _growth(state: Any, ack: Any) -> float:
    """Return the bytes by which the window grows per byte acknowledged (RFC 9406 s.4.2); 0: slow start is over."""
    if ack.round_start > 0.0:
        state.last_round_rtt_s = state.round_rtt_s
        state.round_rtt_s = NO_RTT_S
        state.round_samples = 0.0
        if state.css_rounds > 0.0:
            state.css_rounds += 1.0
            if state.css_rounds > CSS_ROUNDS:
                return 0.0
    state.round_rtt_s = min(state.round_rtt_s, ack.rtt_s)
    state.round_samples += 1.0
    if state.round_samples >= N_RTT_SAMPLE:
        if state.css_rounds > 0.0:
            if state.round_rtt_s < state.css_rtt_s:  # the RTT has fallen again: it was no queue
                state.css_rounds = 0.0
        elif state.last_round_rtt_s < NO_RTT_S:
            thresh_s = max(MIN_RTT_THRESH_S, min(state.last_round_rtt_s / MIN_RTT_DIVISOR, MAX_RTT_THRESH_S))
            if state.round_rtt_s >= state.last_round_rtt_s + thresh_s:
                state.css_rtt_s = state.round_rtt_s
                state.css_rounds = 1.0
    return 1.0 if state.css_rounds == 0.0 else 1.0 / CSS_GROWTH_DIVISOR


LINUX_LEAST_WINDOW_MSS = 16.0  # hystart_low_window
LINUX_TRAIN_GAP_S = 0.002  # hystart_ack_delta_us


@kernel
def linux_hystart(state: Any, ack: Any) -> bool:
    """Tell whether HyStart as in Linux (tcp_cubic; Ha, Rhee: Computer Networks 55(9), 2011) ends slow start.

    It ends where the ACKs of a round, at most 2 ms apart, last for half of the smallest RTT (without pacing), or where after
    eight samples the smallest RTT of the round is an eighth, 4 to 16 ms, above the smallest so far, which css_rtt_s keeps.
    """
    state.css_rtt_s = min(state.css_rtt_s, ack.rtt_s)
    if ack.round_start > 0.0:
        state.round_start_s = state.train_end_s = ack.now_s
        state.round_rtt_s = NO_RTT_S
        state.round_samples = 0.0
    if state.cwnd_bytes < LINUX_LEAST_WINDOW_MSS * state.mss_bytes:
        return False
    if ack.now_s - state.train_end_s <= LINUX_TRAIN_GAP_S:
        state.train_end_s = ack.now_s
        if ack.now_s - state.round_start_s > 0.5 * (state.css_rtt_s + 0.001):
            return True
    state.round_rtt_s = min(state.round_rtt_s, ack.rtt_s)
    if state.round_samples < N_RTT_SAMPLE:
        state.round_samples += 1.0
        return False
    thresh_s = max(MIN_RTT_THRESH_S, min(state.css_rtt_s / MIN_RTT_DIVISOR, MAX_RTT_THRESH_S))
    return bool(state.round_rtt_s > state.css_rtt_s + thresh_s)
