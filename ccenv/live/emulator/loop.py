"""The loop: packets in, the network, packets out, applications and logs; its clock, and the causes of its delays. Compiled.

One thread does everything, so no socket is held when an acknowledgement arrives, and only this thread must be on time. The kernel
counts how long the thread was ready and waited for a core (schedstat). If the clock jumps further than that, the host of the
virtual machine had the core.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.packet.layout import ACK_EVENT
from ccenv.live.emulator.box import note_ack, play_network
from ccenv.live.emulator.layout import (
    BACKLOG,
    CLOCK,
    CLOCK_MONOTONIC,
    CLOSE,
    ERROR_BINS,
    FIRST_PORT,
    GETSOCKOPT,
    HOST,
    INFO_BYTES,
    MACHINE,
    POLLIN,
    POLLOUT,
    PPOLL,
    PREAD,
    READ,
    RECV,
    SEND,
    SLOT_BYTES,
    STAMPED,
    UNKNOWN,
    WRITE,
    as_int,
    call_c,
)
from ccenv.live.emulator.link import (
    SYN,
    acknowledge,
    count_services,
    end_waits,
    give_back,
    leave_access,
    note,
    put,
    send,
    send_back,
    word_at,
)

READING_S = 0.01  # between two readings of schedstat
_ZERO, _SPACE = 48, 32


@kernel(_nrt=False)
def clock_s(m):
    """Return the time of the run; record its delay after the time that the loop expected."""
    run = m.run[0]
    call_c(m.calls[CLOCK], CLOCK_MONOTONIC, run.clock_at, 0, 0, 0)
    now_s = (m.clock[0] * 1_000_000_000 + m.clock[1] - run.base_ns) * 1e-9
    run.jump_s = max(run.jump_s, now_s - run.expected_s)
    run.expected_s = now_s
    return now_s


@kernel(_nrt=False)
def note_error(m, late_s):
    """Count a packet written with a delay."""
    run = m.run[0]
    run.late_max_s = max(run.late_max_s, late_s)
    run.turn_late_s = max(run.turn_late_s, late_s)
    m.errors[min(ERROR_BINS - 1, max(0, int(late_s * 1e6)))] += 1
    run.written += 1


@kernel(_nrt=False)
def read_queued_s(m):
    """Return the time that the thread has been ready and waited for a core; -1 if the kernel does not report it."""
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


@kernel(_nrt=False)
def judge_turn(m, now_s):
    """Record a stall if this turn wrote packets late; its cause had the core for at least half of the delay."""
    run = m.run[0]
    late_s = run.turn_late_s
    if late_s > run.stall_s:
        queued_s = read_queued_s(m)
        since_s = queued_s - run.queued_s
        cause = BACKLOG
        if queued_s < 0.0 or run.queued_s < 0.0:
            cause = UNKNOWN
        elif since_s >= late_s / 2:
            cause = MACHINE
        elif run.jump_s - since_s >= late_s / 2:
            cause = HOST
        m.stalls[cause].count += 1
        m.stalls[cause].longest_s = max(m.stalls[cause].longest_s, late_s)
        run.queued_s = queued_s
    elif now_s >= run.next_reading_s:
        run.queued_s = read_queued_s(m)
        run.next_reading_s = now_s + READING_S
    run.turn_late_s = 0.0
    run.jump_s = 0.0


IPV4, TCP, UDP = 4, 6, 17
HELLO, REPORT_BYTES = 0xFFFF, 16 + INFO_BYTES  # of virtual/agent.c
SOURCE_AT = 6  # of the hardware address in a packet of a guest
AFTER_S = 0.002  # from the end of a virtual run to the last report
CHUNK_BYTES = 16_384  # that an application writes at a time
SINK_BYTES = 1 << 20
QUIET = 0x4000 | 0x40  # MSG_NOSIGNAL, MSG_DONTWAIT
DISCARD = 0x20 | 0x40  # MSG_TRUNC, MSG_DONTWAIT
IPPROTO_TCP, TCP_INFO = 6, 11
BURST = 64  # packets read from a device at a time
LONGEST_WAIT_S = 0.1
# Places in TCP_INFO, in units of four bytes.
INFO_RTT, INFO_CWND, INFO_RETRANSMITTED = 17, 20, 25
INFO_UNACKED, INFO_SACKED, INFO_LOST, INFO_RESENT = 6, 7, 8, 9
INFO_PACING, INFO_SEGMENTS_OUT, INFO_TIMEOUTS = 26, 39, 60


@kernel(_nrt=False)
def flow_of(m, slot, length, port_at):
    """Return the flow of a packet by its sender's port; -1 for other packets."""
    at = m.run[0].header_bytes
    if length < at + 40 or m.slab[slot, at] >> 4 != IPV4 or m.slab[slot, at + 9] != TCP:
        return -1
    tcp = at + (m.slab[slot, at] & 15) * 4
    i = word_at(m, slot, tcp + port_at, 2) - FIRST_PORT
    return i if 0 <= i < m.run[0].n_flows and tcp + 20 <= length else -1


