"""The emulator's memory: a record for the run, one per flow, and rings of packets as arrays of records.

Compiled code calls functions of the C library by address, because a global ctypes function cannot be cached.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ccenv.agents.callbacks import make_record
from ccenv.base.kernels.decorator import kernel

CBR_DELAY, CCAC = 0, 1
MODELS = {"cbr_delay": CBR_DELAY, "ccac": CCAC}
GIVEN, STAMPED = 1, 2  # times of a run that is not in real time
NOBODY, SCRIPTED, RECORDED, LEARNED = range(4)  # adversary of the network

SLOT_BYTES = 2048  # of a packet with its headers
INFO_BYTES = 256  # of TCP_INFO
ERROR_BINS = 200_001  # of release errors, 1 us each; the last one holds larger ones
FIRST_PORT = 20_000  # of the senders
FIRST_SINK_PORT = 30_000

RUN_DTYPE = make_record(
    """
    i8 n_flows model
    f8 seed mss_bytes link_rate_Bps link_delay_s buffer_bytes
    i8 near_fd  # device of the senders
    i8 far_fd  # device of the receivers
    i8 header_bytes  # before the IP header
    i8 base_ns  # clock at time 0
    i8 virtual  # GIVEN: the caller gives the time; STAMPED: packets of a guest carry theirs
    i8 play_kind
    f8 play_s  # between two decisions of an adversary
    i8 play_steps  # decisions taken
    i8 steps  # of the grid of ccac, taken
    f8 step_s
    f8 end_s  # no decision, step or row of the log after it
    # packets
    i8 n_free
    i8 overruns  # packets that found no room in a ring
    i8 written
    f8 late_max_s
    # punctuality
    f8 stall_s  # a turn that is later is a stall
    f8 turn_late_s  # the largest release error of this turn
    f8 expected_s  # when the clock should be read next: after the wait that was asked for
    f8 jump_s  # the longest time between two readings, waits that were asked for not counted
    i8 schedule_fd  # schedstat of the loop's thread; -1: none
    i8 schedule_at
    f8 queued_s  # for how long the thread had waited for a core, by the newest reading; negative: not known
    f8 next_reading_s
    # link
    f8 busy_until_s
    i8 accepted begun departed next_change
    f8 arrived_bytes dropped_bytes served_bytes queue_byte_s
    # arrivals of ccac, in order
    i8 order_head  # not delivered yet
    i8 order_seen  # not yet part of a step
    i8 order_tail
    i8 delivered  # packets
    # logs
    f8 log_s
    i8 log_rows event_rows
    # addresses
    i8 slab_at clock_at wait_at poll_at info_at zeros_at view_at view_bytes move_at move_bytes words_at words_bytes
    i8 ring_at  # of tokens
    i8 init_at  # of a scripted adversary
    i8 play_at
    """
)

HOST, MACHINE, BACKLOG, UNKNOWN = range(4)  # causes of a late emulator
STALLS = ("host", "machine", "emulator", "unknown")
STALL_DTYPE = np.dtype([("count", "<i8"), ("longest_s", "<f8")])

FLOW_DTYPE = make_record(
    """
    i8 sender_fd sink_fd
    f8 start_s stop_s
    f8 size_bytes  # of payload; infinite: always more
    f8 access_s return_s
    f8 forward_s  # between the link and the box
    f8 loss_rate
    i8 boxed  # an adversary holds its packets
    i8 ack_every  # packets that an ACK stands for
    f8 ack_timeout_s
    # state
    i8 open
    f8 offered_bytes
    i8 first_seq transmissions last_delivered
    f8 last_sent_s  # when it was sent
    i8 delivered  # packets written to the receiver
    i8 access_head access_tail
    i8 forward_head  # not written yet
    i8 forward_due  # not released yet
    i8 forward_tail beside_head beside_tail back_head back_tail
    f8 finished_s
    # ACKs that the receiver keeps
    i8 kept_slot  # the newest one; -1: none
    f8 kept_packets  # that it acknowledges
    f8 kept_until_s
    i8 acked  # the newest acknowledgement number; -1: none yet
    i8 had_gap  # the ACK before reported packets beyond a gap
    # counts
    f8 payload_bytes  # newly received in order
    f8 segment_bytes  # payload of a full packet
    f8 dropped_bytes random_lost_bytes rtt_sum_s rtt_samples one_way_sum_s one_way_samples
    """
)

# A packet in flight: when it was sent, when it entered the delay element, when it is due at the other end. For an ACK: when the
# newest packet before it was sent, and how many data packets had been delivered.
PACKET_DTYPE = np.dtype(
    [("sent_s", "<f8"), ("entered_s", "<f8"), ("due_s", "<f8"), ("slot", "<i8"), ("tx", "<i8"), ("count", "<i8")]
)
SERVICE_DTYPE = np.dtype([("begin_s", "<f8"), ("finish_s", "<f8")])
ORDER_DTYPE = np.dtype([("sent_s", "<f8"), ("arrival_s", "<f8"), ("slot", "<i8"), ("tx", "<i8"), ("flow", "<i8")])
POLL_DTYPE = np.dtype([("fd", "<i4"), ("events", "<i2"), ("revents", "<i2")])


class Memory(NamedTuple):
    """Memory of the compiled loop; the length of every ring is a power of two.

    Attributes:
        run: (1,) RUN_DTYPE.
        flows: (N,) FLOW_DTYPE.
        paths: (N,) FLOW_DTYPE of the packet engine: its delay elements and ACK aggregation.
        access, forward, beside, back: (N, ring) PACKET_DTYPE.
        service: (ring,) SERVICE_DTYPE: packets accepted by the link.
        order: (ring,) ORDER_DTYPE: arrivals, for ccac.
        slab: (slots, SLOT_BYTES) packets.
        free: (slots,) numbers of empty slots, the first run.n_free entries.
        calls: addresses of calls.NAMES.
        clock, wait: (2,) seconds and nanoseconds.
        polls: (2 + 2 N,) POLL_DTYPE.
        info: TCP_INFO and its length.
        zeros: data that applications write.
        changes: (n, 2) time and rate of the link.
        errors: (ERROR_BINS,) packets by release error.
        stalls: (len(STALLS),) STALL_DTYPE: late turns by cause.
        schedule: bytes of schedstat.
        flow_log: (rows, N) records of the packet engine's FLOW_LOG.
        link_log: (rows, 1) records of its LINK_LOG.
        events: (rows, EVENT_STRIDE) packet log.
        env, curve_flows: records of the curve engine, for ccac and for policies.
        views, moves: (N,) records of an adversary.
        words: (N, slots) its states.
        recorded: (steps, 2 + 2 N) recorded moves.
        tokens: (ring,) G by step, for ccac: a ring that holds the whole run.
        beliefs: (N,) records of the packet engine's beliefs, for a learned adversary.
        mlp_weights, mlp_shapes, mlp_moves: of the learned adversary (``AdversaryTable``).
    """

    run: np.ndarray
    flows: np.ndarray
    paths: np.ndarray
    access: np.ndarray
    forward: np.ndarray
    beside: np.ndarray
    back: np.ndarray
    service: np.ndarray
    order: np.ndarray
    slab: np.ndarray
    free: np.ndarray
    calls: np.ndarray
    clock: np.ndarray
    wait: np.ndarray
    polls: np.ndarray
    info: np.ndarray
    zeros: np.ndarray
    changes: np.ndarray
    errors: np.ndarray
    stalls: np.ndarray
    schedule: np.ndarray
    flow_log: np.ndarray
    link_log: np.ndarray
    events: np.ndarray
    env: np.ndarray
    curve_flows: np.ndarray
    views: np.ndarray
    moves: np.ndarray
    words: np.ndarray
    recorded: np.ndarray
    tokens: np.ndarray
    beliefs: np.ndarray
    mlp_weights: np.ndarray
    mlp_shapes: np.ndarray
    mlp_moves: np.ndarray
    observation: np.ndarray
    mlp_scratch: np.ndarray


NAMES = ("read", "write", "send", "recv", "ppoll", "clock_gettime", "getsockopt", "close", "pread")
READ, WRITE, SEND, RECV, PPOLL, CLOCK, GETSOCKOPT, CLOSE, PREAD = range(len(NAMES))
CLOCK_MONOTONIC = 1
POLLIN, POLLOUT = 1, 4


def addresses() -> list[int]:
    """Return the addresses of NAMES in this process. Raises OSError if the C library lacks one."""
    library = ctypes.CDLL(None)
    values = []
    for name in NAMES:
        function = getattr(library, name, None)
        address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
        if address is None:
            raise OSError(f"the C library has no function {name}")
        values.append(address)
    return values


@intrinsic
def call_c(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any):
    """Call a C function with up to five integers or addresses; superfluous arguments are ignored."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        int64 = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(int64, [int64] * 5).as_pointer())
        return builder.call(function, list(arguments[1:]))

    return types.int64(*[types.int64] * 6), generate


@kernel
def as_int(value):
    """Return the int result of a C function from a 64-bit register whose upper half is undefined."""
    low = value & 0xFFFFFFFF
    return low - 0x100000000 if low >= 0x80000000 else low
