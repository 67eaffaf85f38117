"""Policies that decide for packet flows, from what their monitors measure: the same networks and signals as in the curve engine.

A flow's policy is a record of its own, which begins anew with its network: POLICY_DTYPE, then its memory and scratch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from ccenv.engine.compiled.calls import address_of, pointer_at
from ccenv.engine.compiled.mlp import MAX_WIDTH
from ccenv.engine.compiled.policies import POLICY_DTYPE, SCRATCH_ROWS, act, has_belief_interface, pack_policies, require_signals
from ccenv.engine.packet.monitor import MONITOR_DTYPE, Decider
from ccenv.engine.packet.spec import FlowSpec
from ccenv.agents.interface.measures import MEASURES
from ccenv.agents.interface.signals import N_SIGNALS, PACKET
from ccenv.agents.sender import PolicySender, Sender, bare

_WORD = 8
_HEAD = POLICY_DTYPE.itemsize
_SCRATCH_WORDS = N_SIGNALS + SCRATCH_ROWS * MAX_WIDTH


def decide(policy: Any, measures: Any, monitor: Any) -> None:
    """Let a policy decide at the end of an interval: set ``monitor.asked``."""
    at = monitor.policy_at + _HEAD
    own = at + _WORD * policy.memory_words
    monitor.asked = act(
        policy,
        carray(pointer_at(policy.address), policy.n_weights, np.float64),
        measures,
        carray(pointer_at(at), policy.memory_words, np.float64),
        carray(pointer_at(own), N_SIGNALS, np.float64),
        carray(pointer_at(own + _WORD * N_SIGNALS), (SCRATCH_ROWS, MAX_WIDTH), np.float64),
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

    Raises:
        InputError: for a policy that sees or sets what its flow does not have.
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
