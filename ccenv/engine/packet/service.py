"""How a link with a trace serves: when a packet's service ends, what it could carry, the delay that it adds. Compiled.

A packet needs its size in bytes of what the link can carry from the begin of its service on: the integral of the rate, or
opportunities. What is left of an opportunity is for packets that wait at its instant.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import load
from ccenv.engine.packet.layout import TRACE_KINDS
from ccenv.network.links.table import ROW_BEFORE_BYTES, ROW_DELAY_S, ROW_TIME_S, ROW_VALUE, ROW_WIDTH

NO_TRACE, RATE = TRACE_KINDS["none"], TRACE_KINDS["rate"]
ROUNDING_BYTES = 1e-6  # by which a packet may be larger than what is left


@kernel(inline="always")
def row_entry(ln, row, column):
    """Return an entry of a row of a link's trace."""
    return load(ln.trace_at, row * ROW_WIDTH + column)


@kernel(forceinline=True)
def service_end_s(ln, now_s, mss_bytes):
    """Return when a packet whose service begins now has left a link."""
    if ln.trace_kind == NO_TRACE:
        return now_s + mss_bytes / ln.rate_Bps
    if ln.trace_kind == RATE:
        return _end_at_rate(ln, now_s, mss_bytes)
    return _end_at_opportunity(ln, now_s, mss_bytes)


@kernel
def _next_row(ln):
    ln.trace_row += 1
    if ln.trace_row == ln.trace_rows:
        ln.trace_row = 0
        ln.trace_begin_s += ln.trace_length_s


@kernel
def _skip_lengths(ln, now_s):
    """Go to the repetition that holds a time, where it is not the one at hand."""
    if now_s > ln.trace_begin_s + 2.0 * ln.trace_length_s:
        ln.trace_begin_s += (math.floor((now_s - ln.trace_begin_s) / ln.trace_length_s) - 1.0) * ln.trace_length_s
        ln.trace_row = 0


@kernel
def _end_at_rate(ln, now_s, mss_bytes):
    time_s = now_s
    left_bytes = mss_bytes
    _skip_lengths(ln, now_s)
    while True:
        following = ln.trace_row + 1
        within_s = row_entry(ln, following, ROW_TIME_S) if following < ln.trace_rows else ln.trace_length_s
        until_s = ln.trace_begin_s + within_s
        if time_s < until_s:
            rate_Bps = row_entry(ln, ln.trace_row, ROW_VALUE)
            carried_bytes = rate_Bps * (until_s - time_s)
            if carried_bytes >= left_bytes:
                return min(until_s, time_s + left_bytes / rate_Bps)
            left_bytes -= carried_bytes
            time_s = until_s
        _next_row(ln)


@kernel
def _end_at_opportunity(ln, now_s, mss_bytes):
    time_s = ln.trace_begin_s + row_entry(ln, ln.trace_row, ROW_TIME_S)
    if time_s < now_s:
        _skip_lengths(ln, now_s)
        time_s = ln.trace_begin_s + row_entry(ln, ln.trace_row, ROW_TIME_S)
        while time_s < now_s:
            _next_row(ln)
            time_s = ln.trace_begin_s + row_entry(ln, ln.trace_row, ROW_TIME_S)
        ln.trace_left_bytes = row_entry(ln, ln.trace_row, ROW_VALUE)
    left_bytes = mss_bytes
    while ln.trace_left_bytes < left_bytes - ROUNDING_BYTES:
        left_bytes -= ln.trace_left_bytes
        _next_row(ln)
        ln.trace_left_bytes = row_entry(ln, ln.trace_row, ROW_VALUE)
    ln.trace_left_bytes = max(0.0, ln.trace_left_bytes - left_bytes)
    return ln.trace_begin_s + row_entry(ln, ln.trace_row, ROW_TIME_S)


@kernel
def begin_trace(ln):
    """Bring the trace of a link to its beginning."""
    ln.trace_row = 0
    ln.trace_begin_s = 0.0
    ln.trace_left_bytes = row_entry(ln, 0, ROW_VALUE)
    ln.last_arrival_s = 0.0


@kernel
def arrival_s(ln, now_s, row):
    """Return when a packet that leaves a link now is behind it: in order, and later by the delay of a row of its trace."""
    arrival = now_s + (ln.delay_s + row_entry(ln, row, ROW_DELAY_S))
    ln.last_arrival_s = max(ln.last_arrival_s, arrival)
    return ln.last_arrival_s


@kernel
def capacity_bytes(ln, now_s):
    """Return the bytes that a link could have carried since the start of the run."""
    if ln.trace_kind == NO_TRACE:
        return ln.capacity_bytes + ln.rate_Bps * (now_s - ln.capacity_s)
    lengths = math.floor(now_s / ln.trace_length_s)
    within_s = now_s - lengths * ln.trace_length_s
    low, high = 0, int(ln.trace_rows)  # rows before low are at or before the time, those from high on after it
    while low < high:
        middle = (low + high) // 2
        if row_entry(ln, middle, ROW_TIME_S) <= within_s:
            low = middle + 1
        else:
            high = middle
    carried = lengths * ln.trace_bytes
    if low > 0:
        row = low - 1
        gone = within_s - row_entry(ln, row, ROW_TIME_S) if ln.trace_kind == RATE else 1.0
        carried += row_entry(ln, row, ROW_BEFORE_BYTES) + row_entry(ln, row, ROW_VALUE) * gone
    return carried


@kernel
def shown_rate_Bps(ln, now_s, interval_s):
    """Return the rate that a log shows: the present one, of a trace the mean up to the next row of the log."""
    if ln.trace_kind == NO_TRACE:
        return ln.rate_Bps
    return np.float64((capacity_bytes(ln, now_s + interval_s) - capacity_bytes(ln, now_s)) / interval_s)
