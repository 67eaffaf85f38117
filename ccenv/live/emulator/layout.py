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

RUN_DTYPE = np.dtype(
    [
        ("n_flows", "<i8"),
        ("model", "<i8"),
        ("seed", "<f8"),
        ("mss_bytes", "<f8"),
        ("link_rate_Bps", "<f8"),
        ("link_delay_s", "<f8"),
        ("buffer_bytes", "<f8"),
        ("near_fd", "<i8"),  # device of the senders
        ("far_fd", "<i8"),  # device of the receivers
        ("header_bytes", "<i8"),  # before the IP header
        ("base_ns", "<i8"),  # clock at time 0
        ("virtual", "<i8"),  # GIVEN: the caller gives the time; STAMPED: packets of a guest carry theirs
        ("play_kind", "<i8"),
        ("play_s", "<f8"),  # between two decisions of an adversary
        ("play_steps", "<i8"),  # decisions taken
        ("steps", "<i8"),  # of the grid of ccac, taken
        ("step_s", "<f8"),
        ("end_s", "<f8"),  # no decision, step or row of the log after it
        # packets
        ("n_free", "<i8"),
        ("overruns", "<i8"),  # packets that found no room in a ring
        ("written", "<i8"),
        ("late_max_s", "<f8"),
        # punctuality
        ("stall_s", "<f8"),  # a turn that is later is a stall
        ("turn_late_s", "<f8"),  # the largest release error of this turn
        ("expected_s", "<f8"),  # when the clock should be read next: after the wait that was asked for
        ("jump_s", "<f8"),  # the longest time between two readings, waits that were asked for not counted
        ("schedule_fd", "<i8"),  # schedstat of the loop's thread; -1: none
        ("schedule_at", "<i8"),
        ("queued_s", "<f8"),  # for how long the thread had waited for a core, by the newest reading; negative: not known
        ("next_reading_s", "<f8"),
        # link
        ("busy_until_s", "<f8"),
        ("accepted", "<i8"),
        ("begun", "<i8"),
        ("departed", "<i8"),
        ("next_change", "<i8"),
        ("arrived_bytes", "<f8"),
        ("dropped_bytes", "<f8"),
        ("served_bytes", "<f8"),
        ("queue_byte_s", "<f8"),
        # arrivals of ccac, in order
        ("order_head", "<i8"),  # not delivered yet
        ("order_seen", "<i8"),  # not yet part of a step
        ("order_tail", "<i8"),
        ("delivered", "<i8"),  # packets
        # logs
        ("log_s", "<f8"),
        ("log_rows", "<i8"),
        ("event_rows", "<i8"),
        # addresses
        ("slab_at", "<i8"),
        ("clock_at", "<i8"),
        ("wait_at", "<i8"),
        ("poll_at", "<i8"),
        ("info_at", "<i8"),
        ("zeros_at", "<i8"),
        ("view_at", "<i8"),
        ("view_bytes", "<i8"),
        ("move_at", "<i8"),
        ("move_bytes", "<i8"),
        ("words_at", "<i8"),
        ("words_bytes", "<i8"),
        ("ring_at", "<i8"),  # of tokens
        ("init_at", "<i8"),  # of a scripted adversary
        ("play_at", "<i8"),
    ]
)

HOST, MACHINE, BACKLOG, UNKNOWN = range(4)  # causes of a late emulator
STALLS = ("host", "machine", "emulator", "unknown")
STALL_DTYPE = np.dtype([("count", "<i8"), ("longest_s", "<f8")])

FLOW_DTYPE = np.dtype(
    [
        ("sender_fd", "<i8"),
        ("sink_fd", "<i8"),
        ("start_s", "<f8"),
        ("stop_s", "<f8"),
        ("size_bytes", "<f8"),  # of payload; infinite: always more
        ("access_s", "<f8"),
        ("return_s", "<f8"),
        ("forward_s", "<f8"),  # between the link and the box
        ("loss_rate", "<f8"),
        ("boxed", "<i8"),  # an adversary holds its packets
        ("ack_every", "<i8"),  # packets that an ACK stands for
        ("ack_timeout_s", "<f8"),
        # state
        ("open", "<i8"),
        ("offered_bytes", "<f8"),
        ("first_seq", "<i8"),
        ("transmissions", "<i8"),
        ("last_delivered", "<i8"),
        ("last_sent_s", "<f8"),  # when it was sent
        ("delivered", "<i8"),  # packets written to the receiver
        ("access_head", "<i8"),
        ("access_tail", "<i8"),
        ("forward_head", "<i8"),  # not written yet
        ("forward_due", "<i8"),  # not released yet
        ("forward_tail", "<i8"),
        ("beside_head", "<i8"),
        ("beside_tail", "<i8"),
        ("back_head", "<i8"),
        ("back_tail", "<i8"),
        ("finished_s", "<f8"),
        # ACKs that the receiver keeps
        ("kept_slot", "<i8"),  # the newest one; -1: none
        ("kept_packets", "<f8"),  # that it acknowledges
        ("kept_until_s", "<f8"),
        ("acked", "<i8"),  # the newest acknowledgement number; -1: none yet
        ("had_gap", "<i8"),  # the ACK before reported packets beyond a gap
        # counts
        ("payload_bytes", "<f8"),  # newly received in order
        ("segment_bytes", "<f8"),  # payload of a full packet
        ("dropped_bytes", "<f8"),
        ("random_lost_bytes", "<f8"),
        ("rtt_sum_s", "<f8"),
        ("rtt_samples", "<f8"),
        ("one_way_sum_s", "<f8"),
        ("one_way_samples", "<f8"),
    ]
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
