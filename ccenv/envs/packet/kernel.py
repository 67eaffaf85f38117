"""Observations and rewards of controlled flows from their measures: compiled, for all networks of a batch at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION, fill_observation
from ccenv.agents.interface.rewards import N_TERMS, fill_terms
from ccenv.agents.interface.signals import FIRST_BELIEF, N_SIGNALS, fill_signals
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.monitor import POSITION


class CoreArrays(NamedTuple):
    """State of a packet core with B networks and M monitored flows each."""

    until_s: np.ndarray  # (B,) longest time of an episode
    elapsed: np.ndarray  # (B,) steps of the episode so far
    lengths: np.ndarray  # (B,) length of the episode in steps
    decides: np.ndarray  # (B, M) bool, monitored flows that are to decide
    numbers: np.ndarray  # (n,) of the signals
    weights: np.ndarray  # (N_TERMS,) of the reward
    seen: np.ndarray  # (B, M, history, n) float32 signals of the newest intervals
    terms: np.ndarray  # (B, M, N_TERMS) terms of the newest interval; 0 if the flow does not decide, or for the first time
    rewards: np.ndarray  # (B, M) their weighted sums
    sums: np.ndarray  # (B, M, N_TERMS) sums of the terms over the episode
    counts: np.ndarray  # (B, M) decisions in these sums


@kernel(nogil=True)
def observe(arrays, rows, core):
    """Compute signals, terms and rewards of the flows that decide now.

    Args:
        arrays: ``ccenv.engine.packet.kernel.PacketArrays``.
        rows: (k,) indices of the networks.
        core: CoreArrays; if a flow decides, its newest interval is appended to ``seen``, and its terms are added to the sums.
    """
    a, core = unowned(arrays), unowned(core)
    decides, numbers, observations = core.decides, core.numbers, core.seen
    signals = np.empty(N_SIGNALS)
    history = observations.shape[2]
    for b in rows:
        for row in range(decides.shape[1]):
            monitor = a.monitors[b, row]
            core.rewards[b, row] = 0.0
            for j in range(N_TERMS):
                core.terms[b, row, j] = 0.0
            decides[b, row] = monitor.due == 1
            if monitor.due != 1:
                continue
            m = a.measures[b, row]
            fill_signals(m, signals)
            if monitor.sets == POSITION:  # what the chooser of a shield sees (``ccenv.engine.packet.beliefs.step_shield``)
                beliefs = a.beliefs[b, monitor.grid]
                fill_observation(beliefs, beliefs, signals[FIRST_BELIEF : FIRST_BELIEF + N_OBSERVATION])
            first = 0 if monitor.decisions == 0 else history - 1  # a flow that begins has been idle before
            if first > 0:
                for k in range(history - 1):
                    for j in range(len(numbers)):
                        observations[b, row, k, j] = observations[b, row, k + 1, j]
            for k in range(first, history):
                for j in range(len(numbers)):
                    observations[b, row, k, j] = signals[numbers[j]]
            if monitor.decisions == 0:
                continue
            fill_terms(m, monitor.action_before, core.terms[b, row])
            core.counts[b, row] += 1.0
            for j in range(N_TERMS):
                core.sums[b, row, j] += core.terms[b, row, j]
                core.rewards[b, row] += core.weights[j] * core.terms[b, row, j]


@kernel
def put_signals(m, numbers, out):
    """Write the signals with some numbers, (n,), of a struct of MEASURES to out, (n,)."""
    signals = np.empty(N_SIGNALS)
    fill_signals(m, signals)
    for j in range(len(numbers)):
        out[j] = signals[numbers[j]]


@kernel(nogil=True)
def look(arrays, numbers, out):
    """Write the signals with some numbers, (n,), of each monitored flow's newest decision to out, (B, M, n) float32."""
    a = unowned(arrays)
    for b in range(out.shape[0]):
        for row in range(out.shape[1]):
            put_signals(a.measures[b, row], numbers, out[b, row])


@kernel
def ask(monitors, actions):
    """Pass actions (B, M) to the monitors."""
    for b in range(actions.shape[0]):
        for row in range(actions.shape[1]):
            monitors[b, row].asked = actions[b, row]
