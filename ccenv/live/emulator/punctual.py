"""The clock of the loop, and who made it late: the host of a virtual machine, other processes, or the loop itself. Compiled.

The kernel counts for how long the loop's thread was ready and waited for a core (schedstat). Where the clock jumps further than
that, nothing on this machine had the core: its host did.
"""

from __future__ import annotations

from ccenv.base.kernels.decorator import kernel
from ccenv.live.emulator.calls import CLOCK, CLOCK_MONOTONIC, PREAD, call_c
from ccenv.live.emulator.layout import BACKLOG, ERROR_BINS, HOST, MACHINE, UNKNOWN

READING_S = 0.01  # between two readings of schedstat
_ZERO, _SPACE = 48, 32


@kernel
def clock_s(m):
    """Return the time of the run; note by how much it is later than the loop asked for."""
    run = m.run[0]
    call_c(m.calls[CLOCK], CLOCK_MONOTONIC, run.clock_at, 0, 0, 0)
    now_s = (m.clock[0] * 1_000_000_000 + m.clock[1] - run.base_ns) * 1e-9
    run.jump_s = max(run.jump_s, now_s - run.expected_s)
    run.expected_s = now_s
    return now_s


@kernel
def note_error(m, late_s):
    """Count a packet that was written so late."""
    run = m.run[0]
    run.late_max_s = max(run.late_max_s, late_s)
    run.turn_late_s = max(run.turn_late_s, late_s)
    m.errors[min(ERROR_BINS - 1, max(0, int(late_s * 1e6)))] += 1
    run.written += 1


@kernel
def read_queued_s(m):
    """Return for how long the thread has been ready and waited for a core, since it began; -1 where the kernel does not say."""
    run = m.run[0]
    if run.schedule_fd < 0:
        return -1.0
    n = call_c(m.calls[PREAD], run.schedule_fd, run.schedule_at, m.schedule.shape[0], 0, 0)
    field, value = 0, 0
    for j in range(max(0, n)):
        if m.schedule[j] == _SPACE:
            field += 1
        elif field == 1:  # nanoseconds on the CPU, nanoseconds in the queue, times
            value = 10 * value + (m.schedule[j] - _ZERO)
    return value * 1e-9 if field >= 2 else -1.0


@kernel
def judge_turn(m, now_s):
    """Note a stall if this turn wrote packets late, and who made it so: who had the core for half of that time or more."""
    run = m.run[0]
    late_s = run.turn_late_s
    if late_s > run.stall_s:
        queued_s = read_queued_s(m)
        since_s = queued_s - run.queued_s
        who = BACKLOG
        if queued_s < 0.0 or run.queued_s < 0.0:
            who = UNKNOWN
        elif since_s >= late_s / 2:
            who = MACHINE
        elif run.jump_s - since_s >= late_s / 2:
            who = HOST
        m.stalls[who].count += 1
        m.stalls[who].longest_s = max(m.stalls[who].longest_s, late_s)
        run.queued_s = queued_s
    elif now_s >= run.next_reading_s:
        run.queued_s = read_queued_s(m)
        run.next_reading_s = now_s + READING_S
    run.turn_late_s = 0.0
    run.jump_s = 0.0