@kernel(_nrt=False)
def read_packet(m, fd):
    """Read a packet into a slot; return the slot and the length, which is at most 0 without a packet."""
    run = m.run[0]
    slot = m.free[run.n_free - 1]
    length = call_c(m.calls[READ], fd, run.slab_at + slot * SLOT_BYTES, SLOT_BYTES, 0, 0)
    if length > 0:
        run.n_free -= 1
    return slot, length


@kernel(_nrt=False)
def number_at(m, slot, at, n_bytes):
    """Return a little-endian number in a packet."""
    value = np.int64(0)
    for j in range(n_bytes):
        value |= np.int64(m.slab[slot, at + j]) << 8 * j
    return value


@kernel(_nrt=False)
def sent_ns(m, slot):
    """Return when a guest has sent a packet (virtual/clock.c)."""
    return number_at(m, slot, SOURCE_AT, 6)


@kernel(_nrt=False)
def read_guest(m):
    """Read the packets that a guest has sent since its last question, each at its time."""
    run = m.run[0]
    for end in range(2):
        for _ in range(m.wait[end]):
            if run.n_free == 0:
                run.overruns += 1
                break
            slot, length = read_packet(m, run.near_fd if end == 0 else run.far_fd)
            if length <= 0:
                break
            time_s = (sent_ns(m, slot) - run.base_ns) * 1e-9
            if end == 0:
                take_forward(m, slot, length, time_s)
            else:
                take_back(m, slot, length, time_s)
        m.wait[end] = 0


