"""Structs that engines, CCAs and adversaries exchange. All fields are float64, named with their unit.

A classic CCA is a module with four plain functions over these records (``ccenv/agents/classic/``, where on_loss and on_tick may
be missing):

    init(state)               set the state at the start of a flow: header and parameters are filled in, all else is 0
    on_ack(state, ack)        bytes were newly acknowledged
    on_loss(state, loss)      bytes were newly found lost
    on_tick(state, tick)      time passed (called every engine step or every 10 ms)

``state`` starts with STATE_HEADER, followed by the CCA's own float64 fields.
An adversary is a module with ``init(state, view)`` and ``play(state, view, move)`` over ADVERSARY_STATE, VIEW and MOVE.
The engines compile these functions; called from Python with numpy structs they are their own slow reference.
"""

from __future__ import annotations

import numpy as np

STATE_SLOTS = 64
ADVERSARY_SLOTS = 16

# Columns of a row of addresses, of a CCA and of an adversary.
INIT, ON_ACK, ON_LOSS, ON_TICK = range(4)
PLAY = 1  # after INIT

_F8 = "<f8"


def record(*names: str) -> np.dtype:
    """Return a struct type whose fields are all float64."""
    return np.dtype([(name, _F8) for name in names])


def make_record(table: str, *more: tuple[str, str]) -> np.dtype:
    """Return a struct type of a table, a line of which is a type (``f8`` or ``i8``) and names; text after # is a comment.

    Further fields, as NumPy has them, follow.
    """
    lines = [line.partition("#")[0].split() for line in table.splitlines()]
    return np.dtype([*((name, f"<{kind}") for kind, *names in filter(None, lines) for name in names), *more])


# Fields of every CCA; the engines read cwnd_bytes and pacing_rate_Bps after each call.
STATE_HEADER = (
    "cwnd_bytes",  # congestion window, > 0
    "pacing_rate_Bps",  # pacing rate, > 0; infinity: not paced
    "mss_bytes",
    "seed",  # for ccenv.base.random.uniform: (seed, env, flow, counter)
    "env",
    "flow",
    "draws",  # random numbers drawn so far, kept by the CCA
)

ACK = record(
    "now_s",
    "acked_bytes",  # newly acknowledged by this signal, > 0
    "delivered_bytes",  # cumulative
    "rtt_s",  # of the newest acknowledged byte
    "min_rtt_s",  # smallest seen so far
    "delivery_rate_Bps",  # delivery-rate sample of the newest acknowledged byte
    "inflight_bytes",  # after this signal
    "round_start",  # 1 if this signal starts a new round trip, else 0
    "app_limited",  # 1 if the rate sample was limited by the application
    "ecn_fraction",  # share of acked_bytes that carried a congestion mark
    "mss_bytes",
    "prior_delivered_bytes",  # delivered_bytes when the newest acknowledged byte was sent
    "tx_inflight_bytes",  # in flight just after it was sent; 0 for senders that are not per_packet
    "lost_since_bytes",  # found lost since it was sent; likewise
    "recovering",  # 1 in fast recovery, or no growth, by a transport that knows (RFC 6675 s.5; FlowSpec.duplicate_acks); else 0
    "handshake_s",  # RTT of the handshake; 0: none
    "held_s",  # for how long pacing holds the next packet back
)
LOSS = record(
    "now_s",
    "lost_bytes",  # newly found lost by this signal, > 0
    "inflight_bytes",  # after this signal
    "delivered_bytes",  # cumulative
    "timeout",  # 1 if found by the RTO
    "new_episode",  # 1 if lost bytes were first sent after the previous episode was found: one reduction per episode
    "mss_bytes",
    # for senders that are per_packet, whose signal is one lost packet; else 0
    "tx_inflight_bytes",  # in flight just after it was sent
    "lost_since_bytes",  # found lost since it was sent, itself included
    "app_limited",  # 1 if the application limited the flow when it was sent
    "contiguous",  # 1 if what was sent just before it was lost too
)
TICK = record("now_s", "dt_s", "inflight_bytes", "delivered_bytes", "min_rtt_s", "mss_bytes")

VIEW = record(
    "now_s",
    "step",  # of the engine, from 0
    "dt_s",
    "steps_per_rtt",
    "flow",
    "n_flows",
    "rtt_s",
    "jitter_s",
    "link_rate_Bps",
    "buffer_bytes",
    "mss_bytes",
    "queue_bytes",  # waiting for service or tokens, all flows
    "held_bytes",  # of this flow: left the bottleneck, not delivered yet
    "spare_token_bytes",  # CCAC: tokens admitted beyond what has arrived
    "seed",
    "env",
)
# Each in [0, 1]; the engine maps them into the legal interval.
MOVE = record(
    "waste",  # CCAC: share of the spare tokens to throw away (read for flow 0)
    "service",  # 1: deliver all that may be delivered, 0: as little as the law allows
    "rate",  # strong: link rate between C_min and C_max (read for flow 0)
    "loss",  # share of the flow's remaining loss budget to use now
)
ADVERSARY_STATE = record(*(f"s{i}" for i in range(ADVERSARY_SLOTS)))


def state_record(*fields: str) -> np.dtype:
    """Return a CCA's state type: STATE_HEADER plus its own float64 fields, at most STATE_SLOTS in all."""
    dtype = record(*STATE_HEADER, *fields)
    if len(dtype.names or ()) > STATE_SLOTS:
        raise ValueError(f"a CCA state has {len(dtype.names or ())} fields; at most {STATE_SLOTS} are allowed")
    return dtype
