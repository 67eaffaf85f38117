"""What the kernel reads of a batch besides its records: senders, one row each, shared tables, memory, initial values, policies.

A policy of a packet flow decides from what its monitor measures, with the networks and signals of the curve engine. It is a
record that begins anew with its network: POLICY_DTYPE, then its memory and scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import carray

from ccenv.agents.callbacks import ACK, LOSS, STATE_SLOTS, TICK, make_record
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, PACKET
from ccenv.agents.sender import ClassicSender, ExternalSender, HeldSender, PolicySender, Sender, ShieldSender, bare
from ccenv.base.errors import InputError
from ccenv.engine.compiled.calls import address_of, pointer_at
from ccenv.engine.compiled.policies import (
    MAX_WIDTH,
    POLICY_DTYPE,
    SCRATCH_ROWS,
    act,
    has_belief_interface,
    pack_policies,
    require_signals,
)
from ccenv.engine.curve.players import initial_words
from ccenv.engine.packet.beliefs import BELIEFS_DTYPE, RATE_HOLDER, STEPS, belief_templates, ignore, step_watch
from ccenv.engine.packet.layout import FLOW_DTYPE, GRID_DTYPE
from ccenv.engine.packet.monitor import MONITOR_DTYPE, Decider
from ccenv.engine.packet.spec import FlowSpec

SENDER_DTYPE = make_record(
    """
    f8 hold_s hold_target_s hold_window_s
    i8 step_at watches per_packet
    """
)


class Tables(NamedTuple):
    """What the networks of a batch share.

    Attributes:
        route: (2, flows, HOPS) link, and pipe, of each hop of data and of ACKs.
        pipes, boxes, monitors: (n,) records as they begin.
        box_words: (boxes, ADVERSARY_SLOTS) states of their adversaries.
        policies: (monitors, bytes) uint8: records of the policies, as they begin.
        delay_tables: (flows,) addresses of replayed delays.
        traces: (n, 2) address and number of rows of the traces of links.
        grid_flows: (n,) flow of each grid.
        senders: (senders,) SENDER_DTYPE.
        beliefs: (senders,) BELIEFS_DTYPE templates.
    """

    route: np.ndarray
    pipes: np.ndarray
    boxes: np.ndarray
    monitors: np.ndarray
    box_words: np.ndarray
    policies: np.ndarray
    delay_tables: np.ndarray
    traces: np.ndarray
    grid_flows: np.ndarray
    senders: np.ndarray
    beliefs: np.ndarray


class Memory(NamedTuple):
    """What records point into."""

    rings: np.ndarray  # (B,) int64 addresses of the rings of each network, float64; `PacketBatch` owns them
    room: np.ndarray  # (B,) int64 words that each has
    needed: np.ndarray  # (B,) int64 words that each needs
    trees: np.ndarray  # (B, words) next times of event sources
    shares: np.ndarray  # (B, monitors, flows, 2) of the monitors
    box_words: np.ndarray  # (B, boxes, ADVERSARY_SLOTS) states of the adversaries of jitter boxes
    policies: np.ndarray  # (B, monitors, bytes) uint8: records of policies


class Beginnings(NamedTuple):
    """What k networks begin with."""

    links: np.ndarray  # (k, links) LINK_DTYPE: rates, delays, buffers, disciplines
    flows: np.ndarray  # (k, flows) FLOW_DTYPE: paths, receivers, workloads, sender_index
    changes: np.ndarray  # (k, n, 3) rate changes in the order of time; infinite: none
    mss_bytes: np.ndarray  # (k,)
    keys: np.ndarray  # (k,) what their random numbers depend on
    start_rates_Bps: np.ndarray  # (k, monitors) before the first decision; 0: the usual one


class SenderTable:
    """Senders as rows of tables.

    Attributes:
        calls: (n, 4) addresses of init, on_ack, on_loss, on_tick of the CCA of each; 0: it ignores the signal.
        templates: (n, STATE_SLOTS) its initial state.
        rows: (n,) SENDER_DTYPE.
        beliefs: (max(1, n),) BELIEFS_DTYPE templates.
    """

    def __init__(self, senders: Sequence[Sender], deciders: Sequence[Decider | None]) -> None:
        """Compile them; who decides for their flows is needed for senders that are driven from outside.

        Raises InputError for a sender that cannot run per packet, or parameters that it does not have.
        """
        self.senders = list(senders)
        n = len(self.senders)
        self.calls, self.templates = np.zeros((n, 4), np.int64), np.zeros((n, STATE_SLOTS))
        self.rows = np.zeros(n, SENDER_DTYPE)
        self._keep: list[np.ndarray] = []
        self.beliefs = belief_templates([bare(sender) for sender in self.senders], self._keep)
        for row, (sender, decider) in enumerate(zip(self.senders, deciders, strict=True)):
            if isinstance(sender, HeldSender):
                self.rows[row]["hold_s"] = sender.target_s
                if sender.mode == "lambda":
                    self.rows[row]["hold_target_s"], self.rows[row]["hold_window_s"] = sender.target_s, sender.window_s
            self._put(row, self._cca(row, bare(sender), decider))

    def _cca(self, row: int, sender: Sender, decider: Decider | None) -> ClassicSender:
        gridded = not isinstance(sender, PolicySender) or has_belief_interface(sender)
        step = STEPS.get(type(sender)) if gridded else None
        if isinstance(sender, ShieldSender) and sender.chooser == "external" and decider is None:
            raise InputError(f"shield {sender.name!r}: an external chooser is the agent of an environment; here is none")
        watches = decider is not None and decider.watches_beliefs
        if step is not None or watches:
            self.rows[row]["step_at"] = address_of(step or step_watch, GRID_DTYPE, BELIEFS_DTYPE, FLOW_DTYPE)
            self.rows[row]["watches"] = step is None
        if step is not None:
            return RATE_HOLDER
        if isinstance(sender, (ExternalSender, PolicySender)) and decider is not None:
            return decider.inner or RATE_HOLDER
        if not isinstance(sender, ClassicSender):
            raise InputError(f"flow {row}: sender {sender.name!r} cannot run per packet; it has no rule of its own")
        return sender

    def _put(self, row: int, cca: ClassicSender) -> None:
        signals = ((cca.on_ack, ACK), (cca.on_loss, LOSS), (cca.on_tick, TICK))
        calls = [0 if function is ignore else address_of(function, cca.state, signal) for function, signal in signals]
        self.rows[row]["per_packet"] = cca.per_packet
        self.calls[row] = [address_of(cca.init, cca.state), *calls]
        self.templates[row] = initial_words(cca, STATE_SLOTS, "sender")


_WORD = 8
_HEAD = POLICY_DTYPE.itemsize
_SCRATCH_WORDS = N_SIGNALS + SCRATCH_ROWS * MAX_WIDTH


def decide(policy: Any, measures: Any, monitor: Any) -> None:
    """Let a policy decide at the end of an interval: set ``monitor.asked``."""
    at = monitor.policy_at + _HEAD
    scratch_at = at + _WORD * policy.memory_words
    monitor.asked = act(
        policy,
        carray(pointer_at(policy.address), policy.n_weights, np.float64),
        measures,
        carray(pointer_at(at), policy.memory_words, np.float64),
        carray(pointer_at(scratch_at), N_SIGNALS, np.float64),
        carray(pointer_at(scratch_at + _WORD * N_SIGNALS), (SCRATCH_ROWS, MAX_WIDTH), np.float64),
    )


def decider_of(policy: PolicySender) -> Decider:
    """Return what decides for the flow of a policy that sees more than beliefs. Raises InputError if no kernel can play it."""
    weights, rows = pack_policies([policy], [0] if policy.inner else [])
    rows["address"], rows["n_weights"] = weights.ctypes.data, len(weights)
    record = np.zeros(_HEAD + _WORD * (int(rows["memory_words"][0]) + _SCRATCH_WORDS), np.uint8)
    record[:_HEAD] = rows.view(np.uint8)
    return Decider(
        interface=policy.interface,
        inner=policy.inner,
        decide_at=address_of(decide, POLICY_DTYPE, MEASURES, MONITOR_DTYPE),
        record=record,
        keep=(weights,),
    )


def policy_deciders(senders: list[Sender], flows: tuple[FlowSpec, ...]) -> dict[int, Decider]:
    """Return what decides for the flows whose policies see more than beliefs, by flow.

    Raises InputError for a policy that sees or sets what its flow does not have.
    """
    deciders = {}
    for flow, (sender, spec) in enumerate(zip(senders, flows, strict=True)):
        policy = bare(sender)
        if not isinstance(policy, PolicySender):
            continue
        require_signals(policy, PACKET, finite=spec.workload.kind != "bulk")
        if not has_belief_interface(policy):
            deciders[flow] = decider_of(policy)
    return deciders