@kernel(_nrt=False)
def fill_info(m, i, log):
    """Write m.info, a TCP_INFO of flow i, into a row of the log."""
    run, words = m.run[0], m.info.view(np.uint32)
    full = run.mss_bytes / m.flows[i].segment_bytes
    pacing = float(m.info.view(np.uint64)[INFO_PACING // 2])
    log.cwnd_bytes = words[INFO_CWND] * run.mss_bytes
    log.rate_Bps = pacing * full if pacing < 1.8e19 else np.inf
    inflight = float(words[INFO_UNACKED]) + words[INFO_RESENT] - words[INFO_SACKED] - words[INFO_LOST]
    log.inflight_bytes = max(0.0, inflight) * run.mss_bytes
    log.rtt_s = words[INFO_RTT] * 1e-6
    log.resent_bytes = words[INFO_RETRANSMITTED] * run.mss_bytes
    log.found_lost_bytes = log.resent_bytes
    log.timeouts = float(words[INFO_TIMEOUTS] & 0xFFFF)


@kernel(_nrt=False)
def take_report(m, slot, length):
    """Take a datagram of the agent of a virtual run: the hello sets time 0, others have a TCP_INFO (virtual/agent.c)."""
    run, at = m.run[0], m.run[0].header_bytes
    if length < at + 28 + REPORT_BYTES or m.slab[slot, at] != 0x45 or m.slab[slot, at + 9] != UDP:
        return
    at += 28
    flow, row = number_at(m, slot, at, 4), number_at(m, slot, at + 4, 4)
    if flow == HELLO:
        run.base_ns = sent_ns(m, slot) + number_at(m, slot, at + 8, 8)
    elif flow < run.n_flows and row < m.flow_log.shape[0]:
        for j in range(INFO_BYTES // 4):
            m.info[j] = number_at(m, slot, at + 16 + 4 * j, 4)
        fill_info(m, flow, m.flow_log[row, flow])


@kernel(_nrt=False)
def take_forward(m, slot, length, now_s):
    """Take a packet from a sender: data go to the link, packets without data bypass it."""
    run = m.run[0]
    i = flow_of(m, slot, length, 0)
    if i < 0:
        if run.virtual == STAMPED:
            take_report(m, slot, length)
        give_back(m, slot)
        return
    fl = m.flows[i]
    at = run.header_bytes
    tcp = at + (m.slab[slot, at] & 15) * 4
    total = word_at(m, slot, at + 2, 2)
    payload = total - (tcp - at) - (m.slab[slot, tcp + 12] >> 4) * 4
    ring = m.forward.shape[1]
    if m.slab[slot, tcp + 13] & SYN:
        fl.first_seq = word_at(m, slot, tcp + 4, 4)
    if payload > 0:
        if fl.forward_tail - fl.forward_head + fl.access_tail - fl.access_head < ring and order_room(m):
            send(m, i, slot, now_s)
        else:
            run.overruns += 1
            give_back(m, slot)
    elif fl.beside_tail - fl.beside_head < ring:
        put(m.beside[i], fl.beside_tail, now_s, now_s, now_s + fl.access_s + fl.forward_s, slot, 0)
        fl.beside_tail += 1
    else:
        run.overruns += 1
        give_back(m, slot)


@kernel(_nrt=False)
def order_room(m):
    run = m.run[0]
    return run.order_tail - run.order_head < m.order.shape[0] and run.accepted - run.departed < m.service.shape[0]


@kernel(_nrt=False)
def take_back(m, slot, length, now_s):
    """Take a packet from a receiver: count the data that it acknowledges, and send it back."""
    run = m.run[0]
    i = flow_of(m, slot, length, 2)
    if i < 0:
        give_back(m, slot)
        return
    fl = m.flows[i]
    if fl.back_tail - fl.back_head + 1 >= m.back.shape[1]:  # one more may be kept
        run.overruns += 1
        give_back(m, slot)
        return
    at = run.header_bytes
    tcp = at + (m.slab[slot, at] & 15) * 4
    received = (word_at(m, slot, tcp + 8, 4) - fl.first_seq - 1) & 0xFFFFFFFF
    if fl.first_seq >= 0:  # numbers of 32 bits, counted on
        grown = (received - np.int64(fl.payload_bytes)) & 0xFFFFFFFF
        if grown < 0x80000000:
            fl.payload_bytes += grown
    if fl.ack_every > 1:
        acknowledge(m, i, slot, tcp, now_s)
    else:
        send_back(m, i, slot, now_s)


@kernel(_nrt=False)
def read_devices(m, now_s):
    """Read the waiting packets at both ends."""
    run = m.run[0]
    if run.virtual == STAMPED:
        read_guest(m)
        return
    for _ in range(BURST):
        if run.n_free == 0:
            run.overruns += 1
            break
        slot, length = read_packet(m, run.near_fd)
        if length <= 0:
            break
        take_forward(m, slot, length, now_s)
    for _ in range(BURST):
        if run.n_free == 0:
            run.overruns += 1
            break
        slot, length = read_packet(m, run.far_fd)
        if length <= 0:
            break
        take_back(m, slot, length, now_s)


@kernel(_nrt=False)
def write_packet(m, fd, slot, due_s, now_s):
    """Write a packet to a device and record its delay."""
    run = m.run[0]
    at_s = now_s if run.virtual > 0 else clock_s(m)
    length = run.header_bytes + word_at(m, slot, run.header_bytes + 2, 2)
    done = call_c(m.calls[WRITE], fd, run.slab_at + slot * SLOT_BYTES, length, 0, 0)
    if run.virtual == STAMPED:
        m.wait[0 if fd == run.near_fd else 1] += 1 if done > 0 else 0
        run.overruns += 0 if done > 0 else 1
    note_error(m, at_s - due_s)
    give_back(m, slot)


@kernel(_nrt=False)
def write_due(m, now_s):
    """Write the due packets at both ends; return when the next one is due."""
    run = m.run[0]
    mask = m.forward.shape[1] - 1
    next_s = math.inf
    for i in range(run.n_flows):
        fl = m.flows[i]
        while fl.beside_head < fl.beside_tail and m.beside[i, fl.beside_head & mask].due_s <= now_s:
            packet = m.beside[i, fl.beside_head & mask]
            write_packet(m, run.far_fd, packet.slot, packet.due_s, now_s)
            fl.beside_head += 1
        while fl.forward_head < fl.forward_due and m.forward[i, fl.forward_head & mask].due_s <= now_s:
            packet = m.forward[i, fl.forward_head & mask]
            fl.last_delivered = packet.tx
            fl.last_sent_s = packet.sent_s
            fl.delivered += 1
            write_packet(m, run.far_fd, packet.slot, packet.due_s, now_s)
            fl.forward_head += 1
        while fl.back_head < fl.back_tail and m.back[i, fl.back_head & mask].due_s <= now_s:
            packet = m.back[i, fl.back_head & mask]
            note(m, ACK_EVENT, packet.due_s, i, -1, packet.tx)
            note_ack(m, i, packet)
            write_packet(m, run.near_fd, packet.slot, packet.due_s, now_s)
            fl.back_head += 1
        if fl.beside_head < fl.beside_tail:
            next_s = min(next_s, m.beside[i, fl.beside_head & mask].due_s)
        if fl.forward_head < fl.forward_due:
            next_s = min(next_s, m.forward[i, fl.forward_head & mask].due_s)
        if fl.back_head < fl.back_tail:
            next_s = min(next_s, m.back[i, fl.back_head & mask].due_s)
    return next_s


@kernel(_nrt=False)
def run_applications(m, now_s):
    """Write and read for the applications; return when one begins or ends."""
    run = m.run[0]
    next_s = math.inf
    for i in range(run.n_flows):
        fl = m.flows[i]
        poll = m.polls[2 + i]
        poll.events = 0
        if fl.open == 1 and now_s >= fl.stop_s:
            call_c(m.calls[CLOSE], fl.sender_fd, 0, 0, 0, 0)
            fl.open = 0
            poll.fd = -1
        if fl.open == 1:
            next_s = min(next_s, fl.stop_s)
            if now_s < fl.start_s:
                next_s = min(next_s, fl.start_s)
            elif fl.offered_bytes < fl.size_bytes:
                n = np.int64(min(float(CHUNK_BYTES), fl.size_bytes - fl.offered_bytes))
                sent = call_c(m.calls[SEND], fl.sender_fd, run.zeros_at, n, QUIET, 0)
                if sent > 0:
                    fl.offered_bytes += sent
                    if sent == n:  # again at once, after the packets had their turn
                        next_s = min(next_s, now_s)
                if fl.offered_bytes < fl.size_bytes:
                    poll.events = POLLOUT
        if m.polls[2 + run.n_flows + i].revents != 0:
            call_c(m.calls[RECV], fl.sink_fd, 0, SINK_BYTES, DISCARD, 0)
    return next_s


@kernel(_nrt=False)
def sample(m, i, log):
    """Write the kernel's TCP_INFO of flow i and the counts into a row of the log; a closed flow keeps its last counts."""
    run, fl = m.run[0], m.flows[i]
    if fl.open == 1:
        words = m.info.view(np.uint32)
        words[INFO_BYTES // 4] = INFO_BYTES
        words[INFO_TIMEOUTS] = 0
        status = call_c(m.calls[GETSOCKOPT], fl.sender_fd, IPPROTO_TCP, TCP_INFO, run.info_at, run.info_at + INFO_BYTES)
        if as_int(status) == 0:
            fill_info(m, i, log)
    log.sent_bytes = fl.transmissions * run.mss_bytes
    log.dropped_bytes = fl.dropped_bytes
    log.random_lost_bytes = fl.random_lost_bytes
    log.goodput_bytes = fl.payload_bytes * run.mss_bytes / fl.segment_bytes
    log.rtt_sum_s = fl.rtt_sum_s
    log.rtt_samples = fl.rtt_samples
    log.one_way_sum_s = fl.one_way_sum_s
    log.one_way_samples = fl.one_way_samples


@kernel(_nrt=False)
def write_logs(m, now_s):
    """Write the rows of the log up to now; return the time of the next one."""
    run = m.run[0]
    while run.log_rows < m.flow_log.shape[0]:
        row_s = run.log_rows * run.log_s
        if row_s > now_s:
            return row_s
        for i in range(run.n_flows):
            if run.log_rows > 0:
                previous, log = m.flow_log[run.log_rows - 1, i], m.flow_log[run.log_rows, i]
                log.cwnd_bytes = previous.cwnd_bytes
                log.rate_Bps = previous.rate_Bps
                log.rtt_s = previous.rtt_s
                log.resent_bytes = previous.resent_bytes
                log.found_lost_bytes = previous.found_lost_bytes
                log.timeouts = previous.timeouts
            sample(m, i, m.flow_log[run.log_rows, i])
        count_services(m, row_s)
        entry = m.link_log[run.log_rows, 0]
        entry.queue_bytes = (run.accepted - run.begun) * run.mss_bytes
        if run.order_tail > 0:
            entry.queue_bytes = max(0.0, m.env[0].enqueued_bytes - m.env[0].tokens_bytes)
        entry.queue_byte_s = run.queue_byte_s
        entry.arrived_bytes = run.arrived_bytes
        entry.dropped_bytes = run.dropped_bytes
        entry.served_bytes = run.served_bytes
        entry.rate_Bps = run.link_rate_Bps
        run.log_rows += 1
    return math.inf


@kernel(_nrt=False)
def turn(m, now_s):
    """Do everything that is due now; return the next due time."""
    next_s = end_waits(m, now_s)
    read_devices(m, now_s)
    next_s = min(next_s, leave_access(m, now_s))
    next_s = min(next_s, play_network(m, now_s))
    next_s = min(next_s, write_due(m, now_s))
    next_s = min(next_s, write_logs(m, now_s))
    return min(next_s, run_applications(m, now_s))


@kernel(nogil=True, _nrt=False)
def run_until(m, until_s):
    """Run in real time until a time."""
    run = m.run[0]
    run.expected_s = np.inf  # time before this call is not the loop's
    run.queued_s = read_queued_s(m)
    m.polls[0].events = POLLIN
    m.polls[1].events = POLLIN
    for i in range(run.n_flows):
        m.polls[2 + run.n_flows + i].events = POLLIN
    while True:
        now_s = clock_s(m)
        if now_s >= until_s:
            play_network(m, until_s)
            write_logs(m, until_s)
            return
        next_s = min(turn(m, now_s), until_s)
        judge_turn(m, now_s)
        done_s = clock_s(m)
        wait_s = min(LONGEST_WAIT_S, max(0.0, next_s - done_s))
        run.expected_s = done_s + wait_s
        m.wait[0] = 0
        m.wait[1] = np.int64(wait_s * 1e9)
        call_c(m.calls[PPOLL], run.poll_at, m.polls.shape[0], run.wait_at, 0, 0)


@kernel(nogil=True)
def serve(m, question_fd, answer_fd):
    """Run in the virtual time of a guest (virtual/clock.c) to its end; return 0, or a flow (from 1) to decide for before.

    It gives its time and the numbers of packets sent at both ends, and waits for the time of the next call and those written.
    """
    run = m.run[0]
    question, answer = np.zeros(3, np.int64), np.zeros(3, np.int64)
    while call_c(m.calls[READ], question_fd, question.ctypes.data, 24, 0, 0) == 24:
        if question[0] < 0:
            return -question[0]
        now_s = (question[0] - run.base_ns) * 1e-9
        if now_s > run.end_s + AFTER_S:
            break
        m.wait[:] = question[1:]
        next_s = turn(m, now_s)
        answer[0] = run.base_ns + np.int64(next_s * 1e9) + 1 if next_s < 1e9 else -1
        answer[1:] = m.wait
        call_c(m.calls[WRITE], answer_fd, answer.ctypes.data, 24, 0, 0)
    return 0
